"""Tables of one GPU read for another: as measured, scaled by datasheets within an architecture, or bounds beyond it."""

from dataclasses import dataclass, replace
from math import sqrt
from typing import Any, Literal

from kvplan.gpu import Gpu
from kvplan.interval import Interval, weakest
from kvplan.latency.kernels import KERNELS, Work
from kvplan.latency.tables import Reading, Tables

Basis = Literal["measured", "scaled", "bounds"]
_DATASHEET = ((3e-6, 0.6), (1e-6, 0.95), (10e-6, 0.3))
"""Start of a kernel and the share of the datasheet's rate that it reaches: best guess, fast end, slow end."""
_FROM_MEMORY = frozenset({"gemm", "grouped_gemm", "moe", "weights", "experts", "kda_decode", "mla_decode"})
"""Kernels whose bytes are weights, states or caches, of which a step moves more than any L2 holds."""
SCALED = 0.15
"""What a time gains on both sides when it is carried to another card of the same architecture."""


@dataclass(frozen=True, slots=True)
class Term:
    """One kind of work in a step on one rank: `calls` kernels, their bytes, FLOPs and seconds together."""

    name: str
    calls: int
    bytes: int
    flops: int
    seconds: Interval
    source: str


@dataclass(frozen=True, slots=True)
class Meter:
    """Seconds on `gpu` from tables that were measured on `measured_on`."""

    tables: Tables
    gpu: Gpu
    measured_on: Gpu
    basis: Basis

    def call(self, kernel: str, stand_in: tuple[float, str] | None = None, **shape: Any) -> Reading:
        """One call. `stand_in` widens it by a share and says why, where the kernel measured is not the one meant.

        A kernel without samples takes what its bytes and FLOPs take by the datasheet, at a share of its rates.
        """
        whole = dict(KERNELS[kernel].defaults) | shape
        work = KERNELS[kernel].work(whole)
        known = self.tables.knows(kernel, whole)
        reading = self.tables.seconds(kernel, **shape) if known else self._by_datasheet(kernel, work)
        carried = self.carried(reading if stand_in is None else reading.widened(*stand_in), work)
        from_memory = kernel in _FROM_MEMORY or shape.get("how") == "read"
        return self._possible(carried, work.bytes) if from_memory else carried

    def _possible(self, reading: Reading, size: float) -> Reading:
        """The fast end no faster than the datasheet's memory: a step reads these bytes once, never from the L2."""
        seconds, least = reading.seconds, size / self.gpu.bandwidth_bytes_per_s
        low = min(seconds.value, max(seconds.low, least))
        return replace(reading, seconds=replace(seconds, low=low))

    def _by_datasheet(self, kernel: str, work: Work) -> Reading:
        moved = work.bytes / self.measured_on.bandwidth_bytes_per_s
        computed = work.flops / self.measured_on.bf16_flops
        value, low, high = (t0 + max(moved, computed) / share for t0, share in _DATASHEET)
        bound, said = float(moved >= computed), f"no `{kernel}` samples: the datasheet of {self.measured_on.name}"
        return Reading(Interval(value, low, high, "datasheet"), bound, 1.0 - bound, said)

    def flops_per_s(self) -> Interval:
        """The matrix roof of the measured GPU; without a sample a share of its datasheet."""
        peak = self.measured_on.bf16_flops
        return self.tables.flops_per_s() or Interval(0.75 * peak, 0.6 * peak, 0.9 * peak, "datasheet")

    def term(self, name: str, calls: int, kernel: str, stand_in: tuple[float, str] | None = None, **shape: Any) -> Term:
        """`calls` of one kernel, its own traffic counted."""
        work = KERNELS[kernel].work(dict(KERNELS[kernel].defaults) | shape)
        return made(name, calls, self.call(kernel, stand_in, **shape), work.bytes, work.flops)

    def carried(self, reading: Reading, work: Work) -> Reading:
        """A reading of the measured GPU's memory and arithmetic on this one."""
        here, there = self.gpu.bandwidth_bytes_per_s, self.measured_on.bandwidth_bytes_per_s
        return self.over(reading, work, here, there)

    def over(self, reading: Reading, work: Work, here: int, there: int) -> Reading:
        """A reading taken at `there` bytes a second by the datasheet, where the datasheet says `here`."""
        if self.basis == "measured":
            return reading
        faster = here / there
        stronger = self.gpu.bf16_flops / self.measured_on.bf16_flops
        if self.basis == "scaled":
            rest = 1 - reading.bandwidth_share - reading.arithmetic_share
            factor = reading.bandwidth_share / faster + reading.arithmetic_share / stronger + rest
            seconds = reading.seconds.scaled(factor).widened(SCALED)
            return replace(reading, seconds=replace(seconds, how=weakest((seconds.how, "datasheet"))))
        peak = max(self.gpu.bf16_flops, self.gpu.fp8_flops or 0)
        low = max(work.bytes / here, work.flops / peak)
        high = max(low, reading.seconds.high * max(1.0, 1 / faster, 1 / stronger))
        return replace(reading, seconds=bounds(low, high))


def bounds(low: float, high: float) -> Interval:
    """Two ends and the middle of their logarithms: no claim to know more."""
    return Interval(min(max(sqrt(low * high), low), high), low, high, "datasheet")


def made(name: str, calls: int, reading: Reading, bytes_: float, flops: float = 0.0) -> Term:
    """`calls` equal calls of a reading."""
    return Term(name, calls, int(calls * bytes_), int(calls * flops), reading.seconds.scaled(calls), reading.source)


def slowest(one: Reading, other: Reading) -> Reading:
    """Two floors under one call: each end is the higher of the two, the words are the higher one's."""
    a, b = one.seconds, other.seconds
    how = weakest((a.how, b.how))
    seconds = Interval(max(a.value, b.value), max(a.low, b.low), max(a.high, b.high), how)
    return replace(one if a.value >= b.value else other, seconds=seconds)
