"""GPUs by the names people type: memory as the driver reports it, bandwidth, links, each with its source."""

import subprocess
from difflib import get_close_matches
from functools import cache
from pathlib import Path
from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from kvplan.errors import DeviceError, ProfileError
from kvplan.profiles import load, paths
from kvplan.units import MIB

SMI = ("nvidia-smi", "--query-gpu=name,memory.total,memory.reserved", "--format=csv,noheader,nounits")
SMI_TIMEOUT_S = 3
_MAKERS = ("nvidia-", "amd-", "geforce-", "instinct-", "tesla-")

Name = Annotated[str, Field(min_length=1, max_length=60)]
Positive = Annotated[int, Field(gt=0, le=1 << 60)]


class Reference(BaseModel):
    """Where a figure stands in public."""

    model_config = ConfigDict(frozen=True, strict=True, extra="forbid")

    title: str
    url: str
    date: str
    note: str = ""


class Sources(BaseModel):
    """One reference per group of figures."""

    model_config = ConfigDict(frozen=True, strict=True, extra="forbid")

    memory: Reference
    bandwidth: Reference
    flops: Reference
    links: Reference


class Gpu(BaseModel):
    """One GPU model. Bytes are integers, rates are bytes or operations per second, links count one direction."""

    model_config = ConfigDict(frozen=True, strict=True, extra="forbid")

    schema_: Literal["kvplan.gpu/1"] = Field(alias="schema")
    name: Name
    title: str
    aliases: tuple[Name, ...] = Field(default=(), strict=False)
    vendor: Literal["NVIDIA", "AMD"]
    architecture: str
    sm: Positive | None = None
    """CUDA compute capability times ten; None on AMD."""
    memory_bytes: Positive
    """nvidia-smi's or amd-smi's total."""
    memory_quality: Literal["driver", "datasheet"]
    memory_nominal: str
    cuda_memory_bytes: Positive | None = None
    """What a process sees as total (cudaMemGetInfo): the driver's reserve is off. Engines take their fraction of it.
    From logs with two decimals of a GiB, so within 5 MiB, and driver versions differ by some MiB."""
    bandwidth_bytes_per_s: Positive
    bf16_flops: Positive
    fp8_flops: Positive | None = None
    """Dense, as bf16_flops; None where the tensor cores have no fp8."""
    link: str
    link_bytes_per_s: Positive
    """To the other GPUs of a node, per GPU and direction."""
    pcie_generation: Positive | None = None
    pcie_bytes_per_s: Positive | None = None
    unified_memory: bool = False
    """True where the GPU has no memory of its own and shares the host's."""
    gpus_per_node: Positive
    source: Sources

    @property
    def engine_memory_bytes(self) -> int:
        """The total that an engine's memory fraction applies to, as well as it is known."""
        return self.cuda_memory_bytes or self.memory_bytes


def _spelled(name: str) -> str:
    """`NVIDIA GeForce RTX 4090`, `rtx_4090` and `RTX-4090` are one name."""
    short = "-".join(name.lower().replace("_", " ").replace("-", " ").split())
    for maker in _MAKERS:
        short = short.removeprefix(maker)
    return short


def _parse(path: Path) -> Gpu:
    try:
        return Gpu.model_validate(load(path))
    except ValidationError as error:
        first = error.errors()[0]
        field = ".".join(str(part) for part in first["loc"]) or "the profile"
        raise ProfileError(f"{path}: {field}: {first['msg']}") from None


@cache
def _by_name() -> dict[str, Path]:
    """Profile paths by file name, name and alias."""
    found: dict[str, Path] = {}
    for path in paths("gpus").values():
        try:
            aliases = load(path).get("aliases", [])
        except ProfileError:
            aliases = []
        for name in (path.stem, *(aliases if isinstance(aliases, list) else [])):
            found.setdefault(_spelled(str(name)), path)
    return found


def find_gpu(name: str) -> Gpu:
    """The profile of that name or alias, whatever the case. Raises ProfileError with the nearest names."""
    spelled = _spelled(name)
    path = paths("gpus").get(spelled) or _by_name().get(spelled)
    if path is None:
        near = get_close_matches(spelled, _by_name(), n=3, cutoff=0.5)
        hint = f"; did you mean {' or '.join(near)}?" if near else "; `kvplan gpus list` shows them"
        raise ProfileError(f"no GPU profile named {name[:40]!r}{hint}")
    return _parse(path)


def list_gpus() -> list[Gpu]:
    """Every GPU profile, by name."""
    return sorted((_parse(path) for path in paths("gpus").values()), key=lambda gpu: gpu.name)


def _ask_driver() -> list[list[str]]:
    """Name, total MiB and reserved MiB of each GPU here. Raises DeviceError where there is no answer."""
    hint = "name one with --gpu, for example --gpu h200:8, or give --gpu-memory"
    try:
        answer = subprocess.run(SMI, capture_output=True, text=True, timeout=SMI_TIMEOUT_S, check=False)
    except FileNotFoundError:
        raise DeviceError(f"no GPU found here: nvidia-smi is not installed; {hint}") from None
    except (OSError, subprocess.TimeoutExpired):
        raise DeviceError(f"no GPU found here: nvidia-smi gave no answer within {SMI_TIMEOUT_S} s; {hint}") from None
    rows = [[cell.strip() for cell in line.split(",")] for line in answer.stdout.splitlines() if line.count(",") == 2]
    if answer.returncode or not rows:
        raise DeviceError(f"no GPU found here: nvidia-smi lists none; {hint}")
    return rows


def detect() -> tuple[Gpu, int]:
    """The GPU model of this machine and how many there are, with the driver's own memory figure.

    Raises DeviceError where there is none or they differ, ProfileError where kvplan has no profile of it.
    """
    rows = _ask_driver()
    names = sorted({row[0] for row in rows})
    if len(names) > 1:
        raise DeviceError(f"different GPUs here ({', '.join(names)[:120]}); name one with --gpu")
    gpu = find_gpu(names[0])
    total, reserved = rows[0][1], rows[0][2]
    if not total.isascii() or not total.isdecimal():
        return gpu, len(rows)
    figures: dict[str, object] = {"memory_bytes": int(total) * MIB, "memory_quality": "driver"}
    figures["cuda_memory_bytes"] = (int(total) - int(reserved)) * MIB if reserved.isdecimal() else None
    return gpu.model_copy(update=figures), len(rows)


def auto_gpu() -> Gpu:
    """The GPU model of this machine; see `detect`."""
    return detect()[0]
