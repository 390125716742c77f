"""Gemma 1 to 4 and 3n: windows in most layers, tails of layers that borrow an earlier layer's cache.

Widths never follow from hidden_size. Nested text configs leave class defaults out (transformers writes the
difference only), so those defaults are part of the format: the constants below, from configuration_gemma*.py.
"""

from dataclasses import dataclass

from kvplan.architectures._attention import (
    FULL,
    SLIDING,
    blocks,
    every,
    layer_types,
    pick,
    read_heads,
    windowed,
)
from kvplan.architectures._config import Config
from kvplan.architectures._heads import Heads
from kvplan.architectures._registry import Decoder, reads
from kvplan.errors import MissingField
from kvplan.layers.base import Layer
from kvplan.layers.borrowed import Shared

_HARMLESS = (
    "sliding_window_size", "use_double_wide_mlp", "hidden_size_per_layer_input", "vocab_size_per_layer_input",
    "activation_sparsity_pattern", "expert_intermediate_size", "altup_num_inputs",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Gemma:
    """The attention of one model: heads by layer type, types by layer, where the borrowing tail starts."""

    local: Heads
    full: Heads
    types: list[str]
    first_shared: int


def _causal(cfg: Config) -> None:
    """Embedding models attend both ways: they keep nothing between steps and are not modelled."""
    both = cfg.get("use_bidirectional_attention", default=None)
    if both is True or both == "all":
        raise cfg.fail("use_bidirectional_attention", f"{both!r} (an encoder, no cache) is not modelled")


@reads("gemma", "gemma2", "paligemma")
def early(cfg: Config) -> Decoder:
    """Gemma 1: full attention. Gemma 2: a window in every other layer, the first included."""
    _causal(cfg)
    heads, depth = read_heads(cfg, head_dim=256), cfg.layers()
    cfg.ignore(*_HARMLESS)
    types = [FULL] * depth
    if cfg.text("model_type") == "gemma2":
        types = layer_types(cfg, depth) or every(depth, 2)
    return Decoder(blocks(cfg, types, heads, default_window=4096), num_attention_heads=heads.query)


@reads("gemma3", "gemma3_text", "shieldgemma2")
def gemma3(cfg: Config) -> Decoder:
    """Layer i, counted from 0, is global where (i + 1) is a multiple of `sliding_window_pattern`."""
    _causal(cfg)
    heads = read_heads(cfg, kv_heads=4, head_dim=256, query_heads=8)
    depth = cfg.layers()
    types = layer_types(cfg, depth)
    cfg.ignore("sliding_window_pattern", "_sliding_window_pattern")
    if types is None:
        types = every(depth, cfg.integer("sliding_window_pattern", "_sliding_window_pattern", default=6))
    return Decoder(blocks(cfg, types, heads, default_window=4096), num_attention_heads=heads.query)


def gemma3n_shape(cfg: Config) -> Gemma:
    heads, depth = read_heads(cfg, kv_heads=2, head_dim=256, query_heads=8), cfg.layers()
    types = layer_types(cfg, depth) or every(depth, 5)
    return Gemma(heads, heads, types, _first_shared(cfg, depth, types, default=15))


def gemma4_shape(cfg: Config) -> Gemma:
    """Global layers have their own width, and their own KV heads where K = V (one projection serves both).

    Both K and V are stored all the same: K is normed and rotated, V is not (vLLM and transformers keep two).
    """
    local, depth = read_heads(cfg, kv_heads=4, head_dim=256, query_heads=8), cfg.layers()
    types = layer_types(cfg, depth) or every(depth, 6)
    types[-1] = FULL
    if cfg.has("per_layer_config"):
        full = _overridden(cfg, local, types)
    else:
        own = cfg.maybe("num_global_key_value_heads")
        if own is not None and cfg.absent("attention_k_eq_v"):
            raise MissingField(f"{cfg.name('attention_k_eq_v')} is missing; num_global_key_value_heads depends on it")
        full = local._replace(
            kv=(own if cfg.flag("attention_k_eq_v") else None) or local.kv,
            dim=cfg.integer("global_head_dim", default=512),
        )
    cfg.ignore("num_global_key_value_heads", "global_head_dim")
    return Gemma(local, full, types, _first_shared(cfg, depth, types, default=0))


def _overridden(cfg: Config, local: Heads, types: list[str]) -> Heads:
    """The heads of global layers as transformers saves them: an object with overrides for each layer's number."""
    entries = cfg.sub("per_layer_config")
    keys = {key.lstrip("0") or "0": key for key in entries.data}
    heads: set[Heads] = set()
    for number, kind in enumerate(types):
        key = keys.pop(str(number), None)
        layer = entries.sub(key) if key else Config({})
        one = Heads(local.query, layer.maybe("num_key_value_heads") or local.kv, layer.maybe("head_dim") or local.dim)
        if layer.unread() or (kind != FULL and one != local):
            raise cfg.fail("per_layer_config", f"{key}: only the heads of full layers may differ from the rest")
        if kind == FULL:
            heads.add(one)
    if keys or len(heads) != 1:
        raise cfg.fail("per_layer_config", "names layers that do not exist, or full layers that differ")
    return heads.pop()


def _first_shared(cfg: Config, depth: int, types: list[str], default: int) -> int:
    shared = cfg.integer("num_kv_shared_layers", default=default, minimum=0)
    first = depth - shared
    if first < 0 or (shared and not set(types[first:]) <= set(types[:first])):
        raise cfg.fail("num_kv_shared_layers", f"{shared} of {depth} layers leaves a layer type with no layer to share")
    return first


@reads("gemma3n", "gemma3n_text")
def gemma3n(cfg: Config) -> Decoder:
    return _decoder(cfg, gemma3n_shape(cfg), default_window=512)


@reads("gemma4", "gemma4_text", "gemma4_unified", "gemma4_unified_text")
def gemma4(cfg: Config) -> Decoder:
    unified = cfg.text("model_type").startswith("gemma4_unified")
    return _decoder(cfg, gemma4_shape(cfg), default_window=1024 if unified else 512)


def _decoder(cfg: Config, shape: Gemma, default_window: int) -> Decoder:
    """The last layers read the cache of the last layer of their type before the tail, and keep nothing."""
    _causal(cfg)
    cfg.ignore(*_HARMLESS)
    kinds: dict[str, Layer] = {FULL: shape.full.full}
    kinds[SLIDING] = windowed(cfg, shape.local, default_window)
    layers = tuple(
        (pick(cfg, name, kinds) if number < shape.first_shared else Shared(pick(cfg, name, kinds)),)
        for number, name in enumerate(shape.types)
    )
    experts = cfg.count("num_experts") if cfg.flag("enable_moe_block") else 0
    return Decoder(
        layers,
        num_attention_heads=shape.local.query,
        num_experts=experts,
        experts_per_token=cfg.count("top_k_experts") if experts else 0,
    )
