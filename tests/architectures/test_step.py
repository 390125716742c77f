"""Step3, Step-3.5 and Step-3.7 Flash against tensor counts of their checkpoints."""

from typing import Any

import pytest

from kit import bundled, held, params, read
from kvplan.errors import ConfigError, MissingField

STEP3: dict[str, Any] = {
    "model_type": "step3_text", "num_hidden_layers": 61, "num_attention_heads": 64, "num_attention_groups": 1,
    "head_dim": 256,
}  # fmt: skip
TYPES = ["full_attention", "sliding_attention", "sliding_attention", "sliding_attention"] * 12
FLASH: dict[str, Any] = {
    "model_type": "step3p5", "num_hidden_layers": 45, "num_attention_heads": 64, "num_attention_groups": 8,
    "head_dim": 128, "sliding_window": 512, "layer_types": TYPES[:45],
}  # fmt: skip


def test_tensor_counts() -> None:
    """Step3 with its vision tower, Step-3.5 Flash with three MTP blocks."""
    assert params(bundled("step3")) == 320_969_912_832
    assert params(bundled("step-3.5-flash")) == 199_384_301_376


def test_step3_keeps_one_head() -> None:
    """Scraped dims call the 64 query heads num_key_value_heads; the cache has one of width 256."""
    assert held(bundled("step3"), 1) == 62_464
    assert read({**STEP3, "num_key_value_heads": 64}).blocks == read(STEP3).blocks
    with pytest.raises(MissingField, match="num_attention_groups"):
        read({**{k: v for k, v in STEP3.items() if k != "num_attention_groups"}, "num_key_value_heads": 64})


@pytest.mark.parametrize("name", ["step-3.5-flash", "step-3.7-flash"])
def test_windows_in_three_layers_of_four(name: str) -> None:
    model = bundled(name)
    assert model.layer_counts() == {"full": 12, "swa": 33}
    assert held(model, 100_001) - held(model, 100_000) == 49_152
    assert held(model, 512) == 512 * 45 * 4_096
    assert held(model, 513) == 513 * 49_152 + 69_206_016
    assert [layer.kind for layer in model.mtp] == ["swa"] * 3


def test_entries_of_mtp_layers_are_cut() -> None:
    longer = read({**FLASH, "layer_types": TYPES, "num_nextn_predict_layers": 3})
    assert longer.blocks == read(FLASH).blocks
    assert [layer.kind for layer in longer.mtp] == ["swa"] * 3
    with pytest.raises(ConfigError, match="layer_types"):
        read({**FLASH, "layer_types": TYPES[:44]})


def test_spellings() -> None:
    renamed = {key: value for key, value in FLASH.items() if key != "num_attention_groups"}
    assert read({**renamed, "num_key_value_heads": 8, "model_type": "step3p7"}).blocks == read(FLASH).blocks
    nested = {"model_type": "step3p7", "text_config": FLASH}
    assert read(nested).blocks == read(FLASH).blocks


def test_settings_of_sliding_layers() -> None:
    usual = {"num_attention_heads": 96, "num_attention_groups": 8, "head_dim": 128}
    assert read({**FLASH, "attention_other_setting": usual}).blocks == read(FLASH).blocks
    for key, other in (("num_attention_groups", 4), ("head_dim", 64)):
        with pytest.raises(ConfigError, match=f"attention_other_setting.{key}"):
            read({**FLASH, "attention_other_setting": usual | {key: other}})


def test_query_heads_of_sliding_layers_are_never_filled_in() -> None:
    sized = FLASH | {
        "hidden_size": 4096, "intermediate_size": 11264, "moe_intermediate_size": 1280, "num_experts": 288,
        "share_expert_dim": 1280, "first_k_dense_replace": 3, "vocab_size": 128896,
    }  # fmt: skip
    assert "attention_other_setting" in read(sized).weights_missing
    assert params(read({**sized, "num_sliding_attention_heads": 96})) == 199_384_301_376 - 2_428_171_008
