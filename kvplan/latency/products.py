"""Weight matrices of one rank as products with the tokens of a step: what is read, what is computed, how long it takes.

Matrices of one block that share their input are one launch, as engines fuse them (q, k, v and gates; gate and up); so
are all matrices of its routed experts.
"""

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, replace

from kvplan.deployment import Layout
from kvplan.interval import Interval
from kvplan.latency.kernels import Work
from kvplan.latency.meter import Meter, Term, made, slowest
from kvplan.latency.tables import Reading
from kvplan.units import ceil_div
from kvplan.weights.parts import Part
from kvplan.weights.ranks import rank_bytes

NAMES = {
    "attention": "attention projections", "mlp": "feed-forward", "shared_expert": "shared experts",
    "expert": "routed experts", "router": "routers", "head": "output head", "embedding": "output head",
    "other": "other weights",
}  # fmt: skip
_FP8 = ("fp8", "F8_E4M3", "F8_E5M2", "mxfp8")
_PLAIN = ("bf16", "fp16", "fp32", "BF16", "F16", "F32")
_HALF = ("bf16", "fp16", "f16")
_FUSED = (("fp8 block", "fp8_block"), ("fp8", "fp8"), ("mxfp4", "mxfp4"), ("int4", "int4"))
_OTHER_SHAPE = (0.10, "shapes of other models with equal bytes and tokens")
"""Rows of the same tables that are not shipped, 256 or wider, fewer than 64 tokens an expert: of 1,444 half lie within
4 to 5 %, nine tenths within 24 %, and 91 % in the range that this makes; from 64 tokens on half within 8 to 17 %."""
NARROW = (0.25, "stands in for a narrower format")
SKEW = 0.11
"""Experts fewer than even routing touches: a Zipf popularity with exponent 0.5 takes off 8 to 11 %."""


@dataclass(frozen=True, slots=True)
class Product:
    """One launch: matrices of `elements` in `bytes`, on this rank. `experts` of them are routed to, else 0."""

    role: str
    format: str
    elements: int
    bytes: int
    experts: int = 0


@dataclass(frozen=True, slots=True)
class Routing:
    """How the tokens of a step meet routed experts. `shared_by` replicas send theirs to the same experts."""

    experts: int
    per_token: int
    shared_by: int = 1

    def tokens(self, tokens: int) -> int:
        return tokens * self.shared_by

    def touched(self, tokens: int) -> float:
        """The share of experts that at least one of `tokens` tokens is routed to, if routing is even."""
        return 1.0 - (1.0 - self.per_token / self.experts) ** self.tokens(tokens)


def rank_products(parts: Iterable[Part], layout: Layout, moe_shard_multiple: int, *, tied: bool) -> Counter[Product]:
    """The launches of one pass through `parts` on the fullest rank, equal ones counted."""
    groups: dict[tuple[object, ...], Product] = {}
    for part in parts:
        skipped = part.role in ("norm", "vision") or (part.role == "embedding" and not tied)
        if skipped or len(part.shape) != 2:
            continue
        held = rank_bytes(part, layout, moe_shard_multiple)
        elements = part.total_params * held // part.total_bytes if part.total_bytes else 0
        width = 0 if part.role == "expert" else part.shape[-1]
        key: tuple[object, ...] = (part.place, part.role, part.split, width)
        if not part.params:
            key = next((one for one in groups if one[:3] == key[:3]), key)
        experts = ceil_div(part.count, layout.ep) if part.role == "expert" else 0
        before = groups.get(key, Product(part.role, part.format, 0, 0, experts))
        groups[key] = replace(before, elements=before.elements + elements, bytes=before.bytes + held)
    return Counter(product for product in groups.values() if product.elements)


def product_term(
    meter: Meter, product: Product, calls: int, tokens: int, routing: Routing | None, efficiency: float
) -> Term:
    """`calls` such launches for `tokens` tokens of this rank's replica."""
    name = NAMES.get(product.role, product.role)
    if product.experts and routing is not None:
        return _experts(meter, name, product, calls, tokens, routing, efficiency)
    flops = 2.0 * tokens * product.elements
    return made(name, calls, _dense(meter, product, tokens, flops, efficiency), product.bytes, flops)


