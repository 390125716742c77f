"""Two lists of terms on one GPU set beside each other. What the tables get wrong they get wrong for both."""

from collections.abc import Sequence

from kvplan.interval import Interval, total, weakest
from kvplan.latency.grid import REPEAT
from kvplan.latency.meter import Term

_Ends = tuple[tuple[float, float], ...]


def times_faster(own: Sequence[Term], other: Sequence[Term]) -> Interval:
    """Seconds of `other` over seconds of `own`.

    Terms of one name are read from the same tables, so both are at their slow, middle or fast end, and where they
    differ their ratio is off by a repeat of one measurement; terms of different names are independent.
    """
    names = list(dict.fromkeys(term.name for term in (*own, *other)))
    ends = [_ends(name, own, other) for name in names]
    value = sum(term.seconds.value for term in other) / sum(term.seconds.value for term in own)
    low, high = _extreme(ends, value, -1), _extreme(ends, value, 1)
    how = weakest([term.seconds.how for term in (*own, *other)])
    return Interval(value, min(low, value), max(high, value), how)


def _ends(name: str, own: Sequence[Term], other: Sequence[Term]) -> _Ends:
    """(own, other) seconds of one name at the fast end, in the middle and at the slow end."""
    mine, theirs = (total(term.seconds for term in side if term.name == name) for side in (own, other))
    pairs = ((mine.low, theirs.low), (mine.value, theirs.value), (mine.high, theirs.high))
    if mine == theirs:
        return pairs
    return tuple((a * (1 - off), b * (1 + off)) for a, b in pairs for off in (-REPEAT / 2, REPEAT / 2))


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
