"""Ling and Ring (bailing): grouped-query attention, or one full layer in a group of linear ones.

The linear layers are lightning attention, or Kimi Delta Attention where the config has `short_conv_kernel_size`;
the full ones are latent where it has `kv_lora_rank` (SGLang configs/bailing_hybrid, vLLM bailing_moe_linear and _v3).
"""

from kvplan.architectures._attention import read_heads
from kvplan.architectures._config import Config
from kvplan.architectures._heads import quotient
from kvplan.architectures._latent import full_by_name, latent_attention, moe_layers, mtp_extras
from kvplan.architectures._parts import block_norms, embeddings, gqa, mlp, moe, vector
from kvplan.architectures._registry import Decoder, reads, weighs
from kvplan.errors import MissingField
from kvplan.layers.base import Layer
from kvplan.layers.delta import Kda
from kvplan.layers.linear import Lightning
from kvplan.layers.mla import Mla
from kvplan.model import Inventory, Weight

_EXPERTS = ("num_experts", "num_local_experts")
_MTP = ("num_nextn_predict_layers", "num_mtp_layers")
_TAPS = ("short_conv_kernel_size", "linear_conv_kernel_dim")
_UNUSED = (
    "num_key_value_heads", "head_dim", "q_lora_rank", "qk_nope_head_dim", "qk_head_dim", "v_head_dim", "linear_silu",
    "linear_rope", "linear_backend", "linear_attn_norm_group_size", "sliding_window", "max_window_layers",
    "kda_safe_gate", "kda_lower_bound",
)  # fmt: skip


def _decoder(cfg: Config, kinds: list[Layer], mtp: Layer) -> Decoder:
    if cfg.flag("use_sliding_window"):
        raise cfg.fail("use_sliding_window", "sliding windows are not modelled for Ling")
    cfg.ignore(*_UNUSED)
    return Decoder(
        tuple((layer,) for layer in kinds),
        mtp=(mtp,) * cfg.count(*_MTP, maximum=64),
        num_attention_heads=cfg.integer("num_attention_heads"),
        num_experts=cfg.count(*_EXPERTS),
        experts_per_token=cfg.count("num_experts_per_tok", "num_experts_per_token"),
    )


@reads("bailing_moe", "bailing_moe_v2")
def softmax_layers(cfg: Config) -> Decoder:
    cfg.only("layer_types", "full_attention")
    layer: Layer = read_heads(cfg).full
    return _decoder(cfg, [layer] * cfg.layers(), layer)


def _full_layers(cfg: Config, depth: int) -> list[bool]:
    """True where a layer is full attention: the last of each group, or 0 in a list with one entry per layer."""
    if isinstance(cfg.get("layer_group_size"), list):
        full = [kind != 1 for kind in cfg.cut("layer_group_size", cfg.integers("layer_group_size"), depth)]
    else:
        group = cfg.integer("layer_group_size")
        if depth % group:
            problem = f"{group} does not divide {depth} layers, and engines treat the rest unlike"
            raise cfg.fail("layer_group_size", problem)
        full = [(number + 1) % group == 0 for number in range(depth)]
    if full_by_name(cfg, depth) not in (None, full):
        raise cfg.fail("layer_types", "contradicts layer_group_size")
    return full


def _linear_dims(cfg: Config) -> tuple[int, int, int | None]:
    """Heads, head width and convolution taps. transformers saves head_dim as the rope width, hence the first keys."""
    heads = cfg.maybe("linear_num_heads") or cfg.integer("num_attention_heads")
    head_dim = cfg.maybe("linear_head_dim") or cfg.maybe("head_dim") or quotient(cfg, heads)
    return heads, head_dim, cfg.maybe(*_TAPS)


def _is_latent(cfg: Config) -> bool:
    """Ring-linear 2.0 has grouped-query attention in its full layers, everything later has MLA."""
    return cfg.has("kv_lora_rank") or cfg.text("model_type") != "bailing_moe_linear"


@reads("bailing_hybrid", "bailing_moe_linear", "bailing_moe_v3_vl")
def hybrid_layers(cfg: Config) -> Decoder:
    if cfg.flag("use_mla_nope"):
        raise cfg.fail("use_mla_nope", "engines disagree on whether the rope slot is stored; not modelled")
    heads, head_dim, taps = _linear_dims(cfg)
    linear: Layer = Lightning(heads, head_dim) if taps is None else Kda(heads, head_dim, taps)
    if _is_latent(cfg):
        full: Layer = Mla(cfg.integer("kv_lora_rank"), cfg.integer("qk_rope_head_dim", minimum=0))
    else:
        full = read_heads(cfg).full
    return _decoder(cfg, [full if is_full else linear for is_full in _full_layers(cfg, cfg.layers())], full)


