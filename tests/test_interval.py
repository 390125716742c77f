"""Intervals add up, scale and never become surer than what they are made of."""

import pytest

from kvplan.interval import Interval, total


def test_a_sum_is_no_surer_than_its_least_sure_part() -> None:
    whole = total([Interval(2.0, 1.0, 3.0, "measured"), Interval(1.0, 1.0, 1.5, "datasheet")])
    assert whole == Interval(3.0, 2.0, 4.5, "datasheet")


def test_a_rate_swaps_the_ends() -> None:
    assert Interval(2.0, 1.0, 4.0, "fitted").inverse(8.0) == Interval(4.0, 2.0, 8.0, "fitted")


def test_nothing_lies_outside_its_own_ends() -> None:
    with pytest.raises(ValueError, match="does not hold"):
        Interval(1.0, 2.0, 3.0)


def test_widening_never_reaches_below_zero() -> None:
    assert Interval(1.0, 0.5, 1.5).widened(2.0) == Interval(1.0, 0.0, 3.5)
