"""Tencent Hunyuan (dense and MoE) and Hy3. Cross-layer attention lets groups of layers share one cache."""

from typing import Any

from kvplan.architectures._attention import projections, read_heads
from kvplan.architectures._config import Config
from kvplan.architectures._heads import Heads
from kvplan.architectures._parts import block_norms, embeddings, mlp, moe, norm, vector
from kvplan.architectures._registry import Decoder, reads, weighs
from kvplan.layers.base import Layer
from kvplan.layers.borrowed import Shared
from kvplan.model import Inventory, Weight

_LATENT = ("kv_lora_rank", "q_lora_rank", "qk_rope_head_dim", "qk_nope_head_dim", "v_head_dim", "use_mla")
_VISION = (
    "anyres_pooling_size", "anyres_vit_max_image_size", "anyres_vit_two_views", "vit_input_resolution", "pool_type",
    "mask_init_id", "num_media_embeds",
)  # fmt: skip


def _heads(cfg: Config) -> Heads:
    """Older configs spell the width `attention_head_dim`."""
    width = cfg.maybe("head_dim", "attention_head_dim")
    return read_heads(cfg, head_dim=width)


def _at(cfg: Config, key: str, number: int) -> int:
    """A size that is one integer, or a list with one per layer."""
    value: Any = cfg.get(key)
    if isinstance(value, list):
        return int(cfg.cut(key, cfg.integers(key), cfg.layers())[number])
    return cfg.integer(key, minimum=0)


def _most(cfg: Config, key: str) -> int:
    value: Any = cfg.get(key, default=None)
    return max(cfg.integers(key), default=0) if isinstance(value, list) else cfg.count(key)


def _share_factor(cfg: Config) -> int:
    return cfg.integer("cla_share_factor") if cfg.flag("use_cla") else 1


@reads("hunyuan", "hunyuan_v1_dense", "hunyuan_v1_moe")
def layers(cfg: Config) -> Decoder:
    """With `use_cla`, layer i reads the cache of the last layer whose number `cla_share_factor` divides.

    The factor stands in configs that do not use it, and so do ranks of a latent attention that none of these has.
    """
    if cfg.flag("use_mla"):
        raise cfg.fail("use_mla", "latent attention is not modelled for Hunyuan")
    cfg.ignore(*_LATENT, *_VISION, "cla_share_factor", "cross_attention_layers")
    heads = _heads(cfg)
    factor = _share_factor(cfg)
    own: Layer = heads.full
    experts = _most(cfg, "num_experts")
    return Decoder(
        tuple((Shared(own) if number % factor else own,) for number in range(cfg.layers())),
        num_attention_heads=heads.query,
        num_experts=experts,
        experts_per_token=_most(cfg, "moe_topk") if experts > 1 else 0,
    )


@weighs("hunyuan", "hunyuan_v1_dense", "hunyuan_v1_moe")
def weights(cfg: Config) -> Inventory:
    """A layer that borrows a cache has no key and value projections of its own."""
    hidden, bias, factor = cfg.integer("hidden_size"), cfg.flag("attention_bias"), _share_factor(cfg)
    attention = projections(
        cfg, _heads(cfg), qkv_bias=bias, o_bias=bias, head_norm=cfg.flag("use_qk_norm", default=True)
    )
    borrowing = tuple(weight for weight in attention if ".k_proj" not in weight.name and ".v_proj" not in weight.name)
    blocks = tuple(
        (
            *(borrowing if number % factor else attention),
            *_feed_forward(cfg, hidden, number),
            *block_norms(hidden),
        )
        for number in range(cfg.layers())
    )
    return Inventory(blocks, embeddings(cfg, hidden))


def _feed_forward(cfg: Config, hidden: int, number: int) -> tuple[Weight, ...]:
    if _most(cfg, "num_experts") <= 1:
        return mlp(hidden, _at(cfg, "intermediate_size", number))
    inner = _at(cfg, "moe_intermediate_size" if cfg.has("moe_intermediate_size") else "intermediate_size", number)
    shared = _at(cfg, "intermediate_size", number) * _at(cfg, "num_shared_expert", number)
    return moe(hidden, inner, _at(cfg, "num_experts", number), shared_inner=shared, shared_name="shared_mlp")


@reads("hy_v3")
def hy3(cfg: Config) -> Decoder:
    heads = read_heads(cfg)
    return Decoder(
        ((heads.full,),) * cfg.layers(),
        mtp=(heads.full,) * cfg.count("num_nextn_predict_layers"),
        num_attention_heads=heads.query,
        num_experts=cfg.count("num_experts"),
        experts_per_token=cfg.count("num_experts_per_tok"),
    )


@weighs("hy_v3")
def hy3_weights(cfg: Config) -> Inventory:
    """A bias in the router, a norm per head; the prediction block has two more norms, a projection and a last norm."""
    hidden, bias = cfg.integer("hidden_size"), cfg.flag("attention_bias")
    attention = projections(
        cfg, read_heads(cfg), qkv_bias=bias, o_bias=bias, head_norm=cfg.flag("qk_norm", default=True)
    )
    inner = cfg.integer("moe_intermediate_size", "expert_hidden_dim")
    shared = cfg.integer("num_shared_experts", minimum=0) * inner
    experts = moe(
        hidden, inner, cfg.integer("num_experts"), shared_inner=shared, router_bias=True, shared_name="shared_mlp"
    )
    routed = (*attention, *experts, *block_norms(hidden))
    dense = (*attention, *mlp(hidden, cfg.integer("intermediate_size")), *block_norms(hidden))
    first = cfg.integer("first_k_dense_replace", default=1, minimum=0)
    ahead = (
        *routed,
        norm("enorm", hidden),
        norm("hnorm", hidden),
        Weight("eh_proj", "other", (hidden, 2 * hidden), "none"),
        vector("final_layernorm", hidden, "other"),
    )
    return Inventory(
        tuple(routed if number >= first else dense for number in range(cfg.layers())),
        embeddings(cfg, hidden),
        ahead * cfg.count("num_nextn_predict_layers"),
    )
