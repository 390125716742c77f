"""What the pages hold: the plan's own numbers, figures that others published, and what is left out with its reason."""

from pathlib import Path
from typing import Any

import pytest

from kvplan.cases import product
from kvplan.claims import find_claim
from kvplan.errors import SourceError, UsageError
from kvplan.pages import Report, claims_report, deployment_report
from kvplan.pages._base import pages_of
from kvplan.plan import plan
from pages_kit import collisions, drawn, off_paper

GIB = 1 << 30
LOGGED: dict[str, Any] = {
    "gpu": "B300:8", "kv_cache_memory": "42.23GiB", "kv_cache_dtype": "fp8", "engine_version": "0.28",
    "max_model_len": "1M",
}  # fmt: skip
"""InferenceX pull request 2371: Kimi K3 on eight B300, `GPU KV cache size: 3,249,215 tokens`, blocks of 1,536."""


def report(*models: str, workload: str | None = None, pages: list[str] | None = None, **flags: Any) -> Report:
    return deployment_report(product([(name, flags, ()) for name in models], []), workload=workload, pages=pages)


def numbers(made: Report, name: str) -> dict[str, Any]:
    return next(sheet.numbers for sheet in made.sheets if sheet.name == name)


@pytest.fixture(scope="module")
def logged() -> Report:
    return report("kimi-k3", **LOGGED)


def test_the_published_pool_of_k3(logged: Report) -> None:
    row = numbers(logged, "verdict")["models"][0]
    assert "2,135 blocks of 1,536 tokens" in row["engine"] and "3,249,215 tokens" in row["engine"]
    assert row["pool_bytes"] == int(42.23 * GIB)
    assert row["capacity"][-1]["sequences"] == 3
    engines = {one["engine"]: one for one in numbers(logged, "engines")["rows"]}
    assert "2,135 blocks" in engines["vllm"]["says"]


def test_curves_pass_through_the_plan(logged: Report) -> None:
    made = plan("kimi-k3", **LOGGED, context="32K,128K,1M")
    again = report("kimi-k3", pages=["capacity", "bytes"], **LOGGED, context="32K,128K,1M")
    curve = numbers(again, "capacity")["curves"][0]
    for row in made.capacity:
        place = curve["context_tokens"].index(row.context_tokens)
        assert curve["sequences"][place] == row.sequences
        assert (curve["low"][place], curve["high"][place], curve["ideal"][place]) == (row.low, row.high, row.ideal)
    counted = dict(zip(curve["context_tokens"], curve["sequences"], strict=True))
    assert (counted[131_072], counted[32_768]) == (23, 76)  # vLLM's own KV-cache manager on 2,135 blocks
    panel = numbers(again, "bytes")["panels"][0]
    for one in made.per_sequence:
        place = panel["tokens"].index(one.context_tokens)
        assert panel["total_bytes"][place] == one.total_bytes
        assert one.baseline is not None and panel["baseline"]["bytes"][place] == one.baseline.total_bytes


def test_bytes_by_kind_of_layer() -> None:
    """69 × (96 × 128 × 128 × 4 B + 3 × 36,864 × 2 B) of state; 24 × 576 × 2 B for each token."""
    panel = numbers(report("kimi-k3", gpu="B300:8", pages=["bytes"]), "bytes")["panels"][0]
    kinds = {one["kind"]: one for one in panel["kinds"]}
    assert set(kinds["kda"]["bytes"]) == {69 * (96 * 128 * 128 * 4 + 3 * 36_864 * 2)}
    assert kinds["mla"]["bytes"] == [24 * 576 * 2 * tokens for tokens in panel["tokens"]]
    assert (kinds["kda"]["grows"], kinds["mla"]["grows"]) == (False, True)
    assert panel["break_even_tokens"] == 5_654 and 5_654 in panel["tokens"]


