"""Two lists of terms on one GPU set beside each other. What the tables get wrong they get wrong for both."""

from collections.abc import Sequence

from kvplan.interval import Interval, weakest
from kvplan.latency.meter import Term

_Ends = tuple[tuple[float, float], ...]


def times_faster(own: Sequence[Term], other: Sequence[Term]) -> Interval:
    """Seconds of `other` over seconds of `own`.

    Terms of one name are read from the same tables, so both are at their slow or both at their fast end; terms of
    different names are independent.
    """
    names = list(dict.fromkeys(term.name for term in (*own, *other)))
    ends = [_ends(name, own, other) for name in names]
    value = sum(term.seconds.value for term in other) / sum(term.seconds.value for term in own)
    low, high = _extreme(ends, value, -1), _extreme(ends, value, 1)
    how = weakest([term.seconds.how for term in (*own, *other)])
    return Interval(value, min(low, value), max(high, value), how)


def _ends(name: str, own: Sequence[Term], other: Sequence[Term]) -> _Ends:
    """(own, other) seconds of one name at the fast and at the slow end."""
    mine, theirs = ([term.seconds for term in side if term.name == name] for side in (own, other))
    return (
        (sum(one.low for one in mine), sum(one.low for one in theirs)),
        (sum(one.high for one in mine), sum(one.high for one in theirs)),
    )


def _extreme(ends: Sequence[_Ends], start: float, sign: int) -> float:
    """The largest (sign 1) or smallest (-1) ratio over every choice of ends (Dinkelbach's iteration)."""
    ratio = start
    for _ in range(50):
        at = ratio
        chosen = [max(pair, key=lambda one: sign * (one[1] - at * one[0])) for pair in ends]
        ratio = sum(other for _, other in chosen) / sum(own for own, _ in chosen)
        if abs(ratio - at) <= 1e-12 * at:
            break
    return ratio