def _softmax(cfg: Config) -> tuple[Weight, ...]:
    hidden, norm = cfg.integer("hidden_size"), cfg.flag("use_qk_norm")
    return gqa(hidden, *read_heads(cfg), qkv_bias=cfg.flag("use_qkv_bias"), head_norm=norm, prefix="attention")


def _latent(cfg: Config) -> tuple[Weight, ...]:
    """MLA, in the third generation with an output gate per head or per element."""
    hidden, heads = cfg.integer("hidden_size"), cfg.integer("num_attention_heads")
    kind = cfg.text("gated_attention_proj_granularity_type", default="none")
    rows = {"none": 0, "head_wise": heads, "element_wise": heads * cfg.integer("v_head_dim")}
    if kind not in rows:
        raise cfg.fail("gated_attention_proj_granularity_type", f"{kind[:40]!r} is not modelled")
    gate = (Weight("attention.g_proj", "attention", (rows[kind], hidden)),) if rows[kind] else ()
    return (*latent_attention(cfg, prefix="attention"), *gate)


def _linear(cfg: Config) -> tuple[Weight, ...]:
    hidden, (heads, head_dim, taps) = cfg.integer("hidden_size"), _linear_dims(cfg)
    width = heads * head_dim
    gated = (
        *(Weight(f"attention.{name}_proj", "attention", (width, hidden)) for name in "qkvg"),
        Weight("attention.o_proj", "attention", (hidden, width)),
    )
    if taps is None:
        names = ("query_layernorm", "key_layernorm") if cfg.flag("use_qk_norm") else ()
        norms = (vector(f"attention.{name}", head_dim) for name in names)
        return (*gated, *norms, vector("attention.g_norm", width, split="tp"))
    if not cfg.flag("no_kda_lora"):
        raise MissingField("the low-rank gates of KDA are not modelled for Ling (no_kda_lora is not true)")
    return (
        *gated,
        *(Weight(f"attention.{name}_conv1d", "attention", (width, 1, taps)) for name in "qkv"),
        Weight("attention.f_proj", "attention", (width, hidden)),
        Weight("attention.b_proj", "attention", (heads, hidden)),
        vector("attention.A_log", heads, split="tp"),
        vector("attention.dt_bias", width, split="tp"),
        vector("attention.o_norm", head_dim),
    )


def _ends(cfg: Config) -> tuple[tuple[Weight, ...], tuple[Weight, ...]]:
    hidden, inner = cfg.integer("hidden_size"), cfg.integer("moe_intermediate_size")
    shared = cfg.integer("moe_shared_expert_intermediate_size", default=inner)
    experts = moe(
        hidden, inner, cfg.integer(*_EXPERTS), router_bias=cfg.flag("moe_router_enable_expert_bias"),
        shared_inner=cfg.count("num_shared_experts", "n_shared_experts") * shared,
    )  # fmt: skip
    return mlp(hidden, cfg.integer("intermediate_size")), experts


@weighs("bailing_moe", "bailing_moe_v2", "bailing_hybrid", "bailing_moe_linear", "bailing_moe_v3_vl")
def weights(cfg: Config) -> Inventory:
    if cfg.flag("use_bias"):
        raise MissingField("the biases of use_bias are not modelled for Ling")
    hidden, depth = cfg.integer("hidden_size"), cfg.layers()
    linear: tuple[Weight, ...] = ()
    full, is_full = _softmax, [True] * depth
    if cfg.text("model_type") not in ("bailing_moe", "bailing_moe_v2"):
        linear, is_full = _linear(cfg), _full_layers(cfg, depth)
        full = _latent if _is_latent(cfg) else _softmax
    mixers, ends, norms = (linear, full(cfg)), _ends(cfg), block_norms(hidden)
    blocks = tuple(
        (*mixers[is_attention], *ends[has_experts], *norms)
        for is_attention, has_experts in zip(is_full, moe_layers(cfg, depth), strict=True)
    )
    mtp = (*mixers[True], *ends[True], *norms, *mtp_extras(cfg, copies=False))
    return Inventory(blocks, embeddings(cfg, hidden), mtp * cfg.count(*_MTP, maximum=64))
