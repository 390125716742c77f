"""Vision and audio towers that ship inside a checkpoint, with the projector to the text model."""

from collections.abc import Callable

from kvplan.architectures._config import Config
from kvplan.errors import MissingField
from kvplan.model import Split, Weight

Tower = Callable[[Config, Config], tuple[Weight, ...]]


def tower(cfg: Config, size: Tower, key: str = "vision_config") -> tuple[Weight, ...]:
    """The weights of one of the wrapper's towers; where its config cannot size it, the rest is weighed without it."""
    data = cfg.get(key, default=None)
    if data is None:
        return ()
    if not isinstance(data, dict):
        raise cfg.fail(key, "expected an object")
    try:
        return size(cfg, Config(data, key))
    except MissingField as missing:
        cfg.defaults.append(f"{key.removesuffix('_config')} tower not weighed: {missing}")
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
        _matrix("embed_vision.embedding_projection", cfg.integer("hidden_size"), width, split="none"),
    )


def gemma4_audio(cfg: Config, audio: Config) -> tuple[Weight, ...]:
    """Gemma 4 E2B and E4B: Conformer layers (two MLPs, attention with relative keys, a short convolution)."""
    width, layers, text = audio.integer("hidden_size"), audio.layers(), cfg.integer("hidden_size")
    out, taps = audio.integer("output_proj_dims"), audio.integer("conv_kernel_size")
    channels = audio.integers("subsampling_conv_channels", minimum=1)
    if len(channels) != 2:
        raise audio.fail("subsampling_conv_channels", f"expected two integers, found {len(channels)}")
    first, second = channels
    return (
        _matrix("audio_tower.self_attn", width, width, 5 * layers),
        _vector("audio_tower.self_attn.per_dim_scale", width // audio.integer("num_attention_heads"), layers),
        _matrix("audio_tower.feed_forward", 4 * width, width, 4 * layers),
        _matrix("audio_tower.lconv1d.linear", width, width, 3 * layers),
        _matrix("audio_tower.lconv1d.depthwise_conv1d", width, taps, layers, "none"),
        _vector("audio_tower.norm", width, 9 * layers),
        _matrix("audio_tower.subsample.conv0", first, 9, split="none"),
        _matrix("audio_tower.subsample.conv1", second, 9 * first, split="none"),
        _vector("audio_tower.subsample.norm", first + second),
        _matrix("audio_tower.subsample.input_proj_linear", width, first // 4 * second, split="none"),
        _matrix("audio_tower.output_proj", out, width, split="none"),
        _vector("audio_tower.output_proj.bias", out),
        _matrix("embed_audio.embedding_projection", text, out, split="none"),
    )


def gemma4_unified(cfg: Config, vision: Config) -> tuple[Weight, ...]:
    """Gemma 4 12B has no vision encoder: pooled patches go through one matrix, with positions per axis."""
    side, width = vision.integer("patch_size") * vision.integer("pooling_kernel_size"), vision.integer("mm_embed_dim")
    patch, out = 3 * side * side, vision.integer("output_proj_dims")
    return (
        _matrix("embed_vision.patch_dense", width, patch, split="none"),
        _vector("embed_vision.patch_dense.bias", width),
        _vector("embed_vision.patch_ln1", patch, 2),
        _vector("embed_vision.norm", width, 4),
        _matrix("embed_vision.pos_embedding", 2 * vision.integer("mm_posemb_size"), width, split="none"),
        _matrix("embed_vision.embedding_projection", cfg.integer("hidden_size"), out, split="none"),
    )


def gemma4_unified_audio(cfg: Config, audio: Config) -> tuple[Weight, ...]:
    """Audio frames go through one matrix."""
    return (
        _matrix(
            "embed_audio.embedding_projection",
            cfg.integer("hidden_size"),
            audio.integer("audio_embed_dim"),
            split="none",
        ),
    )
