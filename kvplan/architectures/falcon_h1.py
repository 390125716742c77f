"""Falcon-H1: every block runs attention and a Mamba-2 mixer side by side."""

from kvplan.architectures._config import Config
from kvplan.architectures._heads import heads
from kvplan.architectures._parts import block_norms, embeddings, gqa, mlp
from kvplan.architectures._recurrent import mamba2, mamba2_layer, state_dtype
from kvplan.architectures._registry import Decoder, reads, weighs
from kvplan.model import Inventory


@reads("falcon_h1")
def layers(cfg: Config) -> Decoder:
    ordinary = heads(cfg)
    cfg.ignore("mamba_chunk_size", "mamba_use_mlp", "mamba_rms_norm", "mamba_norm_before_gate", "key_multiplier")
    cfg.ignore("ssm_multipliers", "ssm_in_multiplier", "ssm_out_multiplier")
    if cfg.has("attn_layer_indices"):
        raise cfg.fail("attn_layer_indices", "is not modelled: every block of Falcon-H1 holds both mixers")
    return Decoder(
        ((ordinary.full, mamba2_layer(cfg)),) * cfg.layers(),
        num_attention_heads=ordinary.query,
        state_dtype=state_dtype(cfg),
    )


@weighs("falcon_h1")
def weights(cfg: Config) -> Inventory:
    hidden, bias = cfg.integer("hidden_size"), cfg.flag("attention_bias")
    if cfg.flag("mlp_bias"):
        raise cfg.fail("mlp_bias", "is not modelled for Falcon-H1")
    block = (
        *gqa(hidden, *heads(cfg, weighed=True), qkv_bias=bias, o_bias=bias),
        *mamba2(
            hidden, mamba2_layer(cfg), conv_bias=cfg.flag("mamba_conv_bias", True),
            in_bias=cfg.flag("mamba_proj_bias"), out_bias=cfg.flag("projectors_bias"),
            gated_norm=cfg.flag("mamba_rms_norm"),
        ),
        *mlp(hidden, cfg.integer("intermediate_size"), prefix="feed_forward"),
        *block_norms(hidden, "input_layernorm", "pre_ff_layernorm"),
    )  # fmt: skip
    return Inventory((block,) * cfg.layers(), embeddings(cfg, hidden))
