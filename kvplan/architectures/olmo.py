"""OLMo 2 and 3, OLMoE and OLMo Hybrid: full, windowed or Gated DeltaNet layers; q and k are normed over all heads."""

from kvplan.architectures._config import Config
from kvplan.architectures._heads import Heads, by_name, experts, heads
from kvplan.architectures._parts import block_norms, embeddings, gqa, mlp, moe, vector
from kvplan.architectures._registry import Decoder, reads, weighs
from kvplan.architectures.qwen_hybrid import gdn, is_attention
from kvplan.layers.base import Layer
from kvplan.layers.delta import Gdn
from kvplan.model import Inventory, Weight

_POST_NORMS = ("post_attention_layernorm", "post_feedforward_layernorm")


@reads("olmo2", "olmoe")
def layers(cfg: Config) -> Decoder:
    ordinary = heads(cfg)
    total, per_token = experts(cfg, "num_experts", "num_local_experts")
    return Decoder(((ordinary.full,),) * cfg.layers(), (), ordinary.query, None, total, per_token)


@reads("olmo3")
def windowed_layers(cfg: Config) -> Decoder:
    ordinary = heads(cfg)
    kinds: dict[str, Layer] = {
        "full_attention": ordinary.full,
        "sliding_attention": ordinary.sliding(cfg.integer("sliding_window")),
    }
    mixers = by_name(cfg, "layer_types", cfg.layers(), kinds)
    return Decoder(tuple((mixer,) for mixer in mixers), num_attention_heads=ordinary.query)


@reads("olmo_hybrid")
def hybrid_layers(cfg: Config) -> Decoder:
    ordinary, delta = heads(cfg), gdn(cfg)
    cfg.ignore("linear_a_log_min", "linear_a_log_max", "linear_dt_min", "linear_dt_max", "linear_dt_init_floor")
    cfg.ignore("linear_allow_neg_eigval", "linear_use_gate", "sliding_window")
    attention = is_attention(cfg, cfg.layers())
    return Decoder(
        tuple((ordinary.full,) if full else (delta,) for full in attention), num_attention_heads=ordinary.query
    )


def _attention(cfg: Config, hidden: int, ordinary: Heads) -> tuple[Weight, ...]:
    bias = cfg.flag("attention_bias")
    return (
        *gqa(hidden, *ordinary, qkv_bias=bias, o_bias=bias),
        vector("self_attn.q_norm", ordinary.query * ordinary.dim, split="tp"),
        vector("self_attn.k_norm", ordinary.kv * ordinary.dim, split="tp"),
    )


@weighs("olmo2", "olmo3", "olmoe")
def weights(cfg: Config) -> Inventory:
    hidden, inner = cfg.integer("hidden_size"), cfg.integer("intermediate_size")
    sparse = cfg.text("model_type") == "olmoe"
    total, _ = experts(cfg, "num_experts", "num_local_experts")
    block = (
        *_attention(cfg, hidden, heads(cfg, weighed=True)),
        *(moe(hidden, inner, total) if sparse else mlp(hidden, inner)),
        *(block_norms(hidden) if sparse else block_norms(hidden, *_POST_NORMS)),
    )
    return Inventory((block,) * cfg.layers(), embeddings(cfg, hidden))


def _gdn(hidden: int, layer: Gdn) -> tuple[Weight, ...]:
    """Separate q, k, v, a, b and output gate; one convolution over q, k and v."""
    key, value = layer.key_heads * layer.key_dim, layer.value_heads * layer.value_dim
    rows = {"q": key, "k": key, "v": value, "a": layer.value_heads, "b": layer.value_heads, "g": value}
    return (
        *(Weight(f"linear_attn.{name}_proj", "attention", (count, hidden)) for name, count in rows.items()),
        Weight("linear_attn.conv1d", "attention", (2 * key + value, 1, layer.conv_kernel)),
        vector("linear_attn.A_log", layer.value_heads, split="tp"),
        vector("linear_attn.dt_bias", layer.value_heads, split="tp"),
        vector("linear_attn.o_norm", layer.value_dim),
        Weight("linear_attn.o_proj", "attention", (hidden, value)),
    )


@weighs("olmo_hybrid")
def hybrid_weights(cfg: Config) -> Inventory:
    hidden, ordinary = cfg.integer("hidden_size"), heads(cfg, weighed=True)
    feed_forward = mlp(hidden, cfg.integer("intermediate_size"))
    full = (*_attention(cfg, hidden, ordinary), *feed_forward, *block_norms(hidden, *_POST_NORMS))
    linear = (*_gdn(hidden, gdn(cfg)), *feed_forward, *block_norms(hidden))
    blocks = tuple(full if attention else linear for attention in is_attention(cfg, cfg.layers()))
    return Inventory(blocks, embeddings(cfg, hidden))
