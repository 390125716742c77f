"""SGLang: one pool of state slots, one of KV tokens, both cut from what the weights leave.

docs/engines/sglang.md works an example by hand.
"""

from dataclasses import dataclass
from typing import Any, ClassVar

from kvplan.deployment import Deployment
from kvplan.document import Assumption, Binds
from kvplan.dtypes import Dtypes
from kvplan.engines._command import SGLANG
from kvplan.engines.base import Allocation, Engine, Fit, Reuse, Share, Units, resolve_dtypes
from kvplan.engines.sglang.cells import Cells, draft_of, own_stages, stage_cells
from kvplan.engines.sglang.host import host_pools
from kvplan.engines.sglang.kv import KvPool, size_kv
from kvplan.engines.sglang.pool import predict_pool
from kvplan.engines.sglang.rules import NEWEST, rules_for
from kvplan.engines.sglang.settings import Settings, gpu_sm, settings_for
from kvplan.engines.sglang.states import StateBytes, StatePool, balanced_ratio, size_states, state_bytes
from kvplan.engines.sglang.v4 import is_v4, size_v4
from kvplan.errors import UsageError
from kvplan.model import Model
from kvplan.pool import Pool
from kvplan.units import ceil_div

TRACK_INTERVAL = 256
"""--mamba-track-interval by default (srt/arg_groups/fields/exec_.py)."""


class Sglang(Engine):
    """State slots first, from `--mamba-full-memory-ratio`; KV tokens from the rest."""

    name: ClassVar[str] = "sglang"
    rules_version: ClassVar[str] = ".".join(map(str, NEWEST))
    command_line = SGLANG
    source: ClassVar[str] = "sglang 0.5.8 to 0.5.23, srt/mem_cache/kv_cache_configurator.py"

    def dtypes(self, model: Model, deployment: Deployment) -> Dtypes:
        """KV in the model's dtype unless the checkpoint or a sparse kernel asks for fp8; states fp32, their tails bf16.

        kv_cache_dtype.configure_kv_cache_dtype, configs/mamba_utils.mamba2_state_dtype.
        """
        found = resolve_dtypes(
            model,
            deployment,
            kv_auto=_kv_auto(model, deployment),
            state_auto=model.state_dtype or "fp32",
            conv_auto="bf16",
        )
        record = _kv_record(model, deployment, found.kv)
        return Dtypes(kv=record, index=found.index, state=found.state, conv=found.conv)

    def state_reason(self, model: Model) -> str:
        return "the config's mamba_ssm_dtype" if model.state_dtype else "SGLang's default for every kind of state"

    def pool(self, share: Share, memory_bytes: int, weights_bytes: int, deployment: Deployment) -> Pool:
        return predict_pool(share, memory_bytes, weights_bytes, deployment)

    def says(self, figures: dict[str, Any]) -> str:
        """Slots and tokens, as SGLang's own log has them, and what bounds the requests at once."""
        said = (
            f"{figures['kv_cache_tokens'] or 0:,} tokens; at most {figures['max_running_requests']:,} requests at once"
        )
        if figures["state_slots"] is None:
            return said
        return f"{figures['state_slots']:,} state slots, {figures['slots_per_request']} a request; {said}"

    def allocate(self, share: Share, pool_bytes: int, deployment: Deployment, contexts: list[int]) -> Allocation:
        settings = settings_for(share.model, deployment)
        if is_v4(share.model):
            return size_v4(share, pool_bytes, deployment, settings, contexts)
        pools = _size(share, pool_bytes, deployment, settings, contexts[-1])
        fits = tuple(_fit(pools, settings, tokens) for tokens in contexts)
        return Allocation(fits, _figures(pools, settings, deployment, share, contexts))

    def units(self, share: Share, pool_bytes: int, deployment: Deployment, max_model_len: int) -> Units:
        """KV tokens in whole pages, and one state slot for each session that can be resumed."""
        settings = settings_for(share.model, deployment)
        if is_v4(share.model):
            raise UsageError("--engine sglang: open sessions in this model's pools are not modelled; use ideal")
        pools = _size(share, pool_bytes, deployment, settings, max_model_len)
        if pools.cells.swa or pools.unified or not pools.cells.full:
            raise UsageError(
                "--engine sglang: open sessions with windows, one memory for states and KV, or states alone are not "
                "modelled; use vllm or ideal"
            )
        slots = max(0, pools.states.slots) if pools.states else None
        rule = f"tokens in pages of {pools.page_tokens:,}, and one of {slots or 0:,} state slots each"
        return Units(
            "tokens",
            max(0, pools.tokens),
            lambda tokens: ceil_div(tokens, pools.page_tokens) * pools.page_tokens,
            rule if slots is not None else rule.split(",")[0],
            most_running=pools.running,
            most_open=slots,
        )

    def reuse(self, share: Share, pool_bytes: int, deployment: Deployment, max_model_len: int) -> Reuse | None:
        """Pages and slots of the radix cache; None where `units` would refuse, or one memory holds both."""
        settings = settings_for(share.model, deployment)
        if deployment.disable_radix_cache:
            raise UsageError("--disable-radix-cache: nothing is found again")
        pools = None if is_v4(share.model) else _size(share, pool_bytes, deployment, settings, max_model_len)
        if pools is None or pools.cells.swa or pools.unified or not pools.cells.full:
            return None
        why = f"a prompt's state is kept at its last multiple of {TRACK_INTERVAL} tokens, SGLang's default"
        track = Assumption("mamba_track_interval", TRACK_INTERVAL, "assumed", why)
        return Reuse(
            keeps="pages",
            capacity=max(0, pools.tokens) // pools.page_tokens,
            block_tokens=pools.page_tokens,
            slots=max(0, pools.states.slots) if pools.states else None,
            slots_per_request=settings.slots_per_request,
            track_tokens=TRACK_INTERVAL,
            assumptions=(track,) if pools.states else (),
        )


