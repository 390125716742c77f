"""The pool of one rank before it is known: what vLLM's memory profiling leaves (v1/worker/gpu_worker.py).

pool = memory × utilization − weights − activation peak − CUDA graphs (from 0.18.1) − everything outside the allocator

The activation peak follows from the model's widths. The other parts are constants fitted on 38 public start-up logs
that print the pool: 32 of GPUs with memory of their own (RTX PRO 6000, RTX 3090, RTX 5090, L40S, A100 and H200; Qwen3,
Qwen3.6, gpt-oss, Gemma 4, GLM-5.1 and Kimi K3 at TP 1 to 16, vLLM 0.10.2 to 0.28) and 6 of GB10, whose host shares its
memory. What is left beside weights and activations is 0 to 1.6 GiB on one GPU (median 0.4), 0.5 to 1.3 at TP 2, 1.2 to
1.9 at TP 4 and 2.3 at TP 8 and 16.
"""

from dataclasses import dataclass

from kvplan.deployment import Deployment, Layout
from kvplan.document import Assumption
from kvplan.engines._drafts import draft_tokens, draft_weight_bytes
from kvplan.engines.base import Share
from kvplan.engines.vllm.settings import Settings, device_of, settings_for
from kvplan.gpu import find_gpu
from kvplan.model import Model, Weight
from kvplan.pool import Pool
from kvplan.units import GIB, MIB, ceil_div

_ELEMENT = 2
"""Activations are 16 bits."""
_SAMPLER_COPIES = 3
"""Logits in fp32, sorted values and probabilities, at the sampler's warm-up."""
_SORTED_COPIES = 9
"""The same where no FlashInfer sampler is installed: PyTorch sorts with 64-bit indices and keeps the sums."""
_VISION_BYTES_PER_TOKEN = 180_000
"""What profiling the encoder adds per batched token of a multi-modal model."""
_INDEX_TOKENS, _GATHER_TOKENS, _INDEX_LOGITS = 40, 5, 512 * MIB
"""Workspaces of sparse latent attention, in maximal lengths: gathered index keys and gathered rows
(v1/attention/backends/mla/indexer.py and flashmla_sparse.py, VLLM_SPARSE_INDEXER_MAX_LOGITS_MB)."""


@dataclass(frozen=True, slots=True)
class Part:
    """Bytes of one part of the budget and the range that they lie in."""

    name: str
    bytes: int
    low: int
    high: int
    kind: str
    source: str


def predict_pool(share: Share, memory_bytes: int, weights_bytes: int, deployment: Deployment) -> Pool:
    """The pool of the fullest rank, with a range from the parts that are not known exactly."""
    layers = [layer for stage in share.stages for layer in stage]
    limit = deployment.max_model_len or share.model.max_context_tokens or 8192
    settings = settings_for(deployment, share.layout, layers, limit)
    asked = deployment.gpu_memory_utilization
    utilization = settings.rules.gpu_memory_utilization if asked is None else asked
    budget = int(memory_bytes * utilization)
    drafted = draft_weight_bytes(deployment, Layout(tp=share.layout.tp))
    weights_bytes += drafted or 0
    spread = weights_bytes // 200
    parts = (
        Part("weights_bytes", weights_bytes, weights_bytes - spread, weights_bytes + spread, "derived", "the weights"),
        _activation(share, settings, limit, bool(share.model.towers) and not deployment.language_model_only),
        _graphs(share, settings, deployment),
        _other(share, deployment),
    )
    weights, activation, graphs, other = parts
    stated = Assumption(
        "gpu_memory_utilization", utilization, "assumed" if asked is None else "given",
        f"vLLM {settings.rules.version}'s default" if asked is None else "--gpu-memory-utilization",
    )  # fmt: skip
    return Pool(
        bytes=budget - sum(part.bytes for part in parts),
        low_bytes=budget - sum(part.high for part in parts),
        high_bytes=budget - sum(part.low for part in parts),
        source="predicted",
        total_bytes=memory_bytes,
        weights_bytes=weights.bytes,
        activation_bytes=activation.bytes,
        graphs_bytes=graphs.bytes,
        other_bytes=other.bytes,
        assumptions=(stated, *(_assumption(part) for part in (activation, graphs, other)), *_unknown(drafted)),
    )


