"""What one token costs in SGLang's KV pools, per rank (model_executor/pool_configurator.py)."""

from dataclasses import dataclass, replace

from kvplan.deployment import Deployment
from kvplan.dtypes import Dtypes
from kvplan.engines.base import Share
from kvplan.engines.sglang.settings import NO_DRAFT_CACHE, OWN_DRAFT_CACHE, Settings
from kvplan.errors import UsageError
from kvplan.layers.base import Layer
from kvplan.layers.borrowed import Shared
from kvplan.layers.dsa import Dsa
from kvplan.layers.windowed import SlidingWindow
from kvplan.sources import resolve

_HYBRID_SWA_SINCE = {
    "GptOssForCausalLM": 8, "Llama4ForConditionalGeneration": 8, "MiMoV2FlashForCausalLM": 8,
    "MiMoV2ForCausalLM": 13, "Gemma4ForCausalLM": 13, "Gemma4ForConditionalGeneration": 13,
    "Gemma4UnifiedForConditionalGeneration": 13, "LagunaForCausalLM": 13, "Step3p5ForCausalLM": 13,
    "Step3p7ForConditionalGeneration": 13, "MellumForCausalLM": 17, "BeamForCausalLM": 23,
    "GraniteMoeSWAForCausalLM": 23, "GraniteSWAForCausalLM": 23, "IQuestQ1ForCausalLM": 23,
    "MuseGlimmerForCausalLM": 23, "MuseGlimmerForConditionalGeneration": 23, "UnlimitedOCRForCausalLM": 23,
}  # fmt: skip
"""Architectures whose windows get a pool of their own, by the 0.5.x that has them (8, 13, 17 and 23 were read)."""


@dataclass(frozen=True, slots=True)
class Cells:
    """Bytes of one token slot in each pool of one pipeline stage."""

    full: int
    """In the pool that grows with the sequence, draft layers included."""
    swa: int = 0
    """In the pool of the sliding-window layers; 0 where there is none."""
    window: int | None = None


@dataclass(frozen=True, slots=True)
class Draft:
    """The draft model beside the target, as far as flags name it."""

    token_bytes: int | None = None
    """On one rank."""
    layers: int = 0
    stated: bool = False
    """True where the user gave the bytes."""


def draft_of(share: Share, deployment: Deployment) -> Draft:
    stated = deployment.draft_kv_bytes_per_token
    if stated is not None:
        return Draft(stated, stated=True)
    if deployment.draft is None:
        return Draft()
    sizes = [_kv_bytes(mixer.on_rank(share.layout.tp), share.dtypes) for mixer in resolve(deployment.draft).mixers()]
    return Draft(sum(sizes), sum(1 for size in sizes if size))


def own_stages(share: Share) -> list[list[Layer]]:
    """The mixers of each stage as SGLang cuts them: layers left over go one each to the last stages."""
    pp, blocks = share.layout.pp, share.model.blocks
    if pp == 1:
        return share.stages
    split = {mixer: mixer.on_rank(share.layout.tp) for mixer in set(share.model.mixers())}
    size, extra = divmod(len(blocks), pp)
    stops = [size * (rank + 1) + max(0, rank + 1 - (pp - extra)) for rank in range(pp)]
    starts = [0, *stops[:-1]]
    return [
        [split[mixer] for block in blocks[start:stop] for mixer in block]
        for start, stop in zip(starts, stops, strict=True)
    ]


def stage_cells(mixers: list[Layer], share: Share, settings: Settings, draft: Draft) -> Cells:
    """The cells of one stage. Raises UsageError where SGLang's pool for such a layer is not modelled."""
    refuse_unknown(mixers)
    owners = [_as_stored(layer, settings) for layer in mixers]
    dcp = share.layout.dcp if settings.rules.patch >= 22 else 1
    own_pool = settings.rules.patch >= _HYBRID_SWA_SINCE.get(share.model.architecture, 1 << 30)
    windowed: list[Layer] = [layer for layer in owners if isinstance(layer, SlidingWindow)] if own_pool else []
    growing = [layer for layer in owners if layer not in windowed]
    full = sum(_token_bytes(layer, share.dtypes, dcp) for layer in growing)
    full += _draft_cell(growing or windowed, share, settings, draft)
    if not windowed:
        return Cells(full)
    swa = sum(_token_bytes(layer, share.dtypes, 1) for layer in windowed)
    return Cells(full, swa, max(layer.window for layer in windowed if isinstance(layer, SlidingWindow)))


def refuse_unknown(mixers: list[Layer]) -> None:
    for kind in ("rwkv7", "cross"):
        if any(layer.kind == kind for layer in mixers):
            raise UsageError(f"--engine sglang: {kind} layers are not served by SGLang 0.5.23; use --engine ideal")


def _token_bytes(layer: Layer, dtypes: Dtypes, dcp: int) -> int:
    """Bytes per token slot. DCP shares out the latent or heads; a sparse index is kept whole (counted from 0.5.22)."""
    return _kv_bytes(layer, dtypes) + _index_bytes(layer, dtypes) * dcp


def _as_stored(layer: Layer, settings: Settings) -> Layer:
    """The layer whose rows are allocated: one that reads another's cache gets its own all the same.

    Until 0.5.17 that held for shared sparse indexes too; since then layers without an indexer keep no index rows.
    """
    if isinstance(layer, Shared):
        return layer.source
    if isinstance(layer, Dsa) and settings.rules.patch < 18:
        return replace(layer, owns_index=True)
    return layer


def _kv_bytes(layer: Layer, dtypes: Dtypes) -> int:
    tensors = layer.stored(dtypes)
    return sum(tensor.entry_bytes for tensor in tensors if tensor.per == "token" and tensor.role != "index")


def _index_bytes(layer: Layer, dtypes: Dtypes) -> int:
    return sum(tensor.entry_bytes for tensor in layer.stored(dtypes) if tensor.role == "index")


def _draft_cell(growing: list[Layer], share: Share, settings: Settings, draft: Draft) -> int:
    """What speculation adds per token: EAGLE's and MTP's layers at the target's mean, a draft model at its price."""
    if not settings.algorithm or settings.algorithm in NO_DRAFT_CACHE:
        return 0
    dcp = share.layout.dcp
    if settings.algorithm in OWN_DRAFT_CACHE or draft.stated:
        if draft.token_bytes is None:
            raise UsageError(
                f"--speculative-algorithm {settings.algorithm}: the draft model's cache is not known; name it with "
                "--draft, or give --draft-kv-bytes-per-token (0 to leave it out)"
            )
        return draft.token_bytes * dcp
    kv = [_kv_bytes(layer, share.dtypes) for layer in growing]
    attention, drafts = sum(1 for size in kv if size), draft.layers or len(share.model.mtp) or 1
    if not attention:
        return 0
    index = max((_index_bytes(layer, share.dtypes) for layer in growing), default=0)
    mean = int(sum(kv) * drafts / attention)
    return (mean + index * drafts) * dcp if index else mean
