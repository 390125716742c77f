"""Bundled profiles of the Qwen, OLMo, Nemotron, Jamba, Granite, Falcon, Mamba, RWKV and LFM families, to the byte."""

import tomllib
from pathlib import Path
from typing import Any

import pytest

from kvplan.dtypes import Dtypes
from kvplan.model import Model
from kvplan.sources.bundled import from_profile

GOLDEN = tomllib.loads((Path(__file__).parents[1] / "golden" / "geometry_qwen_to_lfm.toml").read_text())["model"]


def stored_bytes(model: Model, tokens: int, **dtypes: str) -> int:
    return sum(tensor.bytes(tokens) for layer in model.mixers() for tensor in layer.stored(Dtypes(**dtypes)))


def read(row: dict[str, Any]) -> Model:
    model = from_profile(row["name"])
    assert model is not None
    return model


@pytest.mark.parametrize("row", [row for row in GOLDEN if "state_bytes" in row], ids=lambda row: row["name"])
@pytest.mark.parametrize("kv", ["bf16", "fp8"])
@pytest.mark.parametrize("state", ["fp32", "bf16"])
def test_bytes_of_one_sequence(row: dict[str, Any], kv: str, state: str) -> None:
    model, window = read(row), row.get("window_tokens", 1)
    per_window_token = row.get("window_bytes", {kv: 0})[kv] // window
    for tokens in (1, 100, 4096, 131072):
        expected = row["kv_bytes_per_token"][kv] * tokens + per_window_token * min(tokens, window)
        assert stored_bytes(model, tokens, kv=kv, state=state) == expected + row["state_bytes"][state]


@pytest.mark.parametrize("row", [row for row in GOLDEN if "params_total" in row], ids=lambda row: row["name"])
def test_parameters_equal_the_published_count(row: dict[str, Any]) -> None:
    model = read(row)
    assert model.weights is not None, model.weights_missing
    parts = [*model.weights.blocks, model.weights.outer, model.weights.mtp]
    assert sum(weight.params for part in parts for weight in part) == row["params_total"]


@pytest.mark.parametrize("row", [row for row in GOLDEN if "params_fitted" in row], ids=lambda row: row["name"])
def test_inferred_widths_still_give_the_count_they_were_chosen_for(row: dict[str, Any]) -> None:
    model = read(row)
    assert model.weights is not None, model.weights_missing
    parts = [*model.weights.blocks, model.weights.outer, model.weights.mtp]
    assert sum(weight.params for part in parts for weight in part) == row["params_fitted"]


@pytest.mark.parametrize("row", GOLDEN, ids=lambda row: row["name"])
def test_weights_follow_the_blocks(row: dict[str, Any]) -> None:
    model = read(row)
    assert model.weights is not None
    assert len(model.weights.blocks) == len(model.blocks)
