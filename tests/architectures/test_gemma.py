"""Gemma 1 to 4 and 3n: which layers are global, which borrow, what nested configs leave out."""

from typing import Any

import pytest

from kit import read
from kvplan.dtypes import Dtypes
from kvplan.errors import ConfigError
from kvplan.layers.borrowed import Shared
from kvplan.layers.full import Full
from kvplan.layers.windowed import SlidingWindow
from kvplan.model import Model

SIGLIP = {
    "model_type": "siglip_vision_model", "hidden_size": 1152, "intermediate_size": 4304, "num_attention_heads": 16,
    "num_hidden_layers": 27, "patch_size": 14, "image_size": 896,
}  # fmt: skip
GEMMA4 = {
    "model_type": "gemma4_text", "num_hidden_layers": 10, "num_key_value_heads": 8, "num_global_key_value_heads": 2,
    "head_dim": 256, "global_head_dim": 512, "sliding_window": 512, "attention_k_eq_v": True,
    "layer_types": (["sliding_attention"] * 4 + ["full_attention"]) * 2,
}  # fmt: skip


def total_params(model: Model) -> int:
    assert model.weights is not None, model.weights_missing
    parts = [*model.weights.blocks, model.weights.outer, model.weights.mtp]
    return sum(weight.params for part in parts for weight in part)


def global_layers(config: dict[str, Any]) -> list[int]:
    return [number for number, (layer,) in enumerate(read(config).blocks) if layer.kind == "full"]


def test_gemma_2_windows_every_other_layer_the_first_included() -> None:
    config = {"model_type": "gemma2", "num_hidden_layers": 5, "num_attention_heads": 8, "num_key_value_heads": 4}
    assert global_layers(config | {"head_dim": 256, "sliding_window": 4096, "sliding_window_size": 4096}) == [1, 3]


def test_gemma_3_globals_are_every_sixth_counted_from_one() -> None:
    config = {"model_type": "gemma3_text", "num_hidden_layers": 26, "sliding_window": 512}
    assert global_layers(config) == [5, 11, 17, 23]
    assert global_layers(config | {"sliding_window_pattern": 4}) == [3, 7, 11, 15, 19, 23]
    assert global_layers(config | {"_sliding_window_pattern": 13}) == [12, 25]


def test_a_nested_gemma_3_config_leaves_class_defaults_out() -> None:
    """As google/gemma-3-4b-it ships it: no heads, no head_dim, no vocabulary; the count is the published one."""
    text = {
        "model_type": "gemma3_text", "hidden_size": 2560, "intermediate_size": 10240, "num_hidden_layers": 34,
        "rope_scaling": {"factor": 8.0, "rope_type": "linear"}, "sliding_window": 1024,
    }  # fmt: skip
    model = read({"model_type": "gemma3", "mm_tokens_per_image": 256, "text_config": text, "vision_config": SIGLIP})
    assert total_params(model) == 4_300_079_472
    assert set(model.mixers()) == {Full(4, 256, 256), SlidingWindow(4, 256, 256, 1024)}
    assert "text_config.head_dim = 256" in model.defaults


def test_gemma_4_globals_have_their_own_width_and_heads() -> None:
    model = read(GEMMA4)
    assert set(model.mixers()) == {Full(2, 512, 512), SlidingWindow(8, 256, 256, 512)}


def test_one_projection_for_k_and_v_does_not_halve_the_cache() -> None:
    (layer,) = {layer for layer in read(GEMMA4).mixers() if layer.kind == "full"}
    assert sum(tensor.entry_bytes for tensor in layer.stored(Dtypes())) == 2 * (512 + 512) * 2


@pytest.mark.parametrize("change", [{"attention_k_eq_v": False}, {"num_global_key_value_heads": None}])
def test_gemma_4_globals_without_heads_of_their_own(change: dict[str, Any]) -> None:
    assert Full(8, 512, 512) in set(read(GEMMA4 | change).mixers())


def test_the_last_layers_borrow_the_last_earlier_layer_of_their_type() -> None:
    model = read(GEMMA4 | {"num_kv_shared_layers": 3})
    mixers = list(model.mixers())
    assert [isinstance(layer, Shared) for layer in mixers] == [False] * 7 + [True] * 3
    assert mixers[9] == Shared(Full(2, 512, 512))
    assert mixers[8] == Shared(SlidingWindow(8, 256, 256, 512))
    assert sum(tensor.bytes(1000) for layer in mixers[7:] for tensor in layer.stored(Dtypes())) == 0
    assert mixers[9].read_bytes(Dtypes(), 1000) == 1000 * 2 * 1024 * 2


