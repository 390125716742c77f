"""Hunyuan, Trinity, Cohere, EXAONE, gpt-oss, Inkling: shared and windowed layers, counts from outside."""

from typing import Any

import pytest

from kit import read
from kvplan.dtypes import Dtypes
from kvplan.errors import ConfigError, KvplanError, MissingField
from kvplan.model import Model

HUNYUAN = {
    "model_type": "hunyuan", "hidden_size": 6400, "num_attention_heads": 80, "num_key_value_heads": 8,
    "num_hidden_layers": 64, "num_experts": 16, "moe_topk": 1, "cla_share_factor": 2,
}  # fmt: skip
TRINITY_NANO = {
    "model_type": "afmoe", "global_attn_every_n_layers": 4, "head_dim": 128, "hidden_size": 1024,
    "intermediate_size": 3072, "max_position_embeddings": 131072, "moe_intermediate_size": 256, "n_group": 1,
    "num_attention_heads": 8, "num_dense_layers": 2, "num_expert_groups": 1, "num_experts": 128,
    "num_experts_per_tok": 8, "num_hidden_layers": 56, "num_key_value_heads": 2, "num_limited_groups": 1,
    "num_shared_experts": 1, "sliding_window": 2048, "topk_group": 1, "vocab_size": 200192,
}  # fmt: skip
EXAONE = {
    "model_type": "exaone4", "head_dim": 128, "hidden_size": 5120, "intermediate_size": 27392,
    "max_position_embeddings": 131072, "num_attention_heads": 40, "num_hidden_layers": 64, "num_key_value_heads": 8,
    "sliding_window": 4096, "sliding_window_pattern": "LLLG", "vocab_size": 102400,
}  # fmt: skip
COMMAND = {
    "model_type": "cohere2", "head_dim": 128, "hidden_size": 4096, "intermediate_size": 14336, "layer_switch": 4,
    "num_attention_heads": 32, "num_hidden_layers": 32, "num_key_value_heads": 8, "rotary_pct": 1.0,
    "order_of_interleaved_layers": "local_attn_first", "sliding_window": 4096, "vocab_size": 256000,
}  # fmt: skip
INKLING = {
    "model_type": "inkling_model", "num_hidden_layers": 66, "hidden_size": 6144, "num_attention_heads": 64,
    "num_key_value_heads": 8, "head_dim": 128, "swa_num_attention_heads": 64, "swa_num_key_value_heads": 16,
    "swa_head_dim": 128, "sliding_window_size": 512, "sconv_kernel_size": 4, "use_sconv": True,
    "local_layer_ids": [number for number in range(66) if (number + 1) % 6],
}  # fmt: skip
GPT_OSS = {
    "model_type": "gpt_oss", "num_hidden_layers": 24, "num_attention_heads": 64, "num_key_value_heads": 8,
    "head_dim": 64, "sliding_window": 128,
}  # fmt: skip


def total_params(model: Model) -> int:
    assert model.weights is not None, model.weights_missing
    parts = [*model.weights.blocks, model.weights.outer, model.weights.mtp]
    return sum(weight.params for part in parts for weight in part)


def stored_bytes(model: Model, tokens: int, role: str | None = None) -> int:
    tensors = [tensor for layer in model.mixers() for tensor in layer.stored(Dtypes())]
    return sum(tensor.bytes(tokens) for tensor in tensors if role in (None, tensor.role))


def global_layers(config: dict[str, Any]) -> list[int]:
    return [number for number, block in enumerate(read(config).blocks) if block[0].kind == "full"]


def test_cross_layer_attention_counts_only_where_it_is_in_use() -> None:
    """Hunyuan-Large shares each cache between two layers: 32 effective ones. A13B ships the factor and no use of it."""
    row = 8 * (80 + 80) * 2
    assert stored_bytes(read(HUNYUAN), 1) == 64 * row
    assert stored_bytes(read(HUNYUAN | {"use_cla": False}), 1) == 64 * row
    assert stored_bytes(read(HUNYUAN | {"use_cla": True}), 1) == 32 * row


