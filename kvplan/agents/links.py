"""Reload or recompute: what crosses a link, how long that takes, and from which bandwidth on it wins."""

from dataclasses import dataclass
from math import inf
from typing import Literal

from kvplan.interval import Interval, weakest

Choice = Literal["reload", "recompute", "close"]


@dataclass(frozen=True, slots=True)
class Link:
    """One way of bringing a context back: bytes per second and what every transfer waits for."""

    bytes_per_s: Interval
    latency_s: Interval


def transfer_s(size_bytes: int, link: Link) -> Interval:
    """Seconds until the last byte has crossed."""
    return link.latency_s + link.bytes_per_s.inverse(size_bytes)


def break_even_bytes_per_s(size_bytes: int, prefill_s: Interval, latency_s: Interval) -> Interval | None:
    """B* = bytes / (prefill − latency): reloading wins on any faster link. None where the latency alone takes longer.

    With a prefill of L / R seconds and no latency this is R·(k + S/L), and for a Transformer equation 2 of Mooncake
    (FAST'25). The ends come from the prefill's; the latency counts at its upper end.
    """
    low, value, high = (seconds - latency_s.high for seconds in (prefill_s.low, prefill_s.value, prefill_s.high))
    if value <= 0:
        return None
    most = size_bytes / low if low > 0 else inf
    return Interval(size_bytes / value, size_bytes / high, most, weakest((prefill_s.how, latency_s.how)))


def choose(reload_s: Interval, recompute_s: Interval) -> Choice:
    """What is sooner whatever the ends turn out to be; close where the two overlap."""
    if reload_s.high < recompute_s.low:
        return "reload"
    return "recompute" if reload_s.low > recompute_s.high else "close"


def critical_reuse(link: Link, needed_bytes_per_s: Interval) -> float:
    """κ_crit: cached tokens per new one beyond which transfers and not arithmetic bound the prefill (arXiv 2601.19910).

    Of the best guesses on both sides.
    """
    return link.bytes_per_s.value / needed_bytes_per_s.value
