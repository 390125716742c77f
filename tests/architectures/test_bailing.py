"""Ling and Ring against tensor counts of their checkpoints."""

from typing import Any

import pytest

from kit import bundled, held, params, read
from kvplan.errors import ConfigError, MissingField

MINI: dict[str, Any] = {
    "model_type": "bailing_moe", "hidden_size": 2048, "num_hidden_layers": 20, "num_attention_heads": 16,
    "num_key_value_heads": 4, "head_dim": 128, "num_experts": 256, "num_experts_per_tok": 8, "num_shared_experts": 1,
    "moe_intermediate_size": 512, "intermediate_size": 5120, "first_k_dense_replace": 1, "vocab_size": 157184,
    "use_qk_norm": True, "moe_router_enable_expert_bias": True, "num_nextn_predict_layers": 0,
    "use_sliding_window": False, "sliding_window": 81920, "max_window_layers": 28,
}  # fmt: skip
FLASH = MINI | {
    "model_type": "bailing_moe_v2", "hidden_size": 4096, "num_hidden_layers": 32, "num_attention_heads": 32,
    "moe_intermediate_size": 1024, "intermediate_size": 9216,
}  # fmt: skip
LARGE = MINI | {
    "hidden_size": 8192, "num_hidden_layers": 80, "num_attention_heads": 64, "num_key_value_heads": 8,
    "moe_intermediate_size": 2048, "intermediate_size": 18432, "first_k_dense_replace": 4,
}  # fmt: skip
HYBRID: dict[str, Any] = {
    "model_type": "bailing_hybrid", "num_hidden_layers": 80, "num_attention_heads": 64, "head_dim": 128,
    "layer_group_size": 8, "kv_lora_rank": 512, "qk_rope_head_dim": 64,
}  # fmt: skip


@pytest.mark.parametrize(
    ("config", "published"), [(MINI, 16_255_643_392), (FLASH, 102_889_705_216), (LARGE, 999_705_328_640)]
)
def test_tensor_counts_of_the_second_generation(config: dict[str, Any], published: int) -> None:
    """Ling-mini-2.0, Ling-flash-2.0 and Ling-1T."""
    assert params(read(config)) == published


def test_tensor_counts_of_hybrids() -> None:
    assert params(bundled("ling-2.5-1t")) == 1_012_231_160_320
    assert params(bundled("ling-3.0-flash")) == 127_486_405_600


def test_lightning_with_a_latent_layer_in_eight() -> None:
    """LLM Architecture Gallery: 11.2 KiB a token; the state is 70 × 64 × 128 × 128 elements."""
    model = bundled("ling-2.5-1t")
    assert model.layer_counts() == {"lightning": 70, "mla": 10}
    assert held(model, 1) - held(model, 0) == 11_520
    assert held(model, 0, state="bf16") == 146_800_640


def test_kda_where_there_is_a_convolution() -> None:
    assert bundled("ling-3.0-flash").layer_counts() == {"kda": 35, "mla": 7}
    assert read({**HYBRID, "short_conv_kernel_size": 4}).layer_counts() == {"kda": 70, "mla": 10}


def test_group_size_as_a_list() -> None:
    """One entry a layer, 1 for linear ones."""
    listed = [1, 1, 1, 1, 1, 1, 1, 0] * 10
    assert read({**HYBRID, "layer_group_size": listed}).blocks == read(HYBRID).blocks
    with pytest.raises(ConfigError, match="layer_group_size"):
        read({**HYBRID, "layer_group_size": listed[:-1]})


def test_two_spellings_may_not_contradict() -> None:
    types = (["linear_attention"] * 7 + ["full_attention"]) * 10
    assert read({**HYBRID, "layer_types": types}).blocks == read(HYBRID).blocks
    with pytest.raises(ConfigError, match="layer_types"):
        read({**HYBRID, "layer_types": types[::-1]})


def test_what_engines_disagree_about_is_refused() -> None:
    with pytest.raises(ConfigError, match="layer_group_size"):
        read({**HYBRID, "layer_group_size": 9})
    with pytest.raises(ConfigError, match="use_mla_nope"):
        read({**HYBRID, "use_mla_nope": True})
    with pytest.raises(ConfigError, match="use_sliding_window"):
        read({**MINI, "use_sliding_window": True})


def test_head_width_as_transformers_saves_it() -> None:
    """transformers overwrites head_dim with the rope width and keeps the real one beside it."""
    saved = {**HYBRID, "head_dim": 64, "linear_head_dim": 128, "linear_num_heads": 64}
    assert read(saved).blocks == read(HYBRID).blocks


def test_full_layers_of_ring_linear_are_grouped_query() -> None:
    ring = {key: value for key, value in HYBRID.items() if key not in ("kv_lora_rank", "qk_rope_head_dim")}
    assert read({**ring, "model_type": "bailing_moe_linear", "num_key_value_heads": 8}).layer_counts() == {
        "lightning": 70, "full": 10,
    }  # fmt: skip
    with pytest.raises(MissingField, match="kv_lora_rank"):
        read(ring)


def test_text_part_of_a_multimodal_config() -> None:
    nested = {"model_type": "bailing_moe_v3_vl", "vision_config": {"depth": 2}, "text_config": HYBRID}
    assert read(nested).blocks == read(HYBRID).blocks
    assert read(nested).towers == ("vision_config",)
