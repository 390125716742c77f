"""`--tier NAME=SIZE@BANDWIDTH,…`: the tiers beside a deployment's GPUs with what was typed about them."""

import re
from dataclasses import replace

from kvplan.agents.tier import Tier, bundled_tiers
from kvplan.errors import UsageError
from kvplan.gpu import Gpu
from kvplan.interval import Interval
from kvplan.units import parse_size

_RATE = re.compile(r"(.+?)/s", re.IGNORECASE)
_TIME = re.compile(r"(\d+(?:\.\d+)?)\s*(us|ms|s)")
_SECONDS = {"us": 1e-6, "ms": 1e-3, "s": 1.0}


def find_tiers(gpu: Gpu | None, changes: list[str], gpus_per_node: int) -> list[Tier]:
    """The tiers beside these GPUs, fast ones first, as `--tier` changes them. Raises UsageError for what cannot be
    meant."""
    found = {tier.name: tier for tier in bundled_tiers(gpu)}
    for text in changes:
        name, separator, rest = text.partition("=")
        name = name.strip().lower()
        if name not in found or not separator:
            raise UsageError(
                f"--tier {text[:60]!r}: write NAME=SIZE@BANDWIDTH, NAME=off, or key=value parts after a comma, for "
                f"example dram=1.9TB@54GB/s,latency=20us,price=0.005; tiers here: {', '.join(found) or 'none'}"
            )
        changed = _changed(found[name], rest, gpus_per_node)
        if changed is None:
            del found[name]
        else:
            found[name] = changed
    return list(found.values())


def _changed(tier: Tier, text: str, gpus_per_node: int) -> Tier | None:
    """The tier with what was typed; None where it is switched off. A size is the node's, a bandwidth the link's."""
    if text.strip().lower() == "off":
        return None
    if not text.strip():
        raise UsageError(
            f"--tier {tier.name}=: nothing is said about it; write SIZE@BANDWIDTH, off, or key=value parts"
        )
    first, *pairs = [part.strip() for part in text.split(",")]
    size, _, rate = first.partition("@")
    for key, value in (("size", size), ("bandwidth", rate), *_pairs(tier, pairs)):
        if value:
            tier = replace(_with(tier, key, value, gpus_per_node), given=(*tier.given, key))
    return tier


def _pairs(tier: Tier, pairs: list[str]) -> list[tuple[str, str]]:
    found = []
    for pair in pairs:
        key, separator, value = pair.partition("=")
        if not separator or not value.strip():
            raise UsageError(f"--tier {tier.name}: {pair[:40]!r} is no latency=, price=, copies=, size= or bandwidth=")
        found.append((key.strip().lower(), value.strip()))
    return found


def _with(tier: Tier, key: str, value: str, gpus_per_node: int) -> Tier:
    if key == "size":
        return replace(tier, size_bytes_per_gpu=_size(tier, value) // gpus_per_node)
    if key == "bandwidth":
        match = _RATE.fullmatch(value)
        if match is None:
            raise UsageError(f"--tier {tier.name}: bandwidth {value[:40]!r} is not SIZE/s, for example 54GB/s")
        rate = float(_size(tier, match[1]))
        return replace(tier, link=replace(tier.link, bytes_per_s=Interval(rate, rate, rate, "assumed")))
    if key == "latency":
        seconds = _seconds(tier, value)
        return replace(tier, link=replace(tier.link, latency_s=Interval(seconds, seconds, seconds, "assumed")))
    if key == "price":
        return replace(tier, price_per_gb_hour=_price(tier, value))
    if key == "copies" and value in ("rank", "one"):
        return replace(tier, copies="one" if value == "one" else "rank")
    raise UsageError(f"--tier {tier.name}: {key[:20]}={value[:20]} is no latency=, price=, copies=rank or copies=one")


def _size(tier: Tier, value: str) -> int:
    try:
        return parse_size(value)
    except UsageError as error:
        raise UsageError(f"--tier {tier.name}: {error}") from None


def _seconds(tier: Tier, value: str) -> float:
    match = _TIME.fullmatch(value)
    if match is None or float(match[1]) * _SECONDS[match[2]] > 3600:
        raise UsageError(f"--tier {tier.name}: latency {value[:20]!r} is not a time up to an hour: 20us, 5ms or 1s")
    return float(match[1]) * _SECONDS[match[2]]


def _price(tier: Tier, value: str) -> float:
    try:
        price = float(value)
    except ValueError:
        price = -1.0
    if not 0 <= price <= 1e6:
        raise UsageError(
            f"--tier {tier.name}: price {value[:20]!r} is not a number from 0 to 1,000,000 per GB and hour"
        )
    return price
