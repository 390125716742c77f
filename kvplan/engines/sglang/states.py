"""SGLang's state pool: how many slots, and what they leave for the KV cache.

Arithmetic in floating point, in the order of kv_cache_configurator._handle_max_mamba_cache: the engine divides bytes by
floats, and an exact fraction would differ from it by a slot where the quotient is close to an integer.
"""

from dataclasses import dataclass

from kvplan.dtypes import BITS, Dtypes
from kvplan.engines.sglang.settings import Settings
from kvplan.layers.base import Layer
from kvplan.layers.delta import Gdn, Kda


@dataclass(frozen=True, slots=True)
class StateBytes:
    """One slot on the fullest rank."""

    slot: int
    """Recurrent and convolution state of one sequence."""
    ring: int = 0
    """ReplaySSM's ring of inputs."""
    ring_per_request: bool = False
    """True where a ring belongs to a running request and not to a slot."""

    @property
    def per_slot(self) -> int:
        return self.slot + (0 if self.ring_per_request else self.ring)


@dataclass(frozen=True, slots=True)
class StatePool:
    slots: int
    draft_states: int
    """States of the D verified tokens, held for every running request and the padding row."""
    state_bytes: int
    draft_bytes: int
    ring_bytes: int
    kv_bytes: int
    """What is left for the KV cache."""


def state_bytes(stages: list[list[Layer]], dtypes: Dtypes, settings: Settings) -> StateBytes | None:
    """The slot of the fullest stage; None where no layer keeps a state."""
    sizes = [[size for layer in stage if (size := _layer_bytes(layer, dtypes))] for stage in stages]
    total, layers = sum(map(sum, sizes)), sum(map(len, sizes))
    if not total:
        return None
    fullest = max(map(len, sizes)) if settings.rules.stage_states else layers
    share = fullest / layers
    slot = int(total * share) if len(stages) > 1 else total
    if not settings.replayssm:
        return StateBytes(slot)
    mixers = [layer for stage in stages for layer in stage]
    ring = int(sum(_ring_bytes(layer, dtypes, settings) for layer in mixers) * share)
    kda = any(isinstance(layer, Kda) for layer in mixers)
    return StateBytes(slot, ring, settings.rules.replayssm == "kind" and not kda)


def _layer_bytes(layer: Layer, dtypes: Dtypes) -> int:
    return sum(tensor.entry_bytes for tensor in layer.stored(dtypes) if tensor.role in ("state", "conv"))


def _ring_bytes(layer: Layer, dtypes: Dtypes, settings: Settings) -> int:
    """Inputs that ReplaySSM keeps in one layer (BaseLinearStateParams.replayssm_ring_bytes_per_req).

    KDA: raw keys and values, gates, and their folded forms. GDN: keys and values, with a low part beside each where
    activations are 16-bit; up to 0.5.19 the raw ones alone, as many as a step verifies.
    """
    conv = BITS[dtypes.conv or "bf16"] // 8
    length = settings.ring_length
    if isinstance(layer, Kda):
        wide = layer.num_heads * layer.head_dim
        return length * (4 * wide * conv + layer.num_heads * 4 + wide * 4)
    if isinstance(layer, Gdn):
        wide = layer.value_heads * layer.value_dim + layer.key_heads * layer.key_dim
        if settings.rules.replayssm == "slot":
            return (settings.draft_tokens or length) * (wide * conv + layer.value_heads * 8)
        return length * ((1 if conv == 4 else 2) * wide * conv + layer.value_heads * 4)
    return 0


def size_states(rest_bytes: int, one: StateBytes, settings: Settings) -> StatePool:
    """Slots and the KV cache's share of `rest_bytes`. Slots can come out at 0 or below: the engine refuses to start."""
    rules, pad, drafts = settings.rules, settings.rules.padding_row, settings.draft_tokens
    reserves = settings.reserves_draft_states
    rest = float(rest_bytes)
    requests = settings.requests or 0
    fixed_ring = one.ring * (requests + 1) if one.ring_per_request else 0
    held = 0
    if reserves and not rules.joint_draft_states:
        held = requests
        rest -= one.slot * held * drafts
    slots = _asked_slots(settings)
    if slots is None:
        slots = _slots_by_memory(rest, one, settings, fixed_ring)
    if reserves and rules.joint_draft_states:
        by_radix = settings.max_mamba_cache_size is None and not settings.radix and settings.requests is not None
        held = (slots if by_radix else min(requests, slots // settings.slots_per_request)) + pad
        rest -= one.slot * held * drafts
    states = (slots + pad) * one.per_slot
    return StatePool(
        slots=slots,
        draft_states=held * drafts,
        state_bytes=(slots + pad) * one.slot,
        draft_bytes=one.slot * held * drafts,
        ring_bytes=(slots + pad) * (one.per_slot - one.slot) + fixed_ring,
        kv_bytes=int(rest - (states + fixed_ring)),
    )


def _asked_slots(settings: Settings) -> int | None:
    """Slots that flags fix; None where memory decides."""
    if settings.max_mamba_cache_size is not None:
        return settings.max_mamba_cache_size
    if settings.radix:
        return None
    fallback = settings.rules.radix_off_slots
    if settings.requests is None and fallback is not None:
        return fallback // settings.attn_dp
    return settings.requests


def _slots_by_memory(rest: float, one: StateBytes, settings: Settings, fixed_ring: int) -> int:
    budget = rest * settings.ratio / (1 + settings.ratio)
    pad, drafts = settings.rules.padding_row, settings.draft_tokens
    if settings.reserves_draft_states and settings.rules.joint_draft_states:
        spare = one.per_slot - one.slot
        padding = (one.slot * (1 + drafts) + spare) * pad
        return int((budget - padding) // (one.slot * (1 + drafts / settings.slots_per_request) + spare))
    return int((budget - fixed_ring - pad * one.per_slot) // one.per_slot)


def balanced_ratio(one: StateBytes, settings: Settings, cell_bytes: int, page_tokens: int, requests: int) -> float:
    """The --mamba-full-memory-ratio at which states and KV of `requests` requests run out together.

    `page_tokens` is the length of one, rounded up to pages, in tokens of this rank's pool.
    """
    pad = settings.rules.padding_row
    drafts = settings.draft_tokens if settings.reserves_draft_states else 0
    states = (settings.slots_per_request * requests + pad) * one.per_slot + (requests + pad) * drafts * one.slot
    return states / (requests * page_tokens * cell_bytes)
