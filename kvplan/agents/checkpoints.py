"""Which saved states make resumes cheap: policies replayed on a trace, and the interval that pays.

A resume can start from a snapshot only if its prompt still begins with everything that the snapshot has seen. The
replay is at infinite capacity: a snapshot is there once it was made.
"""

from dataclasses import dataclass
from math import inf, isfinite, sqrt

import numpy as np

from kvplan.agents.columns import Columns, Ints
from kvplan.agents.prefill import Prefill
from kvplan.errors import UsageError
from kvplan.interval import Interval, total

GRAIN = 64
"""Tokens at which the trace knows shared prefixes, and at which snapshots stand where no block says otherwise."""
REWIND = 512
"""A resume that shares all but so many tokens of the prompt before it replays a tail, and is no rewind."""
PREAMBLE_MARGIN = 1024
"""A rewind to at most so far past the preamble is served by the preamble's snapshot."""

_LENGTHS = 64


@dataclass(frozen=True, slots=True)
class Policy:
    """Where snapshots of a sequence stand. Several kinds together keep the union."""

    name: str
    every_tokens: int | None = None
    """One at each multiple."""
    tails: int = 0
    """At the last so many block boundaries of a prompt."""
    tail_block_tokens: int = GRAIN
    tail_back_tokens: int = 0
    """How far before the end of the prompt the last of them looks."""
    preamble: bool = False
    """At the end of tool definitions and system prompt, one for all sessions that begin alike."""
    decode_end: bool = False
    """At the end of the answer. Counts as reached where the whole prompt was: that the template replays answers as they
    were is assumed, as no trace of prompts can tell."""
    everywhere: bool = False
    """What a cache without states gives: the whole shared prefix."""

    def __post_init__(self) -> None:
        counts = (
            ("every_tokens", 1 if self.every_tokens is None else self.every_tokens),
            ("tail_block_tokens", self.tail_block_tokens),
        )
        for name, value in counts:
            if value < 1:
                raise UsageError(f"policy {self.name}: {name} {value} is below 1")
        if not 0 <= self.tails <= 64 or self.tail_back_tokens < 0:
            raise UsageError(f"policy {self.name}: tails {self.tails}, {self.tail_back_tokens} tokens back")


def policies(block_tokens: int = 256) -> tuple[Policy, ...]:
    """What engines do or could do, on a grid of `block_tokens`."""
    tails = f"two tails /{block_tokens:,}"
    return (
        Policy("every token", everywhere=True),
        Policy("none"),
        Policy(f"prompt end /{GRAIN}", tails=1),
        Policy("prompt end − 256", tails=1, tail_back_tokens=256),
        Policy(tails, tails=2, tail_block_tokens=block_tokens),
        Policy("two tails + preamble", tails=2, tail_block_tokens=block_tokens, preamble=True),
        Policy("two tails + preamble + end", None, 2, block_tokens, preamble=True, decode_end=True),
        *(Policy(f"every {every:,}", every_tokens=every) for every in (1_536, 4_096, 20_000, 65_536)),
        Policy("tail + preamble + 20,000", 20_000, tails=1, tail_block_tokens=128, preamble=True),
    )


@dataclass(frozen=True, slots=True)
class Outcome:
    """One policy on one trace. Means are over all requests, first ones included."""

    policy: Policy
    token_hit: float
    prefill_tokens: float
    replay_tokens: float
    """Of those, what had been computed before: shared with the prompt before it, and after the last snapshot."""
    snapshots: float
    """Per open session at its mean context; the preamble's is shared and not counted."""


