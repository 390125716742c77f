"""Measured times of one kernel as a grid over its axes: exact at its samples, never less time for more work.

Corners that nobody measured are filled from the samples: the fitted law, times what each value of an axis does to it on
average, times what is left at the nearest samples. Between corners time is linear along each axis, which is exact where
it is t0 + bytes / bandwidth. Each axis has a corner far beyond either of its outermost samples, filled alike, so that
time goes on as the law does there; the interval widens with the distance.
"""

from bisect import bisect_right
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import product
from math import dist, exp, inf, log, prod
from operator import ge, le

from kvplan.latency.fit import Law, fit_law
from kvplan.latency.kernels import Work

REPEAT = 0.03
"""A kernel timed again in another run: 0.3 % in the middle of 103 repeats, at worst 4.7 %."""
GROWTH = 0.10
"""What the interval gains for each factor of e beyond the outermost sample."""
BETWEEN = 0.05
"""What shapes between samples may gain or lose: they fill tiles and waves otherwise than round ones. Half of the grid's
own error is added, as a kernel that is hard to fill in is bumpy between its samples too."""
_FOLDS = 5
_FEW = 5
"""Samples below which leaving some out says nothing; the error is then taken to be at least BETWEEN."""
_SHRINK = 0.05
_FAR = 4096.0
_REACH = 0.5
"""Logarithmic distance at which a sample's own remainder counts as much as none."""

Coordinates = tuple[float, ...]


@dataclass(frozen=True, slots=True)
class Point:
    """One sample: where it lies, what it had to do, and how long it took."""

    at: Coordinates
    work: Work
    seconds: float
    low: float
    high: float


@dataclass(frozen=True, slots=True)
class Found:
    """A time and how far off it may be, as shares of it. `inside`: between samples that were measured."""

    seconds: float
    below: float
    above: float
    inside: bool


class Grid:
    """`points` of one kernel whose fixed keys agree; `work_at` gives the work anywhere, `t0` is as in fit_law."""

    def __init__(self, points: Sequence[Point], work_at: Callable[[Coordinates], Work], t0: float = 0.0) -> None:
        self.points = _merged(points)
        self._work_at = work_at
        self.values = [sorted({point.at[axis] for point in self.points}) for axis in range(len(points[0].at))]
        self.law = fit_law([(point.work, point.seconds) for point in self.points], t0)
        self._nodes = [_beyond(values) for values in self.values]
        self._measured = {point.at: point for point in self.points}
        self._corners = self._filled()
        self.error = self._error()
        """The 90th percentile of what the filling misses a sample by, when it does not know it."""

    def _filled(self) -> dict[Coordinates, float]:
        """Seconds at every corner, made monotone along every axis."""
        guess = _Filling(self.points, self.law)
        corners: dict[Coordinates, float] = {}
        for at in product(*self._nodes):
            known = self._measured.get(at)
            corners[at] = known.seconds if known else self._between(at, guess.seconds(at, self._work_at(at)))
        for at in corners:
            for axis, values in enumerate(self._nodes):
                place = values.index(at[axis])
                if place:
                    before = (*at[:axis], values[place - 1], *at[axis + 1 :])
                    corners[at] = max(corners[at], corners[before])
        return corners

    def _between(self, at: Coordinates, seconds: float) -> float:
        """No less than any sample of less work, no more than any of more."""
        least, most = 0.0, inf
        for point in self.points:
            if all(map(le, point.at, at)):
                least = max(least, point.seconds)
            elif all(map(ge, point.at, at)):
                most = min(most, point.seconds)
        return max(least, min(seconds, most))

    def _error(self) -> float:
        missed = []
        for fold in range(min(_FOLDS, len(self.points))):
            kept = [point for number, point in enumerate(self.points) if number % _FOLDS != fold]
            if not kept:
                continue
            guess = _Filling(kept, self.law)
            left = self.points[fold::_FOLDS]
            missed += [abs(guess.seconds(point.at, point.work) / point.seconds - 1) for point in left]
        least = 0.0 if len(self.points) >= _FEW else BETWEEN
        return max([least, *sorted(missed)[: int(0.9 * (len(missed) - 1)) + 1]])

    def at(self, coordinates: Coordinates) -> Found:
        """The time at any coordinates, inside or outside of what was measured."""
        within = tuple(min(max(x, one[0]), one[-1]) for x, one in zip(coordinates, self._nodes, strict=True))
        seconds, below, above, nearest, filled = 0.0, 0.0, 0.0, 0.0, 0.0
        for weight, corner in self._cell(within):
            seconds += weight * self._corners[corner]
            known = self._measured.get(corner)
            if known is not None:
                below += weight * (1 - known.low / known.seconds)
                above += weight * (known.high / known.seconds - 1)
                nearest = max(nearest, weight)
            else:
                filled += weight
        apart = sum(_outside(x, values) for x, values in zip(coordinates, self.values, strict=True))
        if any(x > y for x, y in zip(coordinates, within, strict=True)):
            further = tuple(max(x, y) for x, y in zip(coordinates, within, strict=True))
            seconds *= self.law.seconds(self._work_at(further)) / self.law.seconds(self._work_at(within))
        wider = REPEAT + (BETWEEN + self.error / 2) * (1 - nearest) + self.error * filled + GROWTH * apart
        measured = not apart and all(corner in self._measured for _, corner in self._cell(within))
        return Found(seconds, min(0.95, below + wider), above + wider, measured)

    def _cell(self, within: Coordinates) -> Iterator[tuple[float, Coordinates]]:
        """The corners around a place inside the grid, with their weights; those of no weight left out."""
        sides: list[list[tuple[float, float]]] = []
        for x, values in zip(within, self._nodes, strict=True):
            upper = bisect_right(values, x)
            if upper == len(values):
                sides.append([(1.0, values[-1])])
                continue
            low, high = values[upper - 1], values[upper]
            share = (x - low) / (high - low)
            sides.append([(1 - share, low), (share, high)] if share else [(1.0, low)])
        for corner in product(*sides):
            yield prod(weight for weight, _ in corner), tuple(value for _, value in corner)


