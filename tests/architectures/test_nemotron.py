"""Nemotron-H and 3 in both spellings, their log figures, and the searched Llama-Nemotron."""

from typing import Any

import pytest

from kit import bundled, read
from kvplan.dtypes import Dtypes
from kvplan.errors import ConfigError, MissingField, PlacementError

HYBRID: dict[str, Any] = {
    "model_type": "nemotron_h", "hidden_size": 1024, "hybrid_override_pattern": "M-M*E", "num_hidden_layers": 5,
    "num_attention_heads": 8, "num_key_value_heads": 2, "head_dim": 128, "mamba_num_heads": 16, "mamba_head_dim": 64,
    "ssm_state_size": 128, "n_groups": 8, "conv_kernel": 4, "expand": 2, "chunk_size": 128,
    "mamba_hidden_act": "silu", "mamba_ssm_cache_dtype": "float32", "sliding_window": None,
}  # fmt: skip
SEARCHED: dict[str, Any] = {
    "model_type": "nemotron-nas", "hidden_size": 8192, "num_attention_heads": 64, "num_key_value_heads": None,
    "num_hidden_layers": 3,
    "block_configs": [
        {"attention": {"n_heads_in_group": 8, "no_op": False, "replace_with_linear": False}},
        {"attention": {"n_heads_in_group": 16, "no_op": False}},
        {"attention": {"n_heads_in_group": None, "no_op": True}},
    ],
}  # fmt: skip


def test_pattern_and_list_say_the_same_and_the_list_gives_the_depth() -> None:
    listed = {
        key: value for key, value in HYBRID.items() if key not in ("hybrid_override_pattern", "num_hidden_layers")
    }
    for names in (["mamba", "mlp", "mamba", "attention", "moe"],
                  ["linear_attention", "mlp", "linear_attention", "full_attention", "moe"]):  # fmt: skip
        assert read({**listed, "layers_block_type": names}).blocks == read(HYBRID).blocks
    assert read(HYBRID).layer_counts() == {"mamba2": 2, "full": 1, "none": 2}


@pytest.mark.parametrize(
    ("change", "field"),
    [
        ({"hybrid_override_pattern": "M-MxE"}, "hybrid_override_pattern"),
        ({"num_hidden_layers": 6}, "num_hidden_layers"),
        ({"sliding_window": 4096}, "sliding_window"),
        ({"mamba_num_heads": "16"}, "mamba_num_heads"),
        ({"head_dim": None}, "head_dim"),
    ],
)
def test_what_is_refused(change: dict[str, Any], field: str) -> None:
    with pytest.raises(ConfigError, match=field):
        read({**HYBRID, **change})


def test_the_older_name_of_the_head_width() -> None:
    older = {key: value for key, value in HYBRID.items() if key != "head_dim"}
    assert read({**older, "attention_head_dim": 128}).blocks == read(HYBRID).blocks


def test_a_prediction_block_of_attention_and_experts() -> None:
    model = read({**HYBRID, "num_nextn_predict_layers": 1, "mtp_hybrid_override_pattern": "*E"})
    assert [layer.kind for layer in model.mtp] == ["full"]
    assumed = read({**HYBRID, "num_nextn_predict_layers": 1})
    assert assumed.mtp == model.mtp
    assert "mtp_layers_block_type = attention, moe" in assumed.defaults


def test_the_mamba_page_of_nano_9b_v2() -> None:
    """AgileRL's test of vLLM: 5,316,608 B for one layer, state in fp32."""
    layer = next(layer for layer in bundled("nemotron-nano-9b-v2").mixers() if layer.kind == "mamba2")
    assert sum(tensor.bytes(1) for tensor in layer.stored(Dtypes(state="fp32"))) == 5_316_608


@pytest.mark.parametrize(
    ("name", "attention", "mamba", "kib_per_token"),
    [
        ("nemotron-3-super-120b-a12b", 8, 40, 8),
        ("nemotron-3-nano-30b-a3b", 6, 23, 6),
        ("nemotron-3-nano-4b", 4, 21, 16),
        ("nemotron-h-47b", 5, 45, 20),
    ],
)
def test_layers_and_kib_per_token_of_the_architecture_gallery(
    name: str, attention: int, mamba: int, kib_per_token: int
) -> None:
    model = bundled(name)
    counts = model.layer_counts()
    assert (counts["full"], counts["mamba2"]) == (attention, mamba)
    assert sum(tensor.slope(1) for layer in model.mixers() for tensor in layer.stored(Dtypes())) == kib_per_token << 10


def test_searched_layers_have_their_own_groups_or_no_attention() -> None:
    model = read(SEARCHED)
    assert model.layer_counts() == {"full": 2, "none": 1}
    keys = [layer.stored(Dtypes())[0].shape for layer in model.mixers()]
    assert keys == [(8, 128), (4, 128)]


@pytest.mark.parametrize("key", ["window_length", "num_sink_tokens", "sparsify"])
def test_searched_attention_that_keeps_less_is_refused(key: str) -> None:
    blocks = [{"attention": {"n_heads_in_group": 8, "no_op": False, key: 4}}] * 3
    with pytest.raises(ConfigError, match=key):
        read({**SEARCHED, "block_configs": blocks})


@pytest.mark.parametrize("blocks", [[], "x", [1, 2, 3], [{"attention": 7}] * 3, [{}] * 3])
def test_malformed_searched_blocks(blocks: Any) -> None:
    with pytest.raises(ConfigError, match="block_configs"):
        read({**SEARCHED, "block_configs": blocks})


def test_a_group_size_is_needed() -> None:
    with pytest.raises(MissingField, match="n_heads_in_group"):
        read({**SEARCHED, "block_configs": [{"attention": {"no_op": False}}] * 3})


def test_eight_groups_split_over_eight_ranks_and_no_further() -> None:
    """vLLM and SGLang assert that tp divides the groups, unless there is one alone."""
    layer = next(layer for layer in bundled("nemotron-h-56b").mixers() if layer.kind == "mamba2")
    conv = next(tensor for tensor in layer.on_rank(8).stored(Dtypes()) if tensor.role == "conv")
    assert conv.shape == (3, (256 * 64 + 2 * 8 * 256) // 8)
    with pytest.raises(PlacementError, match="groups 8"):
        layer.on_rank(16)
