"""OLMo 2, 3, OLMoE and Hybrid."""

from typing import Any

import pytest

from kit import read
from kvplan.errors import ConfigError, MissingField, PlacementError
from kvplan.sources.bundled import from_profile

OLMO2_7B: dict[str, Any] = {
    "model_type": "olmo2", "hidden_size": 4096, "num_hidden_layers": 32, "num_attention_heads": 32,
    "num_key_value_heads": 32, "intermediate_size": 11008, "vocab_size": 100352, "tie_word_embeddings": False,
}  # fmt: skip


@pytest.mark.parametrize(
    ("extra", "published"),
    [
        ({}, 7_298_617_344),
        (
            {"model_type": "olmoe", "hidden_size": 2048, "num_hidden_layers": 16, "num_attention_heads": 16,
             "num_key_value_heads": 16, "intermediate_size": 1024, "num_experts": 64, "num_experts_per_tok": 8,
             "vocab_size": 50304},
            6_919_161_856,
        ),
    ],
    ids=["OLMo-2-1124-7B", "OLMoE-1B-7B-0924"],
)  # fmt: skip
def test_parameters_as_the_hub_states_them(extra: dict[str, Any], published: int) -> None:
    """The totals on these checkpoints' hub pages."""
    model = read({**OLMO2_7B, **extra})
    assert model.weights is not None
    assert sum(weight.params for part in (*model.weights.blocks, model.weights.outer) for weight in part) == published


def test_olmo3_needs_its_list_and_its_window() -> None:
    olmo3 = {**OLMO2_7B, "model_type": "olmo3", "sliding_window": 4096}
    with pytest.raises(MissingField, match="layer_types"):
        read(olmo3)
    with pytest.raises(MissingField, match="sliding_window"):
        read({**olmo3, "sliding_window": None, "layer_types": ["sliding_attention"] * 32})
    with pytest.raises(ConfigError, match="layer_types"):
        read({**olmo3, "layer_types": ["sliding_attention"] * 31})
    with pytest.raises(ConfigError, match="chunked_attention"):
        read({**olmo3, "layer_types": ["chunked_attention"] * 32})


def test_thirty_heads_do_not_split_over_eight_ranks() -> None:
    model = from_profile("olmo-hybrid-7b")
    assert model is not None
    for layer in model.mixers():
        with pytest.raises(PlacementError):
            layer.on_rank(8)
        assert layer.on_rank(6)
