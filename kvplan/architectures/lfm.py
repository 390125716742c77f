"""LFM2: gated short convolutions in most layers, grouped-query attention in the rest."""

from kvplan.architectures._config import Config
from kvplan.architectures._heads import by_name, experts, heads
from kvplan.architectures._parts import block_norms, embeddings, gqa, mlp, moe, vector
from kvplan.architectures._registry import Decoder, reads, weighs
from kvplan.layers.linear import ShortConv
from kvplan.model import Inventory, Weight
from kvplan.units import ceil_div

_KINDS = {"conv": False, "full_attention": True}


def _is_attention(cfg: Config) -> tuple[bool, ...]:
    """From `layer_types`, or the 0-based `full_attn_idxs`. The class default is attention everywhere: refused."""
    count = cfg.layers()
    named = by_name(cfg, "layer_types", count, _KINDS) if cfg.has("layer_types") else None
    if named is not None and not cfg.has("full_attn_idxs"):
        return named
    attention = set(cfg.integers("full_attn_idxs"))
    if any(number >= count for number in attention):
        raise cfg.fail("full_attn_idxs", f"names a layer beyond the {count} of the decoder (0-based)")
    listed = tuple(number in attention for number in range(count))
    if named not in (None, listed):
        raise cfg.fail("full_attn_idxs", "contradicts layer_types")
    return listed


def _conv(cfg: Config) -> ShortConv:
    """vLLM sizes the state by conv_dim, which configs ship equal to hidden_size or leave out."""
    return ShortConv(cfg.maybe("conv_dim") or cfg.integer("hidden_size"), cfg.integer("conv_L_cache"))


@reads("lfm2", "lfm2_moe")
def layers(cfg: Config) -> Decoder:
    ordinary, conv = heads(cfg), _conv(cfg)
    cfg.ignore("conv_dim_out", "conv_use_xavier_init", "num_heads")
    total, per_token = experts(cfg, "num_experts", "num_local_experts")
    return Decoder(
        tuple((ordinary.full,) if full else (conv,) for full in _is_attention(cfg)),
        num_attention_heads=ordinary.query,
        num_experts=total,
        experts_per_token=per_token,
    )


def _inner(cfg: Config) -> int:
    """The width of the dense feed-forward: two thirds of what is stated, scaled, rounded up to a multiple."""
    stated = cfg.integer("block_ff_dim", "intermediate_size")
    if cfg.text("model_type") == "lfm2_moe" or not cfg.flag("block_auto_adjust_ff_dim", True):
        return stated
    scale, multiple = cfg.get("block_ffn_dim_multiplier", default=1.0), cfg.integer("block_multiple_of", default=256)
    if isinstance(scale, bool) or not isinstance(scale, int | float) or not 0 < scale <= 1024:
        raise cfg.fail("block_ffn_dim_multiplier", "expected a number between 0 and 1024")
    return ceil_div(int(scale * (2 * stated // 3)), multiple) * multiple


def _feed_forwards(cfg: Config, hidden: int) -> tuple[tuple[Weight, ...], ...]:
    """Experts after the first num_dense_layers of lfm2_moe; their selection bias is a buffer and not counted."""
    dense = mlp(hidden, _inner(cfg), prefix="feed_forward")
    if cfg.text("model_type") == "lfm2":
        return (dense,) * cfg.layers()
    first, total = cfg.integer("num_dense_layers", minimum=0), cfg.integer("num_experts", "num_local_experts")
    sparse = moe(hidden, cfg.integer("moe_intermediate_size"), total, prefix="feed_forward")
    return tuple(dense if number < first else sparse for number in range(cfg.layers()))


def _conv_weights(cfg: Config, hidden: int) -> tuple[Weight, ...]:
    conv = _conv(cfg)
    weights = (
        Weight("conv.in_proj", "attention", (3 * conv.width, hidden)),
        Weight("conv.conv", "attention", (conv.width, 1, conv.kernel)),
        Weight("conv.out_proj", "attention", (hidden, conv.width)),
    )
    if not cfg.flag("conv_bias"):
        return weights
    widths = {"in_proj": 3 * conv.width, "conv": conv.width, "out_proj": hidden}
    return (*weights, *(vector(f"conv.{name}.bias", width) for name, width in widths.items()))


@weighs("lfm2", "lfm2_moe")
def weights(cfg: Config) -> Inventory:
    """The embedding is the output head too, by class default and in every checkpoint."""
    hidden = cfg.integer("hidden_size")
    attention = gqa(hidden, *heads(cfg, weighed=True), head_norm=True)
    conv = _conv_weights(cfg, hidden)
    norms = block_norms(hidden, "operator_norm", "ffn_norm")
    blocks = tuple(
        (*(attention if full else conv), *feed_forward, *norms)
        for full, feed_forward in zip(_is_attention(cfg), _feed_forwards(cfg, hidden), strict=True)
    )
    tied = cfg.flag("tie_embedding", True)
    return Inventory(blocks, embeddings(cfg, hidden, tied_default=tied))