@pytest.mark.parametrize("engine", ["vllm", "sglang", "ideal"])
def test_the_parts_of_the_memory_add_up(engine: str) -> None:
    made = report("kimi-k3", gpu="B300:8", kv_cache_dtype="fp8", engine=engine, pages=["pool"])
    for bar in numbers(made, "pool")["bars"]:
        assert sum(bar["parts"].values()) == bar["total_bytes"]
        inside = sum(size for name, size in bar["parts"].items()
                     if name in ("kv", "state", "padding", "free", "padding and free"))  # fmt: skip
        assert inside == bar["pool_bytes"]
        assert bar["parts"]["kv"] == bar["sequences"] * bar["context_tokens"] * 13_824


def test_snapshots_of_k3() -> None:
    curve = numbers(report("kimi-k3", gpu="B300:8", pages=["snapshots"]), "snapshots")["curves"][0]
    assert curve["snapshot_bytes"] == 449_372_160
    place = curve["interval_tokens"].index(65_536)
    assert (curve["snapshots"][place], curve["snapshots_bytes"][place]) == (16, 16 * 449_372_160)
    assert curve["replay_tokens"][place] == (65_536 - 1) / 2
    assert curve["snapshot_equals_kv_tokens"] == 449_372_160 // 27_648


def test_policies_on_a_trace(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A second prompt of 1,500 tokens shares 1,000 with the first: 1,000 of 2,500 can be hit, or are computed again."""
    trace = tmp_path / "trace.csv"
    trace.write_text(
        "session,input_tokens,output_tokens,lcp_prev,preamble_tokens,api_s,think_s\na,1000,50,0,0,2,5\na,1500,50,1000,0,2,5\n"
    )
    made = report("kimi-k3", workload=str(trace), pages=["snapshots"], **LOGGED)
    rows = {row["policy"]: row for row in numbers(made, "snapshots")["policies"]}
    assert (rows["none"]["token_hit"], rows["none"]["replay_tokens"]) == (0.0, 500.0)
    assert (rows["every token"]["token_hit"], rows["every token"]["replay_tokens"]) == (0.4, 0.0)
    figure, texts = drawn(made, 1, monkeypatch)
    assert off_paper(figure, texts) == collisions(texts) == []


def test_sessions_are_those_of_the_command() -> None:
    from kvplan.agents.report import sessions_report

    made = report("kimi-k3", workload="coding-agent", pages=["capacity"], **LOGGED)
    page = numbers(made, "capacity")
    found = sessions_report("kimi-k3", "coding-agent", flags=LOGGED).sessions
    assert [row["sessions"] for row in page["sessions"][0]["at_risk"]] == [row.sessions for row in found.at_risk]
    assert page["workload"] == "coding-agent"


def test_the_bound_of_the_engines_page_has_the_reports_dtypes() -> None:
    """DeepSeek V4 in vLLM stores fp8 records: bf16 rows would put the bound below the engine."""
    rows = {one["engine"]: one for one in
            numbers(report("deepseek-v4-pro", gpu="B300:8", pages=["engines"]), "engines")["rows"]}  # fmt: skip
    for ideal, vllm in zip(rows["ideal"]["capacity"], rows["vllm"]["capacity"], strict=True):
        assert ideal["sequences"] >= vllm["sequences"] > 0


def test_pages_and_their_order() -> None:
    orders = [page.order for page in pages_of("deployment")]
    assert orders == sorted(set(orders))
    names = [page.name for page in pages_of("deployment")]
    assert names == [
        "verdict", "bytes", "pool", "capacity", "snapshots", "engines", "kernels", "tiers", "arithmetic",
    ]  # fmt: skip
    assert [page.name for page in pages_of("claims")] == ["verdicts", "claims", "gaps"]


def test_what_is_left_out_says_why() -> None:
    made = report("llama-3.1-8b", gpu="B300")
    why = {one["page"]: one["reason"] for one in made.left_out}
    assert set(why) == {"snapshots", "kernels", "tiers"}
    assert "no model here keeps a state" in why["snapshots"]
    assert "`kvplan bench`" in why["kernels"]
    assert "--workload" in why["tiers"]
    assert made.document()["left_out"] == made.left_out == numbers(made, "verdict")["left_out"]
    assert 4 <= len(made.sheets) <= 8


def test_pages_can_be_chosen() -> None:
    made = report("kimi-k3", gpu="B300:8", pages=["arithmetic", "pool"])
    assert [sheet.name for sheet in made.sheets] == ["pool", "arithmetic"]
    with pytest.raises(UsageError, match="--pages 'nosuch': no such page; use verdict"):
        report("kimi-k3", gpu="B300:8", pages=["nosuch"])
    with pytest.raises(UsageError, match="no page to write: no model here keeps a state"):
        report("llama-3.1-8b", gpu="B300", pages=["snapshots"])


def test_a_model_that_is_refused_is_named_and_the_others_go_on() -> None:
    made = report("kimi-k3", "no-such-model", gpu="B300:8", pages=["verdict", "bytes"])
    page = numbers(made, "verdict")
    assert [row["model"] for row in page["models"]] == ["kimi-k3"]
    assert page["refused"][0]["model"] == "no-such-model" and "kvplan models list" in page["refused"][0]["reason"]
    assert made.refused == {"no-such-model": page["refused"][0]["reason"]}
    with pytest.raises((UsageError, SourceError), match="no-such-model"):
        report("no-such-model", gpu="B300:8")


def test_what_cannot_be_a_report() -> None:
    with pytest.raises(UsageError, match="a report needs the memory that sequences share: name the GPUs"):
        report("kimi-k3")
    with pytest.raises(UsageError, match="up to 6 models, and here are 7"):
        report(*["kimi-k3"] * 7, gpu="B300:8")
    with pytest.raises(UsageError, match="llamacpp"):
        report("qwen3-next", gpu="H200:2", engine="llamacpp", workload="coding-agent")


def test_a_claim_on_paper() -> None:
    """An article on Kimi K3 prints 3.76 GB at 128,000 tokens, which a bf16 state without convolution tail gives."""
    made = claims_report({"k3-128k": find_claim("k3-128k"), "all-mla-1m": find_claim("all-mla-1m")})
    assert numbers(made, "verdicts")["verdicts"]["reproduced on another basis"] == ["k3-128k"]
    rows = {row["claim"]: row for row in numbers(made, "claims")["claims"]}
    assert rows["k3-128k"]["printed"] == "3.76 GB, 72.6 %"
    assert rows["k3-128k"]["on"] == "bf16 state, no convolution tail"
    gaps = {(row["claim"], row["figure"]): row for row in numbers(made, "gaps")["figures"]}
    assert gaps["k3-128k", "total"]["best_computed"] == "3.76" and gaps["k3-128k", "total"]["agrees"]
    assert gaps["k3-128k", "total"]["plain_computed"] == "3.99"


def test_a_short_length_is_no_model_without_a_state() -> None:
    left = {one["page"]: one["reason"] for one in report("kimi-linear", gpu="H200", context="1").left_out}
    assert "no length asked about is longer" in left["snapshots"]
    left = {one["page"]: one["reason"] for one in report("llama-3.1-8b", gpu="H200", context="8K").left_out}
    assert "no model here keeps a state" in left["snapshots"]


def test_times_on_the_first_page_are_those_of_the_plan() -> None:
    """32 sequences of 128K on one H200, in words; without a calibration nothing is said."""
    made = report("kimi-linear", gpu="H200", calibration="h200", context="128K", pages=["verdict", "kernels"])
    step = plan("kimi-linear", gpu="H200", calibration="h200", context="128K").latency.decode[-1]
    said = numbers(made, "verdict")["models"][0]["times"]
    assert said.startswith(
        f"{step.tpot_ms.value:.1f} ({step.tpot_ms.low:.1f}-{step.tpot_ms.high:.1f}) ms a token with 32"
    )
    line = numbers(made, "kernels")["steps"][0]
    assert line["seconds"][-1] * 1e3 == pytest.approx(step.tpot_ms.value)
    assert "moe" not in {one["kernel"] for one in numbers(made, "kernels")["samples"]}
    assert numbers(report("kimi-linear", gpu="H200", pages=["verdict"]), "verdict")["models"][0]["times"] is None


def test_a_datasheet_has_no_page_of_kernels() -> None:
    made = report("kimi-linear", gpu="H200", calibration="datasheet", pages=["verdict", "kernels"])
    assert "datasheet" in next(one["reason"] for one in made.left_out if one["page"] == "kernels")
