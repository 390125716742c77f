"""Granite 3 and 4, and Bamba: attention alone, or Mamba-2 in most layers; experts beside a shared feed-forward."""

from kvplan.architectures._config import Config
from kvplan.architectures._heads import by_name, experts, heads
from kvplan.architectures._parts import block_norms, embeddings, gqa, mlp, moe, vector
from kvplan.architectures._recurrent import mamba2, mamba2_layer, state_dtype
from kvplan.architectures._registry import Decoder, reads, weighs
from kvplan.layers.base import Layer
from kvplan.model import Inventory, Weight

_KINDS = {"mamba": False, "linear_attention": False, "attention": True, "full_attention": True}
_UNUSED = (
    "mamba_n_heads", "mamba_n_groups", "mamba_d_state", "mamba_d_head", "mamba_d_conv", "mamba_expand",
    "mamba_chunk_size", "attn_layer_indices", "num_attention_heads", "num_key_value_heads", "head_dim",
)  # fmt: skip


def _is_attention(cfg: Config) -> tuple[bool, ...]:
    """True where a layer is attention. The class default without a list is all Mamba, which no checkpoint is."""
    count = cfg.layers()
    if cfg.text("model_type") != "bamba":
        key = "layers_block_type" if cfg.has("layers_block_type") else "layer_types"
        return by_name(cfg, key, count, _KINDS)
    attention = cfg.integers("attn_layer_indices")
    if any(number >= count for number in attention):
        raise cfg.fail("attn_layer_indices", f"names a layer beyond the {count} of the decoder (0-based)")
    return tuple(number in set(attention) for number in range(count))


@reads("granite", "granitemoe", "granitemoeshared")
def layers(cfg: Config) -> Decoder:
    ordinary = heads(cfg)
    total, per_token = experts(cfg, "num_local_experts")
    return Decoder(((ordinary.full,),) * cfg.layers(), (), ordinary.query, None, total, per_token)


@reads("granitemoehybrid", "bamba")
def hybrid_layers(cfg: Config) -> Decoder:
    """Granite 4 models without Mamba, or without attention, ship the other's keys all the same."""
    attention = _is_attention(cfg)
    mixers: dict[bool, Layer] = {}
    if not all(attention):
        mixers[False] = mamba2_layer(cfg)
    query = 0
    if any(attention):
        ordinary = heads(cfg)
        query, mixers[True] = ordinary.query, ordinary.full
    cfg.ignore(*_UNUSED)
    total, per_token = experts(cfg, "num_local_experts")
    return Decoder(
        tuple((mixers[full],) for full in attention),
        num_attention_heads=query,
        state_dtype=state_dtype(cfg),
        num_experts=total,
        experts_per_token=per_token,
    )


def _attention(cfg: Config, hidden: int) -> tuple[Weight, ...]:
    bias = cfg.flag("attention_bias")
    return gqa(hidden, *heads(cfg, weighed=True), qkv_bias=bias, o_bias=bias)


def _feed_forward(cfg: Config, hidden: int) -> tuple[Weight, ...]:
    """Dense with an optional bias, or routed experts and a shared one, either of which may be absent."""
    if cfg.text("model_type") in ("granite", "bamba"):
        inner = cfg.integer("intermediate_size")
        biases = (
            vector("mlp.up_proj.bias", inner, "mlp", "tp"),
            vector("mlp.gate_proj.bias", inner, "mlp", "tp"),
            vector("mlp.down_proj.bias", hidden, "mlp"),
        )
        return (*mlp(hidden, inner), *(biases if cfg.flag("mlp_bias") else ()))
    total, _ = experts(cfg, "num_local_experts")
    shared = 0
    if cfg.text("model_type") != "granitemoe":
        shared = cfg.integer("shared_intermediate_size", minimum=0)
    routed = (
        moe(hidden, cfg.integer("intermediate_size"), total, prefix="block_sparse_moe", router_name="router")
        if total
        else ()
    )
    return (*routed, *(mlp(hidden, shared, prefix="shared_mlp") if shared else ()))


@weighs("granite", "granitemoe", "granitemoeshared", "granitemoehybrid", "bamba")
def weights(cfg: Config) -> Inventory:
    hidden, plain = cfg.integer("hidden_size"), cfg.text("model_type") not in ("granitemoehybrid", "bamba")
    attention = (True,) * cfg.layers() if plain else _is_attention(cfg)
    rest = (*_feed_forward(cfg, hidden), *block_norms(hidden))
    sized: dict[bool, tuple[Weight, ...]] = {}
    if any(attention):
        sized[True] = (*_attention(cfg, hidden), *rest)
    if not all(attention):
        bias, conv_bias = cfg.flag("mamba_proj_bias"), cfg.flag("mamba_conv_bias", True)
        mamba = mamba2(hidden, mamba2_layer(cfg), conv_bias=conv_bias, in_bias=bias, out_bias=bias)
        sized[False] = (*mamba, *rest)
    return Inventory(tuple(sized[full] for full in attention), embeddings(cfg, hidden))
