"""Qwen3-Next and Qwen3.5 to 3.8: Gated DeltaNet in three layers of four, gated grouped-query attention in the rest."""

from kvplan.architectures._config import MAX_LAYERS, Config
from kvplan.architectures._heads import by_name, experts, heads
from kvplan.architectures._parts import block_norms, embeddings, gqa, norm, vector
from kvplan.architectures._qwen_vision import qwen3_vision
from kvplan.architectures._recurrent import state_dtype
from kvplan.architectures._registry import Decoder, reads, weighs
from kvplan.architectures._towers import tower
from kvplan.architectures.qwen import qwen_feed_forward
from kvplan.layers.delta import Gdn
from kvplan.model import Inventory, Weight

_TYPES = ("qwen3_next", "qwen3_5", "qwen3_5_text", "qwen3_5_moe", "qwen3_5_moe_text")


def gdn(cfg: Config) -> Gdn:
    """The Gated DeltaNet layer that the `linear_*` keys describe."""
    return Gdn(
        cfg.integer("linear_num_key_heads"),
        cfg.integer("linear_num_value_heads"),
        cfg.integer("linear_key_head_dim"),
        cfg.integer("linear_value_head_dim"),
        cfg.integer("linear_conv_kernel_dim"),
    )


def is_attention(cfg: Config, count: int) -> tuple[bool, ...]:
    """True where a layer is attention: from `layer_types`, else every `full_attention_interval`-th layer."""
    named = None
    if cfg.has("layer_types"):
        named = by_name(cfg, "layer_types", count, {"full_attention": True, "linear_attention": False})
        if not cfg.has("full_attention_interval"):
            return named
    interval = cfg.integer("full_attention_interval")
    periodic = tuple((number + 1) % interval == 0 for number in range(count))
    if named not in (None, periodic):
        raise cfg.fail("layer_types", "contradicts full_attention_interval")
    return periodic


def _mtp_blocks(cfg: Config) -> int:
    """Qwen3-Next ships one block that its config does not mention; vLLM's qwen3_next_mtp.py takes one by default."""
    if cfg.text("model_type") == "qwen3_next":
        return cfg.integer("num_nextn_predict_layers", default=1, minimum=0, maximum=MAX_LAYERS)
    return cfg.maybe("mtp_num_hidden_layers", minimum=0, maximum=MAX_LAYERS) or 0


@reads(*_TYPES)
def layers(cfg: Config) -> Decoder:
    ordinary, delta = heads(cfg, derive=False), gdn(cfg)
    total, per_token = experts(cfg, "num_experts", "num_local_experts")
    attention = is_attention(cfg, cfg.layers())
    return Decoder(
        tuple((ordinary.full,) if full else (delta,) for full in attention),
        mtp=(ordinary.full,) * _mtp_blocks(cfg),
        num_attention_heads=ordinary.query,
        state_dtype=state_dtype(cfg),
        num_experts=total,
        experts_per_token=per_token,
    )


def _gdn_weights(hidden: int, layer: Gdn, fused: bool) -> tuple[Weight, ...]:
    """Qwen3-Next stores q, k, v, z and b, a as two fused projections; Qwen3.5 as four."""
    key, value = layer.key_heads * layer.key_dim, layer.value_heads * layer.value_dim
    rows = (
        {"in_proj_qkvz": 2 * key + 2 * value, "in_proj_ba": 2 * layer.value_heads}
        if fused
        else {
            "in_proj_qkv": 2 * key + value,
            "in_proj_z": value,
            "in_proj_b": layer.value_heads,
            "in_proj_a": layer.value_heads,
        }
    )
    return (
        *(Weight(f"linear_attn.{name}", "attention", (count, hidden)) for name, count in rows.items()),
        Weight("linear_attn.conv1d", "attention", (2 * key + value, 1, layer.conv_kernel)),
        vector("linear_attn.dt_bias", layer.value_heads, split="tp"),
        vector("linear_attn.A_log", layer.value_heads, split="tp"),
        vector("linear_attn.norm", layer.value_dim),
        Weight("linear_attn.out_proj", "attention", (hidden, value)),
    )


def _mtp_weights(cfg: Config, hidden: int, attention: tuple[Weight, ...]) -> tuple[Weight, ...]:
    """Blocks of full attention behind one projection of (embedding, hidden state); most share the embedding."""
    blocks = _mtp_blocks(cfg)
    if not blocks:
        return ()
    block = (*attention, *qwen_feed_forward(cfg, hidden, cfg.layers()), *block_norms(hidden))
    dedicated = cfg.flag("mtp_use_dedicated_embeddings")
    own = (Weight("mtp.embed_tokens", "embedding", (cfg.integer("vocab_size"), hidden)),) if dedicated else ()
    return (
        *own,
        Weight("mtp.fc", "attention", (hidden, 2 * hidden)),
        *(norm(f"mtp.{name}", hidden) for name in ("pre_fc_norm_embedding", "pre_fc_norm_hidden", "norm")),
        *block * blocks,
    )


@weighs(*_TYPES)
def weights(cfg: Config) -> Inventory:
    hidden, ordinary = cfg.integer("hidden_size"), heads(cfg, derive=False, weighed=True)
    bias = cfg.flag("attention_bias")
    full = gqa(hidden, *ordinary, qkv_bias=bias, o_bias=bias, head_norm=True, gate=cfg.flag("attn_output_gate", True))
    linear = _gdn_weights(hidden, gdn(cfg), cfg.text("model_type") == "qwen3_next")
    blocks = tuple(
        (*(full if attention else linear), *qwen_feed_forward(cfg, hidden, number), *block_norms(hidden))
        for number, attention in enumerate(is_attention(cfg, cfg.layers()))
    )
    outer = (*embeddings(cfg, hidden), *tower(cfg, qwen3_vision))
    return Inventory(blocks, outer, _mtp_weights(cfg, hidden, full))
