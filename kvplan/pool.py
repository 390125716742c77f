"""From a GPU's memory to the pool that caches live in, part by part."""

from dataclasses import dataclass
from typing import Literal

from kvplan.document import Assumption
from kvplan.errors import UsageError

DEFAULT_UTILIZATION = 0.92
"""vLLM's --gpu-memory-utilization since 0.20.2; 0.9 before."""


@dataclass(frozen=True, slots=True)
class Pool:
    """Bytes per rank for caches and states, with the range that the uncertain parts leave."""

    bytes: int
    low_bytes: int
    high_bytes: int
    source: Literal["given", "predicted", "logged"]
    total_bytes: int | None = None
    weights_bytes: int | None = None
    activation_bytes: int | None = None
    graphs_bytes: int | None = None
    other_bytes: int | None = None
    assumptions: tuple[Assumption, ...] = ()


def given_pool(size_bytes: int, memory_bytes: int | None, weights_bytes: int | None) -> Pool:
    """The pool that the user states (vLLM's --kv-cache-memory), taken as it is."""
    if memory_bytes is not None and size_bytes > memory_bytes:
        raise UsageError(f"--kv-cache-memory {size_bytes:,} B is more than the {memory_bytes:,} B of the GPU")
    return Pool(size_bytes, size_bytes, size_bytes, "given", memory_bytes, weights_bytes)


def bytes_only_pool(memory_bytes: int, weights_bytes: int, utilization: float | None) -> Pool:
    """What is left of the budget after weights and nothing else: an upper bound, as no engine runs in so little."""
    share = DEFAULT_UTILIZATION if utilization is None else utilization
    budget = int(memory_bytes * share)
    left = budget - weights_bytes
    stated = Assumption(
        name="gpu_memory_utilization",
        value=share,
        kind="assumed" if utilization is None else "given",
        source="vLLM's default since 0.20.2" if utilization is None else "--gpu-memory-utilization",
    )
    bound = Assumption(
        name="overhead_bytes",
        value=0,
        kind="assumed",
        source="ideal counts no activations, CUDA graphs or runtime memory, so its pool is an upper bound",
    )
    return Pool(left, left, left, "predicted", memory_bytes, weights_bytes, 0, 0, 0, (stated, bound))