@pytest.mark.parametrize(
    ("change", "field"),
    [
        ({"num_kv_shared_layers": 6}, "num_kv_shared_layers"),
        ({"num_kv_shared_layers": 11}, "num_kv_shared_layers"),
        ({"use_bidirectional_attention": "all"}, "use_bidirectional_attention"),
        ({"layer_types": ["chunked_attention"] * 10}, "layer_types"),
        ({"per_layer_kv_heads": [1]}, "per_layer_kv_heads"),
    ],
)  # fmt: skip
def test_what_gemma_does_not_model_is_refused_by_name(change: dict[str, Any], field: str) -> None:
    with pytest.raises(ConfigError, match=field):
        read(GEMMA4 | change)


def test_embedding_gemma_keeps_nothing_and_is_refused() -> None:
    with pytest.raises(ConfigError, match="use_bidirectional_attention"):
        read({"model_type": "gemma3_text", "num_hidden_layers": 24, "use_bidirectional_attention": True})


def test_parameters_of_gemma_1_2_and_3() -> None:
    """Exact counts of gemma-2b, gemma-2-9b and gemma-3-1b."""
    one = {"hidden_size": 2048, "intermediate_size": 16384, "num_attention_heads": 8, "num_hidden_layers": 18}
    assert total_params(read(one | {"model_type": "gemma", "num_key_value_heads": 1, "head_dim": 256})) == 2_506_172_416
    two = {"hidden_size": 3584, "intermediate_size": 14336, "num_attention_heads": 16, "num_hidden_layers": 42}
    assert total_params(read(two | {"model_type": "gemma2", "num_key_value_heads": 8})) == 9_241_705_984
    three = {
        "model_type": "gemma3_text", "hidden_size": 1152, "intermediate_size": 6912, "num_hidden_layers": 26,
        "num_attention_heads": 4, "num_key_value_heads": 1, "vocab_size": 262144, "sliding_window": 512,
    }  # fmt: skip
    assert total_params(read(three)) == 999_885_952


def test_parameters_of_gemma_3n_e4b() -> None:
    """The published count less the K and V projections of 15 borrowing layers, which engines do not load."""
    text = {
        "model_type": "gemma3n_text", "hidden_size": 2048, "intermediate_size": [16384] * 35, "num_hidden_layers": 35,
        "num_kv_shared_layers": 15, "num_attention_heads": 8, "num_key_value_heads": 2, "head_dim": 256,
        "layer_types": (["sliding_attention"] * 4 + ["full_attention"]) * 7,
    }  # fmt: skip
    unused = 15 * (2 * 2 * 256 * 2048 + 256)
    assert total_params(read({"model_type": "gemma3n", "text_config": text})) + unused == 7_849_978_192


def test_parameters_of_gemma_4_e4b() -> None:
    """18 borrowing layers, 3 of them global, whose unused projections the checkpoint ships."""
    text = {
        "model_type": "gemma4_text", "hidden_size": 2560, "intermediate_size": 10240, "num_hidden_layers": 42,
        "num_kv_shared_layers": 18, "num_attention_heads": 8, "num_key_value_heads": 2, "head_dim": 256,
        "layer_types": (["sliding_attention"] * 5 + ["full_attention"]) * 7, "hidden_size_per_layer_input": 256,
        "vocab_size": 262144,
    }  # fmt: skip
    vision = {
        "hidden_size": 768, "intermediate_size": 3072, "num_hidden_layers": 16, "num_attention_heads": 12,
        "num_key_value_heads": 12, "head_dim": 64, "patch_size": 16, "position_embedding_size": 10240,
    }  # fmt: skip
    audio = {
        "hidden_size": 1024, "num_hidden_layers": 12, "num_attention_heads": 8, "subsampling_conv_channels": [128, 32],
        "conv_kernel_size": 5, "output_proj_dims": 1536,
    }  # fmt: skip
    model = read({"model_type": "gemma4", "text_config": text, "vision_config": vision, "audio_config": audio})
    unused = 15 * (2 * 2 * 256 * 2560 + 256) + 3 * (2 * 2 * 512 * 2560 + 512)
    assert total_params(model) + unused == 7_996_156_490
