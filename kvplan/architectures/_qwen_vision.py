"""The vision tower of Qwen3-VL and Qwen3.5, which their parameter counts include."""

from kvplan.architectures._config import Config
from kvplan.model import Weight


def _linear(name: str, rows: int, columns: int, count: int = 1) -> tuple[Weight, ...]:
    """A projection and its bias."""
    return Weight(name, "vision", (rows, columns), count=count), Weight(f"{name}.bias", "vision", (rows,), count=count)


def _layer_norm(name: str, width: int, count: int = 1) -> Weight:
    """Scale and bias of a LayerNorm."""
    return Weight(name, "vision", (2, width), "none", count)


def _merger(name: str, hidden: int, merged: int, out: int, norm_width: int, count: int = 1) -> tuple[Weight, ...]:
    """Joins `merged / hidden` neighbouring patches and projects them to the width of the language model."""
    return (
        _layer_norm(f"{name}.norm", norm_width, count),
        *_linear(f"{name}.linear_fc1", merged, merged, count),
        *_linear(f"{name}.linear_fc2", out, merged, count),
    )


def qwen_vision(cfg: Config) -> tuple[Weight, ...]:
    """Every weight of the tower, or nothing where the config has no vision_config.

    Source: Qwen3_5VisionModel and Qwen3VLVisionModel of transformers 5.24.
    """
    if not cfg.has("vision_config"):
        return ()
    data = cfg.get("vision_config")
    if not isinstance(data, dict):
        raise cfg.fail("vision_config", "expected an object")
    tower = Config(data, "vision_config")
    hidden, inner, depth = tower.integer("hidden_size"), tower.integer("intermediate_size"), tower.integer("depth")
    merged, out = hidden * tower.integer("spatial_merge_size") ** 2, tower.integer("out_hidden_size")
    patch = (tower.integer("in_channels"), tower.integer("temporal_patch_size"), *(tower.integer("patch_size"),) * 2)
    deepstack = len(tower.integers("deepstack_visual_indexes"))
    return (
        Weight("visual.patch_embed.proj", "vision", (hidden, *patch), "none"),
        Weight("visual.patch_embed.proj.bias", "vision", (hidden,), "none"),
        Weight("visual.pos_embed", "vision", (tower.integer("num_position_embeddings"), hidden), "none"),
        _layer_norm("visual.blocks.norm1", hidden, depth),
        _layer_norm("visual.blocks.norm2", hidden, depth),
        *_linear("visual.blocks.attn.qkv", 3 * hidden, hidden, depth),
        *_linear("visual.blocks.attn.proj", hidden, hidden, depth),
        *_linear("visual.blocks.mlp.linear_fc1", inner, hidden, depth),
        *_linear("visual.blocks.mlp.linear_fc2", hidden, inner, depth),
        *_merger("visual.merger", hidden, merged, out, hidden),
        *(_merger("visual.deepstack_merger_list", hidden, merged, out, merged, deepstack) if deepstack else ()),
    )