def _beyond(values: list[float]) -> list[float]:
    """An axis with one value far below and one far above what was measured; none below one of anything."""
    lowest = max(1.0, values[0] / _FAR)
    return [*([lowest] if lowest < values[0] else []), *values, values[-1] * _FAR]


def _outside(x: float, values: list[float]) -> float:
    """How far beyond the measured values x lies, as a logarithm; 0 inside."""
    return abs(log(x / min(max(x, values[0]), values[-1])))


class _Filling:
    """What the samples say of a place where none was taken."""

    def __init__(self, points: Sequence[Point], law: Law) -> None:
        self.law = law
        self.axes = range(len(points[0].at))
        self.effects: list[dict[float, float]] = [{} for _ in self.axes]
        left = {point.at: log(point.seconds / law.seconds(point.work)) for point in points}
        for _ in range(12):
            for axis in self.axes:
                groups: dict[float, list[float]] = {}
                for at, off in left.items():
                    groups.setdefault(at[axis], []).append(off - self._effect(at, axis))
                self.effects[axis] = {x: sum(group) / (len(group) + _SHRINK) for x, group in groups.items()}
        self.rest = [([log(x) for x in at], off - self._effect(at)) for at, off in left.items()]

    def _effect(self, at: Coordinates, without: int | None = None) -> float:
        return sum(_along(self.effects[axis], at[axis]) for axis in self.axes if axis != without)

    def seconds(self, at: Coordinates, work: Work) -> float:
        place = [log(x) for x in at]
        whole, near = _REACH**-2, 0.0
        for known, off in self.rest:
            weight = 1 / (dist(known, place) ** 2 + 1e-12)
            whole, near = whole + weight, near + weight * off
        near /= whole
        return self.law.seconds(work) * exp(self._effect(at) + near)


def _along(effects: dict[float, float], x: float) -> float:
    """An axis' effect at x, between its values linear in the logarithm."""
    if x in effects or not effects:
        return effects.get(x, 0.0)
    values = sorted(effects)
    upper = min(max(bisect_right(values, x), 1), len(values) - 1) if len(values) > 1 else 0
    if not upper:
        return effects[values[0]]
    low, high = values[upper - 1], values[upper]
    share = min(1.0, max(0.0, log(x / low) / log(high / low)))
    return (1 - share) * effects[low] + share * effects[high]


def _merged(points: Sequence[Point]) -> list[Point]:
    """One point a place: samples that coincide become their mean, with the widest spread of them."""
    places: dict[Coordinates, list[Point]] = {}
    for point in points:
        places.setdefault(point.at, []).append(point)
    merged = []
    for at, group in sorted(places.items()):
        seconds = sum(point.seconds for point in group) / len(group)
        low, high = min(point.low for point in group), max(point.high for point in group)
        merged.append(Point(at, group[0].work, seconds, min(low, seconds), max(high, seconds)))
    return merged
