"""How many sessions a pool holds at a stated risk of overflow.

Each session's length is drawn anew from the workload (a bootstrap): N is the most sessions of which the draws overflow
the pool no more often than the risk says. Beside it stand what a calculator would say that divides by the longest
context, and the normal approximation N·μ + z·σ·√N ≤ M.
"""

from dataclasses import dataclass
from functools import lru_cache
from math import floor, sqrt
from statistics import NormalDist

import numpy as np

from kvplan.agents.columns import Ints
from kvplan.agents.contexts import Contexts
from kvplan.agents.pools import SessionPool
from kvplan.document import Assumption
from kvplan.engines.base import Units

RISKS = (0.5, 0.1, 0.05, 0.01, 0.001)
DRAWS = 20_000
MOST_DRAWN = 2_000
"""Beyond so many sessions the sum is as good as normal, and is taken as such."""


@dataclass(frozen=True, slots=True)
class AtRisk:
    """Sessions that one replica holds when the pool overflows with this probability."""

    risk: float
    sessions: int
    low: int
    high: int
    gaussian: int
    running: float | None
    """How many of them the model works for at a time, on average (Little's law); None where nothing is timed."""
    deployment_sessions: int
    binds: str
    """What runs out first; where nothing is held, "weights" or "max_model_len"."""


@dataclass(frozen=True, slots=True)
class Sessions:
    """The answer for one pool and one workload."""

    unit: str
    rule: str
    capacity: int
    mean_units: float
    sd_units: float
    mean_context_tokens: float
    naive: float
    """The pool over what the longest context takes."""
    naive_context_tokens: int
    at_mean_context: float
    weighting: str
    duty: float | None
    session_s: float | None
    most_running: int | None
    most_open: int | None
    at_risk: tuple[AtRisk, ...]
    assumptions: tuple[Assumption, ...]

    def at(self, risk: float) -> int:
        return next(row.sessions for row in self.at_risk if row.risk == risk)


def count_sessions(pool: SessionPool, contexts: Contexts, risks: tuple[float, ...] = RISKS, seed: int = 0) -> Sessions:
    """Sessions at each risk for the pool as predicted and at both ends of its range. Equal seeds, equal answers."""
    limit, tokens = pool.max_model_len, contexts.clipped(pool.max_model_len)
    units = units_of(pool.units, tokens)
    found = {id(one): _draw_counts(one.capacity, units, seed) for one in (pool.units, pool.low, pool.high)}
    point, low, high = (found[id(one)] for one in (pool.units, pool.low, pool.high))
    mean, sd = float(units.mean()), float(units.std())
    longest = pool.units.of(limit)
    return Sessions(
        unit=pool.units.name,
        rule=pool.units.rule,
        capacity=pool.units.capacity,
        mean_units=mean,
        sd_units=sd,
        mean_context_tokens=float(tokens.mean()),
        naive=pool.units.capacity / longest if longest else 0.0,
        naive_context_tokens=limit,
        at_mean_context=pool.units.capacity / mean if mean else 0.0,
        weighting=contexts.weighting,
        duty=contexts.duty,
        session_s=contexts.session_s,
        most_running=pool.units.most_running,
        most_open=pool.units.most_open,
        at_risk=tuple(
            _row(risk, pool, contexts.duty, (_at(point, risk), _at(low, risk), _at(high, risk)), (mean, sd))
            for risk in risks
        ),
        assumptions=(*contexts.assumptions, *contexts.beyond(limit)),
    )


def units_of(units: Units, tokens: Ints) -> Ints:
    """What each context takes in the engine's unit. Lengths between two that take the same are not asked about."""
    lengths, inverse = np.unique(tokens, return_inverse=True)
    sizes: Ints = np.zeros(len(lengths), dtype=np.int64)
    ends = (0, len(lengths) - 1)
    for index in ends:
        sizes[index] = units.of(int(lengths[index]))
    spans = [ends]
    while spans:
        first, last = spans.pop()
        if sizes[first] == sizes[last]:
            sizes[first:last] = sizes[first]
        elif last - first > 1:
            middle = (first + last) // 2
            sizes[middle] = units.of(int(lengths[middle]))
            spans += [(first, middle), (middle, last)]
    found: Ints = sizes[inverse]
    return found


def limits(units: Units, duty: float | None) -> dict[str, int]:
    """Sessions that other things than memory allow, by what sets the limit; `duty` is the share of them that run."""
    found = {"slots": units.most_open}
    if units.most_running is not None:
        found["max_running"] = floor(units.most_running / (duty or 1.0))
    return {name: most for name, most in found.items() if most is not None}


def _row(
    risk: float, pool: SessionPool, duty: float | None, drawn: tuple[int, int, int], moments: tuple[float, float]
) -> AtRisk:
    caps = limits(pool.units, duty)
    binds, most = pool.lacking or pool.units.name, drawn[0]
    for name, cap in caps.items():
        if cap < most:
            binds, most = name, cap
    low, high = (min(value, *caps.values(), value) for value in drawn[1:])
    return AtRisk(
        risk=risk,
        sessions=most,
        low=min(low, most),
        high=max(high, most),
        gaussian=gaussian_sessions(pool.units.capacity, *moments, risk),
        running=most * duty if duty is not None else None,
        deployment_sessions=most * pool.replicas,
        binds=binds,
    )


def gaussian_sessions(capacity: int, mean: float, sd: float, risk: float) -> int:
    """The largest N with N·μ + z·σ·√N ≤ M."""
    if mean <= 0 or capacity <= 0:
        return 0
    spread = NormalDist().inv_cdf(1 - risk) * sd
    root = (-spread + sqrt(spread * spread + 4 * mean * capacity)) / (2 * mean)
    return floor(root * root + 1e-9)


def _at(counts: Ints, risk: float) -> int:
    """The most sessions that a share of at most `risk` of the draws could not hold. `counts` ascend."""
    return int(counts[min(len(counts) - 1, floor(risk * len(counts)))])


def _draw_counts(capacity: int, units: Ints, seed: int) -> Ints:
    """For each draw, how many sessions fit before the first that does not, ascending.

    Every draw takes its sessions in the same order whatever the capacity, so that more memory never holds fewer.
    """
    mean = float(units.mean())
    counts: Ints = np.zeros(DRAWS, dtype=np.int64)
    if mean <= 0 or capacity <= 0:
        return counts
    if capacity / mean > MOST_DRAWN:
        sd = float(units.std())
        rows = [gaussian_sessions(capacity, mean, sd, (index + 0.5) / DRAWS) for index in range(DRAWS)]
        return np.array(rows, dtype=np.int64)
    return _drawn(capacity, units.tobytes(), seed)


@lru_cache(maxsize=32)
def _drawn(capacity: int, sizes: bytes, seed: int) -> Ints:
    """The same by drawing; one page asks for several pools more than once. The array is not to be written to."""
    units, counts = np.frombuffer(sizes, dtype=np.int64), np.zeros(DRAWS, dtype=np.int64)
    random = np.random.default_rng(seed)
    left: Ints = np.full(DRAWS, capacity, dtype=np.int64)
    fits = np.ones(DRAWS, dtype=bool)
    while fits.any():
        left -= units[random.integers(0, len(units), DRAWS)]
        fits &= left >= 0
        counts += fits
    return np.sort(counts)