def _unknown(drafted: int | None) -> tuple[Assumption, ...]:
    if drafted is not None:
        return ()
    return (Assumption("draft_weights_bytes", 0, "assumed", "nothing sizes the draft's weights"),)


def _assumption(part: Part) -> Assumption:
    note = f"{part.source}; {part.low / GIB:.2f} to {part.high / GIB:.2f} GiB"
    return Assumption(part.name, part.bytes, "derived" if part.kind == "derived" else "assumed", note)


def _widths(model: Model, tp: int) -> tuple[int, int]:
    """Elements that the widest block keeps per token beside the residual stream, and the vocabulary."""
    if model.weights is None:
        return 0, 0
    dense = max((max(weight.shape) for weight in _weights(model, "mlp", "shared_expert")), default=0)
    experts = list(_weights(model, "expert"))
    inner = min((min(weight.shape) for weight in experts), default=0)
    outer = max((max(weight.shape) for weight in experts), default=0)
    routed = model.experts_per_token * (max(2 * ceil_div(inner, tp), outer) + ceil_div(inner, tp))
    vocab = max((weight.shape[0] for weight in model.weights.outer if weight.role in ("embedding", "head")), default=0)
    return max(3 * ceil_div(dense, tp), routed), vocab


def _weights(model: Model, *roles: str) -> list[Weight]:
    blocks = model.weights.blocks if model.weights else ()
    return [weight for block in blocks for weight in block if weight.role in roles and len(weight.shape) == 2]


def _activation(share: Share, settings: Settings, limit: int, sees: bool) -> Part:
    """The larger of one full batch through the widest block and the sampler's logits; encoder and index workspaces."""
    model, batched = share.model, settings.max_num_batched_tokens
    width, vocab = _widths(model, share.layout.tp)
    forward = batched * width * _ELEMENT
    sampler = _SAMPLER_COPIES * settings.max_num_seqs * vocab * 4
    vision = batched * _VISION_BYTES_PER_TOKEN // share.layout.tp if sees else 0
    sparse = 0
    if any(layer.sparse for layer in model.mixers()):
        sparse = limit * (_INDEX_TOKENS * 132 + _GATHER_TOKENS * 576 * _ELEMENT) + _INDEX_LOGITS
    size = max(forward, sampler) + vision + sparse
    if not width:
        return Part("activation_bytes", 3 * GIB // 2, GIB // 4, 6 * GIB, "assumed", "the model's widths are not known")
    low = min(forward, sampler) + vision // 4 + sparse // 4
    high = forward * 3 // 2 + sampler * _SORTED_COPIES // _SAMPLER_COPIES + vision * 3 // 2 + sparse * 5 // 4 + GIB // 2
    return Part("activation_bytes", size, low, high, "derived", f"{batched:,} batched tokens through the widest block")


def _graphs(share: Share, settings: Settings, deployment: Deployment) -> Part:
    """CUDA graphs, which count before the pool is sized from 0.18.1."""
    if deployment.enforce_eager or not settings.rules.graphs_before_pool:
        reason = "--enforce-eager" if deployment.enforce_eager else "taken beside the pool before 0.18.1"
        return Part("graphs_bytes", 0, 0, 0, "derived", reason)
    layers = max(len(stage) for stage in share.stages)
    size = (16 if share.layout.tp > 1 else 3) * MIB * layers
    return Part(
        "graphs_bytes",
        size,
        0,
        (3 if draft_tokens(deployment) else 2) * size,
        "assumed",
        "16 MiB a layer across GPUs, 3 MiB on one",
    )


def _other(share: Share, deployment: Deployment) -> Part:
    """CUDA context growth, NCCL buffers and kernel workspaces; on unified memory also what the host takes."""
    if deployment.gpu is not None and _unified(deployment):
        return Part("other_bytes", 2 * GIB, GIB // 4, 5 * GIB, "assumed", "measured on GB10, host included")
    ranks = share.layout.tp
    if ranks == 1:
        return Part("other_bytes", 3 * GIB // 8, 0, 2 * GIB, "assumed", "median of 12 logs of one GPU")
    size = GIB + min(ranks, 8) * 160 * MIB
    return Part(
        "other_bytes", size, GIB // 4, size + 3 * GIB // 2, "assumed", "1 GiB and 160 MiB a GPU up to 8, NCCL included"
    )


def _unified(deployment: Deployment) -> bool:
    name = device_of(deployment).name
    return bool(name) and find_gpu(name).unified_memory
