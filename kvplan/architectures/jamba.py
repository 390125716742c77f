"""Jamba: Mamba-1 in most layers, grouped-query attention once a period, experts in every other feed-forward."""

from kvplan.architectures._config import Config
from kvplan.architectures._heads import experts, heads
from kvplan.architectures._parts import block_norms, embeddings, gqa, mlp, moe
from kvplan.architectures._recurrent import mamba1, state_dtype
from kvplan.architectures._registry import Decoder, reads, weighs
from kvplan.layers.mamba import Mamba1
from kvplan.model import Inventory, Weight
from kvplan.units import ceil_div


def _every(cfg: Config, what: str) -> tuple[bool, ...]:
    """True in the layers of one kind: index modulo `{what}_layer_period` equals `{what}_layer_offset`, from 0."""
    period = cfg.integer(f"{what}_layer_period")
    offset = cfg.integer(f"{what}_layer_offset", minimum=0, maximum=period - 1)
    return tuple(number % period == offset for number in range(cfg.layers()))


def _mamba(cfg: Config) -> Mamba1:
    inner = cfg.integer("mamba_expand") * cfg.integer("hidden_size")
    return Mamba1(inner, cfg.integer("mamba_d_state"), cfg.integer("mamba_d_conv"))


@reads("jamba")
def layers(cfg: Config) -> Decoder:
    ordinary, mamba = heads(cfg), _mamba(cfg)
    cfg.ignore("use_mamba_kernels", "mamba_dt_rank", "mamba_inner_layernorms", "num_logits_to_keep")
    total, per_token = experts(cfg, "num_experts", "num_local_experts")
    return Decoder(
        tuple((ordinary.full,) if attention else (mamba,) for attention in _every(cfg, "attn")),
        num_attention_heads=ordinary.query,
        state_dtype=state_dtype(cfg),
        num_experts=total,
        experts_per_token=per_token,
    )


def _dt_rank(cfg: Config, hidden: int) -> int:
    """The rank of the time step; "auto" is a sixteenth of the width."""
    automatic = cfg.get("mamba_dt_rank") == "auto"
    return ceil_div(hidden, 16) if automatic else cfg.integer("mamba_dt_rank")


def _feed_forwards(cfg: Config, hidden: int) -> tuple[tuple[Weight, ...], ...]:
    inner, (total, _) = cfg.integer("intermediate_size"), experts(cfg, "num_experts", "num_local_experts")
    dense = mlp(hidden, inner, prefix="feed_forward")
    if total <= 1:
        return (dense,) * cfg.layers()
    sparse = moe(hidden, inner, total, prefix="feed_forward", router_name="router")
    return tuple(sparse if routed else dense for routed in _every(cfg, "expert"))


@weighs("jamba")
def weights(cfg: Config) -> Inventory:
    hidden = cfg.integer("hidden_size")
    conv_bias, proj_bias = cfg.flag("mamba_conv_bias", True), cfg.flag("mamba_proj_bias")
    attention = gqa(hidden, *heads(cfg, weighed=True))
    mamba = mamba1(
        hidden, _mamba(cfg), _dt_rank(cfg, hidden), conv_bias=conv_bias, proj_bias=proj_bias, inner_norms=True,
        prefix="mamba",
    )  # fmt: skip
    norms = block_norms(hidden, "input_layernorm", "pre_ff_layernorm")
    blocks = tuple(
        (*(attention if full else mamba), *feed_forward, *norms)
        for full, feed_forward in zip(_every(cfg, "attn"), _feed_forwards(cfg, hidden), strict=True)
    )
    return Inventory(blocks, embeddings(cfg, hidden))
