"""Nemotron dense, and the Llama-Nemotron models whose layers a search made different from one another."""

from kvplan.architectures._config import MAX_LAYERS, Config
from kvplan.architectures._heads import heads, quotient
from kvplan.architectures._parts import block_norms, embeddings, gqa, mlp, norm, vector
from kvplan.architectures._registry import Decoder, reads, weighs
from kvplan.errors import MissingField
from kvplan.layers.base import Layer
from kvplan.layers.full import Full
from kvplan.model import Inventory, Weight
from kvplan.units import ceil_div

_CHANGES_STORAGE = (
    "sparsify", "num_sink_tokens", "window_length", "unshifted_sink", "use_prefill_window_in_sink_attention",
    "mamba", "llama4",
)  # fmt: skip


@reads("nemotron")
def dense_layers(cfg: Config) -> Decoder:
    ordinary = heads(cfg)
    return Decoder(((ordinary.full,),) * cfg.layers(), num_attention_heads=ordinary.query)


@weighs("nemotron")
def dense_weights(cfg: Config) -> Inventory:
    """Ungated feed-forward and LayerNorms with a bias."""
    hidden, inner, bias = cfg.integer("hidden_size"), cfg.integer("intermediate_size"), cfg.flag("attention_bias")
    biases = (vector("mlp.up_proj.bias", inner, "mlp", "tp"), vector("mlp.down_proj.bias", hidden, "mlp"))
    block = (
        *gqa(hidden, *heads(cfg, weighed=True), qkv_bias=bias, o_bias=bias),
        *mlp(hidden, inner, gated=False),
        *(biases if cfg.flag("mlp_bias") else ()),
        *block_norms(hidden),
        *block_norms(hidden, "input_layernorm.bias", "post_attention_layernorm.bias"),
    )
    return Inventory((block,) * cfg.layers(), (*embeddings(cfg, hidden), norm("norm.bias", hidden)))


def _half(cfg: Config, number: int, key: str) -> Config | None:
    """The `attention` or `ffn` part of one block_configs entry; None where the entry lacks it."""
    value = cfg.get("block_configs")
    where = f"block_configs[{number}]"
    if not isinstance(value, list) or len(value) > MAX_LAYERS or number >= len(value):
        raise cfg.fail("block_configs", f"expected a list with one object for each of the {cfg.layers()} layers")
    entry = value[number]
    if not isinstance(entry, dict) or entry.get("parallel_blocks"):
        raise cfg.fail(where, "expected an object without parallel_blocks")
    part = entry.get(key)
    if part is not None and not isinstance(part, dict):
        raise cfg.fail(where, f"expected {key} to be an object")
    return None if part is None else Config(part, f"{cfg.name(where)}.{key}")


def _attention(cfg: Config, number: int) -> Config:
    half = _half(cfg, number, "attention")
    if half is None:
        raise cfg.fail(f"block_configs[{number}]", "has no attention object")
    for key in _CHANGES_STORAGE:
        if half.data.get(key) not in (None, False):
            raise half.fail(key, "is not modelled and changes what is stored")
    return half


def _kv_heads(cfg: Config, half: Config, query: int) -> int | None:
    """KV heads of one layer; None where it keeps nothing, because it is skipped or a plain projection."""
    if half.flag("no_op") or half.flag("replace_with_linear"):
        return None
    group = half.integer("n_heads_in_group")
    if query % group:
        raise half.fail("n_heads_in_group", f"{group} does not divide num_attention_heads {query}")
    return query // group


@reads("nemotron-nas")
def layers(cfg: Config) -> Decoder:
    """num_key_value_heads is null here: every layer has its own group size, or no attention at all."""
    query = cfg.integer("num_attention_heads")
    dim = cfg.maybe("head_dim") or quotient(cfg, query)
    cfg.ignore("num_key_value_heads")

    def mixers(number: int) -> tuple[Layer, ...]:
        kv = _kv_heads(cfg, _attention(cfg, number), query)
        return () if kv is None else (Full(kv, dim, dim),)

    return Decoder(tuple(mixers(number) for number in range(cfg.layers())), num_attention_heads=query)


def _inner(half: Config, hidden: int) -> int:
    """Llama's rule: two thirds of the multiple of hidden_size, rounded up to 256."""
    if half.has("intermediate_size"):
        return half.integer("intermediate_size")
    ratio = half.get("ffn_mult")
    if isinstance(ratio, bool) or not isinstance(ratio, int | float) or not 0 < ratio <= 1024:
        raise half.fail("ffn_mult", "expected a number between 0 and 1024")
    return ceil_div(int(2 * ratio * hidden / 3), 256) * 256


def _block_weights(cfg: Config, hidden: int, number: int) -> tuple[Weight, ...]:
    """A skipped half has no norm either (vLLM nemotron_nas.py)."""
    attention, ffn = _attention(cfg, number), _half(cfg, number, "ffn")
    if ffn is None:
        raise MissingField(f"{cfg.name(f'block_configs[{number}]')}.ffn is missing")
    if ffn.has("moe"):
        raise ffn.fail("moe", "is not modelled")
    query = cfg.integer("num_attention_heads")
    kv = _kv_heads(cfg, attention, query)
    weights: tuple[Weight, ...] = ()
    if kv is not None:
        bias = cfg.flag("attention_bias")
        dim = cfg.maybe("head_dim") or quotient(cfg, query)
        projections = gqa(hidden, query, kv, dim, qkv_bias=bias, o_bias=bias)
        weights = (*projections, norm("input_layernorm", hidden))
    elif attention.flag("replace_with_linear"):
        weights = (Weight("self_attn.linear_attn", "attention", (hidden, hidden)), norm("input_layernorm", hidden))
    if ffn.flag("replace_with_linear"):
        weights += (Weight("mlp.linear_mlp", "mlp", (hidden, hidden)), norm("post_attention_layernorm", hidden))
    elif not ffn.flag("no_op"):
        weights += (*mlp(hidden, _inner(ffn, hidden)), norm("post_attention_layernorm", hidden))
    return weights


@weighs("nemotron-nas")
def weights(cfg: Config) -> Inventory:
    hidden = cfg.integer("hidden_size")
    blocks = tuple(_block_weights(cfg, hidden, number) for number in range(cfg.layers()))
    return Inventory(blocks, embeddings(cfg, hidden))
