"""What goes over links: sums, contexts and experts between ranks, and caches to and from the host."""

from dataclasses import dataclass

from kvplan.errors import ConfigError
from kvplan.interval import Interval
from kvplan.latency.kernels import KERNELS, Work
from kvplan.latency.meter import Meter, Term, made
from kvplan.latency.tables import Reading

_STARTS = Interval(12e-6, 5e-6, 30e-6, "assumed")
"""Start of one collective inside a node, where none was measured."""
_SHARE = (0.75, 0.5, 0.95)
"""Share of a link's rate that a large transfer reaches, where none was measured."""


@dataclass(frozen=True, slots=True)
class Collective:
    """`calls` of `kernel` among `ranks`, each over a message of `bytes`: the whole of what is summed or gathered."""

    name: str
    kernel: str
    ranks: int
    calls: int
    bytes: int


def collective_term(meter: Meter, one: Collective) -> Term:
    """Measured where the calibration has this collective, else from the datasheet's links."""
    shape = {"ranks": one.ranks, "tokens": one.bytes / 2, "hidden": 1}
    work = KERNELS[one.kernel].work(shape)
    here, there = meter.gpu.link_bytes_per_s, meter.measured_on.link_bytes_per_s
    if meter.tables.has(one.kernel):
        reading = meter.over(meter.tables.seconds(one.kernel, **shape), work, here, there)
    else:
        what = f"{one.kernel} over {one.ranks} ranks: assumed from {meter.gpu.link}"
        reading = _from_datasheet(work, here, what)
    return made(one.name, one.calls, reading, work.bytes)


def from_host_s(meter: Meter, size: int) -> Interval:
    """Seconds for `size` bytes of one rank from pinned host memory to the GPU.

    Raises ConfigError where the GPU's profile has no link to the host.
    """
    here, there = meter.gpu.pcie_bytes_per_s, meter.measured_on.pcie_bytes_per_s
    if here is None:
        raise ConfigError(f"{meter.gpu.name}: pcie_bytes_per_s is not in its profile, so a reload cannot be timed")
    if meter.tables.has("host_copy", how="to_device") and there is not None:
        reading = meter.tables.seconds("host_copy", how="to_device", bytes=size)
        return meter.over(reading, Work(size), here, there).seconds
    return _from_datasheet(Work(size), here, "the link to the host").seconds


def _from_datasheet(work: Work, rate: int, what: str) -> Reading:
    value, slow, fast = (work.bytes / rate / share for share in _SHARE)
    seconds = Interval(_STARTS.value + value, _STARTS.low + fast, _STARTS.high + slow, "assumed")
    return Reading(seconds, 1.0, 0.0, f"{what}, {rate / 1e9:,.0f} GB/s")
