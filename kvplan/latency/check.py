"""How far the tables can be trusted: samples that they never saw, and times that others published."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from kvplan.calibration import find_calibration
from kvplan.deployment import gpu_and_count, make_deployment
from kvplan.errors import ProfileError
from kvplan.gpu import find_gpu
from kvplan.interval import Interval
from kvplan.latency.device import Calibration, read_calibration
from kvplan.latency.kernels import KERNELS
from kvplan.latency.make import make_clock
from kvplan.latency.meter import Basis
from kvplan.latency.tables import Tables
from kvplan.profiles import load, paths
from kvplan.sources import resolve
from kvplan_kernels.calibration import MEASURED

EVERY = 3
"""Where nothing was held out, every third sample is left out and predicted from the rest."""
GOAL_MEDIAN, GOAL_P90 = 0.05, 0.12
GOAL_KERNELS = ("kda_decode", "kda_prefill", "mla_decode", "mla_prefill", "mla_prefix")


@dataclass(frozen=True, slots=True)
class Guess:
    """One sample that was not used, and what the tables say in its place."""

    kernel: str
    shape: str
    measured_s: float
    predicted_s: Interval

    @property
    def error(self) -> float:
        return self.predicted_s.value / self.measured_s - 1

    @property
    def covered(self) -> bool:
        return self.predicted_s.low <= self.measured_s <= self.predicted_s.high


@dataclass(frozen=True, slots=True)
class Errors:
    """Shares of the measured time: median and 90th percentile of the absolute error, the worst one with its sign."""

    kernel: str
    samples: int
    median: float
    p90: float
    worst: float
    worst_shape: str
    covered: float


@dataclass(frozen=True, slots=True)
class PublicPoint:
    """A published time beside the prediction."""

    what: str
    model: str
    gpu: str
    source: str
    low_s: float
    high_s: float
    predicted_s: Interval
    basis: Basis
    sequences: int = 0
    """Of a decode step; 0 for a prefill."""
    address: str = ""
    note: str = ""
    """What the prediction is known to leave out, where it misses."""

    @property
    def holds(self) -> bool:
        """The interval holds all that was published."""
        return self.predicted_s.low <= self.low_s and self.high_s <= self.predicted_s.high


def held_out(name: str, against: str | None) -> tuple[str, list[Guess]]:
    """(what was left out, guesses): samples of `against`, else of NAME-held-out, else every third of NAME itself."""
    calibration = read_calibration(name)
    if against is None and f"{name.lower()}-held-out" in paths("calibration"):
        against = f"{name.lower()}-held-out"
    if against is not None:
        samples = find_calibration(against).get("samples", [])
        return f"samples of {against}", list(_guesses(calibration.samples, samples))
    return f"every third sample of {name}", list(_thirds(calibration))


def _thirds(calibration: Calibration) -> Iterator[Guess]:
    samples = calibration.samples
    for first in range(EVERY):
        kept = [sample for number, sample in enumerate(samples) if number % EVERY != first]
        yield from _guesses(kept, samples[first::EVERY])


def _guesses(known: Sequence[dict[str, Any]], asked: Sequence[dict[str, Any]]) -> Iterator[Guess]:
    """A guess per sample whose kernel, owner and format the tables know."""
    tables = {owner: Tables(known, owner, alone=True) for owner in {sample["owner"] for sample in asked}}
    for sample in asked:
        shape = {key: value for key, value in sample.items() if key not in (*MEASURED, "owner", "kernel")}
        if sample["kernel"] == "host_copy":
            shape["bytes"] = sample["bytes"]
        if sample["kernel"] not in KERNELS:
            continue
        try:
            reading = tables[sample["owner"]].seconds(sample["kernel"], **shape)
        except ProfileError:
            continue
        words = " ".join(f"{key}={value}" for key, value in shape.items())
        yield Guess(sample["kernel"], words, sample["median_s"], reading.seconds)


def errors(guesses: Sequence[Guess]) -> list[Errors]:
    """Per kernel, and over the kernels that the goals are about. Raises ProfileError where nothing was guessed."""
    if not guesses:
        raise ProfileError("no sample could be left out and predicted: kernels, owners or formats do not meet")
    kernels = list(dict.fromkeys(guess.kernel for guess in guesses))
    groups = {kernel: [guess for guess in guesses if guess.kernel == kernel] for kernel in kernels}
    together = [guess for guess in guesses if guess.kernel in GOAL_KERNELS]
    return [_errors(kernel, group) for kernel, group in groups.items()] + (
        [_errors("KDA and MLA", together)] if together else []
    )


def _errors(kernel: str, guesses: Sequence[Guess]) -> Errors:
    ordered = sorted(guesses, key=lambda guess: abs(guess.error))
    count = len(ordered)
    return Errors(
        kernel, count, _at(ordered, 0.5), _at(ordered, 0.9), ordered[-1].error, ordered[-1].shape,
        sum(guess.covered for guess in ordered) / count,
    )  # fmt: skip


def _at(ordered: Sequence[Guess], share: float) -> float:
    """The smallest error that at least this share of the guesses stays within."""
    place = min(len(ordered) - 1, max(0, -int(-share * len(ordered) // 1) - 1))
    return abs(ordered[place].error)


def public_points(name: str) -> list[PublicPoint]:
    """Every published point, predicted with one calibration: first tokens, then steps."""
    rows = [row for path in paths("points").values() for row in load(path).get("points", [])]
    return [_point(row, name) for row in sorted(rows, key=lambda row: "sequences" in row)]


def _point(row: dict[str, Any], name: str) -> PublicPoint:
    deployment = make_deployment(**row["flags"])
    gpu = find_gpu(gpu_and_count(row["flags"]["gpu"])[0])
    clock = make_clock(resolve(row["model"]), deployment, gpu, name)
    batch, tokens = row.get("sequences"), row["tokens"]
    predicted = clock.decode_step_s(batch, tokens) if batch else clock.prefill_s(tokens, 0)
    return PublicPoint(
        row["what"], row["model"], row["flags"]["gpu"], row["source"], row["low_s"], row["high_s"], predicted,
        clock.basis, batch or 0, row.get("address", ""), row.get("note", ""),
    )  # fmt: skip
