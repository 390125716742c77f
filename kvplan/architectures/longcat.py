"""LongCat Flash: a layer holds two latent attentions and two dense blocks beside one set of experts."""

from kvplan.architectures._config import Config
from kvplan.architectures._latent import latent_attention
from kvplan.architectures._parts import block_norms, embeddings, mlp, moe, norm
from kvplan.architectures._registry import Decoder, reads, weighs
from kvplan.errors import MissingField
from kvplan.layers.base import Layer
from kvplan.layers.mla import Mla
from kvplan.model import Inventory, Weight


def _depth(cfg: Config) -> int:
    """Layers of two attentions each. `num_hidden_layers` counts either, depending on who wrote it: not enough alone."""
    depth = cfg.layers("num_layers")
    if cfg.maybe("num_hidden_layers") not in (None, depth, 2 * depth):
        raise cfg.fail("num_hidden_layers", f"is neither num_layers {depth} nor twice that")
    return depth


@reads("longcat_flash")
def layers(cfg: Config) -> Decoder:
    if cfg.text("attention_method", default="MLA") != "MLA":
        raise cfg.fail("attention_method", "only MLA is modelled for LongCat Flash")
    cfg.only("layer_types", "full_attention")
    latent: Layer = Mla(cfg.integer("kv_lora_rank"), cfg.integer("qk_rope_head_dim"))
    cfg.ignore("head_dim", "num_key_value_heads", "q_lora_rank", "qk_nope_head_dim", "qk_head_dim", "v_head_dim")
    cfg.ignore("mla_scale_q_lora", "mla_scale_kv_lora")
    return Decoder(
        ((latent, latent),) * _depth(cfg),
        mtp=(latent,) * cfg.count("num_nextn_predict_layers", maximum=64),
        num_attention_heads=cfg.integer("num_attention_heads"),
        num_experts=cfg.count("n_routed_experts", "num_local_experts"),
        experts_per_token=cfg.count("moe_topk", "num_experts_per_tok"),
    )


def _experts(cfg: Config, hidden: int) -> tuple[Weight, ...]:
    """The router also scores experts that return their input and have no weights."""
    inner = cfg.integer("expert_ffn_hidden_size", "moe_intermediate_size")
    real, zero = cfg.integer("n_routed_experts", "num_local_experts"), cfg.integer("zero_expert_num", minimum=0)
    router = moe(hidden, inner, real + zero, router_bias=True)[:2]
    return (*router, *moe(hidden, inner, real)[1:])


def _dense(cfg: Config, hidden: int, prefix: str) -> tuple[Weight, ...]:
    return mlp(hidden, cfg.integer("ffn_hidden_size", "intermediate_size"), prefix=prefix)


def _sublayer(cfg: Config, hidden: int, number: int) -> tuple[Weight, ...]:
    """One of the two halves of a layer."""
    return (
        *latent_attention(cfg, prefix=f"self_attn.{number}"),
        *_dense(cfg, hidden, f"mlps.{number}"),
        *block_norms(hidden, f"input_layernorm.{number}", f"post_attention_layernorm.{number}"),
    )


@weighs("longcat_flash")
def weights(cfg: Config) -> Inventory:
    if cfg.has("ngram_vocab_size_ratio") or cfg.has("oe_vocab_size_ratio"):
        raise MissingField("the weights of ngram_vocab_size_ratio are not modelled for LongCat Flash")
    hidden, vocab = cfg.integer("hidden_size"), cfg.integer("vocab_size")
    mtp_layer = (*latent_attention(cfg), *_dense(cfg, hidden, "transformer_layer.mlp"), *block_norms(hidden))
    extras = (
        Weight("embed_tokens", "embedding", (vocab, hidden)),
        Weight("eh_proj", "other", (hidden, 2 * hidden), "none"),
        *(norm(name, hidden) for name in ("enorm", "hnorm", "norm")),
    )
    mtp = (*mtp_layer, *extras) * cfg.count("num_nextn_predict_layers", maximum=64)
    block = (*_sublayer(cfg, hidden, 0), *_sublayer(cfg, hidden, 1), *_experts(cfg, hidden))
    return Inventory((block,) * _depth(cfg), embeddings(cfg, hidden), mtp)