def test_hunyuan_configs_carry_ranks_of_a_latent_attention_they_do_not_have() -> None:
    ranks = {"kv_lora_rank": 512, "q_lora_rank": 1536, "qk_rope_head_dim": 64, "v_head_dim": 128, "use_mla": False}
    assert stored_bytes(read(HUNYUAN | ranks), 1) == stored_bytes(read(HUNYUAN), 1)
    with pytest.raises(ConfigError, match="use_mla"):
        read(HUNYUAN | ranks | {"use_mla": True})


def test_hunyuan_spells_the_head_width_in_two_ways() -> None:
    assert stored_bytes(read(HUNYUAN | {"attention_head_dim": 128}), 1) == 64 * 8 * (128 + 128) * 2


def test_trinity_globals_come_from_the_list_or_the_period() -> None:
    assert global_layers(TRINITY_NANO) == list(range(3, 56, 4))
    types = ["full_attention"] * 2 + ["sliding_attention"] * 54
    assert global_layers(TRINITY_NANO | {"layer_types": types}) == [0, 1]
    for field in ("global_attn_every_n_layers", "sliding_window"):
        with pytest.raises(MissingField, match=field):
            read(TRINITY_NANO | {field: None})


def test_command_r7b_keeps_every_fourth_layer_whole() -> None:
    assert global_layers(COMMAND) == list(range(3, 32, 4))
    assert global_layers(COMMAND | {"sliding_window_pattern": 2, "layer_switch": 2}) == list(range(1, 32, 2))
    with pytest.raises(ConfigError, match="layer_switch"):
        read(COMMAND | {"sliding_window_pattern": 2})


def test_exaone_patterns() -> None:
    assert global_layers(EXAONE) == list(range(3, 64, 4))
    assert global_layers(EXAONE | {"sliding_window_pattern": 4}) == list(range(3, 64, 4))
    assert global_layers(EXAONE | {"sliding_window": None}) == list(range(64))
    assert global_layers(EXAONE | {"sliding_window_pattern": "LLL"}) == [63]
    with pytest.raises(ConfigError, match="sliding_window_pattern"):
        read(EXAONE | {"sliding_window_pattern": "LLX"})


def test_gpt_oss_alternates_window_first() -> None:
    assert global_layers(GPT_OSS) == list(range(1, 24, 2))
    assert global_layers(GPT_OSS | {"layer_types": ["full_attention", "sliding_attention"] * 12}) == list(
        range(0, 24, 2)
    )


def test_inkling_keeps_four_convolution_tails_a_layer() -> None:
    model = read({"model_type": "inkling_mm_model", "text_config": INKLING})
    assert stored_bytes(model, 1 << 20, "kv") == 45_056 * (1 << 20) + 230_686_720
    one = 3 * 2 * (2 * 8 * 128 + 2 * 6144)
    assert stored_bytes(model, 1, "conv") == 11 * one + 55 * (one + 3 * 2 * 2 * 8 * 128)


@pytest.mark.parametrize(
    ("config", "published"),
    [
        (TRINITY_NANO, 6_120_003_328), (COMMAND, 8_028_033_024), (EXAONE, 32_003_216_384),
        (
            COMMAND
            | {"hidden_size": 12288, "intermediate_size": 36864, "num_hidden_layers": 64, "num_attention_heads": 96},
            111_057_580_032,
        ),
        (
            {
                "model_type": "cohere", "hidden_size": 12288, "intermediate_size": 33792, "num_hidden_layers": 64,
                "num_attention_heads": 96, "num_key_value_heads": 8, "use_qk_norm": True, "vocab_size": 256000,
            },
            103_810_674_688,
        ),
    ],
)  # fmt: skip
def test_parameters_of_other_checkpoints(config: dict[str, Any], published: int) -> None:
    """Exact counts of Trinity Nano, Command R7B, EXAONE 4.0 32B, Command A and Command R+."""
    assert total_params(read(config)) == published


@pytest.mark.parametrize(
    "config", [HUNYUAN, TRINITY_NANO, COMMAND, EXAONE, INKLING, GPT_OSS], ids=lambda c: c["model_type"]
)
@pytest.mark.parametrize("value", [True, -1, 0, 2.5, 1e300, "x", [], [None], [1], {}, {"a": 1}], ids=repr)
def test_any_json_type_in_any_field_is_one_clear_line(config: dict[str, Any], value: Any) -> None:
    for field in config:
        try:
            read(config | {field: value})
        except KvplanError as error:
            assert "\n" not in str(error)
