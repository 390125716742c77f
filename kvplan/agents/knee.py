"""Where a pool stops finding open sessions again, as their number grows."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from math import inf
from statistics import fmean

import numpy as np

from kvplan.agents.cache_sessions import Cache
from kvplan.agents.cache_slots import SlotCache
from kvplan.agents.cache_store import Eviction, Store
from kvplan.agents.cache_vllm import VllmCache
from kvplan.agents.cache_whole import WholeCache
from kvplan.agents.che import Load, che_hit, che_knee, load_of
from kvplan.agents.pools import SessionPool
from kvplan.agents.residency import Conversation, Outcome, simulate
from kvplan.agents.sessions import units_of
from kvplan.engines.base import Reuse
from kvplan.errors import UsageError

MOST_CLIENTS = 128
_INFINITE = 1 << 50
STEPS = (0.5, 0.75, 1.0, 1.25, 1.5, 2.0)
"""Session counts that are shown where none are asked for, in parts of the knee."""


@dataclass(frozen=True, slots=True)
class Row:
    """So many open sessions. Past the knee the simulation is no promise, and None where it was not run."""

    sessions: int
    x: float
    """N · E[footprint] / M."""
    hit: float | None
    """By the engine's own blocks and states; whole sessions where those are not modelled."""
    whole: float | None
    """Contexts kept whole or not at all."""
    che: float | None
    waited: float | None
    """Share of the requests that found no memory at once."""
    refused: float | None
    """Share of those that would have waited for ever: they count as missed."""
    past_knee: bool


@dataclass(frozen=True, slots=True)
class Knee:
    """The most sessions at which the pool still finds again a stated part of what an infinite one would."""

    sessions: int
    x: float
    hit: float
    """Mean of the runs."""
    hit_range: tuple[float, float]
    """Of the runs: which sessions happen to be open matters more the fewer there are."""
    infinite_hit: float
    keep: float
    che_sessions: int
    dense_sessions: tuple[int, int] | None
    """The same by the approximation if every state stayed as long as its session: one per block, one per full step."""
    footprint: float
    """Mean units of a context."""


