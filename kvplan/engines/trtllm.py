"""TensorRT-LLM's PyTorch backend: a pool of blocks from a fraction of what is free, states from the same quota.

docs/engines/trtllm.md works an example by hand and lists what is not modelled.
"""

from dataclasses import dataclass
from typing import Any, ClassVar

from kvplan.deployment import Deployment
from kvplan.document import Assumption
from kvplan.dtypes import Dtypes
from kvplan.engines.base import Allocation, Engine, Fit, Share, resolve_dtypes
from kvplan.errors import UsageError
from kvplan.layers.base import Layer
from kvplan.model import Model
from kvplan.pool import Pool
from kvplan.units import GIB, MIB, ceil_div

TOKENS_PER_BLOCK = 32
FREE_FRACTION = 0.9
MAX_BATCH_SIZE = 2048
"""trtllm-serve's default; a model with states rarely has memory for so many, so there it must be given."""
DUMMY_SLOTS = 1
"""State slots that CUDA-graph padding keeps; attention data parallelism adds one."""
RUNTIME = {1: 620, 2: 1900}
"""MiB before the weights: the CUDA context alone, or with NCCL (measured for SGLang, engines/sglang/pool.py)."""
ACTIVATIONS = (2 * GIB, GIB // 2, 6 * GIB)
"""Peak of the profiling run beyond the weights: point, low, high. It grows with max_num_tokens; assumed."""

NOT_MODELLED = [
    "the split of KV cache manager V2 when kv_cache_config.avg_seq_len is not the asked length",
    "speculative and replay buffers of the states",
    "windows: every layer is priced at its full length, as max_attention_window is by default",
    "disaggregated serving, host cache tiers, context parallelism",
]


class TrtLlm(Engine):
    """Blocks of 32 tokens; for hybrid models one state slot per sequence that may be resident, and its snapshots."""

    name: ClassVar[str] = "trtllm"
    rules_version: ClassVar[str] = "KV cache manager V2"
    source: ClassVar[str] = (
        "TensorRT-LLM _torch/pyexecutor/_util.py, kv_cache/kv_cache_manager_v2.py, mamba_cache_manager_v2.py"
    )

    def dtypes(self, model: Model, deployment: Deployment) -> Dtypes:
        """KV as the checkpoint's quantization says, else the model's dtype; a state without a dtype follows the model.

        Kinds that engines keep in fp32 whatever the model's dtype (KDA) stay so.
        """
        quantized = str(model.quantization.get("kv_cache_quant_algo")).upper() == "FP8"
        fixed = next((mixer.state_dtype_fixed for mixer in model.mixers() if mixer.state_dtype_fixed), None)
        return resolve_dtypes(
            model,
            deployment,
            kv_auto="fp8" if quantized else model.dtype,
            state_auto=model.state_dtype or fixed or model.dtype,
            conv_auto=model.dtype,
        )

    def state_reason(self, model: Model) -> str:
        return "the config asks for it" if model.state_dtype else "mamba_ssm_cache_dtype auto: the model's dtype"

    def pool(self, share: Share, memory_bytes: int, weights_bytes: int, deployment: Deployment) -> Pool:
        """free_gpu_memory_fraction of what the profiling run leaves (KvCacheCreator)."""
        fraction = deployment.free_gpu_memory_fraction or deployment.gpu_memory_utilization or FREE_FRACTION
        runtime = RUNTIME[min(2, share.layout.tp * share.layout.pp)] * MIB

        def left(activations: int) -> int:
            return int((memory_bytes - runtime - weights_bytes - activations) * fraction)

        point, low, high = ACTIVATIONS
        given = deployment.free_gpu_memory_fraction is not None
        said = Assumption(
            "free_gpu_memory_fraction", fraction, "given" if given else "assumed", "of what is free after loading"
        )
        peak = Assumption("activation_bytes", point, "assumed", "peak of the profiling run; grows with max_num_tokens")
        return Pool(
            left(point), left(high), left(low), "predicted", memory_bytes, weights_bytes, point, 0,
            memory_bytes - weights_bytes - point - left(point), (said, peak),
        )  # fmt: skip

    def allocate(self, share: Share, pool_bytes: int, deployment: Deployment, contexts: list[int]) -> Allocation:
        quota = _quota(share, deployment)
        fits = tuple(_fit(quota, pool_bytes, tokens) for tokens in contexts)
        return Allocation(fits, _figures(quota, pool_bytes, deployment, contexts, fits))


@dataclass(frozen=True, slots=True)
class _Quota:
    """What one rank charges to its cache quota."""

    token_bytes: int
    state_bytes: int
    tokens_per_block: int
    stages: int
    dummies: int
    max_batch_size: int | None
    """None: not given, and states make it matter."""
    fixed_snapshots: int
    """Kept per resident sequence (additional_snapshot_offsets)."""
    interval: int | None
    """periodic_snapshot_interval; its snapshots can be evicted."""
    max_tokens: int | None = None

    def blocks(self, tokens: int) -> int:
        return ceil_div(tokens, self.tokens_per_block)

    def sequence_bytes(self, tokens: int) -> int:
        """One resident sequence: blocks of KV, its live state, its fixed snapshots and a partial block for them."""
        partial = self.tokens_per_block * self.token_bytes if self.fixed_snapshots and self.state_bytes else 0
        states = (1 + self.fixed_snapshots) * self.state_bytes * self.stages
        return self.blocks(tokens) * self.tokens_per_block * self.token_bytes + states + partial

    def pool_blocks(self, tokens: int) -> int:
        """Blocks of a pool of so many tokens: rounded up without states (calculate_max_num_blocks), down with them."""
        return tokens // self.tokens_per_block if self.state_bytes else self.blocks(tokens)

    def state_slots(self, sequences: int) -> int:
        return sequences * self.stages * (1 + self.fixed_snapshots) + self.dummies


def _quota(share: Share, deployment: Deployment) -> _Quota:
    if share.layout.dcp > 1:
        raise UsageError(f"--dcp {share.layout.dcp}: context parallelism is not modelled for TensorRT-LLM")
    stages = [(_token_bytes(stage, share.dtypes), _state_bytes(stage, share.dtypes)) for stage in share.stages]
    token_bytes, state_bytes = max(stages)
    batch = deployment.max_batch_size or deployment.max_num_seqs
    if batch is None and not state_bytes:
        batch = MAX_BATCH_SIZE
    return _Quota(
        token_bytes=token_bytes,
        state_bytes=max(state for _, state in stages) if state_bytes or share.layout.pp > 1 else 0,
        tokens_per_block=deployment.tokens_per_block or TOKENS_PER_BLOCK,
        stages=share.layout.pp,
        dummies=DUMMY_SLOTS + deployment.enable_dp_attention,
        max_batch_size=batch,
        fixed_snapshots=deployment.snapshots or 0,
        interval=deployment.snapshot_every,
        max_tokens=deployment.max_tokens,
    )


def _token_bytes(stage: list[Layer], dtypes: Dtypes) -> int:
    for layer in stage:
        if layer.kind in ("cross", "csa", "hca", "rwkv7"):
            raise UsageError(f"--engine trtllm: caches of {layer.kind} layers are not modelled; use --engine ideal")
    return sum(tensor.entry_bytes for layer in stage for tensor in layer.stored(dtypes) if tensor.per == "token")


def _state_bytes(stage: list[Layer], dtypes: Dtypes) -> int:
    return sum(
        tensor.entry_bytes for layer in stage for tensor in layer.stored(dtypes) if tensor.role in ("state", "conv")
    )


def _fit(quota: _Quota, pool_bytes: int, tokens: int) -> Fit:
    """Sequences of one length. With --max-batch-size the states of all of them are reserved whatever their number."""
    batch = quota.max_batch_size
    if pool_bytes <= 0:
        return Fit(tokens, 0, 0, "weights")
    if batch is None:
        left = pool_bytes - quota.dummies * quota.state_bytes
        sequences = max(0, left) // max(1, quota.sequence_bytes(tokens))
        kv = quota.blocks(tokens) * quota.tokens_per_block * quota.token_bytes
        return Fit(tokens, sequences, sequences, "kv" if kv >= quota.state_bytes else "state")
    room = _max_tokens(quota, pool_bytes, batch)
    if room is None:
        return Fit(tokens, 0, 0, "state")
    by_blocks = quota.pool_blocks(room) // quota.blocks(tokens) if quota.token_bytes else batch
    if by_blocks >= batch:
        return Fit(tokens, batch, batch, "max_num_seqs")
    return Fit(tokens, by_blocks, by_blocks, "kv")


def _max_tokens(quota: _Quota, pool_bytes: int, batch: int) -> int | None:
    """The tokens beside the states of `batch` sequences (_get_max_tokens_from_quota); None where they do not fit."""
    fixed = quota.state_slots(batch) * quota.state_bytes
    if (quota.fixed_snapshots or quota.interval) and quota.state_bytes:
        fixed += batch * quota.stages * quota.tokens_per_block * quota.token_bytes
    left = pool_bytes - fixed
    if left < quota.tokens_per_block * quota.token_bytes:
        return None
    if not quota.token_bytes:
        return 0
    if quota.interval and quota.state_bytes:
        whole = quota.interval * quota.token_bytes + quota.state_bytes
        left -= left // whole * quota.state_bytes
    tokens = left // quota.token_bytes
    return tokens if quota.max_tokens is None else min(tokens, quota.max_tokens)


def _figures(
    quota: _Quota, pool_bytes: int, deployment: Deployment, contexts: list[int], fits: tuple[Fit, ...]
) -> dict[str, Any]:
    batch = quota.max_batch_size or max(1, fits[-1].sequences)
    room = quota.pool_blocks(_max_tokens(quota, max(0, pool_bytes), batch) or 0)
    limit = deployment.max_model_len or contexts[-1]
    return {
        "block_tokens": quota.tokens_per_block,
        "page_bytes": quota.tokens_per_block * quota.token_bytes,
        "num_blocks": room,
        "blocks_per_sequence": [{"context_tokens": tokens, "blocks": quota.blocks(tokens)} for tokens in contexts],
        "kv_cache_tokens": room * quota.tokens_per_block,
        "max_concurrency": room / quota.blocks(limit),
        "state_slots": quota.state_slots(batch) if quota.state_bytes else None,
        "state_slot_bytes": quota.state_bytes or None,
        "slots_per_request": 1 + quota.fixed_snapshots if quota.state_bytes else None,
        "state_pool_bytes": quota.state_slots(batch) * quota.state_bytes if quota.state_bytes else None,
        "max_running_requests": batch,
        "not_modelled": NOT_MODELLED,
    }


ENGINE = TrtLlm()
