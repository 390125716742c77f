"""From a GPU's memory to the pool that caches live in, part by part."""

from dataclasses import dataclass, replace
from typing import Literal

from kvplan.deployment import Deployment, gpu_and_count
from kvplan.document import Assumption
from kvplan.errors import UsageError
from kvplan.gpu import find_gpu
from kvplan.overheads import Overhead, measured_overheads

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


def measured_pool(pool: Pool, engine: str, rules_version: str, model: str, tp: int, deployment: Deployment) -> Pool:
    """A predicted pool with its uncertain parts replaced by what a boot log of the same deployment measured
    (`kvplan verify LOG --save`); the pool as it is where nobody measured it."""
    if deployment.gpu is None or pool.weights_bytes is None or pool.source != "predicted":
        return pool
    version = deployment.engine_version or rules_version
    found = next(
        (
            one
            for one in measured_overheads(engine, find_gpu(gpu_and_count(deployment.gpu)[0]).name)
            if _same(one, version, model, tp, deployment)
        ),
        None,
    )
    if found is None:
        return pool
    parts = (pool.activation_bytes or 0) + (pool.graphs_bytes or 0) + (pool.other_bytes or 0)
    left = pool.bytes + parts - found.other_bytes
    spread = pool.weights_bytes // 200
    said = Assumption(
        "other_bytes", found.other_bytes, "measured", f"a log of {engine} {version} on {found.gpu}, --save"
    )
    return replace(
        pool, bytes=left, low_bytes=left - spread, high_bytes=left + spread, activation_bytes=0, graphs_bytes=0,
        other_bytes=found.other_bytes, assumptions=(*pool.assumptions[:1], said),
    )  # fmt: skip


def _same(one: Overhead, version: str, model: str, tp: int, deployment: Deployment) -> bool:
    """What decides the overhead: release, model, ranks and the tokens of a batch."""
    asked = (version, model, tp, deployment.max_num_batched_tokens)
    return asked == (one.engine_version, one.model, one.tp, one.max_num_batched_tokens)
