"""A calibration's samples as tables: seconds of a kernel at a shape, and where the figure comes from."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from kvplan.errors import ProfileError
from kvplan.interval import Interval
from kvplan.latency.grid import Coordinates, Grid, Point
from kvplan.latency.kernels import KERNELS, Kernel, Work
from kvplan_kernels.calibration import MEASURED

OURS = "kvplan"
_LEAST = 3
"""Samples below which another owner's kernel is no table of its own."""
_ENOUGH = 8.0
"""Times that span this factor tell a constant from a rate."""


@dataclass(frozen=True, slots=True)
class Reading:
    """Seconds of one call, the law's shares of it (bandwidth, arithmetic), and where it comes from in words."""

    seconds: Interval
    bandwidth_share: float
    arithmetic_share: float
    source: str

    def widened(self, share: float, why: str) -> "Reading":
        """The same as a stand-in for another kernel: fitted, wider, and said."""
        wide = replace(self.seconds.widened(share), how="fitted")
        return replace(self, seconds=wide, source=f"{self.source}; {why}")


@dataclass(frozen=True, slots=True)
class _Class:
    """Samples of one kernel and owner whose keys beside the axes agree."""

    owner: str
    fixed: dict[str, Any]
    points: list[Point]


class Tables:
    """The tables of one GPU. `owner` is whose kernels come first where they were measured; `alone`, no one else's."""

    def __init__(self, samples: Sequence[Mapping[str, Any]], owner: str | None = None, *, alone: bool = False) -> None:
        self.owner = owner
        samples = [sample for sample in samples if not alone or sample["owner"] == owner]
        self._classes: dict[str, list[_Class]] = {}
        self._grids: dict[int, Grid] = {}
        seen: set[tuple[Any, ...]] = set()
        for sample in samples:
            self._add(sample, seen)

    def _add(self, sample: Mapping[str, Any], seen: set[tuple[Any, ...]]) -> None:
        kernel = KERNELS.get(sample["kernel"])
        if kernel is None:
            return
        shape = dict(kernel.defaults)
        shape |= {key: value for key, value in sample.items() if key not in MEASURED or key == "bytes"}
        try:
            at = tuple(axis(shape) for axis in kernel.axes.values())
            work = kernel.work(shape)
        except KeyError:
            return
        if min(at) <= 0:
            return
        fixed = _fixed(kernel, shape)
        mark = (sample["kernel"], sample["owner"], tuple(sorted(fixed.items())), at)
        if mark in seen:
            return
        seen.add(mark)
        point = Point(at, work, sample["median_s"], sample.get("p10_s", 0.0), sample.get("p90_s", 0.0))
        point = replace(point, low=min(point.low or point.seconds, point.seconds), high=max(point.high, point.seconds))
        groups = self._classes.setdefault(sample["kernel"], [])
        for group in groups:
            if (group.owner, group.fixed) == (sample["owner"], fixed):
                group.points.append(point)
                return
        groups.append(_Class(sample["owner"], fixed, [point]))

    def has(self, kernel: str, **fixed: Any) -> bool:
        """True where the kernel was measured with these fixed keys, by anyone."""
        return self._choose(kernel, fixed) is not None

    def knows(self, kernel: str, shape: Mapping[str, Any]) -> bool:
        """True where `seconds` has an answer for a shape."""
        return self._choose(kernel, _fixed(KERNELS[kernel], shape)) is not None

    def seconds(self, kernel: str, **shape: Any) -> Reading:
        """One call of `kernel` at `shape`. Raises ProfileError where it was not measured with such fixed keys."""
        known = KERNELS[kernel]
        whole: dict[str, Any] = dict(known.defaults) | shape
        fixed = _fixed(known, whole)
        group = self._choose(kernel, fixed)
        if group is None:
            words = " ".join(f"{key}={value}" for key, value in fixed.items())
            raise ProfileError(f"the calibration has no `{kernel}` samples {words}".rstrip() + "; run the suite `full`")
        grid = self._grid(kernel, group)
        found = grid.at(tuple(axis(whole) for axis in known.axes.values()))
        moved, computed, _ = grid.law.shares(known.work(whole))
        low, high = found.seconds * (1 - found.below), found.seconds * (1 + found.above)
        how = "measured" if found.inside else "fitted"
        seconds = Interval(found.seconds, low, high, "measured" if found.inside else "fitted")
        return Reading(seconds, moved, computed, f"{group.owner} {kernel}: {how} ({_range(known, grid)})")

    def flops_per_s(self) -> Interval | None:
        """The matrix roof: the rate of the largest product measured; None where none was."""
        group = self._choose("matmul", {})
        if group is None:
            return None
        largest = max(group.points, key=lambda point: point.work.flops)
        flops = largest.work.flops
        return Interval(flops / largest.seconds, flops / largest.high, flops / largest.low, "measured")

    def _choose(self, kernel: str, fixed: Mapping[str, Any]) -> _Class | None:
        """The class that agrees with `fixed`: the engine's own, else ours, else anyone's; the one of most samples."""
        fitting = [group for group in self._classes.get(kernel, []) if fixed.items() <= group.fixed.items()]
        own = [group for group in fitting if group.owner == self.owner and len(group.points) >= _LEAST]
        ours = [group for group in fitting if group.owner == OURS]
        return max(own or ours or fitting, key=lambda group: len(group.points), default=None)

    def _grid(self, kernel: str, group: _Class) -> Grid:
        if id(group) not in self._grids:
            work_at = _work_at(KERNELS[kernel], group.fixed)
            self._grids[id(group)] = Grid(group.points, work_at, self._constant(kernel, group))
        return self._grids[id(group)]

    def _constant(self, kernel: str, group: _Class) -> float:
        """The t0 of the same kernel in another format, for samples too much alike to show one of their own."""
        wider = [other for other in self._classes[kernel] if _span(other) > 2 * max(_span(group), _ENOUGH)]
        if _span(group) > _ENOUGH or not wider:
            return 0.0
        return self._grid(kernel, max(wider, key=_span)).law.t0


def _span(group: _Class) -> float:
    """The longest time over the shortest."""
    return max(point.seconds for point in group.points) / min(point.seconds for point in group.points)


def _work_at(kernel: Kernel, fixed: Mapping[str, Any]) -> Any:
    def work(at: Coordinates) -> Work:
        return kernel.work({**kernel.defaults, **fixed, **kernel.example(dict(zip(kernel.axes, at, strict=True)))})

    return work


def _fixed(kernel: Kernel, shape: Mapping[str, Any]) -> dict[str, Any]:
    """What has to agree: words, and numbers with a default that are no axis."""
    return {
        key: value
        for key, value in shape.items()
        if key not in ("owner", "kernel")
        and (isinstance(value, str) or (key in kernel.defaults and key not in kernel.axes))
    }


def _range(kernel: Kernel, grid: Grid) -> str:
    spans = zip(kernel.axes, grid.values, strict=True)
    return ", ".join(f"{name} {_short(values[0])}-{_short(values[-1])}" for name, values in spans)


def _short(value: float) -> str:
    """Three digits: 512, 4,096, 131k, 264M."""
    for unit, size in (("G", 1e9), ("M", 1e6), ("k", 1e3)):
        if value >= 100 * size / (1 if unit == "k" else 100):
            return f"{value / size:.3g}{unit}"
    return f"{value:,.0f}"
