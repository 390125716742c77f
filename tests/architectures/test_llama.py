"""Llama and what is shaped like it, Llama 4, Phi, ERNIE, dots, Seed-OSS, SmolLM3: traps and counts from outside."""

from typing import Any

import pytest

from kit import read
from kvplan.dtypes import Dtypes
from kvplan.errors import ConfigError, MissingField
from kvplan.model import Model

LLAMA = {
    "model_type": "llama", "hidden_size": 64, "num_attention_heads": 8, "num_hidden_layers": 4,
    "num_key_value_heads": 2,
}  # fmt: skip
LLAMA4 = {
    "model_type": "llama4_text", "num_hidden_layers": 8, "num_attention_heads": 40, "num_key_value_heads": 8,
    "head_dim": 128, "hidden_size": 5120, "attention_chunk_size": 8192,
}  # fmt: skip


def total_params(model: Model) -> int:
    assert model.weights is not None, model.weights_missing
    parts = [*model.weights.blocks, model.weights.outer, model.weights.mtp]
    return sum(weight.params for part in parts for weight in part)


def stored_bytes(model: Model, tokens: int) -> int:
    return sum(tensor.bytes(tokens) for layer in model.mixers() for tensor in layer.stored(Dtypes()))


def kinds(config: dict[str, Any]) -> list[str]:
    return [layer.kind for layer in read(config).mixers()]


def test_head_dim_is_never_derived_where_it_is_given() -> None:
    assert stored_bytes(read(LLAMA), 1) == 4 * 2 * (8 + 8) * 2
    assert stored_bytes(read(LLAMA | {"head_dim": 32}), 1) == 4 * 2 * (32 + 32) * 2


def test_absent_kv_heads_are_as_many_as_query_heads_and_the_model_says_so() -> None:
    model = read({key: value for key, value in LLAMA.items() if key != "num_key_value_heads"})
    assert stored_bytes(model, 1) == 4 * 8 * (8 + 8) * 2
    assert "num_key_value_heads = 8" in model.defaults


@pytest.mark.parametrize(
    ("change", "field"),
    [
        ({"sliding_window": 4096}, "sliding_window"),
        ({"num_key_value_heads": 3}, "num_key_value_heads"),
        ({"num_attention_heads": 7, "num_key_value_heads": 7}, "hidden_size"),
        ({"layer_types": ["full_attention"] * 3}, "layer_types"),
        ({"layer_types": ["linear_attention"] * 4}, "layer_types"),
        ({"kv_lora_rank": 512}, "kv_lora_rank"),
    ],
)  # fmt: skip
def test_what_llama_does_not_model_is_refused_by_name(change: dict[str, Any], field: str) -> None:
    with pytest.raises(ConfigError, match=field):
        read(LLAMA | change)


@pytest.mark.parametrize("places", [None, [], [1, 1, 1, 0, 1, 1, 1, 0]])
def test_llama_4_without_no_rope_layers_keeps_every_fourth(places: list[int] | None) -> None:
    assert kinds(LLAMA4 | {"no_rope_layers": places}) == ["chunked", "chunked", "chunked", "full"] * 2


def test_llama_4_takes_the_layers_it_is_told() -> None:
    assert kinds(LLAMA4 | {"no_rope_layers": [0, 1] * 4}) == ["full", "chunked"] * 4
    assert kinds(LLAMA4 | {"no_rope_layer_interval": 2}) == ["chunked", "full"] * 4
    assert kinds(LLAMA4 | {"attention_chunk_size": None}) == ["full"] * 8


def test_llama_4_holds_at_most_a_chunk() -> None:
    model, row = read(LLAMA4), 8 * (128 + 128) * 2
    assert stored_bytes(model, 100) == 8 * 100 * row
    assert stored_bytes(model, 100_000) == (2 * 100_000 + 6 * 8192) * row


def test_mllama_keeps_one_image_beside_the_text() -> None:
    """Four tiles of (560 / 14)² + 1 patches: the 6,404 tokens that vLLM reserved for one image."""
    vision = {"image_size": 560, "patch_size": 14, "max_num_tiles": 4}
    text = LLAMA | {"model_type": "mllama_text_model", "cross_attention_layers": [1]}
    model = read({"model_type": "mllama", "text_config": text, "vision_config": vision})
    row = 2 * (8 + 8) * 2
    assert stored_bytes(model, 10) == 3 * 10 * row + 6404 * row
    assert any("6404" in line for line in model.defaults)
    with pytest.raises(MissingField, match="vision_config"):
        read({"model_type": "mllama", "text_config": text})


