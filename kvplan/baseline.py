"""The model that a hybrid is compared with: the same depth, another attention in every mixing layer."""

import re
from dataclasses import dataclass

from kvplan.dtypes import Dtypes
from kvplan.errors import UsageError
from kvplan.layers.base import Layer
from kvplan.layers.full import Full
from kvplan.layers.mla import Mla
from kvplan.model import Model

ALL_MLA = Mla(512, 64)
"""DeepSeek V2's latent and rope width, where the model has no MLA of its own."""
ALL_GQA = Full(8, 128, 128)
BASELINES = ("all-mla", "all-gqa", "none")
_RATIO = re.compile(r"ratio:(\d{1,4}):(\d{1,4})")


@dataclass(frozen=True, slots=True)
class Baseline:
    name: str
    blocks: tuple[tuple[Layer, ...], ...]

    def mixers(self) -> list[Layer]:
        return [mixer for block in self.blocks for mixer in block]


def make_baseline(model: Model, name: str | None) -> Baseline | None:
    """The twin called `name`: all-mla, all-gqa, ratio:R:1, none, or by default (None) the model's own full attention.

    None where it is switched off, where the model has no full attention of its own, or has nothing else.
    """
    if name == "none":
        return None
    if name is None:
        own = _own_attention(model)
        if own is None or all(_keeps_all(mixer) for mixer in model.mixers()):
            return None
        return Baseline(f"all-{own.kind}", tuple(_own_or(block, own) for block in model.blocks))
    if name == "all-mla":
        own = next((mixer for mixer in model.mixers() if isinstance(mixer, Mla)), ALL_MLA)
        return Baseline(name, _everywhere(model, Mla(own.kv_lora_rank, own.qk_rope_head_dim)))
    if name == "all-gqa":
        return Baseline(name, _everywhere(model, ALL_GQA))
    if match := _RATIO.fullmatch(name):
        return Baseline(name, _in_ratio(model, int(match[1]), int(match[2])))
    raise UsageError(f"--baseline {name[:60]!r} is not all-mla, all-gqa, ratio:R:1, none or a model")


def baseline_of_model(model: Model) -> Baseline:
    """Another model as the baseline."""
    return Baseline(model.name, model.blocks)


def _own_attention(model: Model) -> Layer | None:
    """The model's widest layer that keeps all tokens without compressing them."""
    whole = [mixer for mixer in dict.fromkeys(model.mixers()) if _keeps_all(mixer)]
    return max(whole, key=lambda mixer: sum(tensor.entry_bytes for tensor in mixer.stored(Dtypes())), default=None)


def _keeps_all(mixer: Layer) -> bool:
    tensors = mixer.stored(Dtypes())
    return bool(tensors) and all(tensor.grows and tensor.tokens_per_entry == 1 for tensor in tensors)


def _own_or(block: tuple[Layer, ...], attention: Layer) -> tuple[Layer, ...]:
    """What a block keeps of its own full attention, else `attention` in place of its other mixers."""
    return tuple(mixer for mixer in block if _keeps_all(mixer)) or ((attention,) if block else ())


def _everywhere(model: Model, attention: Layer) -> tuple[tuple[Layer, ...], ...]:
    return tuple((attention,) if block else () for block in model.blocks)


def _in_ratio(model: Model, linear_parts: int, attention_parts: int) -> tuple[tuple[Layer, ...], ...]:
    """The model's mixing layers, re-dealt: `linear_parts` fixed-state layers, then `attention_parts` attention."""
    attention = _own_attention(model)
    fixed = next(
        (m for m in model.mixers() if m.stored(Dtypes()) and not any(t.grows for t in m.stored(Dtypes()))), None
    )
    if attention is None or fixed is None or not attention_parts:
        raise UsageError(
            f"--baseline ratio:{linear_parts}:{attention_parts} needs a model with both state and attention"
        )
    mixing = [index for index, block in enumerate(model.blocks) if block]
    period = linear_parts + attention_parts
    dealt = {index: fixed if place % period < linear_parts else attention for place, index in enumerate(mixing)}
    return tuple((dealt[index],) if index in dealt else () for index in range(len(model.blocks)))
