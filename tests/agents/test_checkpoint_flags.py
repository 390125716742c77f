"""The flags that realise a policy, and the time that replays take."""

import json
from typing import Any

import numpy as np
import pytest

from kvplan.agents.checkpoint_flags import Advice, advise
from kvplan.agents.checkpoints import Economics, Policy, lost_s, replay, resumes_of
from kvplan.agents.columns import Columns, read_columns
from kvplan.agents.prefill import ConstantRate
from kvplan.agents.request import Request
from kvplan.capacity import evaluate
from kvplan.interval import Interval
from kvplan.plan import settle

B300: dict[str, Any] = {
    "gpu": "B300:8", "kv_cache_dtype": "fp8", "enable_prefix_caching": True, "kv_cache_memory": "42.23GiB",
}  # fmt: skip
BOTH = {"mid_history": 74_070.0, "every_resume": 3_797.0}
STATE = 449_372_160


def advice(optimum: dict[str, float], model: str = "kimi-k3", **more: Any) -> Advice | None:
    read, deployment, gpu, contexts = settle(model, **B300 | more)
    return advise(evaluate(read, deployment, gpu, contexts), optimum, 123_450, STATE if model == "kimi-k3" else 0)


def test_vllm_gets_an_interval_that_it_takes() -> None:
    """vLLM refuses an interval that is no multiple of its scheduler's block: 1,536 tokens here, 12,288 with DCP 8."""
    for dcp, grid in ((1, 1536), (8, 12_288)):
        found = advice(BOTH, dcp=dcp)
        assert found is not None and (found.grid_tokens, found.interval_tokens) == (grid, 73_728)
        assert found.flags == (
            "--enable-prefix-caching", "--mamba-cache-mode align", "--prefix-cache-retention-interval 73728",
        )  # fmt: skip
        read, deployment, gpu, contexts = settle("kimi-k3", **B300, dcp=dcp, prefix_cache_retention_interval="73728")
        allocation = evaluate(read, deployment, gpu, contexts).allocation
        assert allocation is not None and allocation.figures["retention_interval_tokens"] == 73_728


def test_no_period_where_none_pays() -> None:
    """An interval beyond the mean context, or none at all: prompt ends alone."""
    for optimum in ({}, {"mid_history": 138_000.0}):
        found = advice(optimum)
        assert found is not None and found.interval_tokens == 0
        assert found.flags[-1] == "--prefix-cache-retention-interval 0"


def test_releases_without_the_flag_say_so() -> None:
    found = advice(BOTH, engine_version="0.28")
    assert found is not None and found.flags == ("--enable-prefix-caching", "--mamba-cache-mode align")
    assert "0.30" in found.reason


def test_sglang_tracks_in_whole_pages() -> None:
    found = advice(BOTH, engine="sglang", page_size=96)
    assert found is not None and found.flags[-1] == "--mamba-track-interval 288"
    assert "no flag for periodic" in found.reason
    plain = advice({}, engine="sglang")
    assert plain is not None and plain.flags == (
        "--mamba-radix-cache-strategy extra_buffer", "--mamba-track-interval 256",
    )  # fmt: skip


def test_tensorrt_llm_has_periodic_snapshots_or_nothing() -> None:
    found = advice(BOTH, engine="trtllm")
    assert (
        found is not None and found.flags == ("periodic_snapshot_interval: 3808",) and found.interval_tokens % 32 == 0
    )
    without = advice({}, engine="trtllm")
    assert without is not None and without.flags == () and "reuses nothing" in without.reason


def test_no_advice_where_there_is_no_state_or_no_flag() -> None:
    assert advice(BOTH, engine="ideal", tp=8) is None
    assert advice({}, model="llama-3.1-8b", gpu="H100:1") is None


class Quadratic:
    """A prefill whose tokens cost more the more stand before them."""

    def prefill_s(self, new_tokens: int, start_tokens: int) -> Interval:
        seconds = new_tokens * (1 + (start_tokens + new_tokens / 2) / 1000) / 1000
        return Interval(seconds, seconds, 2 * seconds, "measured")


def two() -> Columns:
    """A prompt of 1,000 and one of 2,000 that goes on from it."""
    return read_columns([Request("a", 1000, 0), Request("a", 2000, 0, shared_tokens=1000)])


def test_replayed_tokens_take_what_the_prefill_says() -> None:
    """Tails on a grid of 800: 200 tokens after 800 again, once in two requests."""
    policy = Policy("tail", tails=1, tail_block_tokens=800)
    assert replay(two(), policy).replay_tokens == 100
    rate = ConstantRate(Interval(100, 50, 200, "assumed"))
    found = lost_s(two(), policy, rate)
    assert (found.value, found.low, found.high, found.how) == (1.0, 0.5, 2.0, "assumed")
    slower = lost_s(two(), policy, Quadratic())
    assert slower.value == pytest.approx(0.2 * 1.9 / 2) and slower.high == pytest.approx(0.2 * 1.9)
    assert lost_s(two(), Policy("all", everywhere=True), rate).value == 0


def test_lost_time_at_a_constant_rate_is_replay_over_rate(agentic: Columns) -> None:
    policy = Policy("every", every_tokens=20_000)
    found = lost_s(agentic, policy, ConstantRate(Interval(18_500, 18_500, 18_500)))
    assert found.value == pytest.approx(replay(agentic, policy).replay_tokens / 18_500, rel=1e-3)


def test_the_optimum_interval_is_the_cheapest_on_the_trace(agentic: Columns) -> None:
    """Brute force over the trace itself: snapshots that an open session keeps, and replays at its resumes."""
    resumes = resumes_of(agentic)
    assert resumes.per_open_second is not None
    mean = float(agentic.input_tokens.mean())
    one = Economics(round(mean), STATE, 18_500, 0.005 / 1e9 / 3600, 40 / 3600, resumes.per_open_second, 1.0)
    best = one.optimum_tokens()
    grid = [int(interval) for interval in np.geomspace(best / 4, best * 4, 41)]
    costs = []
    for interval in grid:
        found = replay(agentic, Policy("every", every_tokens=interval))
        memory = found.snapshots * STATE * one.price_per_byte_second
        again = resumes.per_open_second * found.replay_tokens / 18_500 * one.price_per_gpu_group_second
        costs.append(memory + again)
    assert grid[int(np.argmin(costs))] == pytest.approx(best, rel=0.15)


TRACE = "session,input_tokens,output_tokens,lcp_prev,preamble_tokens,api_s,think_s\n" + "".join(
    f"a,{40_000 + 500 * step},50,{40_000 + 500 * (step - 1) - 64 if step else 0},300,2,5\n" for step in range(20)
)


def test_flags_and_lost_time_on_the_command_line(answer: Any, tmp_path: Any) -> None:
    trace = tmp_path / "trace.csv"
    trace.write_text(TRACE)
    words = ("agents", "checkpoints", "kimi-k3", "--gpu", "B300:8", "--kv-cache-dtype", "fp8", "--kv-cache-memory",
             "42.23GiB", "--workload", str(trace))  # fmt: skip
    found = json.loads(answer(*words, "--json")[1])
    assert found["advice"]["flags"][-1] == "--prefix-cache-retention-interval 0"
    assert found["lost_s"]["none"]["how"] == "published"
    assert any(row["policy"]["tail_block_tokens"] == 1536 for row in found["policies"])
    shown = answer(*words, "--prefill-tokens-per-s", "1000")[1]
    assert "--prefix-cache-retention-interval 0" in shown and "lost s" in shown
    assert max(map(len, shown.splitlines())) <= 80
