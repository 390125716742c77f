"""MoonViT, the vision tower of Kimi K2.5 and later, and its projector. One copy a rank, as engines load it."""

from kvplan.architectures._config import Config
from kvplan.model import Weight


def _part(name: str, shape: tuple[int, ...], count: int = 1) -> Weight:
    return Weight(name, "vision", shape, "none", count)


def moonvit(cfg: Config, vision: Config) -> tuple[Weight, ...]:
    """Modules as in vLLM kimi_k25_vit; time embeddings are computed, not stored."""
    return (*_encoder(vision), *_projector(vision, cfg.integer("hidden_size")))


def _encoder(tower: Config) -> tuple[Weight, ...]:
    width, inner = tower.integer("vt_hidden_size"), tower.integer("vt_intermediate_size")
    qkv, depth = tower.integer("qkv_hidden_size", default=width), tower.layers("vt_num_hidden_layers")
    rows, columns = tower.integer("init_pos_emb_height"), tower.integer("init_pos_emb_width")
    patch = tower.integer("patch_size")
    layer_norm = tower.text("norm_type", default="layernorm") == "layernorm"
    biases = [width] if tower.flag("patch_embed_proj_bias", True) else []
    blocks = [
        _part("blocks.wqkv", (3 * qkv, width), depth),
        _part("blocks.wo", (width, qkv), depth),
        _part("blocks.mlp.fc0", (inner, width), depth),
        _part("blocks.mlp.fc1", (width, inner), depth),
        _part("blocks.norm", (width,), (4 if layer_norm else 2) * depth),
    ]
    if tower.flag("attn_bias", True):
        blocks.append(_part("blocks.attn.bias", (3 * qkv + width,), depth))
    if tower.flag("linear_bias", True):
        blocks.append(_part("blocks.mlp.bias", (inner + width,), depth))
    return (
        _part("patch_embed.proj", (width, 3, patch, patch)),
        *(_part("patch_embed.proj.bias", (size,)) for size in biases),
        _part("patch_embed.pos_emb", (rows, columns, width)),
        *blocks,
        _part("final_layernorm", (width,), 2 if layer_norm else 1),
    )


def _projector(tower: Config, hidden: int) -> tuple[Weight, ...]:
    kernel = tower.integers("merge_kernel_size", minimum=1)
    if len(kernel) != 2:
        raise tower.fail("merge_kernel_size", "expected two integers")
    width = tower.integer("mm_hidden_size", "vt_hidden_size")
    merged = width * kernel[0] * kernel[1]
    linears = (_part("mm_projector.linear_1", (merged, merged)), _part("mm_projector.linear_2", (hidden, merged)))
    if tower.text("mm_projector_type") == "patchmergerv2":
        return (*linears, _part("mm_projector.post_norm", (hidden,)))
    return (*linears, _part("mm_projector.bias", (merged + hidden,)), _part("mm_projector.pre_norm", (width,), 2))
