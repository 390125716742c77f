"""Ordinary attention as most configs spell it: heads, and a list that says which layers keep only a window."""

from kvplan.architectures._config import Config
from kvplan.architectures._heads import Heads, quotient
from kvplan.architectures._parts import gqa
from kvplan.layers.base import Layer
from kvplan.model import Weight

_KV_HEADS = {
    "dots1": 32, "ernie4_5": 2, "ernie4_5_moe": 4, "exaone4": 32, "gemma": 16, "gemma2": 4, "glm4": 2, "glm4_moe": 8,
    "gpt_oss": 8, "hy_v3": 8, "minimax": 8, "minimax_m1": 8, "minimax_m2": 8, "minimax_text_01": 8, "ministral": 8,
    "ministral3": 8, "mistral": 8, "mistral3": 8, "mixtral": 8, "phi4_multimodal": 8, "phimoe": 8, "pixtral": 8,
    "seed_oss": 8, "smollm3": 4,
}  # fmt: skip
_HEAD_DIM = {
    "afmoe": 128, "ernie4_5": 128, "glm4": 128, "gpt_oss": 64, "hy_v3": 128, "minimax_m2": 128, "ministral3": 128,
    "seed_oss": 128,
}  # fmt: skip
"""Class defaults of transformers that do not follow from other fields; they hold where a config leaves the key out."""

FULL, SLIDING, CHUNKED = "full_attention", "sliding_attention", "chunked_attention"
Blocks = tuple[tuple[Layer, ...], ...]


def projections(
    cfg: Config, heads: Heads, *, qkv_bias: bool = False, o_bias: bool = False, head_norm: bool = False
) -> tuple[Weight, ...]:
    """Projections of one layer. Raises MissingField without hidden_size or num_attention_heads."""
    hidden, query = cfg.integer("hidden_size"), heads.query or cfg.integer("num_attention_heads")
    return gqa(hidden, query, heads.kv, heads.dim, qkv_bias=qkv_bias, o_bias=o_bias, head_norm=head_norm)


def read_heads(cfg: Config, kv_heads: int | None = None, head_dim: int | None = None, query_heads: int = 0) -> Heads:
    """The heads of a config. Keywords are the class defaults that nested configs leave out.

    Without a default KV heads are as many as query heads, and the width is hidden_size / num_attention_heads; so they
    are where the field is null. A config that says all about storage may leave the query heads out; they are 0 then.
    """
    query = cfg.maybe("num_attention_heads") or query_heads
    model_type = cfg.text("model_type")
    if cfg.absent("num_key_value_heads"):
        kv_heads = kv_heads or _KV_HEADS.get(model_type)
    if cfg.absent("head_dim"):
        head_dim = head_dim or _HEAD_DIM.get(model_type)
    kv = cfg.maybe("num_key_value_heads")
    if kv is None:
        kv = cfg.integer("num_key_value_heads", default=kv_heads or cfg.integer("num_attention_heads"))
    dim = cfg.maybe("head_dim")
    if dim is None:
        dim = (
            cfg.integer("head_dim", default=head_dim) if head_dim else quotient(cfg, cfg.integer("num_attention_heads"))
        )
    if query % kv:
        raise cfg.fail("num_key_value_heads", f"{kv} does not divide num_attention_heads {query}")
    return Heads(query, kv, dim)


def every(layers: int, period: int) -> list[str]:
    """Full attention in each `period`-th layer, counted from 1, a window in the others."""
    return [SLIDING if number % period else FULL for number in range(1, layers + 1)]


def layer_types(cfg: Config, layers: int) -> list[str] | None:
    """`layer_types` cut at the decoder's depth, or None where the config has none."""
    if cfg.get("layer_types", default=None) is None:
        return None
    return [str(name) for name in cfg.cut("layer_types", cfg.texts("layer_types"), layers)]


def blocks(cfg: Config, types: list[str], heads: Heads, default_window: int | None = None) -> Blocks:
    """One attention layer per entry of `types`: full, or sliding over `sliding_window` tokens."""
    kinds: dict[str, Layer] = {FULL: heads.full}
    if SLIDING in types:
        kinds[SLIDING] = windowed(cfg, heads, default_window)
    else:
        cfg.ignore("sliding_window")
    return tuple((pick(cfg, name, kinds),) for name in types)


def pick(cfg: Config, name: str, kinds: dict[str, Layer]) -> Layer:
    """The layer that a `layer_types` entry stands for."""
    if name not in kinds:
        raise cfg.fail("layer_types", f"{name[:40]!r} is not modelled here; expected one of {', '.join(sorted(kinds))}")
    return kinds[name]


def windowed(cfg: Config, heads: Heads, default_window: int | None = None) -> Layer:
    """A sliding-window layer, or a full one where the window never binds below the model's own maximum."""
    if default_window is None:
        window = cfg.integer("sliding_window")
    else:
        window = cfg.integer("sliding_window", default=default_window)
    limit = cfg.maybe("max_position_embeddings", maximum=1 << 40)
    return heads.full if limit is not None and window >= limit else heads.sliding(window)


def uniform(cfg: Config, heads: Heads, default_window: int | None = None) -> Blocks:
    """Every layer alike unless `layer_types` says otherwise: a window where `sliding_window` is set and in use.

    vLLM reads it so for every family (attention.py: the model-level window is the fallback); 0 and null mean none,
    and where the key is left out the class default holds.
    """
    layers = cfg.layers()
    unused = cfg.get("use_sliding_window", default=None) is False
    default = default_window if cfg.absent("sliding_window") else None
    sliding = not unused and (cfg.maybe("sliding_window", minimum=0) or default)
    cfg.ignore("sliding_window", "max_window_layers")
    types = layer_types(cfg, layers) or [SLIDING if sliding else FULL] * layers
    return blocks(cfg, types, heads, default)
