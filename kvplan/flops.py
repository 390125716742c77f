"""Arithmetic of one decode step of one sequence, from the model's own dimensions. A multiply and an add count as two.

Every weight matrix that the token passes counts once, routed experts by the share that is chosen; MLA is absorbed, so
`kv_b_proj` is applied to the query and to the output. Left out: norms, activations, rope, softmax, the choice of top-k
and the mixing of hyper-connection streams, together below 1 % of any model at hand.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from kvplan.errors import ConfigError
from kvplan.layers.base import Layer
from kvplan.layers.compressed import Csa, Hca, WindowOnly
from kvplan.layers.delta import Gdn, Kda
from kvplan.layers.dsa import Dsa
from kvplan.layers.full import Full
from kvplan.layers.mla import Mla
from kvplan.layers.windowed import SlidingWindow
from kvplan.model import Model, Weight

_LOOKED_UP = (".ape", ".tid2eid")
"""Tables of which a token takes one row, as it does of the embedding."""


@dataclass(frozen=True, slots=True)
class StepFlops:
    """Operations of one new token."""

    linear: int
    """Projections, experts, router and head."""
    attention: int
    """Scores and weighted values over what is attended."""
    index: int
    """Scores of sparse indexers over everything they keep."""
    state: int
    """Update and read of recurrent states."""

    @property
    def total(self) -> int:
        return self.linear + self.attention + self.index + self.state


def step_flops(model: Model, tokens: int) -> StepFlops:
    """One decode step after `tokens` tokens.

    Raises ConfigError, naming the layer kind or what the config lacks, where the count would not be complete.
    """
    if model.weights is None:
        raise ConfigError(f"{model.name}: FLOPs need the weights' shapes ({model.weights_missing})")
    found = {"attention": 0, "index": 0, "state": 0}
    for block, weights in zip(model.blocks, model.weights.blocks, strict=True):
        for layer in block:
            for term, count in _mixing(layer, model, _index_heads(weights), tokens).items():
                found[term] += count
    return StepFlops(linear=2 * _passed(model), **found)


def attention_flops(layer: Layer, heads: int, tokens: int, index_heads: int = 0) -> int | None:
    """Operations of one layer's attention and index for one token over `tokens`; None where the kind is not counted."""
    count = _COUNTS.get(type(layer))
    return None if count is None else sum(count(layer, heads, index_heads, tokens).values())


def _passed(model: Model) -> int:
    """Elements of the matrices that one token is multiplied with."""
    assert model.weights is not None
    every = [*model.weights.outer, *(weight for block in model.weights.blocks for weight in block)]
    tied = not any(weight.role == "head" for weight in every)
    return sum(_elements(weight, model, tied) for weight in every)


def _elements(weight: Weight, model: Model, tied: bool) -> int:
    looked_up = weight.name.endswith(_LOOKED_UP) or (weight.role == "embedding" and not tied)
    if len(weight.shape) < 2 or looked_up or weight.role == "vision":
        return 0
    if weight.role == "expert":
        return weight.params * model.experts_per_token // model.num_experts
    return weight.params


def index_heads(model: Model) -> int:
    """Heads of the sparse indexer; 0 where there is none."""
    blocks = model.weights.blocks if model.weights else ()
    return max((_index_heads(weights) for weights in dict.fromkeys(blocks)), default=0)


def _index_heads(weights: tuple[Weight, ...]) -> int:
    return next((weight.shape[0] for weight in weights if weight.name.endswith("indexer.weights_proj")), 0)


def _mixing(layer: Layer, model: Model, index_heads: int, tokens: int) -> dict[str, int]:
    count = _COUNTS.get(type(layer))
    if count is None:
        raise ConfigError(f"{model.name}: the FLOPs of {layer.kind} layers are not modelled")
    return count(layer, model.num_attention_heads, index_heads, tokens)


def _full(layer: Full, heads: int, _: int, tokens: int) -> dict[str, int]:
    return {"attention": 2 * heads * (layer.k_dim + layer.v_dim) * tokens}


def _window(layer: SlidingWindow, heads: int, _: int, tokens: int) -> dict[str, int]:
    return {"attention": 2 * heads * (layer.k_dim + layer.v_dim) * min(tokens, layer.window)}


def _mla(layer: Mla, heads: int, _: int, tokens: int) -> dict[str, int]:
    return {"attention": 2 * heads * (2 * layer.kv_lora_rank + layer.qk_rope_head_dim) * tokens}


def _dsa(layer: Dsa, heads: int, index_heads: int, tokens: int) -> dict[str, int]:
    scored = 2 * index_heads * layer.index_head_dim * tokens if layer.owns_index else 0
    return _mla(layer, heads, 0, min(tokens, layer.index_topk)) | {"index": scored}


def _rows(layer: WindowOnly, heads: int, tokens: int, compressed: int) -> dict[str, int]:
    """Keys and values are one row of head_dim; `compressed` of them beside the window."""
    return {"attention": 4 * heads * layer.head_dim * (min(tokens, layer.window) + compressed)}


def _window_only(layer: WindowOnly, heads: int, _: int, tokens: int) -> dict[str, int]:
    return _rows(layer, heads, tokens, 0)


def _hca(layer: Hca, heads: int, _: int, tokens: int) -> dict[str, int]:
    return _rows(layer, heads, tokens, tokens // layer.ratio)


def _csa(layer: Csa, heads: int, index_heads: int, tokens: int) -> dict[str, int]:
    entries = tokens // layer.ratio
    scored = 2 * index_heads * layer.index_head_dim * entries
    return _rows(layer, heads, tokens, min(entries, layer.index_topk)) | {"index": scored}


def _kda(layer: Kda, *_: int) -> dict[str, int]:
    """Decay, S k, the rank-one update and S q: 7 operations per element of the state."""
    return {"state": 7 * layer.num_heads * layer.head_dim**2}


def _gdn(layer: Gdn, *_: int) -> dict[str, int]:
    return {"state": 7 * layer.value_heads * layer.key_dim * layer.value_dim}


_COUNTS: dict[type[Layer], Callable[[Any, int, int, int], dict[str, int]]] = {
    Full: _full,
    SlidingWindow: _window,
    Mla: _mla,
    Dsa: _dsa,
    WindowOnly: _window_only,
    Hca: _hca,
    Csa: _csa,
    Kda: _kda,
    Gdn: _gdn,
}
"""By exact type: a kind derived from one of these reads something else and is refused until it is counted."""
