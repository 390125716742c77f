"""Jamba, Granite, Bamba, Falcon-H1, Falcon Mamba, Mamba, RWKV-7, LFM2, Zamba2: traps and counts from outside."""

from typing import Any

import pytest

from kit import read
from kvplan.dtypes import Dtypes
from kvplan.errors import ConfigError, MissingField
from kvplan.layers.mamba import Mamba1, Mamba2
from kvplan.model import Model
from kvplan.sources.bundled import from_profile

JAMBA: dict[str, Any] = {
    "model_type": "jamba", "num_hidden_layers": 32, "hidden_size": 4096, "num_attention_heads": 32,
    "num_key_value_heads": 8, "attn_layer_period": 8, "attn_layer_offset": 4, "mamba_expand": 2, "mamba_d_state": 16,
    "mamba_d_conv": 4,
}  # fmt: skip
GRANITE: dict[str, Any] = {
    "model_type": "granitemoehybrid", "num_hidden_layers": 3, "hidden_size": 1536, "num_attention_heads": 12,
    "num_key_value_heads": 4, "layer_types": ["mamba", "attention", "mamba"], "mamba_d_state": 128,
    "mamba_n_groups": 1, "mamba_d_head": 64, "mamba_expand": 2, "mamba_d_conv": 4, "mamba_n_heads": 48,
    "mamba_chunk_size": 256,
}  # fmt: skip
FALCON: dict[str, Any] = {
    "model_type": "falcon_h1", "head_dim": 128, "mamba_d_state": 256, "mamba_d_conv": 4, "mamba_expand": 2,
    "num_hidden_layers": 2, "hidden_size": 3072, "num_attention_heads": 12, "num_key_value_heads": 2,
    "mamba_n_groups": 1, "mamba_n_heads": 24, "mamba_d_head": 128, "mamba_d_ssm": 3072, "attn_layer_indices": None,
}  # fmt: skip
LFM: dict[str, Any] = {
    "model_type": "lfm2", "num_hidden_layers": 4, "hidden_size": 2048, "num_attention_heads": 32,
    "num_key_value_heads": 8, "conv_L_cache": 3, "full_attn_idxs": [2], "conv_dim": 2048, "conv_dim_out": 2048,
    "num_heads": 32,
}  # fmt: skip
LFM_MOE = {
    "model_type": "lfm2_moe", "num_hidden_layers": 24, "intermediate_size": 7168, "moe_intermediate_size": 1792,
    "num_dense_layers": 2, "num_experts": 32, "num_experts_per_tok": 4, "vocab_size": 65536, "full_attn_idxs": None,
    "layer_types": ["full_attention" if number in (2, 6, 10, 14, 18, 21) else "conv" for number in range(24)],
}  # fmt: skip


def params(model: Model) -> int:
    assert model.weights is not None, model.weights_missing
    return sum(weight.params for part in (*model.weights.blocks, model.weights.outer) for weight in part)


@pytest.mark.parametrize("field", ["attn_layer_offset", "mamba_expand", "mamba_d_state", "mamba_d_conv"])
def test_jamba_takes_nothing_from_class_defaults(field: str) -> None:
    with pytest.raises(MissingField, match=field):
        read({**JAMBA, field: None})


def test_jamba_offsets_count_from_zero() -> None:
    kinds = [block[0].kind for block in read(JAMBA).blocks]
    assert [number for number, kind in enumerate(kinds) if kind == "full"] == [4, 12, 20, 28]
    with pytest.raises(ConfigError, match="attn_layer_offset"):
        read({**JAMBA, "attn_layer_offset": 8})


def test_granite_without_mamba_ignores_the_mamba_keys_it_ships() -> None:
    model = read({**GRANITE, "layer_types": ["attention"] * 3, "mamba_d_state": 256, "mamba_d_head": "auto"})
    assert model.layer_counts() == {"full": 3}


def test_granite_automatic_head_width_and_missing_list() -> None:
    assert read({**GRANITE, "mamba_d_head": "auto"}).blocks == read(GRANITE).blocks
    with pytest.raises(MissingField, match="layer_types"):
        read({**GRANITE, "layer_types": None})
    with pytest.raises(ConfigError, match="mamba_n_heads"):
        read({**GRANITE, "mamba_n_heads": 40})


def test_granite_h_small_under_tp4_widens_its_one_group() -> None:
    """vLLM mamba_utils.extra_groups_for_head_shards: a convolution row of 2,304 elements, not 2,112."""
    model = from_profile("granite-4.0-h-small")
    assert model is not None
    layer = next(layer for layer in model.mixers() if layer.kind == "mamba2")
    conv = next(tensor for tensor in layer.on_rank(4).stored(Dtypes()) if tensor.role == "conv")
    assert conv.shape == (3, 2304)


