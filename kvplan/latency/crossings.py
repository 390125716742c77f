"""Lengths and rates at which one way of spending time overtakes another."""

from collections.abc import Iterable

from kvplan.dtypes import Dtypes
from kvplan.interval import Interval
from kvplan.layers.base import Layer

_LONGEST = 1 << 32


def state_traffic_bytes(mixers: Iterable[Layer], dtypes: Dtypes) -> int:
    """States and convolution tails read and written back by one decode step of one sequence."""
    return 2 * sum(
        tensor.entry_bytes for mixer in mixers for tensor in mixer.stored(dtypes) if tensor.role in ("state", "conv")
    )


def reads_equal_state_tokens(mixers: Iterable[Layer], dtypes: Dtypes) -> int | None:
    """The smallest context whose cache reads are at least the state's traffic; None where there is no such length."""
    layers = list(mixers)
    traffic = state_traffic_bytes(layers, dtypes)

    def enough(tokens: int) -> bool:
        return sum(layer.read_bytes(dtypes, tokens) for layer in layers) - traffic // 2 >= traffic

    if not traffic or not enough(_LONGEST):
        return None
    low, high = 0, _LONGEST
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if enough(middle) else (middle, high)
    return high


def reload_bytes_per_s(size: int, replay_s: Interval) -> Interval:
    """The bandwidth from which reloading `size` bytes takes less than computing them again: R (k + S / L)."""
    return replay_s.inverse(size)
