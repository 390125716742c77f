"""gpt-oss: a window of 128 in every other layer, the first included; sinks are weights, not cache."""

from kvplan.architectures._attention import blocks, every, layer_types, projections, read_heads
from kvplan.architectures._config import Config
from kvplan.architectures._parts import block_norms, embeddings, vector
from kvplan.architectures._registry import Decoder, reads, weighs
from kvplan.model import Inventory, Weight


@reads("gpt_oss")
def layers(cfg: Config) -> Decoder:
    heads, depth = read_heads(cfg), cfg.layers()
    types = layer_types(cfg, depth) or every(depth, 2)
    return Decoder(
        blocks(cfg, types, heads),
        num_attention_heads=heads.query,
        num_experts=cfg.count("num_local_experts", "num_experts"),
        experts_per_token=cfg.count("num_experts_per_tok", "experts_per_token"),
    )


@weighs("gpt_oss")
def weights(cfg: Config) -> Inventory:
    """Every projection, router and expert has a bias; gate and up are one interleaved matrix."""
    hidden, inner = cfg.integer("hidden_size"), cfg.integer("intermediate_size")
    experts, heads = cfg.integer("num_local_experts", "num_experts"), read_heads(cfg)
    bias = cfg.flag("attention_bias", default=True)
    block = (
        *projections(cfg, heads, qkv_bias=bias, o_bias=bias),
        vector("self_attn.sinks", heads.query, split="tp"),
        Weight("mlp.router", "router", (experts, hidden), "none"),
        vector("mlp.router.bias", experts, "router"),
        Weight("mlp.experts.gate_up_proj", "expert", (2 * inner, hidden), "ep", experts),
        Weight("mlp.experts.gate_up_proj_bias", "expert", (2 * inner,), "ep", experts),
        Weight("mlp.experts.down_proj", "expert", (hidden, inner), "ep", experts),
        Weight("mlp.experts.down_proj_bias", "expert", (hidden,), "ep", experts),
        *block_norms(hidden),
    )
    return Inventory((block,) * cfg.layers(), embeddings(cfg, hidden))
