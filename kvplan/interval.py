"""A quantity that is known between two ends, and how it is known."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal, get_args

How = Literal["exact", "measured", "fitted", "published", "datasheet", "assumed"]
"""From the surest to the least sure; what is made of several is no surer than the least sure of them."""

_ORDER: tuple[str, ...] = get_args(How)


@dataclass(frozen=True, slots=True)
class Interval:
    """`value` is the best guess, `low` and `high` the ends between which it is expected."""

    value: float
    low: float
    high: float
    how: How = "exact"

    def __post_init__(self) -> None:
        if not self.low <= self.value <= self.high:
            raise ValueError(f"an interval from {self.low} to {self.high} does not hold {self.value}")

    def __add__(self, other: "Interval") -> "Interval":
        """Ends add up, as errors of kernels on one GPU are not independent."""
        return Interval(
            self.value + other.value, self.low + other.low, self.high + other.high, weakest((self.how, other.how))
        )

    def scaled(self, factor: float) -> "Interval":
        return Interval(self.value * factor, self.low * factor, self.high * factor, self.how)

    def widened(self, share: float) -> "Interval":
        """Both ends moved out by a share of the value."""
        return Interval(self.value, max(0.0, self.low - share * self.value), self.high + share * self.value, self.how)

    def inverse(self, numerator: float = 1.0) -> "Interval":
        """`numerator` over this: a rate from a time."""
        return Interval(numerator / self.value, numerator / self.high, numerator / self.low, self.how)


def weakest(kinds: Iterable[How]) -> How:
    """The least sure of several ways of knowing."""
    return max(kinds, key=_ORDER.index)


def total(parts: Iterable[Interval]) -> Interval:
    """The sum; nothing at all is exactly zero."""
    whole = Interval(0.0, 0.0, 0.0)
    for part in parts:
        whole = whole + part
    return whole
