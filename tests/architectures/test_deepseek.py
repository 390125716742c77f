"""DeepSeek V2 to V4 against tensor counts of their checkpoints and figures that vLLM published."""

from typing import Any

import pytest

from kit import bundled, held, params, read, weights
from kvplan.dtypes import Dtypes
from kvplan.errors import ConfigError, MissingField
from kvplan.model import Model

V4: dict[str, Any] = {
    "model_type": "deepseek_v4", "num_hidden_layers": 4, "num_attention_heads": 64, "num_key_value_heads": 1,
    "head_dim": 512, "qk_rope_head_dim": 64, "index_head_dim": 128, "index_topk": 512, "index_n_heads": 64,
    "sliding_window": 128, "compress_ratios": [0, 128, 4, 128, 0], "num_nextn_predict_layers": 1,
}  # fmt: skip
MLA: dict[str, Any] = {
    "model_type": "deepseek_v3", "num_hidden_layers": 4, "num_attention_heads": 16, "kv_lora_rank": 512,
    "qk_rope_head_dim": 64,
}  # fmt: skip


def tiles(model: Model, *plain: str) -> int:
    """Scales of 128 × 128 fp8 tiles; `plain` names what the checkpoint leaves in bf16."""
    skipped = ("embedding", "head", "router", "norm")
    matrices = [w for w in weights(model) if len(w.shape) == 2 and w.role not in skipped]
    quantised = [w for w in matrices if not any(name in w.name for name in plain)]
    return sum(-(-w.shape[0] // 128) * -(-w.shape[1] // 128) * w.count for w in quantised)


@pytest.mark.parametrize(
    ("name", "published"),
    [
        ("deepseek-v2", 235_741_434_880),
        ("deepseek-v2-lite", 15_706_484_224),
        ("deepseek-v3", 684_489_845_504),
        ("deepseek-r1", 684_489_845_504),
        ("deepseek-v3.2", 685_355_329_792),
        ("deepseek-v4-flash", 290_944_616_402),
        ("deepseek-v4-pro", 1_598_839_674_782),
    ],
)
def test_tensor_counts_with_mtp(name: str, published: int) -> None:
    assert params(bundled(name)) == published


def test_the_decoder_of_v3_alone() -> None:
    """671,026,419,200 elements are in checkpoints that drop the MTP block (microsoft/MAI-DS-R1)."""
    assert params(bundled("deepseek-v3"), mtp=False) == 671_026_419_200


def test_some_published_counts_hold_the_scales() -> None:
    v3, v32 = bundled("deepseek-v3"), bundled("deepseek-v3.2")
    assert params(v3) + tiles(v3, "eh_proj") == 684_531_386_000
    assert params(v32) + tiles(v32, "eh_proj", "weights_proj") == 685_396_921_376


def test_bytes_of_v3() -> None:
    assert held(bundled("deepseek-v3"), 131_072) == 9_210_691_584


def test_a_block_of_v2_lite_in_vllm() -> None:
    """vLLM's offloading blog: 64 tokens take 1.90 MB (MiB)."""
    assert round(held(bundled("deepseek-v2-lite"), 64) / 2**20, 1) == 1.9


def test_sparse_index_of_v32() -> None:
    """132 B a key by default; vLLM's blog of V4 counts bf16 keys: 83.9 GiB at a million tokens."""
    model = bundled("deepseek-v3.2")
    assert held(model, 1) == 78_324
    assert held(model, 1, kv="fp8_ds_mla") == 48_068
    assert round(held(model, 1 << 20, index="bf16") / 2**30, 1) == 83.9
    assert model.layer_counts() == {"dsa": 61}


def growing(model: Model, tokens: int, **dtypes: Any) -> int:
    stored = (tensor for layer in model.mixers() for tensor in layer.stored(Dtypes(**dtypes)))
    return sum(tensor.bytes(tokens) for tensor in stored if tensor.grows)


def test_v4_pro_at_a_million_tokens() -> None:
    """vLLM blog of 2026-04-24: 9.62 GiB in bf16, 320.1 MiB of it in each layer of ratio 4."""
    model = bundled("deepseek-v4-pro")
    assert model.layer_counts() == {"csa": 30, "hca": 31}
    total = growing(model, 1 << 20)
    assert total / 2**30 == pytest.approx(9.62, abs=0.0051)
    csa = next(layer for layer in model.mixers() if layer.kind == "csa")
    one = sum(t.bytes(1 << 20) for t in csa.stored(Dtypes()) if t.grows) + csa.window * 1024  # type: ignore[attr-defined]
    assert one / 2**20 == pytest.approx(320.1, abs=0.051)


def test_v4_growth_and_fixed_part() -> None:
    flash, pro = bundled("deepseek-v4-flash"), bundled("deepseek-v4-pro")
    assert flash.layer_counts() == {"swa": 2, "csa": 21, "hca": 20}
    assert growing(flash, 128) == 128 * 6_880
    assert growing(pro, 128) == 128 * 9_848
    assert held(flash, 0) == 12_206_080
    assert held(pro, 0) == 18_710_528
    assert growing(pro, 1 << 20, kv="fp8_ds_mla", index="fp4") / (1 << 20) == pytest.approx(5_031.4375)


def test_v4_list_carries_the_mtp_entry() -> None:
    model = read(V4)
    assert [layer.kind for layer in model.mixers()] == ["swa", "hca", "csa", "hca"]
    assert [layer.kind for layer in model.mtp] == ["swa"]
    with pytest.raises(ConfigError, match="compress_ratios"):
        read({**V4, "compress_ratios": [0, 4]})
    with pytest.raises(ConfigError, match="compress_ratios"):
        read({**V4, "compress_ratios": [0, 2, 1, 0]})
    with pytest.raises(MissingField, match="compress_ratios"):
        read({key: value for key, value in V4.items() if key != "compress_ratios"})


def test_v4_as_transformers_saves_it() -> None:
    types = ["sliding_attention", *["heavily_compressed_attention", "compressed_sparse_attention"] * 2][:4]
    saved = {key: value for key, value in V4.items() if key not in ("compress_ratios", "qk_rope_head_dim")}
    saved |= {"layer_types": types, "partial_rotary_factor": 0.125}
    assert read(saved).blocks == read(V4).blocks
    assert read({**V4, "model_type": "deepseek_ref"}).blocks == read(V4).blocks
    with pytest.raises(ConfigError, match="compress_rates"):
        read({**saved, "compress_rates": {"compressed_sparse_attention": 8, "heavily_compressed_attention": 128}})


def test_query_width_does_not_matter_to_the_cache() -> None:
    plain = read(MLA)
    assert held(plain, 1) == 4 * 1_152
    assert read({**MLA, "q_lora_rank": 1536, "v_head_dim": 128, "num_key_value_heads": 16}).blocks == plain.blocks
    assert read({**MLA, "num_nextn_predict_layers": 2}).mtp == tuple(plain.mixers())[:2]


@pytest.mark.parametrize("missing", ["kv_lora_rank", "qk_rope_head_dim", "num_hidden_layers", "num_attention_heads"])
def test_a_missing_field_is_named(missing: str) -> None:
    with pytest.raises(MissingField, match=missing):
        read({key: value for key, value in MLA.items() if key != missing})


def test_what_would_change_the_cache_is_refused() -> None:
    assert read({**MLA, "layer_types": ["deepseek_sparse_attention"] * 4}).blocks == read(MLA).blocks
    with pytest.raises(ConfigError, match="layer_types"):
        read({**MLA, "layer_types": ["linear_attention"] * 4})
    with pytest.raises(ConfigError, match="sliding_window"):
        read({**MLA, "sliding_window": 4096})
    with pytest.raises(MissingField, match="index_head_dim"):
        read({**MLA, "index_topk": 2048})
