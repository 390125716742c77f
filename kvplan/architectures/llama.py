"""Llama 2 and 3: grouped-query attention in every layer."""

from kvplan.architectures._config import Config
from kvplan.architectures._parts import block_norms, embeddings, gqa, mlp
from kvplan.architectures._registry import Decoder, reads, weighs
from kvplan.layers.full import Full
from kvplan.model import Inventory


def _heads(cfg: Config) -> tuple[int, int, int]:
    """Query heads, KV heads, head width."""
    heads = cfg.integer("num_attention_heads")
    kv_heads = cfg.integer("num_key_value_heads", default=heads)
    return heads, kv_heads, cfg.maybe("head_dim") or cfg.integer("hidden_size") // heads


@reads("llama")
def layers(cfg: Config) -> Decoder:
    heads, kv_heads, head_dim = _heads(cfg)
    return Decoder(((Full(kv_heads, head_dim, head_dim),),) * cfg.layers(), num_attention_heads=heads)


@weighs("llama")
def weights(cfg: Config) -> Inventory:
    hidden = cfg.integer("hidden_size")
    heads, kv_heads, head_dim = _heads(cfg)
    bias = cfg.flag("attention_bias")
    block = (
        *gqa(hidden, heads, kv_heads, head_dim, qkv_bias=bias, o_bias=bias),
        *mlp(hidden, cfg.integer("intermediate_size")),
        *block_norms(hidden),
    )
    return Inventory((block,) * cfg.layers(), embeddings(cfg, hidden))
