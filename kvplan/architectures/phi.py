"""Phi-3, Phi-4 and Phi-3.5-MoE: ordinary attention, a window for all layers where `sliding_window` binds."""

from kvplan.architectures._attention import projections, read_heads, uniform
from kvplan.architectures._config import Config
from kvplan.architectures._parts import block_norms, embeddings, moe, norm, vector
from kvplan.architectures._registry import Decoder, reads, weighs
from kvplan.architectures.llama import dense_block
from kvplan.model import Inventory


@reads("phi3", "phi3_v", "phi4mm", "phi4_multimodal", "phimoe")
def layers(cfg: Config) -> Decoder:
    heads = read_heads(cfg)
    if cfg.maybe("full_attn_mod") not in (None, 1):
        raise cfg.fail("full_attn_mod", "other than 1 (full attention in every layer) is not modelled for Phi")
    return Decoder(
        uniform(cfg, heads),
        num_attention_heads=heads.query,
        num_experts=cfg.count("num_local_experts"),
        experts_per_token=cfg.count("num_experts_per_tok"),
    )


@weighs("phi3")
def weights(cfg: Config) -> Inventory:
    """Fused qkv and gate_up projections hold what separate ones would."""
    block = dense_block(cfg, read_heads(cfg), qkv_bias=False, o_bias=False)
    return Inventory((block,) * cfg.layers(), embeddings(cfg, cfg.integer("hidden_size")))


@weighs("phimoe")
def phimoe_weights(cfg: Config) -> Inventory:
    """Norms are LayerNorms with a bias; attention and the output head may have one too."""
    hidden, bias = cfg.integer("hidden_size"), cfg.flag("attention_bias")
    names = ("input_layernorm", "post_attention_layernorm")
    block = (
        *projections(cfg, read_heads(cfg), qkv_bias=bias, o_bias=bias),
        *moe(hidden, cfg.integer("intermediate_size"), cfg.integer("num_local_experts"), prefix="block_sparse_moe"),
        *block_norms(hidden, *names, *(f"{name}.bias" for name in names)),
    )
    head_bias = (vector("lm_head.bias", cfg.integer("vocab_size"), "head", "tp"),) if cfg.flag("lm_head_bias") else ()
    return Inventory((block,) * cfg.layers(), (*embeddings(cfg, hidden), norm("norm.bias", hidden), *head_bias))
