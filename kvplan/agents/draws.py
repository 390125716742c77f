"""What many pools hold of the same sessions: the draws of `kvplan.agents.sessions`, made once for all of them."""

from math import floor

import numpy as np

from kvplan.agents.columns import Ints
from kvplan.agents.sessions import DRAWS, MOST_DRAWN, gaussian_sessions


class Draws:
    """Sessions that take `units` each, at one risk: the answer of `count_sessions` for any capacity.

    `_reach[n - 1]` are the units that n sessions take in all but a share `risk` of the draws; it grows as it is asked.
    """

    def __init__(self, units: Ints, risk: float, seed: int) -> None:
        self._units = units
        self._mean, self._sd = float(units.mean()), float(units.std())
        self._rank = min(DRAWS - 1, floor(risk * DRAWS))
        self._random = np.random.default_rng(seed)
        self._taken: Ints = np.zeros(DRAWS, dtype=np.int64)
        self._reach: list[int] = []

    def sessions(self, capacity: int) -> int:
        """The most sessions that all but a share `risk` of the draws hold."""
        if self._mean <= 0 or capacity <= 0:
            return 0
        if capacity / self._mean > MOST_DRAWN:
            return gaussian_sessions(capacity, self._mean, self._sd, (self._rank + 0.5) / DRAWS)
        while not self._reach or self._reach[-1] <= capacity:
            self._taken += self._units[self._random.integers(0, len(self._units), DRAWS)]
            place = DRAWS - 1 - self._rank
            self._reach.append(int(np.partition(self._taken, place)[place]))
        return int(np.searchsorted(self._reach, capacity, side="right"))
