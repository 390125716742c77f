"""What a kernel file hands to the bench: cases, and the prepared work behind each."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import torch

Shape = dict[str, int | str]


@dataclass(frozen=True)
class Traffic:
    """The least one call must do: bytes moved through device memory (each input once, each output once), FLOPs."""

    bytes: int
    flops: int


@dataclass(frozen=True)
class Work:
    """One prepared measurement. `calls` do the same job on different buffers, so that none finds its data in the L2.

    `check` compares the kernel, in the configuration that will be timed, with its fp64 reference and returns the
    relative error; the work may be timed only when that is at most `tolerance`.
    """

    calls: Sequence[Callable[[], object]]
    check: Callable[[], float]
    traffic: Traffic
    tolerance: float
    graph: bool = True  # False: timed call by call, for work that a CUDA graph would change


@dataclass(frozen=True)
class Case:
    """A kernel at a shape; nothing is allocated until `prepare` runs. `roof` names the ceiling to compare with."""

    kernel: str
    shape: Shape
    prepare: Callable[[torch.device], Work] = field(compare=False)
    roof: str = "inplace"
    owner: str = "kvplan"

    @property
    def key(self) -> str:
        shape = " ".join(f"{name}={value}" for name, value in self.shape.items())
        return f"{self.owner} {self.kernel} {shape}"


def relative_error(value: torch.Tensor, reference: torch.Tensor) -> float:
    """||value - reference|| / ||reference|| in fp64; NaN or a missing write makes it infinite, never small."""
    got, want = value.double(), reference.double().to(value.device)
    if not bool(torch.isfinite(got).all()):
        return float("inf")
    size = float(want.norm())
    return float((got - want).norm()) / size if size else float((got - want).norm())


def buffers_for(bytes_per_call: int, at_least: int = 400_000_000, most: int = 256) -> int:
    """How many buffers to rotate so that together they exceed any L2 several times over."""
    return max(1, min(most, -(-at_least // max(bytes_per_call, 1))))


def tensor(shape: Sequence[int], seed: int, device: torch.device, dtype: torch.dtype = torch.bfloat16) -> torch.Tensor:
    """Standard normal data; the seed makes a failing check repeatable."""
    generator = torch.Generator(device=device).manual_seed(seed)
    return torch.randn(tuple(shape), generator=generator, device=device).to(dtype)