PHI = {"model_type": "phi3", "hidden_size": 3072, "num_attention_heads": 32, "num_hidden_layers": 2}


def test_a_window_that_never_binds_is_no_window() -> None:
    assert kinds(PHI | {"sliding_window": 2047, "max_position_embeddings": 4096}) == ["swa", "swa"]
    assert kinds(PHI | {"sliding_window": 262144, "max_position_embeddings": 131072}) == ["full", "full"]
    assert kinds(PHI | {"sliding_window": None}) == ["full", "full"]


def test_keys_that_are_present_and_unused() -> None:
    smollm = LLAMA | {"model_type": "smollm3", "no_rope_layers": [1, 1, 1, 0], "max_window_layers": 28}
    assert kinds(smollm | {"use_sliding_window": False, "layer_types": ["full_attention"] * 4}) == ["full"] * 4
    ernie = LLAMA | {"model_type": "ernie4_5_moe", "compression_ratio": 1.0, "moe_num_experts": 64}
    assert kinds(ernie) == ["full"] * 4
    dots = LLAMA | {"model_type": "dots1", "sliding_window": 4096, "max_window_layers": 2}
    assert kinds(dots) == ["full", "full", "swa", "swa"]
    assert kinds(dots | {"use_sliding_window": False}) == ["full"] * 4


COUNTED: dict[int, dict[str, Any]] = {
    3_075_098_624: {
        "model_type": "smollm3", "hidden_size": 2048, "intermediate_size": 11008, "num_attention_heads": 16,
        "num_hidden_layers": 36, "num_key_value_heads": 4, "vocab_size": 128256,
    },
    36_151_104_512: {
        "model_type": "seed_oss", "attention_bias": True, "head_dim": 128, "hidden_size": 5120,
        "intermediate_size": 27648, "num_attention_heads": 80, "num_hidden_layers": 64, "num_key_value_heads": 8,
        "vocab_size": 155136, "tie_word_embeddings": False,
    },
    360_748_032: {
        "model_type": "ernie4_5", "hidden_size": 1024, "intermediate_size": 3072, "num_hidden_layers": 18,
        "num_attention_heads": 16, "num_key_value_heads": 2, "head_dim": 128, "vocab_size": 103424,
    },
    21_948_655_808: {
        "model_type": "ernie4_5_moe", "hidden_size": 2560, "intermediate_size": 12288, "num_hidden_layers": 28,
        "num_attention_heads": 20, "num_key_value_heads": 4, "moe_num_experts": 64, "moe_intermediate_size": 1536,
        "moe_num_shared_experts": 2, "moe_layer_start_index": 1, "moe_layer_end_index": 27, "moe_k": 6,
        "num_nextn_predict_layers": 1, "vocab_size": 103424, "tie_word_embeddings": True,
    },
    142_774_381_696: {
        "model_type": "dots1", "hidden_size": 4096, "intermediate_size": 10944, "moe_intermediate_size": 1408,
        "n_routed_experts": 128, "n_shared_experts": 2, "num_hidden_layers": 62, "num_attention_heads": 32,
        "num_key_value_heads": 32, "head_dim": 128, "first_k_dense_replace": 1, "vocab_size": 152064,
    },
    3_821_079_552: PHI | {"num_hidden_layers": 32, "intermediate_size": 8192, "vocab_size": 32064},
    3_836_021_760: {
        "model_type": "phi3", "hidden_size": 3072, "intermediate_size": 8192, "num_attention_heads": 24,
        "num_hidden_layers": 32, "num_key_value_heads": 8, "vocab_size": 200064, "tie_word_embeddings": True,
    },
    41_873_153_344: {
        "model_type": "phimoe", "attention_bias": True, "lm_head_bias": True, "hidden_size": 4096,
        "intermediate_size": 6400, "num_attention_heads": 32, "num_hidden_layers": 32, "num_key_value_heads": 8,
        "num_local_experts": 16, "vocab_size": 32064,
    },
}  # fmt: skip


@pytest.mark.parametrize("published", COUNTED)
def test_parameters_of_other_checkpoints(published: int) -> None:
    """Exact counts of SmolLM3-3B, Seed-OSS-36B, ERNIE-4.5 0.3B and 21B, dots.llm1, Phi-3 and 4 mini, Phi-3.5-MoE."""
    assert total_params(read(COUNTED[published])) == published
