"""Kimi K2, Kimi Linear and Kimi K3 against tensor counts of their checkpoints and figures of serving engines."""

import copy
from typing import Any

import pytest

from kit import bundled, held, params, read, weights
from kvplan.errors import ConfigError, MissingField

LINEAR: dict[str, Any] = {
    "model_type": "kimi_linear", "num_hidden_layers": 27, "num_attention_heads": 32, "kv_lora_rank": 512,
    "qk_rope_head_dim": 64, "model_max_length": 1048576,
    "linear_attn_config": {
        "full_attn_layers": [4, 8, 12, 16, 20, 24, 27],
        "kda_layers": [1, 2, 3, 5, 6, 7, 9, 10, 11, 13, 14, 15, 17, 18, 19, 21, 22, 23, 25, 26],
        "num_heads": 32, "head_dim": 128, "short_conv_kernel_size": 4,
    },
}  # fmt: skip


def test_kimi_linear() -> None:
    """49,122,681,728 elements on the hub; 20 × 2,170,880 B of state and 7 × 1,152 B a token."""
    model = bundled("kimi-linear")
    assert params(model) == 49_122_681_728
    assert model.layer_counts() == {"kda": 20, "mla": 7}
    assert held(model, 131_072) == 1_100_382_208
    assert held(read(LINEAR), 0) == 43_417_600
    assert read(LINEAR).max_context_tokens == 1_048_576


def test_kimi_k3_counts_every_tensor_of_the_checkpoint() -> None:
    model = bundled("kimi-k3")
    assert params(model) == 2_779_931_837_184
    by_role = {role: sum(w.params for w in weights(model) if w.role == role) for role in ("expert", "vision")}
    assert by_role["expert"] == 2_722_740_830_208
    assert 800_000_000 < 2 * by_role["vision"] < 900_000_000
    plain = [w for w in weights(model) if w.role not in ("expert", "vision", "norm", "other")]
    assert 2 * sum(weight.params for weight in plain) == 113_479_249_088


def test_module_sizes_of_kimi_k3() -> None:
    model = bundled("kimi-k3")
    assert model.weights is not None
    delta, latent = model.weights.blocks[1], model.weights.blocks[3]
    for block, attention in ((delta, 443_740_384), (latent, 232_196_096)):
        assert sum(w.params for w in block if w.role == "attention") == attention
        assert sum(w.params for w in block if w.role in ("mlp", "shared_expert", "router")) == 189_927_808


def test_kimi_k3_bytes() -> None:
    model = bundled("kimi-k3")
    assert held(model, 131_072) == 4_073_250_816
    assert held(model, 0) == 449_372_160
    assert held(model, 128_000, state="bf16", conv=None) == 3_755_999_232


def test_layer_lists_are_one_based_and_cover_every_layer() -> None:
    shifted = copy.deepcopy(LINEAR)
    shifted["linear_attn_config"]["kda_layers"][0] = 28
    with pytest.raises(ConfigError, match="kda_layers"):
        read(shifted)
    zero = copy.deepcopy(LINEAR)
    zero["linear_attn_config"]["kda_layers"][0] = 0
    with pytest.raises(ConfigError, match="kda_layers"):
        read(zero)


def test_lists_are_never_filled_in() -> None:
    """The class default of transformers has six full layers and misses layer 27."""
    with pytest.raises(MissingField, match="linear_attn_config"):
        read({key: value for key, value in LINEAR.items() if key != "linear_attn_config"})


def test_the_flat_spelling_of_transformers() -> None:
    flat = {key: value for key, value in LINEAR.items() if key != "linear_attn_config"}
    full = LINEAR["linear_attn_config"]["full_attn_layers"]
    flat["layer_types"] = ["full_attention" if n in full else "linear_attention" for n in range(1, 28)]
    flat |= {"linear_num_heads": 32, "linear_head_dim": 128, "linear_conv_kernel_dim": 4}
    assert read(flat).blocks == read(LINEAR).blocks


def test_kimi_k2() -> None:
    """The hub counts 3,416 more elements than the modules of the model hold."""
    model = bundled("kimi-k2-instruct")
    assert params(model) == 1_026_408_235_864 - 3_416
    assert held(model, 1) == 70_272
    for name in ("kimi-k2.5", "kimi-k2.6", "kimi-k2.7-code"):
        assert bundled(name).blocks == model.blocks
        assert bundled(name).quantization["quant_method"] == "compressed-tensors"


def test_pool_of_kimi_k2_in_vllm() -> None:
    """vLLM recipe: 46.80 GiB a rank hold 715,072 tokens in blocks of 64."""
    per_token = held(bundled("kimi-k2"), 1)
    assert round(715_072 * per_token / 2**30, 2) == 46.80
