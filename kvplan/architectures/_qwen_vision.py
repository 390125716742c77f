"""The vision towers of Qwen2-VL to Qwen3.5, which the published parameter counts include.

Shapes from the vision models of transformers 5.24: modeling_qwen2_vl, modeling_qwen2_5_vl, modeling_qwen3_vl.
"""

from kvplan.architectures._config import Config
from kvplan.model import Weight


def _linear(name: str, rows: int, columns: int, count: int = 1) -> tuple[Weight, ...]:
    """A projection and its bias."""
    return Weight(name, "vision", (rows, columns), count=count), Weight(f"{name}.bias", "vision", (rows,), count=count)


def _norm(name: str, width: int, count: int = 1, *, bias: bool = True) -> Weight:
    """Scale and, in a LayerNorm, bias."""
    return Weight(name, "vision", (1 + bias, width), "none", count)


def _patch(vision: Config, hidden: int) -> Weight:
    """The projection of one patch: channels × frames × height × width."""
    side = vision.integer("patch_size")
    shape = (hidden, vision.integer("in_channels", "in_chans"), vision.integer("temporal_patch_size"), side, side)
    return Weight("visual.patch_embed.proj", "vision", shape, "none")


def _attention(hidden: int, depth: int) -> tuple[Weight, ...]:
    return (
        *_linear("visual.blocks.attn.qkv", 3 * hidden, hidden, depth),
        *_linear("visual.blocks.attn.proj", hidden, hidden, depth),
    )


def _merger(name: str, merged: int, out: int, count: int = 1) -> tuple[Weight, ...]:
    """Projects `merged` values, those of neighbouring patches, to the width of the language model."""
    return (*_linear(f"{name}.linear_fc1", merged, merged, count), *_linear(f"{name}.linear_fc2", out, merged, count))


def qwen3_vision(cfg: Config, vision: Config) -> tuple[Weight, ...]:
    """Qwen3-VL and Qwen3.5: learned positions, and in Qwen3-VL further mergers for deeper layers."""
    hidden, inner, depth = vision.integer("hidden_size"), vision.integer("intermediate_size"), vision.integer("depth")
    merged, out = hidden * vision.integer("spatial_merge_size") ** 2, vision.integer("out_hidden_size")
    deep = len(vision.integers("deepstack_visual_indexes"))
    further = "visual.deepstack_merger_list"
    return (
        _patch(vision, hidden),
        Weight("visual.patch_embed.proj.bias", "vision", (hidden,), "none"),
        Weight("visual.pos_embed", "vision", (vision.integer("num_position_embeddings"), hidden), "none"),
        _norm("visual.blocks.norm", hidden, 2 * depth),
        *_attention(hidden, depth),
        *_linear("visual.blocks.mlp.linear_fc1", inner, hidden, depth),
        *_linear("visual.blocks.mlp.linear_fc2", hidden, inner, depth),
        _norm("visual.merger.norm", hidden),
        *_merger("visual.merger", merged, out),
        *((_norm(f"{further}.norm", merged, deep), *_merger(further, merged, out, deep)) if deep else ()),
    )


def qwen2_vision(cfg: Config, vision: Config) -> tuple[Weight, ...]:
    """Qwen2-VL, which calls its width embed_dim and the language model's hidden_size, and Qwen2.5-VL, whose norms
    have no bias and whose feed-forward is gated."""
    first, depth = vision.has("embed_dim"), vision.integer("depth")
    hidden = vision.integer("embed_dim" if first else "hidden_size")
    out = vision.integer("hidden_size" if first else "out_hidden_size")
    inner = hidden * vision.integer("mlp_ratio") if first else vision.integer("intermediate_size")
    ups = ("fc1",) if first else ("gate_proj", "up_proj")
    return (
        _patch(vision, hidden),
        _norm("visual.blocks.norm", hidden, 2 * depth, bias=first),
        *_attention(hidden, depth),
        *(weight for up in ups for weight in _linear(f"visual.blocks.mlp.{up}", inner, hidden, depth)),
        *_linear("visual.blocks.mlp.down_proj", hidden, inner, depth),
        _norm("visual.merger.ln_q", hidden, bias=first),
        *_merger("visual.merger", hidden * vision.integer("spatial_merge_size") ** 2, out),
    )