def _dense(meter: Meter, product: Product, tokens: int, flops: float, efficiency: float) -> Reading:
    measured = _measured_format(product.format)
    if measured and meter.tables.has("gemm", format=measured):
        exact = product.format.lower() in _HALF
        stand_in = None if exact else (0.15, f"stands in for {product.format}")
        return meter.call("gemm", stand_in, tokens=tokens, rows=product.elements, columns=1, format=measured)
    return slowest(_streamed(meter, product.bytes, product.format), _computed(meter, flops, efficiency))


def _experts(
    meter: Meter, name: str, product: Product, calls: int, tokens: int, routing: Routing, efficiency: float
) -> Term:
    """The routed experts of a block in one call, as engines fuse them; products that were timed apart are two of it."""
    touched = routing.touched(tokens)
    each = routing.tokens(tokens) * routing.per_token / routing.experts
    read, flops = touched * product.bytes, 2.0 * each * product.elements
    reading = _fused(meter, product.format, touched * product.elements, each / touched)
    launches = 1 if reading else 2
    if reading is None:
        reading = _apart(meter, product.format, read / 2, touched * product.elements / 2, each / touched, efficiency)
    seconds = reading.seconds
    fewer = replace(seconds, low=seconds.low * (1 - SKEW * (1 - touched)))
    said = f"{touched:.1%} of the experts touched, if routing is even; {reading.source}"
    whole = replace(reading, seconds=fewer, source=said)
    return made(name, calls * launches, whole, read / launches, flops / launches)


def _fused(meter: Meter, format_: str, elements: float, tokens_each: float) -> Reading | None:
    """An engine's own call, with sorting the tokens and summing them up again inside; None where none was measured."""
    kind = _fused_format(format_)
    if kind is None or not meter.tables.has("moe", format=kind):
        return None
    return meter.call("moe", _OTHER_SHAPE, tokens_each=tokens_each, experts=1, rows=elements, columns=1, format=kind)


def _apart(meter: Meter, format_: str, read: float, elements: float, tokens_each: float, efficiency: float) -> Reading:
    """The grouped product that was measured; at best an engine's own reads as fast as a plain stream."""
    computed = _computed(meter, 2.0 * tokens_each * elements, 0.7 * efficiency)
    plain = slowest(_streamed(meter, read, format_), computed)
    if format_.lower() not in _HALF or not meter.tables.has("grouped_gemm"):
        return plain
    found = meter.call("grouped_gemm", None, tokens_each=tokens_each, experts=1, rows=elements, columns=1)
    return replace(found, seconds=replace(found.seconds, low=min(found.seconds.low, plain.seconds.low)))


def _streamed(meter: Meter, size: float, format_: str) -> Reading:
    """Weights read as fast as our own matrix-vector kernel reads them."""
    stand_in = None if format_ in _PLAIN else NARROW
    return meter.call("weights", stand_in, positions=1, rows=size / 2, columns=1)


def _computed(meter: Meter, flops: float, efficiency: float) -> Reading:
    """Arithmetic at a share of this GPU's own measured matrix roof."""
    roof = meter.flops_per_s()
    slow, fast = max(0.05, efficiency - 0.25), min(1.0, efficiency + 0.2)
    seconds = Interval(flops / roof.value / efficiency, flops / roof.high / fast, flops / roof.low / slow, "assumed")
    at = Reading(seconds, 0.0, 1.0, f"{efficiency:.0%} of the measured matrix roof: assumed")
    return meter.carried(at, Work(0.0, flops))


def _measured_format(format_: str) -> str | None:
    if format_ in _PLAIN:
        return "bf16"
    return "fp8" if format_.startswith(_FP8) else None


def _fused_format(format_: str) -> str | None:
    """The format of an expert's matrices as the tables of fused experts call it."""
    if format_.lower() in _HALF:
        return "bf16"
    return next((kind for start, kind in _FUSED if format_.lower().startswith(start)), None)
