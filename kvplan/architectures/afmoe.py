"""Arcee Trinity (AFMoE): full attention in every n-th layer, a window in the rest."""

from kvplan.architectures._attention import blocks, every, layer_types, projections, read_heads
from kvplan.architectures._config import Config
from kvplan.architectures._parts import block_norms, embeddings, mlp, moe, vector
from kvplan.architectures._registry import Decoder, reads, weighs
from kvplan.model import Inventory, Weight


@reads("afmoe")
def layers(cfg: Config) -> Decoder:
    heads, depth = read_heads(cfg), cfg.layers()
    types = layer_types(cfg, depth)
    cfg.ignore("global_attn_every_n_layers", "num_expert_groups", "num_limited_groups")
    if types is None:
        types = every(depth, cfg.integer("global_attn_every_n_layers"))
    return Decoder(
        blocks(cfg, types, heads),
        num_attention_heads=heads.query,
        num_experts=cfg.count("num_experts"),
        experts_per_token=cfg.count("num_experts_per_tok"),
    )


@weighs("afmoe")
def weights(cfg: Config) -> Inventory:
    """Head norms and a full-width output gate in attention, four norms a block, a router bias of its own."""
    hidden, heads, bias = cfg.integer("hidden_size"), read_heads(cfg), cfg.flag("attention_bias")
    attention = (
        *projections(cfg, heads, qkv_bias=bias, o_bias=bias, head_norm=True),
        Weight("self_attn.gate_proj", "attention", (cfg.integer("num_attention_heads") * heads.dim, hidden)),
        *block_norms(hidden, "input_layernorm", "post_attention_layernorm", "pre_mlp_layernorm", "post_mlp_layernorm"),
    )
    inner, experts = cfg.integer("moe_intermediate_size"), cfg.integer("num_experts")
    shared = cfg.integer("num_shared_experts", minimum=0) * inner
    routed = (
        *attention,
        *moe(hidden, inner, experts, shared_inner=shared),
        vector("mlp.expert_bias", experts, "router"),
    )
    dense = (*attention, *mlp(hidden, cfg.integer("intermediate_size")))
    first = cfg.integer("num_dense_layers", minimum=0)
    return Inventory(
        tuple(routed if number >= first else dense for number in range(cfg.layers())), embeddings(cfg, hidden)
    )
