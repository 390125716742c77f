"""MiMo 7B and MiMo V2: windows, and values narrower than keys."""

from typing import Any

import pytest

from kit import bundled, held, params, read
from kvplan.errors import ConfigError, MissingField

V2: dict[str, Any] = {
    "model_type": "mimo_v2", "num_hidden_layers": 70, "num_attention_heads": 128, "num_key_value_heads": 8,
    "head_dim": 192, "v_head_dim": 128, "swa_num_key_value_heads": 8, "swa_head_dim": 192, "swa_v_head_dim": 128,
    "sliding_window": 128, "hybrid_layer_pattern": [0, 1, 1, 1, 1, 1, 1] * 10,
}  # fmt: skip


def test_mimo_7b() -> None:
    """7,833,409,536 elements with the MTP block; a window in the config that is switched off."""
    model = bundled("mimo-7b")
    assert params(model) == 7_833_409_536
    assert held(model, 1) == 147_456
    assert len(model.mtp) == 1


def test_mimo_v2_flash() -> None:
    """22.5 KiB a token grow, 217.5 KiB are held while the window fills."""
    model = bundled("mimo-v2-flash")
    assert model.layer_counts() == {"full": 9, "swa": 39}
    assert held(model, 1) == 222_720
    assert held(model, 1_001) - held(model, 1_000) == 23_040
    assert held(model, 128) - held(model, 127) == 222_720
    assert held(model, 129) - held(model, 128) == 23_040


def test_counts_of_mimo_v25_pro() -> None:
    """10 full and 60 window layers of 8 × (192 + 128): 51,200 B a token and 39,321,600 B of window."""
    model = read(V2)
    assert held(model, 10_000) == 10_000 * 51_200 + 39_321_600


def test_pattern_is_never_filled_in() -> None:
    with pytest.raises(MissingField, match="hybrid_layer_pattern"):
        read({**V2, "hybrid_layer_pattern": None})
    with pytest.raises(ConfigError, match="hybrid_layer_pattern"):
        read({**V2, "hybrid_layer_pattern": [0, 1] * 34})
    with pytest.raises(ConfigError, match="hybrid_layer_pattern"):
        read({**V2, "hybrid_layer_pattern": [0, 2] * 35})


def test_spellings_of_the_window() -> None:
    both = {**V2, "sliding_window_size": 128, "attention_chunk_size": 128, "swa_num_attention_heads": 128}
    assert read(both).blocks == read(V2).blocks
    types = ["full_attention" if kind == 0 else "sliding_attention" for kind in V2["hybrid_layer_pattern"]]
    listed = {key: value for key, value in V2.items() if key != "hybrid_layer_pattern"} | {"layer_types": types}
    assert read({**listed, "model_type": "mimo_v2_flash"}).blocks == read(V2).blocks


def test_a_window_that_is_switched_on_is_refused() -> None:
    dense = {
        "model_type": "mimo", "num_hidden_layers": 2, "num_attention_heads": 32, "num_key_value_heads": 8,
        "head_dim": 128, "sliding_window": 32768,
    }  # fmt: skip
    assert read({**dense, "use_sliding_window": False}).layer_counts() == {"full": 2}
    with pytest.raises(ConfigError, match="use_sliding_window"):
        read({**dense, "use_sliding_window": True})
