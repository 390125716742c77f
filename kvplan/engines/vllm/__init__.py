"""vLLM: one pool of equal blocks, shared by attention and state layers.

docs/engines/vllm.md works an example by hand.
"""

from collections import Counter
from dataclasses import replace
from typing import Any, ClassVar

from kvplan.deployment import Deployment
from kvplan.document import Assumption, Binds
from kvplan.dtypes import Dtypes
from kvplan.engines._command import VLLM
from kvplan.engines._drafts import draft_layers, draft_tokens
from kvplan.engines.base import Allocation, Engine, Fit, Loading, Reuse, Share, Units, resolve_dtypes, snapshots_of
from kvplan.engines.vllm.blocks import block_counter, demand
from kvplan.engines.vllm.figures import Planned, figures
from kvplan.engines.vllm.groups import block_bytes, keep_whole, plan_groups
from kvplan.engines.vllm.model import Specs, model_specs
from kvplan.engines.vllm.pool import predict_pool
from kvplan.engines.vllm.reuse import reuse_of
from kvplan.engines.vllm.rules import NEWEST, rules_for
from kvplan.engines.vllm.settings import Settings, device_of, settings_for
from kvplan.errors import UsageError
from kvplan.model import Model
from kvplan.pool import Pool

_LONGEST = 1 << 30


class Vllm(Engine):
    """Pages of one size, groups of equal width, a pool of whole blocks."""

    name: ClassVar[str] = "vllm"
    rules_version: ClassVar[str] = ".".join(map(str, NEWEST))
    command_line = VLLM
    source: ClassVar[str] = "vllm 0.11.0 to 0.33.0, v1/core/kv_cache_planning.py and platforms/interface.py"

    def dtypes(self, model: Model, deployment: Deployment) -> Dtypes:
        """KV in the model's dtype unless the checkpoint asks for fp8; states as the layer's kind has it."""
        state = _state_auto(model, deployment)
        found = resolve_dtypes(
            model, deployment, kv_auto=_kv_auto(model, deployment), state_auto=state, conv_auto=model.dtype
        )
        return replace(found, kv=_record(model, deployment, found.kv))

    def state_reason(self, model: Model) -> str:
        if any(layer.state_dtype_fixed for layer in model.mixers()):
            return "vLLM keeps this kind of state in fp32"
        return "the config asks for it" if model.state_dtype else "vLLM follows the model's dtype"

    def loading(self, model: Model, deployment: Deployment) -> Loading:
        """MTP blocks only when they draft; MXFP4 experts in multiples of 128 rows (fused_moe/oracle/mxfp4.py).

        Without expert parallelism, routed experts are cut over tp × dp (FusedMoEParallelConfig.make).
        """
        return Loading(
            with_mtp=bool(model.mtp) and draft_tokens(deployment) > 0 and deployment.draft is None,
            with_vision=not deployment.language_model_only,
            moe_shard_multiple=128 if _mxfp4_experts(model, deployment) else 1,
            experts_over_dp=model.num_experts > 0 and deployment.ep == 1 and (deployment.dp or 1) > 1,
        )

    def pool(self, share: Share, memory_bytes: int, weights_bytes: int, deployment: Deployment) -> Pool:
        return predict_pool(share, memory_bytes, weights_bytes, deployment)

    def says(self, figures: dict[str, Any]) -> str:
        """Blocks and what they come to, as vLLM's own log has them, and where bytes are lost."""
        pages = figures["page_padding_fraction"]
        lost = f"; {figures['padding_layers']} padding layers" if figures["padding_layers"] else ""
        lost += f"; state pages padded by {pages:.2%}" if pages else ""
        return (
            f"{figures['num_blocks']:,} blocks of {figures['block_tokens'] or 0:,} tokens, "
            f"{figures['blocks_per_max_sequence']:,} for a sequence of {figures['max_model_len']:,}: "
            f"{figures['kv_cache_tokens'] or 0:,} tokens, {figures['max_concurrency'] or 0:.2f}x{lost}"
        )

    def allocate(self, share: Share, pool_bytes: int, deployment: Deployment, contexts: list[int]) -> Allocation:
        limit = deployment.max_model_len or contexts[-1]
        planned = _planned(share, pool_bytes, deployment, limit)
        fits = tuple(_fit(planned, deployment, tokens, pool_bytes) for tokens in contexts)
        most = share.model.max_context_tokens or _LONGEST
        found = figures(planned, deployment, contexts, limit, most)
        return Allocation(fits, found, (*planned.settings.assumptions, *_refusals(planned, deployment)))

    def units(self, share: Share, pool_bytes: int, deployment: Deployment, max_model_len: int) -> Units:
        planned = _planned(share, pool_bytes, deployment, max_model_len)
        count = block_counter(planned.groups, planned.dcp) if planned.groups else lambda tokens: 0
        keeps = deployment.snapshots or deployment.snapshot_every

        def of(tokens: int) -> int:
            return count(tokens) + (_kept(planned, deployment, tokens) if keeps else 0)

        usable = max(0, planned.num_blocks - 1) if planned.starts(max_model_len) else 0
        rule = f"blocks of {planned.specs.blocks.tokens or 0:,} tokens that a sequence holds while it decodes"
        specs = frozenset(Counter(group.spec for group in planned.groups).items())
        key = (specs, planned.dcp, planned.settings.mode, deployment.snapshots, deployment.snapshot_every)
        return Units("blocks", usable, of, rule, most_running=planned.settings.max_num_seqs, key=key)

    def reuse(self, share: Share, pool_bytes: int, deployment: Deployment, max_model_len: int) -> Reuse | None:
        return reuse_of(_planned(share, pool_bytes, deployment, max_model_len), deployment, max_model_len)


