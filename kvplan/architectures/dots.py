"""dots.llm1: full attention; a window only where `layer_types` or `max_window_layers` say so."""

from kvplan.architectures._attention import FULL, SLIDING, blocks, layer_types, projections, read_heads
from kvplan.architectures._config import Config
from kvplan.architectures._parts import block_norms, embeddings, mlp, moe
from kvplan.architectures._registry import Decoder, reads, weighs
from kvplan.model import Inventory


@reads("dots1")
def layers(cfg: Config) -> Decoder:
    heads, depth = read_heads(cfg), cfg.layers()
    types = layer_types(cfg, depth)
    cfg.ignore("max_window_layers", "sliding_window", "use_sliding_window")
    if types is None:
        sliding = cfg.maybe("sliding_window", minimum=0) and cfg.get("use_sliding_window", default=None) is not False
        first = cfg.integer("max_window_layers", minimum=0) if sliding else depth
        types = [SLIDING if number >= first else FULL for number in range(depth)]
    return Decoder(
        blocks(cfg, types, heads),
        num_attention_heads=heads.query,
        num_experts=cfg.count("n_routed_experts"),
        experts_per_token=cfg.count("num_experts_per_tok"),
    )


@weighs("dots1")
def weights(cfg: Config) -> Inventory:
    hidden, bias = cfg.integer("hidden_size"), cfg.flag("attention_bias")
    attention = (
        *projections(cfg, read_heads(cfg), qkv_bias=bias, o_bias=bias, head_norm=True), *block_norms(hidden)
    )  # fmt: skip
    inner = cfg.integer("moe_intermediate_size")
    shared = cfg.count("n_shared_experts") * inner
    routed = (
        *attention,
        *moe(hidden, inner, cfg.integer("n_routed_experts"), shared_inner=shared, router_bias=True),
    )
    dense = (*attention, *mlp(hidden, cfg.integer("intermediate_size")))
    first = cfg.integer("first_k_dense_replace", minimum=0)
    return Inventory(
        tuple(routed if number >= first else dense for number in range(cfg.layers())), embeddings(cfg, hidden)
    )
