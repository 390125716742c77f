"""The vision towers of Step3 and Step-3.7 with what joins them to the text model. One copy a rank."""

from kvplan.architectures._config import Config
from kvplan.model import Weight


def _part(name: str, shape: tuple[int, ...], count: int = 1) -> Weight:
    return Weight(f"vision_model.{name}", "vision", shape, "none", count)


def _blocks(width: int, inner: int, depth: int, *, scaled: bool) -> tuple[Weight, ...]:
    """Encoder layers with biases and layer norms; `scaled` ones also have a factor per channel and sublayer."""
    return (
        _part("layers.attention", (width, width), 4 * depth),
        _part("layers.mlp", (inner, width), 2 * depth),
        _part("layers.bias", (5 * width + inner,), depth),
        _part("layers.norm", (width,), (6 if scaled else 4) * depth),
    )


def _strided(name: str, out: int, width: int, kernel: int) -> tuple[Weight, ...]:
    return _part(name, (out, width, kernel, kernel)), _part(f"{name}.bias", (out,))


def step3_vision(cfg: Config, tower: Config) -> tuple[Weight, ...]:
    """Tower of Step3, as in vLLM step3_vl: class token, positions, two strided convolutions and a projector."""
    width, out, hidden = tower.integer("hidden_size"), tower.integer("output_hidden_size"), cfg.integer("hidden_size")
    patch = tower.integer("patch_size")
    biased = cfg.flag("projector_bias", True)
    return (
        _part("patch_embedding", (width, tower.integer("num_channels"), patch, patch)),
        _part("patch_embedding.bias", (width,)),
        _part("class_embedding", (width,)),
        _part("position_embedding", ((tower.integer("image_size") // patch) ** 2 + 1, width)),
        *_blocks(width, tower.integer("intermediate_size"), tower.layers(), scaled=False),
        *_strided("vit_downsampler", out, width, 2),
        *_strided("vit_downsampler2", 2 * out, out, 3),
        _part("vit_large_projector", (hidden, 2 * out)),
        *((_part("vit_large_projector.bias", (hidden,)),) if biased else ()),
    )


def step3p7_vision(cfg: Config, tower: Config) -> tuple[Weight, ...]:
    """Perception encoder of Step-3.7, as in transformers step3p7."""
    width, depth = tower.integer("width", "hidden_size"), tower.layers("layers", "num_hidden_layers")
    ratio, patch = tower.get("mlp_ratio"), tower.integer("patch_size")
    if isinstance(ratio, bool) or not isinstance(ratio, int | float) or not 0 < ratio < 100:
        raise tower.fail("mlp_ratio", "expected a number from 0 to 100")
    hidden = cfg.integer("hidden_size")
    return (
        _part("patch_embedding", (width, tower.integer("num_channels"), patch, patch)),
        _part("position_embedding", ((tower.integer("image_size") // patch) ** 2, width)),
        _part("pre_layernorm", (width,), 2),
        *_blocks(width, int(width * ratio), depth, scaled=True),
        *_strided("downsampler1", 2 * width, width, 3),
        *_strided("downsampler2", 4 * width, 2 * width, 3),
        _part("multi_modal_projector", (hidden, 4 * width)),
        *((_part("multi_modal_projector.bias", (hidden,)),) if cfg.flag("projector_bias") else ()),
    )
