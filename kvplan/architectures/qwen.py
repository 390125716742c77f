"""Qwen2 and Qwen3, dense, mixture-of-experts and vision-language: grouped-query attention in every layer."""

from kvplan.architectures._config import Config
from kvplan.architectures._heads import Heads, by_name, experts, heads
from kvplan.architectures._parts import block_norms, embeddings, gqa, mlp, moe
from kvplan.architectures._qwen_vision import qwen2_vision, qwen3_vision
from kvplan.architectures._registry import Decoder, reads, weighs
from kvplan.architectures._towers import tower
from kvplan.layers.base import Layer
from kvplan.model import Inventory, Weight

_QWEN2 = ("qwen2", "qwen2_moe", "qwen2_vl", "qwen2_vl_text", "qwen2_5_vl", "qwen2_5_vl_text")
_QWEN3 = (
    "qwen3", "qwen3_moe", "qwen3_vl", "qwen3_vl_text", "qwen3_vl_moe", "qwen3_vl_moe_text",
)  # fmt: skip


def _heads(cfg: Config, weighed: bool = False) -> Heads:
    """Qwen3's class default for the head width is 128 and not hidden_size / heads, so it has to be given."""
    return heads(cfg, derive=cfg.text("model_type").startswith("qwen2"), weighed=weighed)


def _mixers(cfg: Config, count: int, ordinary: Heads) -> tuple[Layer, ...]:
    """One attention layer per block; windows only where `use_sliding_window` or `layer_types` ask for them."""
    cfg.ignore("sliding_window", "max_window_layers", "dual_chunk_attention_config")
    slides = cfg.flag("use_sliding_window")
    full: Layer = ordinary.full
    if cfg.has("layer_types"):
        names = by_name(cfg, "layer_types", count, {"full_attention": False, "sliding_attention": True})
        if any(names) and not slides:
            raise cfg.fail("layer_types", "names sliding layers, and use_sliding_window does not say true")
        window = cfg.integer("sliding_window") if any(names) else 0
        return tuple(ordinary.sliding(window) if name else full for name in names)
    if not slides or not cfg.has("sliding_window"):
        return (full,) * count
    if cfg.text("model_type").removesuffix("_text").endswith("moe"):
        raise cfg.fail("use_sliding_window", "needs layer_types in a mixture of experts, where engines disagree on it")
    first = cfg.integer("max_window_layers", minimum=0)
    window = cfg.integer("sliding_window")
    return tuple(full if number < first else ordinary.sliding(window) for number in range(count))


@reads(*_QWEN2, *_QWEN3)
def layers(cfg: Config) -> Decoder:
    ordinary = _heads(cfg)
    total, per_token = experts(cfg, "num_experts", "num_local_experts")
    mixers = _mixers(cfg, cfg.layers(), ordinary)
    return Decoder(tuple((mixer,) for mixer in mixers), (), ordinary.query, None, total, per_token)


def qwen_feed_forward(cfg: Config, hidden: int, number: int) -> tuple[Weight, ...]:
    """The dense or sparse feed-forward of one block. Shared experts have a gate of their own."""
    total, _ = experts(cfg, "num_experts", "num_local_experts")
    dense = cfg.integers("mlp_only_layers") if cfg.has("mlp_only_layers") else []
    step = cfg.integer("decoder_sparse_step") if cfg.has("decoder_sparse_step") else 1
    if not total or number in dense or (number + 1) % step:
        return mlp(hidden, cfg.integer("intermediate_size"))
    shared = cfg.maybe("shared_expert_intermediate_size", minimum=0) or 0
    routed = moe(hidden, cfg.integer("moe_intermediate_size"), total, shared_inner=shared, shared_name="shared_expert")
    return (*routed, Weight("mlp.shared_expert_gate", "router", (1, hidden), "none")) if shared else routed


@weighs(*_QWEN2, *_QWEN3)
def weights(cfg: Config) -> Inventory:
    hidden, ordinary = cfg.integer("hidden_size"), _heads(cfg, weighed=True)
    old = cfg.text("model_type").startswith("qwen2")
    bias = cfg.flag("qkv_bias", True) if old else cfg.flag("attention_bias")
    attention = gqa(hidden, *ordinary, qkv_bias=bias, o_bias=bias and not old, head_norm=not old)
    blocks = tuple(
        (*attention, *qwen_feed_forward(cfg, hidden, number), *block_norms(hidden)) for number in range(cfg.layers())
    )
    return Inventory(blocks, (*embeddings(cfg, hidden), *tower(cfg, qwen2_vision if old else qwen3_vision)))
