"""GLM-4.5 to GLM-5.3 against tensor counts of their checkpoints and engine figures."""

from typing import Any

import pytest

from kit import bundled, held, params, read
from kvplan.dtypes import Dtypes
from kvplan.errors import ConfigError, MissingField

DSA: dict[str, Any] = {
    "model_type": "glm_moe_dsa", "num_hidden_layers": 11, "num_attention_heads": 64, "kv_lora_rank": 512,
    "qk_rope_head_dim": 64, "index_head_dim": 128, "index_n_heads": 32, "index_topk": 2048,
    "num_nextn_predict_layers": 1,
}  # fmt: skip
OWNERS = [True, True, True, False, False, False, True, False, False, False, True]
DENSE: dict[str, Any] = {
    "model_type": "glm4", "num_hidden_layers": 40, "num_attention_heads": 32, "num_key_value_heads": 2,
    "head_dim": 128, "hidden_size": 4096, "intermediate_size": 13696, "vocab_size": 151552,
}  # fmt: skip


@pytest.mark.parametrize(
    ("name", "published"),
    [
        ("glm-4.5", 358_337_791_296),
        ("glm-4.5-air", 110_468_824_832),
        ("glm-5", 753_864_139_008),
        ("glm-5.1", 753_864_139_008),
        ("glm-5.2", 753_329_940_480),
        ("glm-5.3", 753_329_940_480),
    ],
)
def test_tensor_counts_with_mtp(name: str, published: int) -> None:
    assert params(bundled(name)) == published


def test_glm_46_ships_no_second_embedding_and_head() -> None:
    """GLM-4.6 has the geometry of 4.5 and 356,785,898,816 elements: two tables of 151,552 × 5,120 fewer."""
    model = bundled("glm-4.5")
    assert model.weights is not None
    copies = [w for w in model.weights.mtp if w.role in ("embedding", "head")]
    assert params(model) - sum(weight.params for weight in copies) == 356_785_898_816


def test_bytes_a_token() -> None:
    """LLM Architecture Gallery: 368 KiB and 184 KiB."""
    assert held(bundled("glm-4.5"), 1) == 368 << 10
    assert held(bundled("glm-4.5-air"), 1) == 184 << 10


def test_pool_of_glm_51_in_vllm() -> None:
    """TP8, fp8_ds_mla: 19.55 GiB a rank hold 341,504 tokens; with the MTP layer 18.51 GiB hold 319,232."""
    model = bundled("glm-5.1")
    row = held(model, 1, kv="fp8_ds_mla")
    assert round(341_504 * row / 2**30, 2) == 19.55
    extra = sum(tensor.bytes(1) for layer in model.mtp for tensor in layer.stored(Dtypes(kv="fp8_ds_mla")))
    assert round(319_232 * (row + extra) / 2**30, 2) == 18.51


def test_index_share() -> None:
    """Only 21 of 78 layers keep index keys from 5.2 on: 78 × 1,152 + 21 × 132 B a token."""
    for name in ("glm-5.2", "glm-5.3"):
        assert held(bundled(name), 1) == 92_628
        assert held(bundled(name), 1, kv="fp8_ds_mla") == 53_940
    assert held(bundled("glm-5"), 1) == 100_152


@pytest.mark.parametrize(
    "spelling",
    [
        {"indexer_types": ["full" if owns else "shared" for owns in OWNERS] + ["full"]},
        {"index_topk_pattern": "".join("F" if owns else "S" for owns in OWNERS)},
        {"index_topk_freq": 4, "index_skip_topk_offset": 3},
    ],
)
def test_three_spellings_of_index_share(spelling: dict[str, Any]) -> None:
    model = read(DSA | spelling)
    assert [layer.owns_index for layer in model.mixers()] == OWNERS  # type: ignore[attr-defined]
    assert all(layer.owns_index for layer in model.mtp)  # type: ignore[attr-defined]


def test_index_share_is_checked() -> None:
    with pytest.raises(ConfigError, match="indexer_types"):
        read({**DSA, "indexer_types": ["full"] * 10})
    with pytest.raises(ConfigError, match="indexer_types"):
        read({**DSA, "indexer_types": ["half"] * 11})


def test_head_dim_of_latent_models_is_not_the_caches() -> None:
    assert read({**DSA, "head_dim": 64}).blocks == read({**DSA, "head_dim": 192}).blocks


def test_dense_glm4() -> None:
    """GLM-4-9B-0414 has 9,400,279,040 elements."""
    model = read({**DENSE, "attention_bias": True})
    assert held(model, 1) == 40 * 2 * 2 * 128 * 2
    assert params(model) == 9_400_279_040
    assert params(read(DENSE)) == params(model)
    assert read({**DENSE, "head_dim": None}).blocks == model.blocks


def test_flash_is_latent() -> None:
    """GLM-4.7-Flash keeps 47 × 1,152 B a token."""
    flash = {key: value for key, value in DSA.items() if not key.startswith("index")}
    assert held(read({**flash, "model_type": "glm4_moe_lite", "num_hidden_layers": 47}), 1) == 47 * 1_152


def test_memory_fields_alone_are_enough() -> None:
    model = read(DSA)
    assert model.weights is None
    with pytest.raises(MissingField, match="kv_lora_rank"):
        read({key: value for key, value in DSA.items() if key != "kv_lora_rank"})