@pytest.mark.parametrize(
    ("config", "published"),
    [
        (
            {"model_type": "granite", "hidden_size": 4096, "num_hidden_layers": 40, "num_attention_heads": 32,
             "num_key_value_heads": 8, "intermediate_size": 12800, "vocab_size": 49155, "tie_word_embeddings": True},
            8_170_848_256,
        ),
        (
            {"model_type": "granitemoe", "hidden_size": 1536, "num_hidden_layers": 32, "num_attention_heads": 24,
             "num_key_value_heads": 8, "intermediate_size": 512, "num_local_experts": 40, "num_experts_per_tok": 8,
             "vocab_size": 49155, "tie_word_embeddings": True},
            3_298_793_472,
        ),
        (
            {"model_type": "mamba", "hidden_size": 768, "intermediate_size": 1536, "num_hidden_layers": 24,
             "state_size": 16, "conv_kernel": 4, "expand": 2, "time_step_rank": 48, "vocab_size": 50280},
            129_135_360,
        ),
        (LFM | LFM_MOE, 8_339_929_856),
    ],
    ids=["granite-3.1-8b", "granite-3.0-3b-a800m", "mamba-130m", "LFM2-8B-A1B"],
)  # fmt: skip
def test_parameters_as_the_hub_states_them(config: dict[str, Any], published: int) -> None:
    """The totals on these checkpoints' hub pages."""
    assert params(read(config)) == published


def test_bamba_names_its_attention_layers() -> None:
    config = {key: value for key, value in GRANITE.items() if key != "layer_types"} | {"model_type": "bamba"}
    model = read({**config, "attn_layer_indices": [1]})
    assert [block[0].kind for block in model.blocks] == ["mamba2", "full", "mamba2"]
    with pytest.raises(ConfigError, match="attn_layer_indices"):
        read({**config, "attn_layer_indices": [3]})


def test_falcon_h1_holds_both_mixers_and_its_own_inner_width() -> None:
    model = read(FALCON)
    assert [layer.kind for layer in model.blocks[0]] == ["full", "mamba2"]
    assert model.blocks[0][1] == Mamba2(24, 128, 256, 1, 4)
    with pytest.raises(ConfigError, match="attn_layer_indices"):
        read({**FALCON, "attn_layer_indices": [0]})


def test_falcon_mamba_ships_an_expand_that_it_does_not_use() -> None:
    model = read(
        {"model_type": "falcon_mamba", "num_hidden_layers": 64, "hidden_size": 4096, "intermediate_size": 8192,
         "state_size": 16, "conv_kernel": 4, "expand": 16}
    )  # fmt: skip
    assert model.blocks[0] == (Mamba1(8192, 16, 4),)
    assert model.num_attention_heads == 0


def test_mamba2_heads_have_to_fill_the_inner_width() -> None:
    config = {"model_type": "mamba2", "num_hidden_layers": 2, "hidden_size": 4096, "num_heads": 128, "head_dim": 64,
              "state_size": 128, "n_groups": 8, "conv_kernel": 4, "expand": 2, "chunk_size": 256}  # fmt: skip
    assert read(config).layer_counts() == {"mamba2": 2}
    with pytest.raises(ConfigError, match="num_heads"):
        read({**config, "num_heads": 64})


def test_rwkv_with_attention_or_wider_values_is_refused() -> None:
    config: dict[str, Any] = {"model_type": "rwkv7", "num_hidden_layers": 2, "hidden_size": 2560, "head_dim": 64}
    assert read(config | {"value_dim": [2560, 2560], "attn": None}).layer_counts() == {"rwkv7": 2}
    with pytest.raises(ConfigError, match="attn"):
        read(config | {"attn": {"layers": [1]}})
    with pytest.raises(ConfigError, match="value_dim"):
        read(config | {"value_dim": [2560, 5120]})
    with pytest.raises(ConfigError, match="head_dim"):
        read(config | {"head_dim": 48})


def test_lfm_index_list_and_type_list_say_the_same() -> None:
    listed = {key: value for key, value in LFM.items() if key != "full_attn_idxs"}
    assert read({**listed, "layer_types": ["conv", "conv", "full_attention", "conv"]}).blocks == read(LFM).blocks
    assert read(LFM).layer_counts() == {"short_conv": 3, "full": 1}
    with pytest.raises(MissingField, match="full_attn_idxs"):
        read(listed)
    with pytest.raises(ConfigError, match="full_attn_idxs"):
        read({**listed, "full_attn_idxs": [4]})


def test_zamba2_shares_weights_and_not_caches() -> None:
    model = read(
        {"model_type": "zamba2", "hidden_size": 2560, "num_hidden_layers": 3, "num_attention_heads": 32,
         "num_key_value_heads": 32, "attention_head_dim": 160, "n_mamba_heads": 80, "mamba_headdim": 64,
         "mamba_expand": 2, "mamba_d_state": 64, "mamba_ngroups": 1, "mamba_d_conv": 4,
         "layers_block_type": ["mamba", "hybrid", "hybrid"]}
    )  # fmt: skip
    assert model.layer_counts() == {"mamba2": 3, "full": 2}
    assert model.blocks[1][1] == Mamba2(80, 64, 64, 1, 4)


@pytest.mark.parametrize("family", [JAMBA, GRANITE, FALCON, LFM], ids=["jamba", "granite", "falcon_h1", "lfm2"])
def test_an_unknown_window_is_refused_in_every_family(family: dict[str, Any]) -> None:
    with pytest.raises(ConfigError, match="attention_window"):
        read({**family, "attention_window": 4096})