class Loop:
    """The closed loop of one workload on one pool, at any number of sessions; each is simulated once."""

    def __init__(
        self, sessions: list[Conversation], pool: SessionPool, reuse: Reuse | None, eviction: Eviction, hours: float,
        runs: int, seed: int, most_clients: int = MOST_CLIENTS,
    ) -> None:  # fmt: skip
        if not any(turn.shared for turns in sessions for turn in turns):
            raise UsageError("no prompt of this workload shares anything with the one before it")
        self.sessions, self.pool, self.reuse = sessions, pool, reuse
        self.eviction, self.hours, self.runs, self.seed = eviction, hours, runs, seed
        self.most_clients, self.scaled = most_clients, False
        tokens = np.unique([turn.prompt + turn.answer for turns in sessions for turn in turns])
        sizes = units_of(pool.units, tokens)
        self.sizes: dict[int, int] = dict(zip(tokens.tolist(), sizes.tolist(), strict=True))
        self._done: dict[tuple[int, bool], list[Outcome]] = {}

    @cached_property
    def load(self) -> Load:
        return load_of(self.sessions, self.sizes.__getitem__)

    @cached_property
    def footprint(self) -> float:
        """Mean over requests."""
        return fmean(self.sizes[turn.prompt + turn.answer] for turns in self.sessions for turn in turns)

    def x(self, clients: int) -> float:
        """N · E[footprint] / M; infinite where there is no memory to speak of."""
        if not clients:
            return 0.0
        return clients * self.footprint / self.pool.units.capacity if self.pool.units.capacity else inf

    def outcomes(self, clients: int, *, whole: bool = False) -> list[Outcome]:
        key = (clients, whole or self.reuse is None)
        if key not in self._done:
            at_once = min(clients, self.most_clients)
            self.scaled |= at_once < clients
            self._done[key] = [
                self._run(at_once, self._cache(at_once, clients, key[1]), self.seed + run) for run in range(self.runs)
            ]
        return self._done[key]

    def hit(self, clients: int, *, whole: bool = False) -> float:
        return fmean(one.hit for one in self.outcomes(clients, whole=whole))

    def hit_range(self, clients: int) -> tuple[float, float]:
        hits = [one.hit for one in self.outcomes(clients)]
        return min(hits), max(hits)

    def infinite_hit(self) -> float:
        """With room for everything: first requests and what prompts change are all that is missed."""
        clients = min(self.most_clients, 24)
        reuse = self.reuse
        caches: Callable[[], Cache] = (
            (lambda: WholeCache(_INFINITE, self.sizes.__getitem__))
            if reuse is None
            else lambda: make_cache(
                reuse, _INFINITE, None if reuse.slots is None else _INFINITE, "lru", duplicates=False
            )
        )
        return fmean(self._run(clients, caches(), self.seed + run).hit for run in range(self.runs))

    def _run(self, clients: int, cache: Cache, seed: int) -> Outcome:
        return simulate(self.sessions, clients, cache, hours=self.hours, seed=seed)

    def _cache(self, at_once: int, clients: int, whole: bool) -> Cache:
        """The pool, or the part of it that falls to the sessions that are simulated."""
        if whole or self.reuse is None:
            return WholeCache(self.pool.units.capacity * at_once // clients, self.sizes.__getitem__, self.eviction)
        slots = self.reuse.slots
        part = None if slots is None else slots * at_once // clients
        return make_cache(self.reuse, self.reuse.capacity * at_once // clients, part, self.eviction)


def make_cache(reuse: Reuse, capacity: int, slots: int | None, eviction: Eviction, *, duplicates: bool = True) -> Cache:
    """An empty cache of the engine's kind. Copies of a block matter only where something is evicted."""
    if reuse.keeps == "pages":
        return SlotCache(
            Store(capacity, eviction),
            None if slots is None else Store(slots, eviction),
            page_tokens=reuse.block_tokens,
            track_tokens=reuse.track_tokens,
            slots_per_request=reuse.slots_per_request,
        )
    return VllmCache(
        Store(capacity, eviction),
        block_tokens=reuse.block_tokens,
        lists=reuse.lists,
        state_groups=reuse.state_units,
        states_first=reuse.states_first,
        interval=reuse.retention_tokens,
        chunk_tokens=reuse.step_tokens,
        duplicates=duplicates,
    )


def find_knee(loop: Loop, keep: float) -> Knee:
    """By bisection between session counts that the approximation suggests."""
    infinite = loop.infinite_hit()
    least = keep * infinite
    guess = che_knee(loop.load, loop.pool.units.capacity, keep * _che_ceiling(loop))
    low, high = 0, max(1, round(guess * 1.25))
    while high < 1 << 20 and loop.hit(high) >= least:
        low, high = high, high * 2
    if not low and guess > 2 and loop.hit(round(guess * 0.75)) >= least:
        low = min(round(guess * 0.75), high - 1)
    while high - low > max(1, high // 40):
        middle = (low + high) // 2
        low, high = (middle, high) if loop.hit(middle) >= least else (low, middle)
    return Knee(
        sessions=low,
        x=loop.x(low),
        hit=loop.hit(low) if low else 0.0,
        hit_range=loop.hit_range(low) if low else (0.0, 0.0),
        infinite_hit=infinite,
        keep=keep,
        che_sessions=guess,
        dense_sessions=dense_knees(loop, keep),
        footprint=loop.footprint,
    )


def _che_ceiling(loop: Loop) -> float:
    return che_hit(loop.load, 1, _INFINITE)


def dense_knees(loop: Loop, keep: float) -> tuple[int, int] | None:
    """By the approximation, with 1 + g · block / step times the blocks of a context.

    g states stand at the end of each step, which is a block at least and a full batch at most.
    """
    reuse = loop.reuse
    if reuse is None or not reuse.state_units or reuse.keeps != "blocks":
        return None
    found = []
    for step in (reuse.block_tokens, max(reuse.block_tokens, reuse.step_tokens)):
        more = reuse.state_units / reuse.shares * reuse.block_tokens / step
        sizes = {tokens: units + -(-tokens // reuse.block_tokens) * more for tokens, units in loop.sizes.items()}
        load = load_of(loop.sessions, sizes.__getitem__)
        found.append(che_knee(load, loop.pool.units.capacity, keep * che_hit(load, 1, _INFINITE)))
    return found[0], found[1]


def rows_of(loop: Loop, knee: Knee, asked: tuple[int, ...], beyond: bool) -> tuple[Row, ...]:
    """One row for each number of sessions, ascending; past the knee nothing is simulated unless it is asked for."""
    counts = sorted(set(asked) or {max(1, round(knee.sessions * step)) for step in STEPS})
    return tuple(_row(loop, knee, count, beyond) for count in counts)


def _row(loop: Loop, knee: Knee, count: int, beyond: bool) -> Row:
    past = count > knee.sessions
    shown = beyond or not past
    found = loop.outcomes(count) if shown else []
    asked = sum(one.requests + one.refused for one in found)
    return Row(
        sessions=count,
        x=loop.x(count),
        hit=loop.hit(count) if shown else None,
        whole=loop.hit(count, whole=True) if shown else None,
        che=che_hit(loop.load, count, loop.pool.units.capacity) if shown else None,
        waited=sum(one.waited for one in found) / asked if asked else None,
        refused=sum(one.refused for one in found) / asked if asked else None,
        past_knee=past,
    )
