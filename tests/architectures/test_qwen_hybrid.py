"""Qwen3-Next and Qwen3.5 to 3.8 against figures that engines printed."""

from typing import Any

import pytest

from kit import bundled, read
from kvplan.dtypes import Dtypes
from kvplan.errors import ConfigError, MissingField
from kvplan.layers.base import Layer

SMALL: dict[str, Any] = {
    "model_type": "qwen3_5_text", "num_hidden_layers": 8, "hidden_size": 1024, "num_attention_heads": 8,
    "num_key_value_heads": 2, "head_dim": 256, "full_attention_interval": 4, "linear_num_key_heads": 16,
    "linear_num_value_heads": 16, "linear_key_head_dim": 128, "linear_value_head_dim": 128,
    "linear_conv_kernel_dim": 4, "mamba_ssm_dtype": "float32",
}  # fmt: skip


def role_bytes(layers: list[Layer], role: str, dtypes: Dtypes, tokens: int = 1) -> int:
    return sum(tensor.bytes(tokens) for layer in layers for tensor in layer.stored(dtypes) if tensor.role == role)


def test_interval_and_list_say_the_same() -> None:
    types = ["linear_attention", "linear_attention", "linear_attention", "full_attention"] * 2
    without = {key: value for key, value in SMALL.items() if key != "full_attention_interval"}
    assert read({**without, "layer_types": types}).blocks == read(SMALL).blocks
    assert read(SMALL).layer_counts() == {"gdn": 6, "full": 2}


def test_the_state_dtype_that_the_config_asks_for() -> None:
    assert read(SMALL).state_dtype == "fp32"
    assert read({**SMALL, "mamba_ssm_dtype": "bfloat16"}).state_dtype == "bf16"
    assert read({**SMALL, "mamba_ssm_dtype": "auto"}).state_dtype is None
    with pytest.raises(ConfigError, match="mamba_ssm_dtype"):
        read({**SMALL, "mamba_ssm_dtype": "int3"})


def test_heads_are_never_taken_from_class_defaults() -> None:
    with pytest.raises(MissingField, match="linear_num_value_heads"):
        read({key: value for key, value in SMALL.items() if key != "linear_num_value_heads"})


def test_llama_cpp_buffers_of_qwen36_27b() -> None:
    """LM Studio prints 16,384 MiB of f16 KV at 262,144 tokens and 598.50 MiB for four recurrent states in fp32."""
    model = bundled("qwen3.6-27b")
    layers, dtypes = list(model.mixers()), Dtypes(kv="fp16", state="fp32", conv="fp32")
    assert role_bytes(layers, "kv", dtypes, 262_144) == 16_384 << 20
    assert 4 * (role_bytes(layers, "state", dtypes) + role_bytes(layers, "conv", dtypes)) == int(598.5 * (1 << 20))


def test_state_of_one_layer_of_qwen38_24t() -> None:
    """NVIDIA's recipes count 122,880 B of convolution and 4,194,304 B of bf16 state in each GDN layer."""
    layer = next(layer for layer in bundled("qwen3.8-2.4t-a95b").mixers() if layer.kind == "gdn")
    dtypes = Dtypes(state="bf16")
    assert (role_bytes([layer], "conv", dtypes), role_bytes([layer], "state", dtypes)) == (122_880, 4_194_304)


def test_a_tp8_rank_of_qwen35_35b() -> None:
    """vLLM-Ascend prints an SSM page of 262,144 B under TP8, which is fp32."""
    layer = next(layer for layer in bundled("qwen3.5-35b-a3b").mixers() if layer.kind == "gdn")
    assert role_bytes([layer.on_rank(8)], "state", Dtypes(state="fp32")) == 262_144


def test_the_prediction_block_is_attention_beside_the_decoder() -> None:
    model = bundled("qwen3.5-27b")
    assert [layer.kind for layer in model.mtp] == ["full"]
    assert len(model.blocks) == 64
    assert bundled("qwen3-next").defaults == ("num_nextn_predict_layers = 1",)
