"""How long to hold an idle session's memory while others want it: per class of pause.

Holding to τ gains P(pause ≤ τ)·C_miss and costs (F/M)·E[min(pause, τ)], both in seconds of the serving group: a miss
costs what bringing the context back takes, and a held session keeps its share F/M of the pool from others.
"""

from dataclasses import dataclass
from math import inf

import numpy as np

from kvplan.agents.columns import Floats


@dataclass(frozen=True, slots=True)
class Ttl:
    """The best time to live for one class of pause, and what it is worth per pause."""

    seconds: float
    """0: let go at once. Infinite: hold whatever happens."""
    hit: float
    """Share of the pauses that end within it."""
    gain_s: float
    """Over letting go at once."""
    gain_of_holding_s: float
    """Of holding to the end of every pause; negative where that costs more than it saves."""


def best_ttl(pauses_s: Floats, miss_s: float, pool_share: float) -> Ttl:
    """The τ that gains most, over `pauses_s` that are equally likely. Ties go to the shorter time.

    The gain changes its direction only at a pause, so trying each of them is exact. Infinite where the longest wins.
    """
    pauses = np.sort(np.asarray(pauses_s, dtype=np.float64))
    count = len(pauses)
    if not count:
        return Ttl(0.0, 0.0, 0.0, 0.0)
    ended = np.arange(1, count + 1)
    held = (np.cumsum(pauses) + (count - ended) * pauses) / count
    gains = ended / count * miss_s - pool_share * held
    best = int(np.argmax(gains))
    whole = float(gains[-1])
    if gains[best] <= 0:
        return Ttl(0.0, 0.0, 0.0, whole)
    seconds = inf if best == count - 1 else float(pauses[best])
    reached = int(np.searchsorted(pauses, pauses[best], side="right"))
    return Ttl(seconds, reached / count, float(gains[best]), whole)