def _kv_auto(model: Model, deployment: Deployment) -> str:
    if str(model.quantization.get("kv_cache_quant_algo")).upper() == "FP8" or is_v4(model):
        return "fp8"
    sparse = any(mixer.sparse for mixer in model.mixers())
    return "fp8" if sparse and (gpu_sm(deployment) or 0) >= 100 else model.dtype


def _kv_record(model: Model, deployment: Deployment, kv: str) -> str:
    """Sparse MLA stores fp8 with scales and a bf16 rope part, except for TRT-LLM's kernels (SM100's default)."""
    if kv != "fp8":
        return kv
    if any(mixer.packed for mixer in model.mixers()):
        return "fp8_ds_mla"
    raw = rules_for(deployment.engine_version).patch >= 10 and (gpu_sm(deployment) or 0) >= 100
    return "fp8_ds_mla" if any(mixer.sparse for mixer in model.mixers()) and not raw else kv


@dataclass(frozen=True, slots=True)
class _Pools:
    """Both pools of one rank and the limit on running requests that follows."""

    cells: Cells
    slot: StateBytes | None
    states: StatePool | None
    kv: KvPool
    running: int
    total_bytes: int
    unified: bool
    dcp: int

    @property
    def tokens(self) -> int:
        """What requests see: rows of a rank times the ranks that share out the sequence."""
        return self.kv.tokens * (1 if self.cells.swa else self.dcp)

    @property
    def page_tokens(self) -> int:
        return self.kv.page_size * (1 if self.cells.swa else self.dcp)


def _size(share: Share, pool_bytes: int, deployment: Deployment, settings: Settings, context: int) -> _Pools:
    stages = own_stages(share)
    draft = draft_of(share, deployment)
    cells = [stage_cells(stage, share, settings, draft) for stage in stages]
    fullest = max(cells, key=lambda cell: (cell.full, cell.swa))
    slot = state_bytes(stages, share.dtypes, settings)
    states = size_states(pool_bytes, slot, settings) if slot else None
    limit = deployment.max_model_len or share.model.max_context_tokens or context
    left = states.kv_bytes if states else pool_bytes
    kv = size_kv(left, fullest, settings, deployment, limit)
    running = _running(kv.tokens, limit, settings, states)
    unified = deployment.enable_unified_memory and slot is not None
    total = left + states.slots * slot.slot if states and slot else left
    return _Pools(fullest, slot, states, kv, running, max(0, total), unified, share.layout.dcp)


