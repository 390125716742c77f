"""MiMo 7B (a Qwen2 with an MTP block), and MiMo V2, where most layers keep a window and V is narrower than K."""

from kvplan.architectures._attention import read_heads
from kvplan.architectures._config import Config
from kvplan.architectures._heads import by_name
from kvplan.architectures._latent import moe_layers
from kvplan.architectures._parts import block_norms, embeddings, gqa, mlp, moe, norm, vector
from kvplan.architectures._registry import Decoder, reads, weighs
from kvplan.layers.base import Layer
from kvplan.layers.full import Full
from kvplan.layers.windowed import SlidingWindow
from kvplan.model import Inventory, Weight

_EXPERTS = ("n_routed_experts", "num_local_experts")


@reads("mimo")
def dense_layers(cfg: Config) -> Decoder:
    if cfg.flag("use_sliding_window"):
        raise cfg.fail("use_sliding_window", "sliding windows are not modelled for MiMo 7B")
    heads = read_heads(cfg)
    cfg.ignore("sliding_window", "max_window_layers")
    cfg.only("layer_types", "full_attention")
    layer: Layer = heads.full
    mtp = (layer,) * cfg.count("num_nextn_predict_layers", maximum=64)
    return Decoder(((layer,),) * cfg.layers(), mtp=mtp, num_attention_heads=heads.query)


@weighs("mimo")
def dense_weights(cfg: Config) -> Inventory:
    hidden = cfg.integer("hidden_size")
    block = (
        *gqa(hidden, *read_heads(cfg), qkv_bias=cfg.flag("attention_bias", True)),
        *mlp(hidden, cfg.integer("intermediate_size")),
        *block_norms(hidden),
    )
    joint = (
        *(norm(name, hidden) for name in ("token_layernorm", "hidden_layernorm", "final_layernorm")),
        Weight("input_proj", "other", (hidden, 2 * hidden), "none"),
    )
    mtp = (*block, *joint) * cfg.count("num_nextn_predict_layers", maximum=64)
    return Inventory((block,) * cfg.layers(), embeddings(cfg, hidden), mtp)


def _window_layers(cfg: Config, depth: int) -> list[bool]:
    """True where a layer keeps a window: 1 in `hybrid_layer_pattern`, or its name in `layer_types`."""
    kinds = {"full_attention": False, "sliding_attention": True}
    named = list(by_name(cfg, "layer_types", depth, kinds)) if cfg.has("layer_types") else None
    if named is not None and not cfg.has("hybrid_layer_pattern"):
        return named
    pattern = cfg.cut("hybrid_layer_pattern", cfg.integers("hybrid_layer_pattern"), depth)
    if set(pattern) - {0, 1}:
        raise cfg.fail("hybrid_layer_pattern", "expected 0 (full) or 1 (window)")
    windowed = [kind == 1 for kind in pattern]
    if named not in (None, windowed):
        raise cfg.fail("layer_types", "contradicts hybrid_layer_pattern")
    return windowed


def _widths(cfg: Config, prefix: str = "") -> tuple[int, int, int]:
    """KV heads, width of K and of V; `swa_` keys are those of window layers."""
    kv_heads, k_dim = cfg.integer(f"{prefix}num_key_value_heads"), cfg.integer(f"{prefix}head_dim")
    return kv_heads, k_dim, cfg.integer(f"{prefix}v_head_dim")


def _window(cfg: Config) -> int:
    """`sliding_window_size`, beside which transformers saves a `sliding_window` that counts the query too."""
    size, window = cfg.maybe("sliding_window_size"), cfg.maybe("sliding_window")
    if size is None:
        return cfg.integer("sliding_window")
    if window not in (None, size, size + 1):
        raise cfg.fail("sliding_window", f"{window} contradicts sliding_window_size {size}")
    return size


@reads("mimo_v2", "mimo_v2_flash")
def layers(cfg: Config) -> Decoder:
    full: Layer = Full(*_widths(cfg))
    windowed = _window_layers(cfg, cfg.layers())
    window: Layer = full
    if any(windowed):
        window = SlidingWindow(*_widths(cfg, "swa_"), _window(cfg))
    # The chunk size repeats the window; engines do not read it.
    cfg.ignore("attention_chunk_size", "sliding_window", "swa_num_attention_heads")
    return Decoder(
        tuple((window if is_windowed else full,) for is_windowed in windowed),
        mtp=(window,) * cfg.count("num_nextn_predict_layers", maximum=64),
        num_attention_heads=cfg.integer("num_attention_heads"),
        num_experts=cfg.count(*_EXPERTS),
        experts_per_token=cfg.count("num_experts_per_tok"),
    )


def _attention(cfg: Config, prefix: str, sink: str) -> tuple[Weight, ...]:
    heads, (kv_heads, k_dim, v_dim) = cfg.integer(f"{prefix}num_attention_heads"), _widths(cfg, prefix)
    projections = gqa(
        cfg.integer("hidden_size"), heads, kv_heads, k_dim, v_dim, qkv_bias=cfg.flag("attention_bias")
    )  # fmt: skip
    if not cfg.flag(sink):
        return projections
    return (*projections, vector("self_attn.attention_sink_bias", heads, split="tp"))


@weighs("mimo_v2", "mimo_v2_flash")
def weights(cfg: Config) -> Inventory:
    hidden, depth = cfg.integer("hidden_size"), cfg.layers()
    mixers = (
        _attention(cfg, "", "add_full_attention_sink_bias"),
        _attention(cfg, "swa_", "add_swa_attention_sink_bias"),
    )
    inner = cfg.integer("moe_intermediate_size")
    experts = moe(
        hidden, inner, cfg.integer(*_EXPERTS), shared_inner=cfg.count("n_shared_experts") * inner,
        router_bias=cfg.text("topk_method", default="noaux_tc") == "noaux_tc",
    )  # fmt: skip
    ends, norms = (mlp(hidden, cfg.integer("intermediate_size")), experts), block_norms(hidden)
    blocks = tuple(
        (*mixers[is_windowed], *ends[has_experts], *norms)
        for is_windowed, has_experts in zip(_window_layers(cfg, depth), moe_layers(cfg, depth), strict=True)
    )
    joint = (
        *(norm(name, hidden) for name in ("enorm", "hnorm", "final_layernorm")),
        Weight("eh_proj", "other", (hidden, 2 * hidden), "none"),
    )
    mtp = (*mixers[True], *ends[False], *norms, *joint) * cfg.count("num_nextn_predict_layers", maximum=64)
    return Inventory(blocks, embeddings(cfg, hidden), mtp)
