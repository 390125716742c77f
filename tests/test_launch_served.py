"""Checkpoints that are not here: their names tell how their weights are stored, or kvplan asks."""

import json
from collections.abc import Callable
from typing import Any

import pytest

from kvplan.errors import UsageError
from kvplan.launch.served import weights_named
from kvplan.sources import resolve

Run = Callable[..., Any]
GIB = 1 << 30
ON_GPU = {"gpu": "H200:8"}


@pytest.mark.parametrize(
    ("name", "model", "sized"),
    [
        ("zai-org/GLM-5.1-FP8", "glm-5.1", {"quantization": "fp8"}),
        ("RedHatAI/Qwen3.6-35B-A3B-NVFP4", "qwen3.6-35b-a3b", {"quantization": "nvfp4"}),
        ("cyankiwi/Qwen3-Next-80B-A3B-AWQ-4bit", "qwen3-next", {"quantization": "awq"}),
        ("x/Qwen3-32B-quantized.w4a16", "qwen3-32b", {"quantization": "int4"}),
        ("/data/models/Qwen3-32B", "qwen3-32b", {}),
        ("openai/gpt-oss-20b", "gpt-oss-20b", {}),
        ("ggml-org/gpt-oss-20b-GGUF", "gpt-oss-20b", {}),
        ("deepseek-ai/DeepSeek-R1-FP8", "deepseek-r1", {}),
    ],
)
def test_the_format_in_a_name(name: str, model: str, sized: dict[str, str]) -> None:
    assert weights_named(name, resolve(model), ON_GPU)[0] == sized


def test_gguf_files_by_their_bits() -> None:
    """unsloth/Qwen3-30B-A3B-GGUF: the Q4_K_M file is 18.6 GB."""
    found, said = weights_named("unsloth/Qwen3-30B-A3B-GGUF:Q4_K_M", resolve("qwen3-30b-a3b"), ON_GPU)
    assert int(found["weights"]) == pytest.approx(18.6e9, rel=0.01)
    assert "4.84 bits" in said
    assert weights_named("unsloth/Qwen3-30B-A3B-GGUF", resolve("qwen3-30b-a3b"), ON_GPU)[0] == found


def test_a_format_without_a_known_size_is_asked_for() -> None:
    with pytest.raises(UsageError, match="Q4_K_XL does not size its weights: give the file's size with --weights"):
        weights_named("unsloth/Qwen3-30B-A3B-GGUF:UD-Q4_K_XL", resolve("qwen3-30b-a3b"), ON_GPU)
    given = ON_GPU | {"weights": "17GB"}
    assert weights_named("unsloth/Qwen3-30B-A3B-GGUF:UD-Q4_K_XL", resolve("qwen3-30b-a3b"), given)[0] == {}


def test_a_quantised_recipe_is_not_weighed_as_its_source(kvplan: Run) -> None:
    """vLLM loads 89.39 GiB of zai-org/GLM-5.1-FP8 on each of eight H200."""
    command = "vllm serve zai-org/GLM-5.1-FP8 --tensor-parallel-size 8 --tool-call-parser glm47"
    done = kvplan("estimate", "--gpu", "H200:8", "--json", "--", *command.split())
    assert "weights as fp8, from its name" in done.stderr
    rank = json.loads(done.stdout)["per_rank"]["weights_bytes"]
    assert rank / GIB == pytest.approx(89.39, rel=0.01)
