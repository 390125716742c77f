"""LongCat Flash: two caches a layer."""

from typing import Any

import pytest

from kit import bundled, held, params, read
from kvplan.errors import ConfigError, MissingField

SMALL: dict[str, Any] = {
    "model_type": "longcat_flash", "num_layers": 28, "num_attention_heads": 64, "kv_lora_rank": 512,
    "qk_rope_head_dim": 64,
}  # fmt: skip


def test_tensor_count_with_mtp() -> None:
    assert params(bundled("longcat-flash")) == 561_862_880_256


def test_two_caches_a_layer() -> None:
    model = bundled("longcat-flash")
    assert len(model.blocks) == 28
    assert model.layer_counts() == {"mla": 56}
    assert held(model, 1) == 64_512
    assert len(model.mtp) == 1


@pytest.mark.parametrize("doubled", [28, 56])
def test_num_hidden_layers_counts_layers_or_attentions(doubled: int) -> None:
    assert read({**SMALL, "num_hidden_layers": doubled}).blocks == read(SMALL).blocks


def test_num_hidden_layers_alone_could_mean_either() -> None:
    with pytest.raises(MissingField, match="num_layers"):
        read({**{key: value for key, value in SMALL.items() if key != "num_layers"}, "num_hidden_layers": 28})
    with pytest.raises(ConfigError, match="num_hidden_layers"):
        read({**SMALL, "num_hidden_layers": 30})


def test_only_mla_is_modelled() -> None:
    assert read({**SMALL, "attention_method": "MLA", "mla_scale_kv_lora": True}).blocks == read(SMALL).blocks
    with pytest.raises(ConfigError, match="attention_method"):
        read({**SMALL, "attention_method": "MHA"})
