"""Blocks that one sequence holds while it prefills and decodes, and how many such sequences a pool admits.

vLLM's manager (v1/core/single_type_kv_cache_manager.py) frees what a window has passed, keeps a state's previous block
for one step after it enters the next, and reserves for the worst case only at start-up.
"""

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache

from kvplan.document import Binds
from kvplan.engines.vllm.specs import WINDOWED, Group, Spec
from kvplan.units import ceil_div

_LAST_STEPS = 64
"""Prefill steps looked at: caches only grow, so the peak lies in the last ones."""
_MOST_TURNS = 1024


def _resident(spec: Spec) -> int:
    """Blocks of a state between steps: its own and one per speculative token."""
    return 1 if spec.state_blocks is None else min(spec.state_blocks, 1 + spec.drafts)


def _moves(spec: Spec) -> bool:
    """Whether the state enters a new block at every block boundary (modes align)."""
    return spec.state_blocks is not None and spec.state_blocks > _resident(spec)


def held(spec: Spec, start: int, stop: int, last: bool, dcp: int) -> int:
    """Blocks after the step that computed tokens `start` to `stop`; `last` marks the end of the prefill."""
    size = _size(spec, dcp)
    if spec.kind == "encoder":
        return ceil_div(spec.window or 0, size)
    if spec.kind == "state":
        if spec.state_blocks is None:
            return ceil_div(stop, size)
        crossed = _moves(spec) and start > 0 and ceil_div(stop, size) != ceil_div(start, size)
        saved = spec.state_blocks - _resident(spec) - 1 if last and start > 0 else 0
        return _resident(spec) + crossed + max(0, saved)
    skipped = 0
    if spec.kind in WINDOWED:
        skipped = max(0, start + 1 - (spec.window or 1)) // size
    elif spec.kind == "chunked":
        chunk = spec.window or 1
        skipped = start // chunk * chunk // size
    return ceil_div(stop, size) - skipped


def decoding(groups: Sequence[Group], tokens: int, dcp: int) -> dict[Binds, int]:
    """The most blocks that a sequence holds while it decodes up to a length of `tokens`, by what takes them."""
    best: dict[Binds, int] = {}
    for length in _turns(*_steps(groups, dcp), tokens):
        parts: dict[Binds, int] = {"kv": 0, "state": 0, "window": 0}
        for group in groups:
            parts[_part(group.spec)] += held(group.spec, length - 1, length, False, dcp)
        if sum(parts.values()) >= sum(best.values()):
            best = parts
    return best


def block_counter(groups: Sequence[Group], dcp: int) -> Callable[[int], int]:
    """The sum of `decoding`, for many lengths of the same groups: what is held at a turn is worked out once."""
    specs = Counter(group.spec for group in groups)
    sizes, back = _steps(groups, dcp)

    @cache
    def at(length: int) -> int:
        return sum([count * held(spec, length - 1, length, False, dcp) for spec, count in specs.items()])

    return lambda tokens: max(map(at, _turns(sizes, back, tokens)))


def _steps(groups: Sequence[Group], dcp: int) -> tuple[set[int], int]:
    """Block sizes in tokens, and how far back a holding can be larger than at the end."""
    specs = {group.spec for group in groups}
    return {_size(spec, dcp) for spec in specs}, max(_span(spec, dcp) for spec in specs)


def _turns(sizes: set[int], back: int, tokens: int) -> list[int]:
    """Lengths at which holdings peak: where a block begins, far enough back to see a window through, and the end."""
    found = {tokens}
    for size in sizes:
        last = (tokens - 1) // size
        found |= {turn * size + 1 for turn in range(max(0, last - min(_MOST_TURNS, back // size + 1)), last + 1)}
    return sorted(found)


def _size(spec: Spec, dcp: int) -> int:
    """Tokens per block, over all ranks that share them out."""
    return spec.block_tokens * (dcp if spec.dcp_sharded and spec.kind in ("full", "latent") else 1)


def _span(spec: Spec, dcp: int) -> int:
    window = spec.window or 0 if spec.kind != "encoder" else 0
    return window + _size(spec, dcp)


@dataclass(frozen=True, slots=True)
class Demand:
    """Blocks of one sequence: the most during its prefill, what it holds right after, the most while it decodes."""

    prefill: int
    prefilled: int
    decode: int
    decode_by: dict[Binds, int]

    def safe(self, usable: int) -> int:
        """Sequences that can all decode up to the length at once, the last one having been prefilled beside them."""
        if usable < max(self.prefill, self.decode) or not self.decode:
            return 0
        return min(usable // self.decode, (usable - self.prefill) // self.decode + 1)

    def packed(self, usable: int) -> int:
        """Sequences that prefill alone admits."""
        if usable < self.prefill or not self.prefilled:
            return 0
        return (usable - self.prefill) // self.prefilled + 1

    def plus(self, kept: int) -> "Demand":
        """The same with `kept` blocks of saved states per sequence."""
        if not kept:
            return self
        parts = self.decode_by | {"state": self.decode_by["state"] + kept}
        return Demand(self.prefill + kept, self.prefilled + kept, self.decode + kept, parts)

    @property
    def binds(self) -> Binds:
        return max(self.decode_by, key=lambda part: self.decode_by[part])


def demand(groups: Sequence[Group], tokens: int, chunk: int, dcp: int) -> Demand:
    """What a sequence of `tokens` tokens takes when its prompt comes in steps of `chunk` tokens."""
    steps = ceil_div(tokens, chunk)
    prefill = prefilled = 0
    for step in range(max(0, steps - _LAST_STEPS), steps):
        start, stop = step * chunk, min((step + 1) * chunk, tokens)
        prefilled = sum(held(group.spec, start, stop, stop == tokens, dcp) for group in groups)
        prefill = max(prefill, prefilled)
    parts = decoding(groups, tokens, dcp)
    return Demand(prefill, prefilled, sum(parts.values()), parts)


def _part(spec: Spec) -> Binds:
    if spec.kind == "state":
        return "state"
    return "window" if spec.window is not None and spec.kind != "encoder" else "kv"
