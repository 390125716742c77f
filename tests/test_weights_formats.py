"""Checkpoint formats: what each occupies, which modules are in it, and which configs are refused."""

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kit import small_moe as model
from kvplan.deployment import Layout
from kvplan.errors import ConfigError, KvplanError, UsageError
from kvplan.model import Model
from kvplan.weights import weigh
from kvplan.weights.formats import MXFP4, fp8_block, int_packed, nvfp4
from kvplan.weights.patterns import Patterns


@pytest.mark.parametrize(
    ("format_", "shape", "total"),
    [
        (MXFP4, (3072, 3584), 17_547_264 // 3),
        (nvfp4(), (64, 64), 2048 + 256 + 8),
        (fp8_block(128, 128), (256, 256), 65536 + 16),
        (fp8_block(128, 128), (130, 257), 130 * 257 + 2 * 3 * 4),
        (int_packed(4, 128, zeros=True), (64, 128), 4096 + 32 + 128),
        (int_packed(4, 128, zeros=True, index=True), (64, 128), 4096 + 32 + 128 + 512),
        (int_packed(4, 32, zeros=False, shape_record=True), (64, 128), 4096 + 512 + 16),
    ],
)
def test_formats_as_packages_write_them(format_: Any, shape: tuple[int, ...], total: int) -> None:
    """The totals of the tensors that test_sources_safetensors.py writes in each format."""
    assert format_.bytes(shape) == total


def quantised(**quantization: Any) -> Model:
    return model(quantization_config=quantization)


def by_role(model: Model, *roles: str, **options: Any) -> int:
    return sum(line.bytes for line in weigh(model, Layout(), **options).lines if line.role in roles)


EXPERTS = 5 * 24 * 3 * 256 * 128
ATTENTION = 5 * (2 * 256 * 512 + 2 * 256 * 128)


@pytest.mark.parametrize(
    ("quantization", "expert", "attention"),
    [
        ({"quant_method": "fp8", "weight_block_size": [128, 128]}, EXPERTS + 5 * 24 * 3 * 2 * 4, None),
        ({"quant_method": "mxfp4", "modules_to_not_convert": ["model.layers.*.self_attn", "lm_head"]},
         EXPERTS * 17 // 32, 2 * ATTENTION),
        ({"quant_method": "modelopt", "quant_algo": "NVFP4", "ignore": ["lm_head", "model.layers.*.self_attn*"]},
         EXPERTS * 9 // 16 + 360 * 8, 2 * ATTENTION),
        ({"quant_method": "awq", "bits": 4, "group_size": 128, "zero_point": True},
         EXPERTS * (128 * 4 + 20) // 1024, None),
        ({"quant_method": "compressed-tensors", "format": "mxfp4-pack-quantized",
          "ignore": ["lm_head", "re:.*self_attn.*"],
          "config_groups": {"group_0": {"targets": ["Linear"], "weights": {"num_bits": 4, "type": "float",
                                                                           "strategy": "group", "group_size": 32}}}},
         EXPERTS * 17 // 32, 2 * ATTENTION),
        ({"quant_method": "modelopt", "quant_algo": "MIXED_PRECISION", "quantized_layers": {
            f"language_model.model.layers.{layer}.mlp.experts.{expert}.{matrix}": {"quant_algo": "MXFP8"}
            for layer in range(5) for expert in range(24) for matrix in ("w1", "w2", "w3")}},
         EXPERTS * 33 // 32, 2 * ATTENTION),
    ],
    ids=["fp8", "mxfp4", "nvfp4", "awq", "compressed-tensors", "mixed"],
)  # fmt: skip
def test_native_formats(quantization: dict[str, Any], expert: int, attention: int | None) -> None:
    weighed = quantised(**quantization)
    assert by_role(weighed, "expert") == expert
    vectors = by_role(model(), "attention") - 2 * ATTENTION
    if attention is not None:
        assert by_role(weighed, "attention") == attention + vectors
    for role in ("embedding", "head", "norm", "router"):
        assert by_role(weighed, role) == by_role(model(), role)


def test_the_flag_overrides() -> None:
    assert by_role(model(), "expert", quantization="mxfp4") == EXPERTS * 17 // 32
    assert by_role(quantised(quant_method="fp8"), "expert", quantization="bf16") == 2 * EXPERTS
    assert weigh(quantised(quant_method="fp8"), Layout(), quantization="fp8").assumptions == ()
    assert "requantised" in weigh(model(), Layout(), quantization="nvfp4").assumptions[0]
    with pytest.raises(UsageError, match="bitsandbytes"):
        weigh(model(), Layout(), quantization="bitsandbytes")


@pytest.mark.parametrize(
    "quantization",
    [
        {"quant_method": "bitsandbytes"}, {"quant_method": "exl9"}, {"quant_method": ["fp8"]}, {"bits": 4},
        {"quant_method": "fp8", "weight_block_size": [0, 128]}, {"quant_method": "fp8", "weight_block_size": "128"},
        {"quant_method": "fp8", "modules_to_not_convert": {"a": 1}},
        {"quant_method": "fp8", "modules_to_not_convert": [1]}, {"quant_method": "fp8", "quantized_layers": []},
        {"quant_method": "modelopt"}, {"quant_method": "modelopt", "quant_algo": "W1A1"},
        {"quant_method": "modelopt", "quant_algo": "NVFP4", "group_size": -16},
        {"quant_method": "modelopt", "quant_algo": "NVFP4", "group_size": "16"},
        {"quant_method": "modelopt", "quant_algo": "MIXED_PRECISION", "quantized_layers": {"a": "FP8"}},
        {"quant_method": "compressed-tensors"}, {"quant_method": "compressed-tensors", "config_groups": {"a": 1}},
        {"quant_method": "compressed-tensors", "config_groups": {"a": {"weights": {"num_bits": 5}}}},
        {"quant_method": "compressed-tensors", "config_groups": {"a": {"weights": []}}},
        {"quant_method": "compressed-tensors", "config_groups": {"a": {"weights": {"type": "float", "num_bits": 8,
                                                                                "strategy": "token"}}}},
        {"quant_method": "compressed-tensors", "sparsity_config": {"format": "sparse-24"}, "config_groups": {"a": {}}},
        {"quant_method": "awq", "bits": 1 << 19}, {"quant_method": "gptq", "bits": 4.5},
        {"quant_method": "gptq", "dynamic": {"+:.*": {"bits": 8}}}, {"quant_method": "quark"},
        {"quant_method": "fp8", "expert_dtype": "fp3"},
    ],
)  # fmt: skip
def test_a_quantisation_that_is_not_modelled_is_refused_by_name(quantization: dict[str, Any]) -> None:
    with pytest.raises(ConfigError, match=r"quantization_config|expert_dtype") as caught:
        weigh(quantised(**quantization), Layout())
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    "pattern", ["re:(a+)+$", "re:(a|a)*b", "re:" + "a*" * 10 + "b", "re:" + "a" * 1000, "re:(", "re:*"]
)
def test_a_pattern_that_may_never_finish_is_refused(pattern: str) -> None:
    with pytest.raises(ConfigError, match="ignore"):
        Patterns([pattern], "quantization_config.ignore").match("model.layers.0.mlp.up_proj")


UP = "model.layers.3.mlp.experts.up_proj"


@pytest.mark.parametrize(
    ("pattern", "path", "expected"),
    [
        ("model.layers.3.mlp.experts", UP, True), ("model.layers.3.mlp.experts.7.up_proj", UP, True),
        ("language_model.model.layers.3*", UP, True), ("model.language_model.layers.3.*", UP, True),
        ("backbone.layers.3.mlp.experts.*", UP, True), ("layers.3.mlp.experts", UP, True), ("*.mlp.*", UP, True),
        ("model.layers.3.mlp.experts.0.w3", UP, True), ("model.layers.3.mlp.experts.0.w1", UP, False),
        ("model.layers.33*", UP, False), ("model.layers.3.mlp.up_proj", UP, False), ("experts.up", UP, False),
        ("gate", "model.layers.3.mlp.gate", True), ("gate", "model.layers.3.mlp.gate_proj", False),
        ("re:.*experts.*", UP, True), (r"re:.*\.experts\.\d+\.up_proj$", UP, True), ("re:experts", UP, False),
        ("re:language_model.*", UP, True), ("lm_head", "lm_head", True), ("mtp*", "mtp.layers.0.eh_proj", True),
    ],
)  # fmt: skip
def test_patterns(pattern: str, path: str, expected: bool) -> None:
    assert Patterns([pattern], "ignore").match(path) is expected


json_values = st.recursive(
    st.none() | st.booleans() | st.integers(-10, 200) | st.floats(allow_nan=False, allow_infinity=False)
    | st.sampled_from(["fp8", "modelopt", "compressed-tensors", "awq", "gptq", "quark", "NVFP4", "FP8", "re:.*", "*"]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(
        st.sampled_from(["weights", "targets", "num_bits", "type", "group_size", "strategy", "quant_algo", "a"]), inner
    ),
    max_leaves=5,
)  # fmt: skip
KEYS = (
    "quant_method", "quant_algo", "bits", "group_size", "config_groups", "ignore", "modules_to_not_convert",
    "weight_block_size", "quantized_layers", "exclude_modules", "dynamic", "zero_point", "format", "scale_fmt",
    "global_quant_config", "expert_dtype", "sparsity_config", "activation_scheme",
)  # fmt: skip


@settings(deadline=None, max_examples=120)
@given(
    st.dictionaries(st.sampled_from(KEYS), json_values),
    st.sampled_from(["fp8", "modelopt", "compressed-tensors", "awq"]),
)
def test_any_json_in_any_field_is_an_answer_or_one_line(quantization: dict[str, Any], method: str) -> None:
    try:
        report = weigh(quantised(**(quantization | {"quant_method": method})), Layout(tp=2))
    except KvplanError as error:
        assert "\n" not in str(error)
    else:
        assert report.total_bytes > 0