def replay(columns: Columns, policy: Policy) -> Outcome:
    """The policy on a trace that says how much each prompt shares with the one before. Raises UsageError without."""
    prompt, shared = columns.input_tokens, columns.shared_tokens
    if not (shared >= 0).any():
        raise UsageError("this trace does not say what prompts share with the prompt before; checkpoints need it")
    hits = reached(columns, policy)
    whole = int(prompt.sum())
    saved = float((prompt // policy.every_tokens).mean()) if policy.every_tokens else 0.0
    return Outcome(
        policy=policy,
        token_hit=float(hits.sum() / whole),
        prefill_tokens=float((prompt - hits).mean()),
        replay_tokens=float(np.maximum(0, np.maximum(shared, 0) - hits).mean()),
        snapshots=saved + policy.tails + policy.decode_end,
    )


def reached(columns: Columns, policy: Policy) -> Ints:
    """Tokens of each prompt that the deepest usable snapshot covers."""
    shared = np.maximum(columns.shared_tokens, 0)
    before = _before(columns)
    found: Ints = shared.copy() if policy.everywhere else np.zeros_like(shared)
    if policy.every_tokens:
        found = np.maximum(found, shared // policy.every_tokens * policy.every_tokens)
    for index in range(policy.tails):
        block = policy.tail_block_tokens
        tail = np.maximum(before - policy.tail_back_tokens, 0) // block * block - index * block
        found = np.maximum(found, np.where(tail <= shared, tail, 0))
    if policy.preamble:
        preamble = np.maximum(columns.preamble_tokens, 0)
        usable = (preamble <= shared) | (columns.first & (preamble <= columns.input_tokens))
        found = np.maximum(found, np.where(usable, preamble, 0))
    if policy.decode_end:
        whole = (before > 0) & (shared >= before // GRAIN * GRAIN)
        answer = np.zeros_like(before)
        answer[columns.previous >= 0] = columns.output_tokens[columns.previous[columns.previous >= 0]]
        found = np.maximum(found, np.where(whole, np.minimum(before + answer, columns.input_tokens), 0))
    return found


def lost_s(columns: Columns, policy: Policy, prefill: Prefill) -> Interval:
    """Mean seconds a request in which a replica computes again what it had computed before.

    Lengths are taken in groups of `_LENGTHS`: a request counts as the middle one of its group by replayed tokens.
    """
    hits = reached(columns, policy)
    replayed = np.maximum(0, np.maximum(columns.shared_tokens, 0) - hits)
    order = np.argsort(replayed, kind="stable")[int((replayed == 0).sum()) :]
    parts = []
    for group in np.array_split(order, min(len(order), _LENGTHS)) if len(order) else ():
        new = round(float(replayed[group].mean()))
        one = prefill.prefill_s(max(1, new), int(np.median(hits[group])))
        parts.append(one.scaled(len(group) / len(replayed)))
    return total(parts)


def _before(columns: Columns) -> Ints:
    """The prompt before each request in its conversation; 0 for the first."""
    found: Ints = np.zeros_like(columns.input_tokens)
    known = columns.previous >= 0
    found[known] = columns.input_tokens[columns.previous[known]]
    return found


@dataclass(frozen=True, slots=True)
class Resumes:
    """How a trace's conversations go on."""

    resumes: int
    rewinds: float
    """Share that goes back more than `REWIND` tokens."""
    beyond_preamble: float
    """Share of all resumes that rewinds to a place after the preamble: what mid-history snapshots are for."""
    per_open_second: float | None
    """Resumes of an open session, pauses capped; None where nothing is timed."""


def resumes_of(columns: Columns) -> Resumes:
    again = columns.previous >= 0
    count = int(again.sum())
    shared = np.maximum(columns.shared_tokens, 0)
    rewound = again & (shared < _before(columns) - REWIND)
    inside = rewound & (shared > np.maximum(columns.preamble_tokens, 0) + PREAMBLE_MARGIN)
    held_s = columns.held_ms().sum() / 1000
    return Resumes(
        resumes=count,
        rewinds=float(rewound.sum() / count) if count else 0.0,
        beyond_preamble=float(inside.sum() / count) if count else 0.0,
        per_open_second=float(count / held_s) if held_s else None,
    )


def expected_replay_tokens(interval_tokens: int, grain_tokens: int = 1) -> float:
    """Tokens computed again after a hit at a random place: (I − q)/2."""
    return max(0, interval_tokens - grain_tokens) / 2


@dataclass(frozen=True, slots=True)
class Economics:
    """What snapshots and replays cost, in one currency."""

    context_tokens: int
    snapshot_bytes: int
    prefill_tokens_per_s: float
    price_per_byte_second: float
    price_per_gpu_group_second: float
    resumes_per_s: float
    """Of one session."""
    needing: float
    """Share of the resumes that need a snapshot in mid-history."""

    def __post_init__(self) -> None:
        for name in self.__slots__:
            value = getattr(self, name)
            if not isfinite(value) or value < 0:
                raise UsageError(f"{name} {value} is not a finite number of at least 0")
        if not self.prefill_tokens_per_s:
            raise UsageError("prefill_tokens_per_s is 0")

    def cost_per_s(self, interval_tokens: float) -> float:
        """Of one open session: its snapshots' memory, and half an interval of prefill per resume that needs one."""
        memory = self.context_tokens / interval_tokens * self.snapshot_bytes * self.price_per_byte_second
        again = self.resumes_per_s * self.needing * interval_tokens / 2 / self.prefill_tokens_per_s
        return memory + again * self.price_per_gpu_group_second

    def optimum_tokens(self) -> float:
        """I* = sqrt(2·L·S·R·c_b / (λ·ρ·c_g)); infinite where no resume needs one. Young's checkpoint formula (1974)."""
        wanted = self.resumes_per_s * self.needing * self.price_per_gpu_group_second
        paid = 2 * self.context_tokens * self.snapshot_bytes * self.prefill_tokens_per_s * self.price_per_byte_second
        return sqrt(paid / wanted) if wanted else inf
