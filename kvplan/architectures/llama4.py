"""Llama 4: layers with RoPE attend within chunks, those without (every fourth) keep everything."""

from kvplan.architectures._attention import CHUNKED, FULL, layer_types, pick, projections, read_heads
from kvplan.architectures._config import Config
from kvplan.architectures._heads import Heads
from kvplan.architectures._parts import block_norms, embeddings, mlp, moe
from kvplan.architectures._registry import Decoder, reads, weighs
from kvplan.architectures._towers import llama4 as llama4_tower
from kvplan.architectures._towers import tower
from kvplan.layers.base import Layer
from kvplan.layers.windowed import ChunkedLocal
from kvplan.model import Inventory, Weight

_TYPES = ("llama4", "llama4_text")


def _heads(cfg: Config) -> Heads:
    return read_heads(cfg, kv_heads=8, head_dim=128, query_heads=40)


@reads(*_TYPES)
def layers(cfg: Config) -> Decoder:
    heads, depth = _heads(cfg), cfg.layers()
    kinds: dict[str, Layer] = {FULL: heads.full}
    types = _layer_types(cfg, depth)
    if CHUNKED in types:
        chunk = cfg.integer("attention_chunk_size", default=8192)
        kinds[CHUNKED] = ChunkedLocal(heads.kv, heads.dim, heads.dim, chunk)
    return Decoder(
        tuple((pick(cfg, name, kinds),) for name in types),
        num_attention_heads=heads.query,
        num_experts=cfg.count("num_local_experts"),
        experts_per_token=cfg.count("num_experts_per_tok"),
    )


def _layer_types(cfg: Config, depth: int) -> list[str]:
    """`no_rope_layers` holds 1 where a layer has RoPE; absent or empty it means every fourth layer has none."""
    types = layer_types(cfg, depth)
    cfg.ignore("no_rope_layers", "no_rope_layer_interval", "attention_chunk_size")
    if types is not None:
        return types
    if "attention_chunk_size" in cfg.data and cfg.data["attention_chunk_size"] is None:
        return [FULL] * depth
    if cfg.get("no_rope_layers", default=None):
        has_rope = cfg.cut("no_rope_layers", cfg.integers("no_rope_layers"), depth)
    else:
        interval = cfg.integer("no_rope_layer_interval", default=4)
        has_rope = [(number + 1) % interval for number in range(depth)]
    return [CHUNKED if rope else FULL for rope in has_rope]


@weighs(*_TYPES)
def weights(cfg: Config) -> Inventory:
    """Routed layers have one shared expert as wide as a routed one; the others an MLP of intermediate_size_mlp."""
    hidden, inner = cfg.integer("hidden_size"), cfg.integer("intermediate_size")
    bias = cfg.flag("attention_bias")
    attention = (*projections(cfg, _heads(cfg), qkv_bias=bias, o_bias=bias), *block_norms(hidden))
    routed = (*attention, *_moe(cfg, hidden, inner))
    dense = (*attention, *mlp(hidden, cfg.integer("intermediate_size_mlp"), prefix="feed_forward"))
    places = _moe_layers(cfg)
    blocks = tuple(routed if number in places else dense for number in range(cfg.layers()))
    return Inventory(blocks, (*embeddings(cfg, hidden), *tower(cfg, llama4_tower)))


def _moe_layers(cfg: Config) -> set[int]:
    if cfg.get("moe_layers", default=None) is not None:
        return set(cfg.integers("moe_layers"))
    step = cfg.integer("interleave_moe_layer_step")
    return set(range(step - 1, cfg.layers(), step))


def _moe(cfg: Config, hidden: int, inner: int) -> tuple[Weight, ...]:
    return moe(hidden, inner, cfg.integer("num_local_experts"), shared_inner=inner, prefix="feed_forward")
