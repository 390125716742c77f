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

MOST_CLIENTS = 64
MOST_SESSIONS = 1 << 20
_FINE = 40
"""A knee is found to one part in so many."""
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
        self.most_clients, self.scaled, self.cut = most_clients, False, False
        tokens = np.unique([turn.prompt + turn.answer for turns in sessions for turn in turns])
        sizes = units_of(pool.units, tokens)
        self.sizes: dict[int, int] = dict(zip(tokens.tolist(), sizes.tolist(), strict=True))
        self._done: dict[tuple[int, bool], list[Outcome]] = {}
        """By sessions and by whether they are kept whole, the runs so far."""

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
        return self._first_runs(clients, self.runs, whole)

    def _first_runs(self, clients: int, runs: int, whole: bool = False) -> list[Outcome]:
        whole = whole or self.reuse is None
        done = self._done.setdefault((clients, whole), [])
        at_once = min(clients, self.most_clients)
        self.scaled |= at_once < clients
        for run in range(len(done), runs):
            done.append(self._run(at_once, self._cache(at_once, clients, whole), self.seed + run))
        return done

    def first_hit(self, clients: int) -> float:
        """Of the first run alone: where to look."""
        return self._first_runs(clients, 1)[0].hit

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
        found = simulate(self.sessions, clients, cache, hours=self.hours, seed=seed)
        self.cut |= found.cut
        return found

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
    """The largest count that keeps enough, to 2.5 %, between one that does and one that does not.

    Counts are tried where a straight line between what was seen last puts the knee, from the approximation's on. The
    first of the runs says where to look; all of them say what holds. Raises UsageError where nothing is found again
    even with room for everything.
    """
    infinite = loop.infinite_hit()
    if not infinite:
        raise UsageError("no prompt of this workload finds anything again here, however large the pool")
    guess = che_knee(loop.load, loop.pool.units.capacity, keep * _che_ceiling(loop))
    low = _last_kept(loop, keep * infinite, guess) if loop.pool.units.capacity else 0
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


def _last_kept(loop: Loop, least: float, guess: int) -> int:
    """The most sessions with a mean hit rate of at least `least`; 0 where one has less."""
    start = max(1, guess)
    near, far = max(1, start - start // 8), start + max(1, start // 8)
    falls = (_che(loop, near) - _che(loop, far)) / (far - near)
    first = round(abs(loop.first_hit(start) - least) / falls) if falls > 0 else start // 8
    one_run = _bracketed(lambda count: loop.first_hit(count) - least, start, first)
    return _bracketed(lambda count: loop.hit(count) - least, max(1, one_run), one_run // _FINE)


def _che(loop: Loop, count: int) -> float:
    return che_hit(loop.load, count, loop.pool.units.capacity)


def _bracketed(excess: Callable[[int], float], start: int, first: int) -> int:
    """The largest count whose excess is not negative, at most 2.5 % below one whose is. `excess` falls.

    The first step is so long; from then on a straight line says how far, until both ends are found.
    """
    seen: dict[int, float] = {}
    low, high, count, step = 0, 0, start, max(1, first)
    while not high or high - low > max(1, high // _FINE):
        seen[count] = excess(count)
        low, high = (count, high) if seen[count] >= 0 else (low, count)
        if low >= MOST_SESSIONS:
            break
        if low and high:
            count = _between(seen, low, high)
            continue
        step = min(2 * step, _along(seen, count)) if len(seen) > 1 else step
        count = low + step if low else max(1, high - step)
    return low


def _along(seen: dict[int, float], count: int) -> int:
    """How far from `count` a straight line through the last two crosses, and a bit more."""
    before, last = list(seen)[-2:]
    slope = (seen[last] - seen[before]) / (last - before)
    far = abs(seen[last] / slope) if slope < 0 else inf
    return max(1, count // _FINE) + (round(far) if far < MOST_SESSIONS else MOST_SESSIONS)


def _between(seen: dict[int, float], low: int, high: int) -> int:
    """Half a step past where a straight line through both ends crosses, so that the next one is on the other side."""
    step = max(1, high // _FINE)
    crosses = low + (high - low) * seen[low] / (seen[low] - seen[high])
    nearer_low = crosses - low < high - crosses
    count = round(crosses + step / 2) if nearer_low else round(crosses - step / 2)
    return min(max(count, low + 1), high - 1)


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
