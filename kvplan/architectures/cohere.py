"""Cohere Command: full attention (Command R), or a window in all but every fourth layer (Command R7B, Command A)."""

from kvplan.architectures._attention import blocks, every, layer_types, projections, read_heads
from kvplan.architectures._config import Config
from kvplan.architectures._parts import block_norms, embeddings, mlp, vector
from kvplan.architectures._registry import Decoder, reads, weighs
from kvplan.model import Inventory, Weight

_SECOND = ("cohere2", "cohere2_vision", "aya_vision")
_PERIOD = ("sliding_window_pattern", "_sliding_window_pattern", "layer_switch")


@reads("cohere")
def layers(cfg: Config) -> Decoder:
    heads = read_heads(cfg)
    return Decoder(((heads.full,),) * cfg.layers(), num_attention_heads=heads.query)


@reads(*_SECOND)
def cohere2(cfg: Config) -> Decoder:
    heads, depth = read_heads(cfg), cfg.layers()
    types = layer_types(cfg, depth)
    cfg.ignore(*_PERIOD, "order_of_interleaved_layers")
    if types is None:
        types = every(depth, cfg.integer(*_PERIOD, default=4))
    return Decoder(blocks(cfg, types, heads, default_window=4096), num_attention_heads=heads.query)


@weighs("cohere", "cohere2")
def weights(cfg: Config) -> Inventory:
    """Attention and MLP run in parallel behind one norm; Command R+ also norms every head of q and k on its own."""
    hidden, heads, bias = cfg.integer("hidden_size"), read_heads(cfg), cfg.flag("attention_bias")
    norms: tuple[Weight, ...] = ()
    if cfg.flag("use_qk_norm"):
        norms = (
            vector("self_attn.q_norm", heads.query * heads.dim, split="tp"),
            vector("self_attn.k_norm", heads.kv * heads.dim, split="tp"),
        )
    block = (
        *projections(cfg, heads, qkv_bias=bias, o_bias=bias),
        *norms,
        *mlp(hidden, cfg.integer("intermediate_size")),
        *block_norms(hidden, "input_layernorm"),
    )
    return Inventory((block,) * cfg.layers(), embeddings(cfg, hidden, tied_default=True))