def _planned(share: Share, pool_bytes: int, deployment: Deployment, limit: int) -> Planned:
    """The pool cut into blocks, for sequences of at most `limit` tokens."""
    layers = [layer for stage in share.stages for layer in stage]
    settings = settings_for(deployment, share.layout, layers, limit)
    drafts = draft_layers(share.model, deployment, share.layout.tp)
    specs = model_specs(share.stages, drafts, settings, share.dtypes, deployment, limit)
    return plan_blocks(specs, settings, deployment, pool_bytes)


def _kv_auto(model: Model, deployment: Deployment) -> str:
    rules, device = rules_for(deployment.engine_version), device_of(deployment)
    if any(layer.packed for layer in model.mixers()):
        return "fp8_ds_mla"
    if model.kv_cache_dtype is not None and rules.since(0, 12, 0):
        return model.kv_cache_dtype
    if any(layer.sparse for layer in model.mixers()):
        if not rules.since(0, 12, 0) or (device.major == 12 and rules.since(0, 25, 1)):
            return "fp8_ds_mla"
        if device.major == 10 and rules.since(0, 32, 0) and model.model_type.startswith("glm"):
            return "fp8"
    return model.dtype


def _record(model: Model, deployment: Deployment, kv: str) -> str:
    """What fp8 means for sparse latent caches: FlashMLA's packed record, except on SM10x from 0.18.1."""
    if kv != "fp8":
        return kv
    if any(layer.packed for layer in model.mixers()):
        return "fp8_ds_mla"
    plain = device_of(deployment).major == 10 and rules_for(deployment.engine_version).since(0, 18, 1)
    return "fp8_ds_mla" if any(layer.sparse for layer in model.mixers()) and not plain else kv


