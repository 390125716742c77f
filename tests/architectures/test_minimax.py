"""MiniMax Text-01 to M3 against tensor counts of their checkpoints and engine figures."""

from typing import Any

import pytest

from kit import bundled, held, params, read
from kvplan.dtypes import Dtypes
from kvplan.errors import ConfigError, MissingField

TEXT: dict[str, Any] = {
    "model_type": "minimax_text_01", "num_hidden_layers": 8, "num_attention_heads": 64, "num_key_value_heads": 8,
    "head_dim": 128, "attn_type_list": [0, 0, 0, 0, 0, 0, 0, 1],
}  # fmt: skip
M3: dict[str, Any] = {
    "model_type": "minimax_m3", "num_hidden_layers": 4, "num_attention_heads": 64, "num_key_value_heads": 4,
    "head_dim": 128, "num_mtp_modules": 7,
    "sparse_attention_config": {
        "sparse_attention_freq": [0, 0, 1, 1], "sparse_disable_index_value": [0, 0, 1, 1], "sparse_index_dim": 128,
        "sparse_num_index_heads": 4, "sparse_topk_blocks": 16, "sparse_block_size": 128, "sparse_init_block": 0,
        "sparse_local_block": 1, "sparse_score_type": "max", "use_sparse_attention": True,
    },
}  # fmt: skip
M2: dict[str, Any] = {
    "model_type": "minimax_m2", "num_hidden_layers": 3, "num_attention_heads": 48, "num_key_value_heads": 8,
    "head_dim": 128,
}  # fmt: skip


@pytest.mark.parametrize(
    ("name", "published"),
    [
        ("minimax-text-01", 456_089_655_296),
        ("minimax-m2.5", 228_689_764_864),
        ("minimax-m2.7", 228_689_764_864),
        ("minimax-m3", 427_040_140_160),
    ],
)
def test_tensor_counts(name: str, published: int) -> None:
    """None of these checkpoints ships the MTP modules that its config announces."""
    assert params(bundled(name)) == published
    assert not bundled(name).mtp


def test_lightning_and_softmax() -> None:
    model = bundled("minimax-text-01")
    assert model.layer_counts() == {"lightning": 70, "full": 10}
    assert held(model, 1) - held(model, 0) == 40_960
    assert held(model, 0, state="bf16") == 146_800_640
    assert read({**TEXT, "model_type": "minimax_m1"}).blocks == read(TEXT).blocks


def test_layer_types_of_transformers() -> None:
    types = ["linear_attention"] * 7 + ["full_attention"]
    saved = {key: value for key, value in TEXT.items() if key != "attn_type_list"} | {"model_type": "minimax"}
    assert read({**saved, "layer_types": types}).blocks == read(TEXT).blocks
    with pytest.raises(MissingField, match="attn_type_list"):
        read(saved)
    with pytest.raises(ConfigError, match="attn_type_list"):
        read({**TEXT, "attn_type_list": [0, 2] * 4})


def test_pool_of_m25_in_vllm() -> None:
    """TP4, bf16: 23.62 GiB a rank hold 399,424 tokens."""
    per_rank = sum(t.bytes(1) for layer in bundled("minimax-m2.5").mixers() for t in layer.on_rank(4).stored(Dtypes()))
    assert round(399_424 * per_rank / 2**30, 2) == 23.62


def test_m2_has_softmax_attention_alone() -> None:
    assert read({**M2, "attn_type_list": [1, 1, 1]}).blocks == read(M2).blocks
    with pytest.raises(ConfigError, match="attn_type_list"):
        read({**M2, "attn_type_list": [1, 0, 1]})


def test_one_index_key_for_all_heads() -> None:
    """60 × 2,048 B of keys and values, and 57 × 256 B of index keys: one shared vector, not one for each of 4 heads."""
    model = bundled("minimax-m3")
    assert model.layer_counts() == {"full": 3, "gqa_index": 57}
    assert held(model, 1) == 137_472
    assert held(model, 1, kv="fp8") == 68_736


def test_nested_and_flat_say_the_same() -> None:
    nested = {"model_type": "minimax_m3_vl", "text_config": {k: v for k, v in M3.items() if k != "model_type"}}
    assert read(nested).blocks == read(M3).blocks
    flat = {key: value for key, value in M3.items() if key != "sparse_attention_config"}
    flat |= {"layer_types": ["full_attention"] * 2 + ["minimax_m3_sparse"] * 2, "index_head_dim": 128}
    flat |= {"index_topk_blocks": 16, "index_local_blocks": 1, "index_block_size": 128, "index_n_heads": 4}
    assert read({**flat, "model_type": "minimax_m3_vl_text"}).blocks == read(M3).blocks


def test_an_index_that_keeps_values_is_refused() -> None:
    values = M3["sparse_attention_config"] | {"sparse_disable_index_value": [0, 0, 1, 0]}
    with pytest.raises(ConfigError, match="sparse_disable_index_value"):
        read({**M3, "sparse_attention_config": values})
    with pytest.raises(MissingField, match="sparse_attention_config"):
        read({key: value for key, value in M3.items() if key != "sparse_attention_config"})
