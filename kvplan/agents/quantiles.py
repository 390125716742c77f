"""A distribution as a table of percentiles, and back to values."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from kvplan.agents.columns import Floats

PERCENTS = (0.0, 1.0, 5.0, 10.0, 25.0, 50.0, 75.0, 90.0, 95.0, 99.0, 99.9, 100.0)


@dataclass(frozen=True, slots=True)
class Quantiles:
    """Values at `PERCENTS`, and the mean that was measured beside them."""

    values: tuple[float, ...]
    mean: float

    def at(self, shares: ArrayLike) -> Floats:
        """Values at shares between 0 and 1: straight lines between the percentiles, in the logarithm of 1 + value."""
        logs = np.log1p(np.asarray(self.values, dtype=np.float64))
        found: Floats = np.expm1(np.interp(np.asarray(shares) * 100, PERCENTS, logs))
        return found

    def value(self, percent: float) -> float:
        """The value at one of `PERCENTS`."""
        return self.values[PERCENTS.index(percent)]


def measure(values: ArrayLike, weights: ArrayLike | None = None) -> Quantiles | None:
    """The percentiles of `values`, each counting as much as its weight; None without values."""
    found = np.asarray(values, dtype=np.float64)
    scale = np.ones_like(found) if weights is None else np.asarray(weights, dtype=np.float64)
    found, scale = found[scale > 0], scale[scale > 0]
    if not len(found):
        return None
    order = np.argsort(found, kind="stable")
    found, reached = found[order], np.cumsum(scale[order])
    places = np.searchsorted(reached, np.asarray(PERCENTS) / 100 * reached[-1])
    picked = found[np.minimum(places, len(found) - 1)]
    mean = float((found * scale[order]).sum() / reached[-1])
    return Quantiles(tuple(_short(value) for value in picked), _short(mean))


def _short(value: float) -> float:
    """Four significant digits below 1,000, whole numbers above: enough for a table."""
    return float(round(value)) if abs(value) >= 1000 else float(f"{value:.4g}")


def midpoints(count: int) -> Floats:
    """Shares in the middle of `count` equal parts of 0 to 1."""
    found: Floats = (np.arange(count) + 0.5) / count
    return found
