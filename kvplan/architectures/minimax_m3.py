"""MiniMax M3: grouped-query attention with a block-sparse index in most layers, and a CLIP-like vision tower."""

from kvplan.architectures._config import Config
from kvplan.architectures._heads import by_name
from kvplan.architectures._latent import moe_layers
from kvplan.architectures._parts import block_norms, embeddings, gqa, mlp, moe, vector
from kvplan.architectures._registry import Decoder, reads, weighs
from kvplan.architectures._towers import tower
from kvplan.layers.base import Layer
from kvplan.layers.full import Full
from kvplan.layers.gqa_index import GqaIndex
from kvplan.model import Inventory, Weight

_EXPERTS = ("num_local_experts", "num_experts")
_TYPES = ("minimax_m3", "minimax_m3_text", "minimax_m3_vl", "minimax_m3_vl_text")


def _heads(cfg: Config) -> tuple[int, int, int]:
    """Query heads, KV heads, head width."""
    return cfg.integer("num_attention_heads"), cfg.integer("num_key_value_heads"), cfg.integer("head_dim")


def _sparse_layers(cfg: Config, depth: int) -> tuple[list[bool], int, int]:
    """Layers with an index, its width, and the tokens that a step reads: blocks chosen and always read."""
    cfg.ignore("index_n_heads")
    kinds = {"full_attention": False, "minimax_m3_sparse": True}
    named = list(by_name(cfg, "layer_types", depth, kinds)) if cfg.has("layer_types") else None
    if named is not None and not cfg.has("sparse_attention_config"):
        blocks = cfg.integer("index_topk_blocks") + cfg.count("index_local_blocks")
        return named, cfg.integer("index_head_dim"), blocks * cfg.integer("index_block_size")
    cfg.ignore("index_head_dim", "index_block_size", "index_local_blocks", "index_topk_blocks")
    index = cfg.sub("sparse_attention_config")
    index.ignore("sparse_num_index_heads", "sparse_score_type")
    if not index.flag("use_sparse_attention", True):
        return [False] * depth, 1, 1
    frequency = index.cut("sparse_attention_freq", index.integers("sparse_attention_freq"), depth)
    sparse = [flag > 0 for flag in frequency]
    if named not in (None, sparse):
        raise cfg.fail("layer_types", "contradicts sparse_attention_config")
    if index.has("sparse_disable_index_value"):
        disabled = index.cut("sparse_disable_index_value", index.integers("sparse_disable_index_value"), depth)
        if any(is_sparse and not off for is_sparse, off in zip(sparse, disabled, strict=True)):
            raise index.fail("sparse_disable_index_value", "an index that keeps values is not modelled")
    blocks = index.integer("sparse_topk_blocks") + index.count("sparse_init_block") + index.count("sparse_local_block")
    return sparse, index.integer("sparse_index_dim"), blocks * index.integer("sparse_block_size")


@reads(*_TYPES)
def m3_layers(cfg: Config) -> Decoder:
    heads, kv_heads, head_dim = _heads(cfg)
    sparse, width, read = _sparse_layers(cfg, cfg.layers())
    full: Layer = Full(kv_heads, head_dim, head_dim)
    indexed: Layer = GqaIndex(kv_heads, head_dim, head_dim, width, read)
    # MTP modules that the config announces are not in the published checkpoint.
    cfg.ignore("num_mtp_modules", "num_nextn_predict_layers")
    return Decoder(
        tuple((indexed if is_sparse else full,) for is_sparse in sparse),
        num_attention_heads=heads,
        num_experts=cfg.count(*_EXPERTS),
        experts_per_token=cfg.count("num_experts_per_tok"),
    )


def _index_heads(cfg: Config) -> int:
    if cfg.has("sparse_attention_config"):
        return cfg.sub("sparse_attention_config").integer("sparse_num_index_heads")
    return cfg.integer("index_n_heads")


@weighs(*_TYPES)
def m3_weights(cfg: Config) -> Inventory:
    hidden, depth, (heads, kv_heads, head_dim) = cfg.integer("hidden_size"), cfg.layers(), _heads(cfg)
    sparse, width, _ = _sparse_layers(cfg, depth)
    attention = gqa(hidden, heads, kv_heads, head_dim, head_norm=cfg.flag("use_qk_norm", True))
    index = (
        Weight("self_attn.index_q_proj", "attention", (_index_heads(cfg) * width, hidden), "none"),
        Weight("self_attn.index_k_proj", "attention", (width, hidden), "none"),
        vector("self_attn.index_q_norm", width),
        vector("self_attn.index_k_norm", width),
    )
    experts = moe(
        hidden, cfg.integer("intermediate_size"), cfg.integer(*_EXPERTS),
        shared_inner=cfg.count("shared_intermediate_size"), router_bias=cfg.flag("use_routing_bias", True),
        prefix="block_sparse_moe",
    )  # fmt: skip
    ends = (mlp(hidden, cfg.integer("dense_intermediate_size")), experts)
    blocks = tuple(
        (*attention, *(index if is_sparse else ()), *ends[has_experts], *block_norms(hidden))
        for is_sparse, has_experts in zip(sparse, moe_layers(cfg, depth), strict=True)
    )
    return Inventory(blocks, (*embeddings(cfg, hidden), *tower(cfg, _vision)))


def _vision(cfg: Config, vision: Config) -> tuple[Weight, ...]:
    """Tower and projector as in transformers minimax_m3_vl; one copy a rank."""
    hidden = cfg.integer("hidden_size")
    merging = vision.sub("img_token_compression_config") if vision.has("img_token_compression_config") else vision
    width, inner, depth = vision.integer("hidden_size"), vision.integer("intermediate_size"), vision.layers()
    patch = (
        vision.integer("num_channels"),
        merging.integer("temporal_patch_size"),
        *[vision.integer("patch_size")] * 2,
    )
    merged, middle = hidden * merging.integer("spatial_merge_size") ** 2, cfg.integer("projector_hidden_size")
    return (
        _part("vision_tower.patch_embedding", (width, *patch)),
        _part("vision_tower.pre_layrnorm", (width,), 2),
        _part("vision_tower.layers.self_attn", (width, width), 4 * depth),
        _part("vision_tower.layers.mlp", (inner, width), 2 * depth),
        _part("vision_tower.layers.bias", (5 * width + inner,), depth),
        _part("vision_tower.layers.layer_norm", (width,), 4 * depth),
        _part("multi_modal_projector.linear_1", (middle, width)),
        _part("multi_modal_projector.linear_2", (hidden, middle)),
        _part("patch_merge_mlp.linear_1", (middle, merged)),
        _part("patch_merge_mlp.linear_2", (hidden, middle)),
        _part("multi_modal_projector.bias", (middle + hidden,), 2),
    )


def _part(name: str, shape: tuple[int, ...], count: int = 1) -> Weight:
    return Weight(name, "vision", shape, "none", count)
