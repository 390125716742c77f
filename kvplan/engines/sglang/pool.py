"""What SGLang finds free for its pools, predicted: pre-load free × fraction − weights."""

from kvplan.deployment import Deployment, gpu_and_count
from kvplan.document import Assumption
from kvplan.engines.base import Share
from kvplan.engines.sglang.defaults import has_encoder, mem_fraction_static, memory_mib
from kvplan.engines.sglang.settings import settings_for
from kvplan.gpu import find_gpu
from kvplan.pool import Pool
from kvplan.units import GIB, MIB

RUNTIME = {1: (620, 400, 950), 8: (1900, 1100, 2700)}
"""MiB in use before the weights load (point, low, high): the CUDA context alone, or with NCCL over eight ranks.

Measured: an 80 GB H100 (79.1 GiB visible) had 78.48 GiB before loading, an H200 (139.8 GiB) at TP8 had 137.90 GiB.
"""
WEIGHT_RANGE = 0.01
"""Loaded weights beside the derived ones: padding and repacking."""


def _visible(deployment: Deployment, memory_bytes: int) -> int:
    """What a process sees as total, where the GPU's profile says: the driver's own reserve is off."""
    if deployment.gpu is None or deployment.gpu_memory is not None or deployment.gpu.lower().startswith("auto"):
        return memory_bytes
    return min(memory_bytes, find_gpu(gpu_and_count(deployment.gpu)[0]).engine_memory_bytes)


def predict_pool(share: Share, memory_bytes: int, weights_bytes: int, deployment: Deployment) -> Pool:
    """The `rest` of KVCacheConfigurator._profile_available_bytes, with the range its parts leave."""
    settings = settings_for(share.model, deployment)
    memory_bytes = _visible(deployment, memory_bytes)
    world = share.layout.tp * share.layout.pp * settings.attn_dp
    mib = memory_mib(deployment) or memory_bytes / MIB
    fraction = deployment.mem_fraction_static or deployment.gpu_memory_utilization
    derived = fraction is None
    if fraction is None:
        fraction = mem_fraction_static(share.model, deployment, settings, mib, world)
    reserve = settings.rules.multimodal_reserve_bytes if has_encoder(share.model, deployment) else 0
    point, low, high = (size * MIB for size in RUNTIME[1 if world == 1 else 8])
    spread = int(weights_bytes * WEIGHT_RANGE)

    def left(runtime: int, extra: int) -> int:
        return int((memory_bytes - runtime) * fraction) - weights_bytes - reserve - extra

    slack = memory_bytes - weights_bytes - point - reserve - left(point, 0)
    said = Assumption(
        name="mem_fraction_static",
        value=fraction,
        kind="derived" if derived else "given",
        source=f"SGLang {settings.rules.version}'s own default" if derived else "--mem-fraction-static",
    )
    runtime = Assumption(
        name="runtime_bytes",
        value=point,
        kind="measured",
        source="CUDA context on H100" if world == 1 else "CUDA context and NCCL buffers on H200, TP8",
    )
    slack_note = Assumption(
        name="slack_bytes",
        value=slack,
        kind="derived",
        source=f"left for activations and CUDA graphs: {1 - fraction:.3f} of {memory_bytes / GIB:.2f} GiB",
    )
    return Pool(
        left(point, 0), left(high, spread), left(low, -spread), "predicted",
        total_bytes=memory_bytes, weights_bytes=weights_bytes, activation_bytes=slack, graphs_bytes=0,
        other_bytes=point + reserve, assumptions=(said, runtime, slack_note),
    )  # fmt: skip
