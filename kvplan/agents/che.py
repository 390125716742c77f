"""The Che approximation: a least-recently-used cache forgets what has rested for longer than one characteristic time.

With N sessions open, each holding F units for its service and the pause X after it, and ended sessions ageing too:

    N · E[F · min(X, T)] / E[X] + (N / E[duration]) · T · E[F at the end] = M     hit = Σ_{X ≤ T} shared / Σ prompt

Exact as contents become many (arXiv 1707.06204); with few sessions it is too hopeful.
"""

from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise
from math import floor, inf

import numpy as np

from kvplan.agents.columns import Floats
from kvplan.agents.residency import Conversation

_LONGEST_S = 1e7


@dataclass(frozen=True, slots=True)
class Load:
    """What sessions ask of a cache. Arrays have one entry a request, by how long its context rests."""

    rest_s: Floats
    """Service and the pause after it, ascending; the service alone of a session's last request."""
    units: Floats
    shared_before: Floats
    """Tokens that the next requests share, summed over all that rest no longer."""
    last_units: float
    """Mean over the sessions' last contexts."""
    sessions: int
    prompt_tokens: int

    def occupied(self, clients: int, seconds: float) -> float:
        """Mean units of contexts that rested for no longer, with so many sessions open."""
        held = float((self.units * np.minimum(self.rest_s, seconds)).sum())
        ended = self.sessions * seconds * self.last_units
        return clients * (held + ended) / max(float(self.rest_s.sum()), 1e-9)

    def hit(self, seconds: float) -> float:
        """Share of the prompts' tokens that is found again when everything is forgotten after so many seconds."""
        count = int(np.searchsorted(self.rest_s, seconds, side="right"))
        return float(self.shared_before[count - 1]) / self.prompt_tokens if count else 0.0


def load_of(sessions: list[Conversation], units_of: Callable[[int], float]) -> Load:
    """The load of a trace's conversations; `units_of` says what a context of so many tokens takes."""
    rows, last = [], []
    for turns in sessions:
        for turn, after in pairwise(turns):
            rows.append((turn.service_s + after.pause_s, units_of(turn.prompt + turn.answer), after.shared))
        last.append(units_of(turns[-1].prompt + turns[-1].answer))
        rows.append((turns[-1].service_s, last[-1], 0))
    rows.sort()
    table = np.array(rows, dtype=np.float64)
    return Load(
        rest_s=table[:, 0],
        units=table[:, 1],
        shared_before=np.cumsum(table[:, 2]),
        last_units=float(np.mean(last)),
        sessions=len(sessions),
        prompt_tokens=sum(turn.prompt for turns in sessions for turn in turns),
    )


def characteristic_s(load: Load, clients: int, capacity: float) -> float:
    """T; infinite where the pool holds everything that ever rests."""
    if load.occupied(clients, _LONGEST_S) <= capacity:
        return inf
    low, high = 0.0, _LONGEST_S
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (middle, high) if load.occupied(clients, middle) < capacity else (low, middle)
    return low


def che_hit(load: Load, clients: int, capacity: float) -> float:
    return load.hit(min(characteristic_s(load, clients, capacity), _LONGEST_S))


def che_knee(load: Load, capacity: float, least: float) -> int:
    """The most sessions with a hit rate of at least `least`; 0 where even one has less."""
    low, high = 0, max(1, floor(4 * capacity / max(load.last_units, 1e-9)) + 1)
    while low < high:
        middle = (low + high + 1) // 2
        low, high = (middle, high) if che_hit(load, middle, capacity) >= least else (low, middle - 1)
    return low