def _running(tokens: int, context_len: int, settings: Settings, states: StatePool | None) -> int:
    """max_running_requests of one worker (resolve_max_num_reqs)."""
    estimated = max(min(int(tokens / context_len * 512), 4096), 2048)
    if settings.requests is None:
        limit = estimated if settings.rules.sizes_before_requests else min(estimated, tokens // 2)
    elif settings.rules.sizes_before_requests:
        limit = settings.requests
    else:
        limit = min(settings.requests, tokens // 2 if settings.rules.requests_need_two_tokens else estimated)
    if states is not None:
        limit = min(limit, states.slots // settings.slots_per_request)
    return max(0, limit)


def _fit(pools: _Pools, settings: Settings, tokens: int) -> Fit:
    """Running requests of one length: pages of KV, and the slots that the running limit already counts."""
    held = ceil_div(tokens, pools.page_tokens) * pools.page_tokens
    by_tokens = pools.tokens // held if pools.cells.full else pools.running
    bound: Binds = "kv"
    if pools.cells.swa and pools.cells.window is not None:
        inside = min(held, ceil_div(pools.cells.window, pools.kv.page_size) * pools.kv.page_size + pools.kv.page_size)
        by_window = pools.kv.swa_tokens // inside
        if by_window < by_tokens:
            by_tokens, bound = by_window, "window"
    if pools.unified and pools.slot:
        one = settings.slots_per_request * pools.slot.slot + held // pools.dcp * pools.cells.full
        by_tokens = pools.total_bytes // one
    if pools.running <= by_tokens:
        asked = settings.requests is not None and pools.running == settings.requests
        return Fit(tokens, pools.running, pools.running, "max_running_requests" if asked else _running_bind(pools))
    return Fit(tokens, by_tokens, by_tokens, bound)


def _running_bind(pools: _Pools) -> Binds:
    return "slots" if pools.states is not None else "max_running_requests"


def _figures(
    pools: _Pools, settings: Settings, deployment: Deployment, share: Share, contexts: list[int]
) -> dict[str, Any]:
    kv, states, slot = pools.kv, pools.states, pools.slot
    limit = deployment.max_model_len or share.model.max_context_tokens or contexts[-1]
    return {
        "rules_version": settings.rules.version,
        "block_tokens": pools.page_tokens,
        "page_bytes": pools.kv.page_size * pools.cells.full,
        "num_blocks": kv.tokens // kv.page_size,
        "blocks_per_sequence": [
            {"context_tokens": tokens, "blocks": ceil_div(tokens, pools.page_tokens)} for tokens in contexts
        ],
        "kv_cache_tokens": pools.tokens,
        "kv_cache_bytes": kv.tokens * pools.cells.full,
        "swa_cache_tokens": kv.swa_tokens if pools.cells.swa else None,
        "swa_cache_bytes": kv.swa_tokens * pools.cells.swa if pools.cells.swa else None,
        "max_concurrency": pools.tokens / limit,
        "state_slots": max(0, states.slots) if states else None,
        "state_slot_bytes": slot.slot if slot else None,
        "slots_per_request": settings.slots_per_request if states else None,
        "state_pool_bytes": max(0, states.state_bytes) if states else None,
        "draft_states": states.draft_states if states else None,
        "draft_state_bytes": states.draft_bytes if states else None,
        "replayssm_bytes": states.ring_bytes if states else None,
        "mamba_radix_cache_strategy": settings.strategy if states else None,
        "max_running_requests": pools.running,
        "resident_sequences": [_resident(pools, tokens) for tokens in contexts],
        "balanced_mamba_full_memory_ratio": _balanced(pools, settings, contexts),
        "unified_pool_bytes": pools.total_bytes if pools.unified else None,
        "host": host_pools(pools.kv, pools.cells, slot, states, deployment, settings.rules),
    }


def _resident(pools: _Pools, tokens: int) -> dict[str, int]:
    """Sequences that can be resumed at this length: their KV in the radix cache, and one slot each for their state."""
    held = ceil_div(tokens, pools.page_tokens) * pools.page_tokens
    by_tokens = pools.tokens // held
    slots = by_tokens if pools.states is None else max(0, pools.states.slots)
    if pools.unified and pools.slot:
        by_tokens = slots = pools.total_bytes // (pools.slot.slot + held // pools.dcp * pools.cells.full)
    return {"context_tokens": tokens, "sequences": min(by_tokens, slots)}


def _balanced(pools: _Pools, settings: Settings, contexts: list[int]) -> list[dict[str, Any]] | None:
    """The ratio that lets states and KV run out together, at the most requests that memory then holds."""
    if pools.slot is None or not pools.cells.full or pools.states is None:
        return None
    rows = []
    for tokens in contexts:
        held = ceil_div(tokens, pools.page_tokens) * pools.kv.page_size
        drafts = settings.draft_tokens if settings.reserves_draft_states else 0
        one = settings.slots_per_request * pools.slot.per_slot + drafts * pools.slot.slot + held * pools.cells.full
        whole = pools.total_bytes + pools.states.draft_bytes + pools.states.ring_bytes
        room = max(1, whole // one)
        requests = min(settings.requests or room, room)
        ratio = balanced_ratio(pools.slot, settings, pools.cells.full, held, requests)
        rows.append({"context_tokens": tokens, "requests": requests, "ratio": round(ratio, 4)})
    return rows


ENGINE = Sglang()
