"""The pool inside the rounding of what a log prints that gives the printed figure."""

from collections.abc import Callable
from fractions import Fraction
from typing import Any

from kvplan.logs.figures import Printed


def least(low: int, high: int, reaches: Callable[[int], bool]) -> int:
    """The smallest integer from `low` to `high` at which `reaches` holds, `high` where it never does."""
    while low < high:
        middle = (low + high) // 2
        if reaches(middle):
            high = middle
        else:
            low = middle + 1
    return low


def pool_for(
    wanted: Printed | None, low: int, high: int, figures: Callable[[int], dict[str, Any]], name: str | None = None
) -> int:
    """Pool bytes whose figure reaches the printed one; the middle of the range where nothing is printed."""
    if wanted is None:
        return (low + high) // 2
    key = name or wanted.what
    goal = wanted.value - wanted.half
    return least(low, high, lambda size: Fraction(figures(size).get(key) or 0) >= goal)
