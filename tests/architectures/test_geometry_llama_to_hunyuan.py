"""Bundled profiles of the Llama, Mistral, Gemma, gpt-oss, Phi, Hunyuan and Trinity families, to the byte."""

import tomllib
from pathlib import Path
from typing import Any

import pytest

from kvplan.dtypes import Dtypes
from kvplan.model import Model
from kvplan.sources.bundled import from_profile

GOLDEN = tomllib.loads((Path(__file__).parents[1] / "golden" / "geometry_llama_to_hunyuan.toml").read_text())["model"]


def stored_bytes(model: Model, tokens: int, kv: str) -> int:
    return sum(tensor.bytes(tokens) for layer in model.mixers() for tensor in layer.stored(Dtypes(kv=kv)))


def total_params(model: Model) -> int:
    assert model.weights is not None, model.weights_missing
    parts = [*model.weights.blocks, model.weights.outer, model.weights.mtp]
    return sum(weight.params for part in parts for weight in part)


def read(name: str) -> Model:
    model = from_profile(name)
    assert model is not None
    return model


@pytest.mark.parametrize("row", [row for row in GOLDEN if "kv_bytes_per_token" in row], ids=lambda row: row["name"])
@pytest.mark.parametrize("kv", ["bf16", "fp8"])
def test_bytes_of_one_sequence(row: dict[str, Any], kv: str) -> None:
    model, window = read(row["name"]), row.get("window_tokens", 1)
    per_window_token = row.get("window_bytes", {kv: 0})[kv] // window
    for tokens in (1, 100, 4096, 131072):
        expected = row["kv_bytes_per_token"][kv] * tokens + per_window_token * min(tokens, window)
        assert stored_bytes(model, tokens, kv) == expected


@pytest.mark.parametrize("row", [row for row in GOLDEN if "params_total" in row], ids=lambda row: row["name"])
def test_parameters_equal_the_published_count(row: dict[str, Any]) -> None:
    assert total_params(read(row["name"])) + row.get("unloaded_params", 0) == row["params_total"]


def test_llama_4_scout_at_131072_tokens() -> None:
    assert stored_bytes(read("llama-4-scout"), 131072, "bf16") == 7_650_410_496


@pytest.mark.parametrize(("name", "kib"), [("gemma-3-27b", 496.0), ("mistral-large-3", 68.6), ("hy3", 320.0)])
def test_a_public_table_of_kib_per_token(name: str, kib: float) -> None:
    """LLM Architecture Gallery: bf16, every window counted as if it were full attention."""
    per_token = sum(tensor.entry_bytes for layer in read(name).mixers() for tensor in layer.stored(Dtypes()))
    assert round(per_token / 1024, 1) == kib
