"""Which calibration speaks for a GPU, and how far: its own, one of its architecture, or any for bounds alone."""

import re
from dataclasses import dataclass
from typing import Any

from kvplan.calibration import find_calibration
from kvplan.errors import KvplanError, ProfileError, UsageError
from kvplan.gpu import Gpu, find_gpu
from kvplan.latency.meter import Basis
from kvplan.profiles import paths

AUTO = "auto"
DATASHEET = "datasheet"
_BESIDE = r"-(x\d+|peers|experts)"
"""Files that belong to a calibration: collectives on several GPUs, other owners' kernels, engines' routed experts."""


@dataclass(frozen=True, slots=True)
class Calibration:
    """Samples of one kind of GPU, from one file or several."""

    names: tuple[str, ...]
    gpu: Gpu
    date: str
    samples: list[dict[str, Any]]

    @property
    def title(self) -> str:
        return " + ".join(self.names)


def read_calibration(name: str) -> Calibration:
    """By name, path, or several of either with commas. A bundled one brings the files beside it (`h200-x2`).

    Raises ProfileError where a file is wrong, its GPU has no profile, or two files are of different GPUs.
    """
    names = [part.strip() for part in name.split(",") if part.strip()]
    names += [
        other for other in sorted(paths("calibration")) for one in names if re.fullmatch(one.lower() + _BESIDE, other)
    ]
    documents = [find_calibration(one) for one in dict.fromkeys(names)]
    if not documents:
        raise UsageError("--calibration is empty; `kvplan calibrations list` shows what there is")
    gpus = [_gpu_of(one, document) for one, document in zip(dict.fromkeys(names), documents, strict=True)]
    if len({gpu.name for gpu in gpus}) > 1:
        raise ProfileError(f"--calibration {name[:60]}: files of different GPUs ({', '.join(g.name for g in gpus)})")
    samples = [sample for document in documents for sample in document.get("samples", [])]
    return Calibration(tuple(dict.fromkeys(names)), gpus[0], str(documents[0]["source"].get("date", "")), samples)


def _gpu_of(name: str, document: dict[str, Any]) -> Gpu:
    try:
        return find_gpu(str(document["device"].get("name", "")))
    except KvplanError as error:
        raise ProfileError(f"calibration {name[:60]}: device.name: {error}") from None


def nearest_calibration(gpu: Gpu) -> str | None:
    """The bundled calibration to use for a GPU: its own, else one of its architecture, else any; None without any."""
    known = [name for name in sorted(paths("calibration")) if not re.search(rf"{_BESIDE}$|held", name)]

    def far(name: str) -> int:
        other = _gpu_of(name, find_calibration(name))
        return 0 if other.name == gpu.name else 1 if other.architecture == gpu.architecture else 2

    return min(known, key=far, default=None)


def own_calibration(gpu: Gpu) -> str | None:
    """The bundled calibration of this very GPU; None where there is none."""
    found = nearest_calibration(gpu)
    return found if found and _gpu_of(found, find_calibration(found)).name == gpu.name else None


def datasheet_of(gpu: Gpu) -> Calibration:
    """No samples at all: what the datasheet's rates allow."""
    return Calibration((DATASHEET,), gpu, "", [])


def basis_of(gpu: Gpu, calibration: Calibration, *, across_nodes: bool) -> Basis:
    """How far the calibration speaks for this GPU in this layout."""
    if across_nodes or not calibration.samples or gpu.architecture != calibration.gpu.architecture:
        return "bounds"
    return "measured" if gpu.name == calibration.gpu.name else "scaled"