def _state_auto(model: Model, deployment: Deployment) -> str:
    fixed = next((layer.state_dtype_fixed for layer in model.mixers() if layer.state_dtype_fixed), None)
    if fixed is None:
        return model.state_dtype or ("fp32" if model.model_type == "nemotron_h" else model.dtype)
    asked = deployment.mamba_ssm_dtype
    if asked not in ("auto", fixed) and not rules_for(deployment.engine_version).kda_state_free:
        raise UsageError(f"--mamba-ssm-dtype {asked}: before 0.30.0 vLLM keeps this model's state in {fixed}")
    if asked == "fp16":
        raise UsageError("--mamba-ssm-dtype fp16: vLLM keeps this model's state in fp32 or bf16")
    return fixed


def _mxfp4_experts(model: Model, deployment: Deployment) -> bool:
    asked = deployment.quantization
    stored = f"{model.quantization.get('quant_method')} {model.quantization.get('format')}"
    return "mxfp4" in (asked if asked is not None else stored).lower()


def plan_blocks(specs: Specs, settings: Settings, deployment: Deployment, pool_bytes: int) -> Planned:
    """Groups of the whole model, and the blocks that the fullest pipeline stage has room for."""
    packed = specs.packed or (deployment.kv_cache_layout or "L").startswith("B")
    laid = keep_whole(specs.specs) if deployment.disable_hybrid_kv_cache_manager else specs.specs
    groups = plan_groups(laid, settings.rules, packed=packed)
    starts = (0, *specs.stops[:-1])
    widths = [
        block_bytes([group.on_stage(start, stop) for group in groups], settings.rules)
        for start, stop in zip(starts, specs.stops, strict=True)
    ]
    widest = max(widths, default=0)
    blocks = max(0, pool_bytes) // widest if widest else 1
    return Planned(settings, specs, tuple(groups), deployment.num_gpu_blocks_override or blocks, widest, deployment.dcp)


def _fit(planned: Planned, deployment: Deployment, tokens: int, pool_bytes: int) -> Fit:
    """Sequences of one length; none where the engine would not start with the longest length asked for."""
    settings = planned.settings
    cap = settings.max_num_seqs
    if pool_bytes <= 0:
        return Fit(tokens, 0, 0, "weights")
    if not planned.groups:
        return Fit(tokens, cap, cap, "max_num_seqs")
    one = demand(planned.groups, tokens, _chunk(planned), planned.dcp).plus(_kept(planned, deployment, tokens))
    if not planned.starts(deployment.max_model_len or tokens):
        return Fit(tokens, 0, 0, one.binds)
    usable = planned.num_blocks - 1
    safe, packed = one.safe(usable), one.packed(usable)
    binds: Binds = "max_num_seqs" if safe >= cap else one.binds
    return Fit(tokens, min(safe, cap), min(max(safe, packed), cap), binds)


def _refusals(planned: Planned, deployment: Deployment) -> tuple[Assumption, ...]:
    """Limits that stop the engine from starting as asked, with the flag that lets it."""
    states = any(group.spec.kind == "state" for group in planned.groups)
    graphs = planned.settings.rules.since(0, 20, 2) and not deployment.enforce_eager
    if not states or not graphs or planned.settings.max_num_seqs <= planned.num_blocks:
        return ()
    note = f"vLLM starts with at most one sequence per state block; pass --max-num-seqs {planned.num_blocks} or less"
    return (Assumption("legal_max_num_seqs", planned.num_blocks, "derived", note),)


def _chunk(planned: Planned) -> int:
    """Tokens per prefill step; states that move are scheduled in whole blocks."""
    batched = planned.settings.max_num_batched_tokens
    if planned.settings.mode != "align":
        return batched
    block = planned.specs.blocks.tokens
    return max(block, batched // block * block)


def _kept(planned: Planned, deployment: Deployment, tokens: int) -> int:
    """Blocks of the saved states that the user wants to stay resident; mode `all` keeps them anyway."""
    states = sum(group.spec.kind == "state" for group in planned.groups)
    return 0 if planned.settings.mode == "all" else states * snapshots_of(deployment, tokens)


ENGINE = Vllm()
