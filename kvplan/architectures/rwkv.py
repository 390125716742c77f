"""RWKV-7: a matrix per head and two token-shift rows in every layer (fla layers/rwkv7.py, models/rwkv7)."""

from kvplan.architectures._config import Config
from kvplan.architectures._parts import embeddings, norm, vector
from kvplan.architectures._registry import Decoder, reads, weighs
from kvplan.layers.linear import Rwkv7
from kvplan.model import Inventory, Weight


def _layer(cfg: Config) -> Rwkv7:
    """Heads are as many as fit the width. Value widths of their own and attention layers in between are refused."""
    hidden, dim = cfg.integer("hidden_size"), cfg.integer("head_dim")
    if cfg.has("attn"):
        raise cfg.fail("attn", "is not modelled: attention layers among RWKV-7 layers change what is stored")
    heads = cfg.maybe("num_heads") or hidden // dim
    if heads * dim != hidden:
        raise cfg.fail("head_dim", f"{dim} × {heads} heads is not hidden_size {hidden}")
    value = cfg.get("value_dim", default=hidden)
    if any(width != hidden for width in (value if isinstance(value, list) else [value])):
        raise cfg.fail("value_dim", f"other than hidden_size {hidden} is not modelled")
    return Rwkv7(heads, dim, hidden)


@reads("rwkv7")
def layers(cfg: Config) -> Decoder:
    return Decoder(((_layer(cfg),),) * cfg.layers())


def _low_rank(name: str, hidden: int, rank: int, bias: bool = True) -> tuple[Weight, ...]:
    """Two thin matrices, the second with a bias."""
    down = Weight(f"attn.{name}.lora.0", "attention", (rank, hidden), "none")
    up = Weight(f"attn.{name}.lora.2", "attention", (hidden, rank))
    return (down, up, vector(f"attn.{name}.lora.2.bias", hidden, split="tp")) if bias else (down, up)


def _block(cfg: Config, layer: Rwkv7, number: int) -> tuple[Weight, ...]:
    """The first layer has one more norm. Its unused value-residual projection is counted too: only so does the
    published count of the 2.9B model come out."""
    hidden, inner = layer.hidden_size, cfg.integer("intermediate_size")
    first = number == 0
    norms = ("attn_norm", "ffn_norm", "pre_norm") if first else ("attn_norm", "ffn_norm")
    return (
        *(vector(f"attn.x_{name}", hidden) for name in "rwkvag"),
        vector("attn.k_k", hidden, split="tp"),
        vector("attn.k_a", hidden, split="tp"),
        Weight("attn.r_k", "attention", (layer.num_heads, layer.head_dim)),
        *(Weight(f"attn.{name}_proj", "attention", (hidden, hidden)) for name in "rkvo"),
        *_low_rank("w_lora", hidden, cfg.integer("decay_low_rank_dim")),
        *_low_rank("a_lora", hidden, cfg.integer("a_low_rank_dim")),
        *_low_rank("g_lora", hidden, cfg.integer("gate_low_rank_dim"), bias=False),
        *_low_rank("v_lora", hidden, cfg.integer("v_low_rank_dim")),
        Weight("attn.g_norm", "attention", (2, hidden), "none"),
        vector("ffn.x_k", hidden, "mlp"),
        Weight("ffn.key", "mlp", (inner, hidden)),
        Weight("ffn.value", "mlp", (hidden, inner)),
        *(norm(part, hidden) for name in norms for part in (name, f"{name}.bias")),
    )


@weighs("rwkv7")
def weights(cfg: Config) -> Inventory:
    layer = _layer(cfg)
    blocks = tuple(_block(cfg, layer, number) for number in range(cfg.layers()))
    return Inventory(blocks, (*embeddings(cfg, layer.hidden_size), norm("norm.bias", layer.hidden_size)))
