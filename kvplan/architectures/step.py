"""Step3, whose heads share one KV head of width 256; Step-3.5 and 3.7 Flash, which window three layers of four."""

from kvplan.architectures._config import Config
from kvplan.architectures._latent import mtp_extras
from kvplan.architectures._parts import block_norms, embeddings, gqa, mlp, moe, vector
from kvplan.architectures._registry import Decoder, reads, weighs
from kvplan.architectures._step_vision import step3_vision, step3p7_vision
from kvplan.architectures._towers import tower
from kvplan.errors import MissingField
from kvplan.layers.base import Layer
from kvplan.layers.full import Full
from kvplan.layers.windowed import SlidingWindow
from kvplan.model import Inventory, Weight

_EXPERTS = ("moe_num_experts", "n_routed_experts", "num_local_experts", "num_experts")
_PER_TOKEN = ("moe_top_k", "num_experts_per_tok")
_MTP = ("num_nextn_predict_layers", "num_mtp_layers")


@reads("step3_vl", "step3_text")
def step3_layers(cfg: Config) -> Decoder:
    """KV heads are `num_attention_groups`; what a config calls num_key_value_heads are query heads."""
    head_dim = cfg.integer("head_dim")
    layer: Layer = Full(cfg.integer("num_attention_groups"), head_dim, head_dim)
    cfg.only("layer_types", "full_attention")
    cfg.ignore("num_key_value_heads", "share_q_dim", "share_expert_dim", "share_expert_dims")
    return Decoder(
        ((layer,),) * cfg.layers(),
        num_attention_heads=cfg.integer("num_attention_heads"),
        num_experts=cfg.count(*_EXPERTS),
        experts_per_token=cfg.count(*_PER_TOKEN),
    )


def _expert_layers(cfg: Config, layers: int) -> list[bool]:
    """True where a layer has experts: a list of names, of numbers (also as text), or everything after a depth."""
    if cfg.has("mlp_layer_types"):
        return [kind != "dense" for kind in cfg.cut("mlp_layer_types", cfg.texts("mlp_layer_types"), layers)]
    if not cfg.has("moe_layers_enum"):
        return [number >= cfg.integer("first_k_dense_replace", minimum=0) for number in range(layers)]
    listed = cfg.get("moe_layers_enum")
    if isinstance(listed, str):
        pieces = [piece.strip() for piece in listed.split(",") if piece.strip()]
        if not all(piece.isascii() and piece.isdigit() and len(piece) < 6 for piece in pieces):
            raise cfg.fail("moe_layers_enum", "expected layer numbers with commas between")
        return [number in {int(piece) for piece in pieces} for number in range(layers)]
    return [number in set(cfg.integers("moe_layers_enum")) for number in range(layers)]


def _ends(cfg: Config, *, router_bias: bool) -> tuple[tuple[Weight, ...], tuple[Weight, ...]]:
    hidden = cfg.integer("hidden_size")
    experts = moe(
        hidden, cfg.integer("moe_intermediate_size"), cfg.integer(*_EXPERTS),
        shared_inner=cfg.integer("share_expert_dim", "share_expert_dims"), router_bias=router_bias, prefix="moe",
    )  # fmt: skip
    return mlp(hidden, cfg.integer("intermediate_size")), experts


@weighs("step3_vl", "step3_text")
def step3_weights(cfg: Config) -> Inventory:
    """The query goes through a bottleneck that all ranks compute (vLLM step3_text)."""
    hidden, heads, head_dim = cfg.integer("hidden_size"), cfg.integer("num_attention_heads"), cfg.integer("head_dim")
    groups, rank = cfg.integer("num_attention_groups"), cfg.integer("share_q_dim")
    block = (
        Weight("self_attn.q_proj", "attention", (rank, hidden), "none"),
        Weight("self_attn.k_proj", "attention", (groups * head_dim, hidden), "none"),
        Weight("self_attn.v_proj", "attention", (groups * head_dim, hidden), "none"),
        vector("self_attn.inter_norm", rank),
        Weight("self_attn.wq", "attention", (heads * head_dim, rank)),
        Weight("self_attn.o_proj", "attention", (hidden, heads * head_dim)),
        *block_norms(hidden),
    )
    ends = _ends(cfg, router_bias=False)
    blocks = tuple((*block, *ends[has_experts]) for has_experts in _expert_layers(cfg, cfg.layers()))
    return Inventory(blocks, (*embeddings(cfg, hidden), *tower(cfg, step3_vision)))


