"""Configs that say something about storage which is not modelled, or which another field contradicts, are refused."""

from typing import Any

import pytest

from kvplan.architectures import read_config
from kvplan.errors import ConfigError
from kvplan.model import Model, Source

LLAMA = {
    "model_type": "llama", "hidden_size": 4096, "intermediate_size": 14336, "num_attention_heads": 32,
    "num_hidden_layers": 32, "num_key_value_heads": 8, "vocab_size": 128256, "max_position_embeddings": 131072,
}  # fmt: skip
FOREIGN: dict[str, Any] = {
    "sliding_window": 4096, "attention_chunk_size": 8192, "kv_lora_rank": 512, "cla_share_factor": 2, "use_cla": True,
    "use_mla": True, "index_topk": 2048, "num_kv_shared_layers": 4, "mamba_d_state": 128, "swa_head_dim": 64,
    "sliding_window_pattern": 6, "_sliding_window_pattern": 6, "full_attention_interval": 4, "compress_ratios": [4],
    "attn_layer_indices": [1], "attn_layer_period": 8, "hybrid_override_pattern": "M*", "is_encoder_decoder": True,
    "add_cross_attention": True, "cross_attention_hidden_size": 64, "global_attn_every_n_layers": 4,
    "interleaved_sliding_window": [4096, None], "attention_layers": ["global", "local"], "num_meta_tokens": 128,
    "use_bidirectional_attention": True, "is_causal": False, "total_ut_steps": 4, "kda_layers": [1],
    "linear_attn_config": {"num_heads": 32}, "sparse_attention_config": {"sparse_index_dim": 128},
    "nsa_config": {"block": 64}, "attn_config": {"kv_n_heads": 4}, "mixer": {"state_size": 16},
    "per_layer_config": {"3": {"num_key_value_heads": 1}}, "attention_other_setting": {"num_attention_groups": 4},
}  # fmt: skip
HARMLESS: dict[str, Any] = {
    "tokenizer_class": "LlamaTokenizer", "transformers.js_config": {"kv_cache_dtype": {"fp16": "float16"}},
    "rope_parameters": {"rope_theta": 5e5}, "num_key_value_groups": None, "use_sliding_window": False,
    "layernorm_full_attention_alpha": 1.0, "output_hidden_states": True, "moe_layer_interval": 1,
    "per_layer_config": {}, "is_encoder_decoder": False, "is_causal": True, "add_classification_head": True,
    "quantization": {"group_size": 64, "bits": 4, "model.layers.0.conv1d": {"bits": 8}},
}  # fmt: skip


def read(data: dict[str, Any]) -> Model:
    return read_config(data, name="test", source=Source("test"))


@pytest.mark.parametrize("key", FOREIGN)
def test_a_field_that_changes_storage_and_is_not_modelled(key: str) -> None:
    with pytest.raises(ConfigError, match=key):
        read({**LLAMA, key: FOREIGN[key]})


@pytest.mark.parametrize("key", HARMLESS)
def test_a_field_that_changes_nothing(key: str) -> None:
    assert read({**LLAMA, key: HARMLESS[key]}).blocks == read(LLAMA).blocks


@pytest.mark.parametrize(
    "outer",
    [{"num_hidden_layers": 40}, {"num_key_value_heads": 4}, {"sliding_window": 4096}, {"attn_layer_period": 8}],
)
def test_a_wrapper_that_says_otherwise(outer: dict[str, Any]) -> None:
    with pytest.raises(ConfigError, match=next(iter(outer))):
        read({"model_type": "llava", "text_config": LLAMA, **outer})
    same = {"num_hidden_layers": 32, "num_key_value_heads": 8, "use_unified_vision_chunk": True}
    assert read({"model_type": "llava", "text_config": LLAMA, **same}).blocks == read(LLAMA).blocks


def test_a_vision_encoder_is_no_language_model() -> None:
    with pytest.raises(ConfigError, match="model_type"):
        read({"model_type": "pixtral", "hidden_size": 1024, "num_attention_heads": 16, "num_hidden_layers": 24})


def test_a_list_longer_than_the_decoder_and_its_mtp_blocks() -> None:
    types = ["full_attention"] * 34
    with pytest.raises(ConfigError, match="layer_types: has 34 entries for 32 layers"):
        read({**LLAMA, "layer_types": types, "num_nextn_predict_layers": 1})
    assert read({**LLAMA, "layer_types": types, "num_nextn_predict_layers": 2}).layer_counts() == {"full": 32}


@pytest.mark.parametrize(
    ("model_type", "heads", "width"),
    [("mixtral", 8, 128), ("gpt_oss", 8, 64), ("minimax_m2", 8, 128), ("glm4", 2, 128), ("llama", 32, 128)],
)
def test_absent_heads_are_those_of_the_class(model_type: str, heads: int, width: int) -> None:
    """transformers' configuration classes: a default of their own, or as many KV heads as query heads."""
    data = {key: value for key, value in LLAMA.items() if key != "num_key_value_heads"} | {"model_type": model_type}
    (layer, *_) = set(read({**data, "layer_types": ["full_attention"] * 32}).mixers())
    assert (getattr(layer, "kv_heads"), getattr(layer, "k_dim")) == (heads, width)  # noqa: B009


def test_mistral_without_a_window_field_has_the_window_of_its_class() -> None:
    mistral = LLAMA | {"model_type": "mistral"}
    assert read(mistral).layer_counts() == {"swa": 32}
    assert read({**mistral, "sliding_window": None}).layer_counts() == {"full": 32}


def test_a_wrapper_may_keep_what_the_family_ignores() -> None:
    """Qwen2.5-VL as transformers saves it: leftovers of the flat config stand outside, with text_config beside them."""
    text = LLAMA | {"model_type": "qwen2_5_vl_text", "layer_types": ["full_attention"] * 32, "sliding_window": None}
    outer = {"max_window_layers": 70, "sliding_window": 32768, "use_sliding_window": False, "num_hidden_layers": 32}
    model = read({"model_type": "qwen2_5_vl", "text_config": text, **outer})
    assert model.layer_counts() == {"full": 32}
