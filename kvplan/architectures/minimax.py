"""MiniMax before M3: lightning attention with softmax every eighth layer (Text-01, M1), softmax alone (M2)."""

from kvplan.architectures._attention import read_heads
from kvplan.architectures._config import Config
from kvplan.architectures._latent import full_by_name
from kvplan.architectures._parts import block_norms, embeddings, gqa, moe, vector
from kvplan.architectures._registry import Decoder, reads, weighs
from kvplan.errors import MissingField
from kvplan.layers.base import Layer
from kvplan.layers.linear import Lightning
from kvplan.model import Inventory, Weight

_EXPERTS = ("num_local_experts", "num_experts")


def _decoder(cfg: Config, kinds: list[Layer]) -> Decoder:
    """MTP modules that a config announces are not in the published checkpoints, so none are planned for."""
    cfg.ignore("num_mtp_modules", "mtp_transformer_layers", "num_nextn_predict_layers")
    return Decoder(
        tuple((layer,) for layer in kinds),
        num_attention_heads=cfg.integer("num_attention_heads"),
        num_experts=cfg.count(*_EXPERTS),
        experts_per_token=cfg.count("num_experts_per_tok"),
    )


def _softmax_layers(cfg: Config, depth: int) -> list[bool]:
    """True where a layer is softmax attention: `attn_type_list` has 1 there, `layer_types` says full_attention.

    The class default alternates, which no shipped checkpoint does: refused.
    """
    named = full_by_name(cfg, depth)
    if not cfg.has("attn_type_list") and named is not None:
        return named
    flags = cfg.cut("attn_type_list", cfg.integers("attn_type_list"), depth)
    if set(flags) - {0, 1}:
        raise cfg.fail("attn_type_list", "expected 0 (lightning) or 1 (softmax)")
    softmax = [flag == 1 for flag in flags]
    if named not in (None, softmax):
        raise cfg.fail("layer_types", "contradicts attn_type_list")
    return softmax


@reads("minimax_text_01", "minimax", "minimax_m1")
def hybrid_layers(cfg: Config) -> Decoder:
    heads = read_heads(cfg)
    full: Layer = heads.full
    linear: Layer = Lightning(heads.query, heads.dim)
    cfg.ignore(
        "linear_attn_alpha_factor", "linear_attn_beta_factor", "layernorm_linear_attention_alpha",
        "layernorm_linear_attention_beta",
    )  # fmt: skip
    return _decoder(cfg, [full if softmax else linear for softmax in _softmax_layers(cfg, cfg.layers())])


def _lightning(hidden: int, heads: int, head_dim: int) -> tuple[Weight, ...]:
    width = heads * head_dim
    return (
        Weight("self_attn.qkv_proj", "attention", (3 * width, hidden)),
        Weight("self_attn.output_gate", "attention", (width, hidden)),
        Weight("self_attn.out_proj", "attention", (hidden, width)),
        vector("self_attn.norm", width, split="tp"),
    )


@weighs("minimax_text_01", "minimax", "minimax_m1")
def hybrid_weights(cfg: Config) -> Inventory:
    hidden, (heads, kv_heads, head_dim) = cfg.integer("hidden_size"), read_heads(cfg)
    if cfg.get("shared_intermediate_size", default=0) not in (0, [0]):
        raise MissingField("the weights of shared_intermediate_size are not modelled for MiniMax Text-01")
    mixers = (_lightning(hidden, heads, head_dim), gqa(hidden, heads, kv_heads, head_dim))
    rest = (
        *moe(hidden, cfg.integer("intermediate_size"), cfg.integer(*_EXPERTS), prefix="block_sparse_moe"),
        *block_norms(hidden),
    )
    blocks = tuple((*mixers[softmax], *rest) for softmax in _softmax_layers(cfg, cfg.layers()))
    return Inventory(blocks, embeddings(cfg, hidden))


@reads("minimax_m2")
def m2_layers(cfg: Config) -> Decoder:
    full: Layer = read_heads(cfg).full
    depth = cfg.layers()
    cfg.only("layer_types", "full_attention")
    if cfg.has("attn_type_list") and not all(_softmax_layers(cfg, depth)):
        raise cfg.fail("attn_type_list", "lightning layers are not modelled for MiniMax M2")
    return _decoder(cfg, [full] * depth)


@weighs("minimax_m2")
def m2_weights(cfg: Config) -> Inventory:
    """The norms of q and k run over all heads at once."""
    hidden, (heads, kv_heads, head_dim) = cfg.integer("hidden_size"), read_heads(cfg)
    norms: tuple[Weight, ...] = ()
    if cfg.flag("use_qk_norm", True):
        widths = (head_dim, head_dim) if _per_head(cfg) else (heads * head_dim, kv_heads * head_dim)
        norms = (vector("self_attn.q_norm", widths[0]), vector("self_attn.k_norm", widths[1]))
    experts = moe(
        hidden, cfg.integer("intermediate_size"), cfg.integer(*_EXPERTS),
        shared_inner=cfg.count("shared_intermediate_size"), router_bias=cfg.flag("use_routing_bias", True),
        prefix="block_sparse_moe",
    )  # fmt: skip
    block = (*gqa(hidden, heads, kv_heads, head_dim), *norms, *experts, *block_norms(hidden))
    return Inventory((block,) * cfg.layers(), embeddings(cfg, hidden))


def _per_head(cfg: Config) -> bool:
    return cfg.text("qk_norm_type", default="per_layer") == "per_head"