def _types(cfg: Config) -> tuple[list[str], list[str]]:
    """Attention of the decoder layers and of the MTP layers, which trail the same list or have their own."""
    depth, mtp = cfg.layers(), cfg.count(*_MTP, maximum=64)
    listed = cfg.texts("layer_types")
    for kind in listed:
        if kind not in ("full_attention", "sliding_attention"):
            raise cfg.fail("layer_types", f"{kind[:40]!r} is not modelled for Step-3.5")
    own = cfg.texts("mtp_layer_types") if cfg.has("mtp_layer_types") else listed[depth:]
    return cfg.cut("layer_types", listed, depth), (own + ["sliding_attention"] * mtp)[:mtp]


def _other(cfg: Config) -> Config | None:
    """The settings of sliding layers, where they differ in query heads."""
    return cfg.sub("attention_other_setting") if cfg.has("attention_other_setting") else None


@reads("step3p5", "step3p7")
def flash_layers(cfg: Config) -> Decoder:
    if cfg.text("att_impl_type", default="GQA") != "GQA":
        raise cfg.fail("att_impl_type", "only GQA is modelled for Step-3.5")
    kv_heads, head_dim = cfg.integer("num_attention_groups", "num_key_value_heads"), cfg.integer("head_dim")
    other = _other(cfg)
    if other is not None:
        other.ignore("num_attention_heads", "attention_type", "true_head_dim")
        for key, usual in (("num_attention_groups", kv_heads), ("head_dim", head_dim)):
            if (other.maybe(key) or usual) != usual:
                raise other.fail(key, f"differs from {usual} of the full layers, which is not modelled")
    cfg.ignore("num_sliding_attention_heads", "num_key_value_heads", "share_expert_dim", "share_expert_dims")
    types, mtp = _types(cfg)
    kinds: dict[str, Layer] = {"full_attention": Full(kv_heads, head_dim, head_dim)}
    if "sliding_attention" in (*types, *mtp):
        kinds["sliding_attention"] = SlidingWindow(kv_heads, head_dim, head_dim, cfg.integer("sliding_window"))
    return Decoder(
        tuple((kinds[kind],) for kind in types),
        mtp=tuple(kinds[kind] for kind in mtp),
        num_attention_heads=cfg.integer("num_attention_heads"),
        num_experts=cfg.count(*_EXPERTS),
        experts_per_token=cfg.count(*_PER_TOKEN),
    )


def _sliding_heads(cfg: Config) -> int:
    """Query heads of sliding layers; shipped models have more there, so an absent field is not filled in."""
    if cfg.has("num_sliding_attention_heads"):
        return cfg.integer("num_sliding_attention_heads")
    other = _other(cfg)
    if other is None:
        raise MissingField(f"{cfg.name('attention_other_setting')} is missing")
    return other.integer("num_attention_heads")


def _flash_attention(cfg: Config, heads: int) -> tuple[Weight, ...]:
    hidden, head_dim = cfg.integer("hidden_size"), cfg.integer("head_dim")
    kv_heads, bias = cfg.integer("num_attention_groups", "num_key_value_heads"), cfg.flag("attention_bias")
    attention = gqa(hidden, heads, kv_heads, head_dim, qkv_bias=bias, head_norm=True)
    if not cfg.flag("use_head_wise_attn_gate", True):
        return attention
    return (*attention, Weight("self_attn.g_proj", "attention", (heads, hidden)))


@weighs("step3p5", "step3p7")
def flash_weights(cfg: Config) -> Inventory:
    """MTP blocks are dense, with a head of their own and the model's embedding."""
    hidden, (types, mtp_types) = cfg.integer("hidden_size"), _types(cfg)
    attention = {"full_attention": _flash_attention(cfg, cfg.integer("num_attention_heads"))}
    if "sliding_attention" in (*types, *mtp_types):
        attention["sliding_attention"] = _flash_attention(cfg, _sliding_heads(cfg))
    ends, norms = _ends(cfg, router_bias=cfg.flag("use_moe_router_bias", True)), block_norms(hidden)
    blocks = tuple(
        (*attention[kind], *ends[has_experts], *norms)
        for kind, has_experts in zip(types, _expert_layers(cfg, cfg.layers()), strict=True)
    )
    head = Weight("shared_head.head", "head", (cfg.integer("vocab_size"), hidden))
    rest = (*ends[False], *norms, *mtp_extras(cfg, copies=False), head)
    mtp = tuple(weight for kind in mtp_types for weight in (*attention[kind], *rest))
    return Inventory(blocks, (*embeddings(cfg, hidden), *tower(cfg, step3p7_vision)), mtp)
