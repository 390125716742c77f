"""The figures of published articles, engine pages and other planners, through the command line."""

from collections.abc import Callable
from typing import Any

import pytest

Json = Callable[..., Any]


def test_the_published_k3_arithmetic(kvplan_json: Json) -> None:
    """bf16 state, no convolution, whole model, decimal tokens: the basis of the published figures."""
    basis = ("--state-dtype", "bf16", "--no-conv-state", "--baseline", "all-mla")
    rows = kvplan_json("estimate", "kimi-k3", "--context", "128000,1000000", *basis)["per_sequence"]
    assert [row["total_bytes"] for row in rows] == [3_755_999_232, 27_865_055_232]
    assert [row["baseline"]["total_bytes"] for row in rows] == [13_713_408_000, 107_136_000_000]
    assert [round(row["saving"], 4) for row in rows] == [0.7261, 0.7399]
    kept = kvplan_json("estimate", "kimi-k3", "--context", "1m", "--snapshot-every", "20000", *basis)["per_sequence"][0]
    assert (kept["snapshot_bytes"], kept["total_bytes"]) == (10_852_761_600, 38_717_816_832)


def test_k3_as_engines_store_it(kvplan_json: Json) -> None:
    """LMSYS and SGLang: 53.57 MiB per TP8 rank; vLLM PR 1152: 6,512,640 B per layer; 27,648 B/token on every rank."""
    plan = kvplan_json("estimate", "kimi-k3", "--tp", "8", "--context", "131072")
    whole, rank = plan["per_sequence"][0], plan["per_rank"]["sequences"][0]
    assert whole["state_bytes"] + whole["conv_bytes"] == 449_372_160 == 69 * 6_512_640
    assert rank["state_bytes"] + rank["conv_bytes"] == 56_171_520
    assert rank["bytes_per_token"] == whole["bytes_per_token"] == 27_648
    assert plan["crossings"]["break_even_tokens"] == 5_654
    assert plan["crossings"]["break_even_tokens_per_rank"] == 707
    assert plan["crossings"]["snapshot_equals_kv_tokens"] == 16_253


@pytest.mark.parametrize(
    ("model", "total_bytes"),
    [
        ("kimi-k3", 4_073_250_816),
        ("kimi-linear", 1_100_382_208),
        ("qwen3-next", 3_298_492_416),
        ("deepseek-v3", 9_210_691_584),
        ("llama-3.1-8b", 17_179_869_184),
    ],
)
def test_five_models_at_128k(kvplan_json: Json, model: str, total_bytes: int) -> None:
    """Independent confirmations: kvfit and kvcache.ai for the ones that they can read."""
    assert kvplan_json("estimate", model, "--context", "128K")["per_sequence"][0]["total_bytes"] == total_bytes


def test_break_even_in_bf16(kvplan_json: Json) -> None:
    plan = kvplan_json("estimate", "kimi-k3", "--state-dtype", "bf16", "--no-conv-state", "--context", "128k")
    assert plan["crossings"]["break_even_tokens"] == 2_731


def test_slope_and_rest_give_the_total_back(kvplan_json: Json) -> None:
    for model in ("kimi-k3", "deepseek-v4-flash", "gpt-oss-120b"):
        for row in kvplan_json("estimate", model, "--context", "1,100,5001,131072", "--snapshot-every", "1000")[
            "per_sequence"
        ]:
            assert row["fixed_bytes"] + row["bytes_per_token"] * row["context_tokens"] == row["total_bytes"]


def test_dcp_shares_out_only_what_grows(kvplan_json: Json) -> None:
    one = kvplan_json("estimate", "kimi-k3", "--tp", "8", "--context", "1M")["per_rank"]["sequences"][0]
    shared = kvplan_json("estimate", "kimi-k3", "--tp", "8", "--dcp", "8", "--context", "1M")["per_rank"]["sequences"][
        0
    ]
    assert shared["kv_bytes"] * 8 == one["kv_bytes"]
    assert shared["state_bytes"] == one["state_bytes"]


def test_gqa_heads_are_replicated_beyond_their_number(kvplan_json: Json) -> None:
    """Qwen3.5-397B has 2 KV heads: 15,360 B per token on each of 8 ranks, 30,720 for the whole model."""
    plan = kvplan_json("estimate", "qwen3.5-397b-a17b", "--tp", "8", "--context", "128K")
    assert plan["per_rank"]["sequences"][0]["bytes_per_token"] == 15_360
    assert plan["per_sequence"][0]["bytes_per_token"] == 30_720


def test_the_plan_has_the_keys_scripts_rely_on(kvplan_json: Json) -> None:
    plan = kvplan_json("estimate", "kimi-k3", "--gpu", "B300:8", "--engine", "ideal")
    assert plan["schema"] == "kvplan.plan/1"
    assert {"kvplan_version", "inputs", "assumptions", "model", "per_sequence", "per_rank", "engine"} <= set(plan)
    assert {"name", "source", "architecture", "layers", "params_total", "weights_bytes"} <= set(plan["model"])
    assert plan["model"]["layers"] == {"kda": 69, "mla": 24}
    for engine in ("ideal", "vllm", "sglang"):
        part = kvplan_json("estimate", "kimi-k3", "--gpu", "B300:8", "--engine", engine)["engine"]
        assert {"name", "rules_version", "block_tokens", "groups", "num_blocks", "state_slots"} <= set(part)
    assert {"bytes", "low_bytes", "high_bytes", "source", "breakdown"} <= set(plan["pool"])
    for row in plan["capacity"]:
        assert {"sequences", "packed", "low", "high", "deployment_sequences", "ideal", "binds"} <= set(row)
    assert {"fits", "reason", "try"} == set(plan["verdict"])
    assert all({"name", "value", "kind", "source"} == set(item) for item in plan["assumptions"])


def test_capacity_is_the_pool_over_the_bytes(kvplan_json: Json) -> None:
    plan = kvplan_json(
        "estimate", "kimi-k3", "--kv-cache-memory", "40GiB", "--tp", "8", "--context", "128K", "--engine", "ideal"
    )
    per_rank = plan["per_rank"]["sequences"][0]["total_bytes"]
    fits = plan["capacity"][0]["sequences"]
    assert fits * per_rank <= 40 << 30 < (fits + 1) * per_rank


@pytest.mark.parametrize(
    ("model", "flags"),
    [("mimo-v2-flash", ("--tp", "4", "--pp", "2")), ("kimi-linear", ("--pp", "2", "--snapshots", "5"))],
)
def test_one_rank_is_the_fullest_at_each_length(kvplan_json: Json, model: str, flags: tuple[str, ...]) -> None:
    """No rank can hold less than an even share of a sequence while it is called the fullest."""
    plan = kvplan_json("estimate", model, "--context", "127,4096,32768", *flags)
    ranks = plan["per_rank"]["layout"]["tp"] * plan["per_rank"]["layout"]["pp"]
    for whole, rank in zip(plan["per_sequence"], plan["per_rank"]["sequences"], strict=True):
        assert rank["total_bytes"] * ranks >= whole["total_bytes"]
