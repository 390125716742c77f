"""Qwen2 and Qwen3: windows that are shipped and off, head widths, nesting, and exact parameter counts."""

from typing import Any

import pytest

from kit import read
from kvplan.errors import ConfigError, MissingField
from kvplan.model import Model

QWEN25_7B: dict[str, Any] = {
    "model_type": "qwen2", "hidden_size": 3584, "num_hidden_layers": 28, "num_attention_heads": 28,
    "num_key_value_heads": 4, "intermediate_size": 18944, "vocab_size": 152064, "max_position_embeddings": 32768,
    "use_sliding_window": False, "sliding_window": 131072, "max_window_layers": 28, "tie_word_embeddings": False,
}  # fmt: skip
VISION = {
    "depth": 32, "num_heads": 16, "in_chans": 3, "patch_size": 14, "spatial_merge_size": 2, "temporal_patch_size": 2,
}  # fmt: skip


def params(model: Model) -> int:
    assert model.weights is not None, model.weights_missing
    return sum(weight.params for part in (*model.weights.blocks, model.weights.outer) for weight in part)


def test_a_window_that_is_switched_off_is_full_attention() -> None:
    assert read(QWEN25_7B).layer_counts() == {"full": 28}


def test_a_window_in_use_slides_from_max_window_layers_on() -> None:
    model = read({**QWEN25_7B, "use_sliding_window": True, "sliding_window": 4096, "max_window_layers": 20})
    assert [block[0].kind for block in model.blocks] == ["full"] * 20 + ["swa"] * 8


def test_layer_types_win_where_windows_are_in_use() -> None:
    types = ["full_attention", "sliding_attention"] * 14
    windowed = {**QWEN25_7B, "layer_types": types, "sliding_window": 4096}
    model = read({**windowed, "use_sliding_window": True})
    assert model.layer_counts() == {"full": 14, "swa": 14}
    with pytest.raises(ConfigError, match="layer_types"):
        read(windowed)


def test_a_window_in_a_mixture_of_experts_is_refused() -> None:
    config = {**QWEN25_7B, "model_type": "qwen3_moe", "head_dim": 128, "num_experts": 4, "use_sliding_window": True}
    with pytest.raises(ConfigError, match="use_sliding_window"):
        read(config)


def test_qwen3_needs_its_head_width() -> None:
    with pytest.raises(MissingField, match="head_dim"):
        read({**QWEN25_7B, "model_type": "qwen3"})


def test_text_inside_a_multimodal_config_reads_the_same() -> None:
    text = {**QWEN25_7B, "model_type": "qwen3_vl_text", "head_dim": 128}
    nested = read({"model_type": "qwen3_vl", "text_config": text})
    assert nested.blocks == read(text).blocks
    assert nested.model_type == "qwen3_vl"


def test_an_unknown_key_that_may_change_storage_is_refused() -> None:
    with pytest.raises(ConfigError, match="kv_shared_layers"):
        read({**QWEN25_7B, "kv_shared_layers": 4})


def test_the_weights_wait_for_their_fields_and_the_layers_do_not() -> None:
    model = read({key: value for key, value in QWEN25_7B.items() if key != "intermediate_size"})
    assert model.weights is None
    assert "intermediate_size" in model.weights_missing


@pytest.mark.parametrize(
    ("extra", "published"),
    [
        ({}, 7_615_616_512),
        (
            {
                "model_type": "qwen2_vl",
                "vision_config": {**VISION, "embed_dim": 1280, "mlp_ratio": 4, "hidden_size": 3584},
            },
            8_291_375_616,
        ),
        (
            {
                "model_type": "qwen2_5_vl",
                "vision_config": {
                    **VISION, "hidden_size": 1280, "intermediate_size": 3420, "out_hidden_size": 3584,
                    "window_size": 112,
                },
            },
            8_292_166_656,
        ),
    ],
    ids=["Qwen2.5-7B", "Qwen2-VL-7B", "Qwen2.5-VL-7B"],
)  # fmt: skip
def test_parameters_as_the_hub_states_them(extra: dict[str, Any], published: int) -> None:
    """The totals on these checkpoints' hub pages."""
    assert params(read({**QWEN25_7B, **extra})) == published


def test_qwen_moe_with_a_gated_shared_expert() -> None:
    """Qwen1.5-MoE-A2.7B, 14,315,784,192 parameters on its hub page."""
    config = {
        **QWEN25_7B, "model_type": "qwen2_moe", "hidden_size": 2048, "num_hidden_layers": 24,
        "num_attention_heads": 16, "num_key_value_heads": 16, "moe_intermediate_size": 1408,
        "shared_expert_intermediate_size": 5632, "num_experts": 60, "num_experts_per_tok": 4, "vocab_size": 151936,
    }  # fmt: skip
    model = read(config)
    assert params(model) == 14_315_784_192
    assert (model.num_experts, model.experts_per_token) == (60, 4)
