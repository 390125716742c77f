"""Vision towers that ship inside a checkpoint and weigh on every GPU, with the projector to the text model."""

from collections.abc import Callable

from kvplan.architectures._config import Config
from kvplan.errors import MissingField
from kvplan.model import Split, Weight

Tower = Callable[[Config, Config], tuple[Weight, ...]]


def tower(cfg: Config, size: Tower) -> tuple[Weight, ...]:
    """The weights of the wrapper's vision tower; where its config cannot size it, the text model alone is weighed."""
    data = cfg.get("vision_config", default=None)
    if data is None:
        return ()
    if not isinstance(data, dict):
        raise cfg.fail("vision_config", "expected an object")
    try:
        return size(cfg, Config(data, "vision_config"))
    except MissingField as missing:
        cfg.defaults.append(f"vision tower not weighed: {missing}")
        return ()


def _matrix(name: str, rows: int, columns: int, count: int = 1, split: Split = "tp") -> Weight:
    return Weight(name, "vision", (rows, columns), split, count)


def _vector(name: str, width: int, count: int = 1) -> Weight:
    return Weight(name, "vision", (width,), "none", count)


def siglip(cfg: Config, vision: Config) -> tuple[Weight, ...]:
    """Gemma 3: a SigLIP encoder without pooling head, and one projection."""
    width, inner, layers = (
        vision.integer("hidden_size"), vision.integer("intermediate_size"), vision.layers(),
    )  # fmt: skip
    patch = vision.integer("patch_size")
    return (
        _matrix("vision_tower.attention", width, width, 4 * layers),
        _matrix("vision_tower.mlp", inner, width, 2 * layers),
        _vector("vision_tower.bias", width, 5 * layers),
        _vector("vision_tower.mlp.fc1.bias", inner, layers),
        _vector("vision_tower.norm", width, 4 * layers + 2),
        _matrix("vision_tower.patch_embedding", width, 3 * patch * patch, split="none"),
        _vector("vision_tower.patch_embedding.bias", width),
        _matrix("vision_tower.position_embedding", (vision.integer("image_size") // patch) ** 2, width, split="none"),
        _matrix("multi_modal_projector", width, cfg.integer("hidden_size"), split="none"),
        _vector("multi_modal_projector.norm", width),
    )


def pixtral(cfg: Config, vision: Config) -> tuple[Weight, ...]:
    """Pixtral: gated MLPs and no biases; Mistral 3 merges patches before the projector, Llava's has biases."""
    width, inner, layers = (
        vision.integer("hidden_size"), vision.integer("intermediate_size"), vision.layers(),
    )  # fmt: skip
    text, patch = cfg.integer("hidden_size"), vision.integer("patch_size")
    merges = (cfg.outer or cfg).data.get("model_type") == "mistral3"
    merge = cfg.integer("spatial_merge_size", default=2) if merges else 0
    merger: tuple[Weight, ...] = ()
    if merges:
        merger = (
            _matrix("multi_modal_projector.patch_merger", width, width * merge * merge, split="none"),
            _vector("multi_modal_projector.norm", width),
        )
    bias = 2 if cfg.flag("multimodal_projector_bias", default=not merges) else 0
    return (
        _matrix("vision_tower.attention", width, width, 4 * layers),
        _matrix("vision_tower.feed_forward", inner, width, 3 * layers),
        _vector("vision_tower.norm", width, 2 * layers + 1),
        _matrix("vision_tower.patch_conv", width, 3 * patch * patch, split="none"),
        *merger,
        _matrix("multi_modal_projector.linear_1", text, width, split="none"),
        _matrix("multi_modal_projector.linear_2", text, text, split="none"),
        *((_vector("multi_modal_projector.bias", text, bias),) if bias else ()),
    )


def llama4(cfg: Config, vision: Config) -> tuple[Weight, ...]:
    """Llama 4: biased attention and MLP, a pixel-shuffle adapter, one projection."""
    width, inner, layers = (
        vision.integer("hidden_size"), vision.integer("intermediate_size"), vision.layers(),
    )  # fmt: skip
    patch = vision.integer("patch_size")
    patches = (vision.integer("image_size") // patch) ** 2 + 1
    adapter, out = vision.integer("projector_input_dim"), vision.integer("projector_output_dim")
    return (
        _matrix("vision_model.attention", width, width, 4 * layers),
        _matrix("vision_model.mlp", inner, width, 2 * layers),
        _vector("vision_model.bias", width, 5 * layers),
        _vector("vision_model.mlp.fc1.bias", inner, layers),
        _vector("vision_model.norm", width, 4 * layers + 4),
        _matrix("vision_model.patch_embedding", width, 3 * patch * patch, split="none"),
        _vector("vision_model.class_embedding", width),
        _matrix("vision_model.positional_embedding_vlm", patches, width, split="none"),
        _matrix("vision_model.vision_adapter.mlp.fc1", adapter, inner),
        _matrix("vision_model.vision_adapter.mlp.fc2", out, out),
        _matrix("multi_modal_projector", cfg.integer("hidden_size"), vision.integer("vision_output_dim"), split="none"),
    )


def gemma4(cfg: Config, vision: Config) -> tuple[Weight, ...]:
    """Gemma 4: gated MLPs, per-head norms, four norms a layer, a position table per axis, one projection."""
    width, inner, layers = (
        vision.integer("hidden_size"), vision.integer("intermediate_size"), vision.layers(),
    )  # fmt: skip
    dim, patch = vision.integer("head_dim"), vision.integer("patch_size")
    query, kv = vision.integer("num_attention_heads") * dim, vision.integer("num_key_value_heads") * dim
    clips = 4 * 7 * layers if vision.flag("use_clipped_linears") else 0
    return (
        _matrix("vision_tower.self_attn.q_proj", query, width, layers),
        _matrix("vision_tower.self_attn.kv_proj", kv, width, 2 * layers),
        _matrix("vision_tower.self_attn.o_proj", width, query, layers),
        _vector("vision_tower.self_attn.norm", dim, 2 * layers),
        _matrix("vision_tower.mlp", inner, width, 3 * layers),
        _vector("vision_tower.norm", width, 4 * layers),
        _matrix("vision_tower.patch_embedder.input_proj", width, 3 * patch * patch, split="none"),
        _matrix(
            "vision_tower.position_embedding_table", 2 * vision.integer("position_embedding_size"), width, split="none"
        ),
        *((_vector("vision_tower.std", width, 2),) if vision.flag("standardize") else ()),
        *((_vector("vision_tower.clip", clips),) if clips else ()),
        _matrix("embed_vision.embedding_projection", cfg.integer("hidden_size"), width, split="none"),
    )
