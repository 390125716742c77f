"""A prefix cache under a trace of single requests whose prompts share blocks with any earlier one: Mooncake's kind.

Requests come in the order of the trace and one after another, as it has no service times. Blocks of the engine that are
smaller than the trace's are taken together, as the trace cannot tell them apart.
"""

from collections import OrderedDict
from collections.abc import Iterable
from dataclasses import dataclass

from kvplan.agents.request import Request
from kvplan.engines.base import Reuse
from kvplan.units import ceil_div

_Queue = OrderedDict[int, int]
_INFINITE = 1 << 60


@dataclass(frozen=True, slots=True)
class ContentOutcome:
    """What one pool found again."""

    capacity: int | None
    """None: infinite."""
    requests: int
    hit: float
    """Share of the prompts' tokens."""
    refused: int


class ContentCache:
    """Least recently used first, a prompt's last block before its first; a state is kept at each prompt's end."""

    def __init__(self, reuse: Reuse, trace_block: int, capacity: int | None) -> None:
        self.reuse = reuse
        self.step = max(reuse.block_tokens, trace_block)
        self.scale = self.step // trace_block if self.step % trace_block == 0 else 0
        self.trace_block = trace_block
        self.cost = ceil_div(self.step, reuse.block_tokens) * reuse.lists
        self.state_cost = 1 if reuse.slots is not None else reuse.state_units
        self.total = self.left = _INFINITE if capacity is None else capacity
        self.queue: _Queue = OrderedDict()
        self.apart = reuse.slots is not None
        self.states: _Queue = OrderedDict() if self.apart else self.queue
        self.slots = (_INFINITE if capacity is None else reuse.slots) if reuse.slots is not None else 0
        self._unique = 0

    def ask(self, request: Request) -> int | None:
        """Tokens found again; None where the request is larger than the pool."""
        keys = self._keys(request)
        limit = min(len(keys), (request.input_tokens - 1) // self.step)
        covered = next((index for index in range(limit) if keys[index] not in self.queue), limit)
        hit = covered
        if self.state_cost:
            hit = next((depth for depth in range(covered, 0, -1) if keys[depth - 1] + 1 in self.states), 0)
        blocks = ceil_div(request.context_tokens, self.step)
        if blocks * self.cost + (not self.apart) * 2 * self.state_cost > self.total:
            return None
        pinned = [(key, self.queue.pop(key)) for key in keys[:hit]]
        if hit and self.state_cost:
            self.states.move_to_end(keys[hit - 1] + 1)
        self._take((blocks - hit) * self.cost)
        self.left += (blocks - max(hit, self._full(request))) * self.cost
        for depth in {limit, covered if covered > hit else 0} - {0} if self.state_cost else ():
            self._keep(keys[depth - 1] + 1)
        for _ in range(self._full(request) - len(keys)):
            self._unique -= 2
            self.queue[self._unique] = self.cost
        for key in reversed(keys[hit:]):
            if key in self.queue:
                self.left += self.queue.pop(key)
            self.queue[key] = self.cost
        for key, cost in reversed(pinned):
            self.queue[key] = cost
        return hit * self.step

    def _keys(self, request: Request) -> list[int]:
        """One number for each whole block of a prompt, even; a state that stands at its end has the next."""
        ids, full = request.blocks, request.input_tokens // self.step
        if self.scale:
            return [ids[place] * 2 for place in range(self.scale - 1, min(len(ids), full * self.scale), self.scale)]
        ends = [ceil_div((index + 1) * self.step, self.trace_block) - 1 for index in range(full)]
        return [(ids[end] * (1 << 24) + index) * 2 for index, end in enumerate(ends) if end < len(ids)]

    def _full(self, request: Request) -> int:
        return request.context_tokens // self.step

    def _keep(self, key: int) -> None:
        if key in self.states:
            self.states.move_to_end(key)
            return
        if self.apart:
            if self.slots == 0:
                self.states.popitem(last=False)
                self.slots += 1
            self.slots -= 1
        else:
            self._take(self.state_cost)
        self.states[key] = self.state_cost

    def _take(self, units: int) -> None:
        while self.left < units:
            self.left += self.queue.popitem(last=False)[1]
        self.left -= units


def replay_content(requests: Iterable[Request], trace_block: int, reuse: Reuse, capacity: int | None) -> ContentOutcome:
    """Every request of a trace through one cache."""
    cache = ContentCache(reuse, trace_block, capacity)
    count = hits = total = refused = 0
    for request in requests:
        found = cache.ask(request)
        count += 1
        total += request.input_tokens
        refused += found is None
        hits += found or 0
    return ContentOutcome(capacity, count, hits / total if total else 0.0, refused)
