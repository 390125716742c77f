"""Snapshot policies against what others measured on the same public trace, and formulas against brute force."""

import json
from collections.abc import Callable
from dataclasses import replace
from math import inf, sqrt
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kvplan.agents.branches import replay_blocks
from kvplan.agents.checkpoints import (
    GRAIN,
    Economics,
    Policy,
    expected_replay_tokens,
    policies,
    reached,
    replay,
    resumes_of,
)
from kvplan.agents.columns import Columns, read_columns
from kvplan.agents.request import Request
from kvplan.agents.traces import open_trace
from kvplan.errors import UsageError

INTERVALS = {128: 31.2, 512: 220.5, 1024: 470.8, 4096: 1993, 8192: 4037, 20000: 9868, 32768: 16166, 65536: 32345}
"""Replay per request, first ones included, as published for the public coding-agent trace."""

TWO = Policy("two", tails=2, tail_block_tokens=256)
TABLE = [
    (Policy("exact", everywhere=True), 0.963, 4555, None),
    (Policy("end", tails=1), 0.912, 10857, 1),
    (Policy("end-256", tails=1, tail_back_tokens=256), 0.958, 5233, 1),
    (TWO, 0.959, 5049, 2),
    (replace(TWO, preamble=True), 0.961, 4770, 2),
    (replace(TWO, preamble=True, tail_block_tokens=1536), 0.957, 5328, 2),
    (Policy("1536", every_tokens=1536), 0.957, 5.3e3, 80),
    (Policy("4096", every_tokens=4096), 0.947, 6.5e3, 30),
    (Policy("20000", every_tokens=20000), 0.883, 14.4e3, 6.2),
    (Policy("65536", every_tokens=65536), 0.701, 36.9e3, 1.9),
    (Policy("mixed", 20000, tails=1, tail_block_tokens=128, preamble=True), 0.961, 4840, 7.2),
]
"""Policy, token hit rate, prefill tokens per request, snapshots per session (published as context over interval)."""


@pytest.mark.parametrize("interval", INTERVALS)
def test_a_random_hit_replays_half_an_interval(interval: int, agentic: Columns) -> None:
    policy = Policy("periodic", every_tokens=interval)
    assert replay(agentic, policy).replay_tokens == pytest.approx(INTERVALS[interval], rel=0.001, abs=0.05)
    resumed = agentic.previous >= 0
    lost = np.maximum(agentic.shared_tokens, 0) - reached(agentic, policy)
    assert lost[resumed].mean() == pytest.approx(expected_replay_tokens(interval, GRAIN), rel=0.01)


@pytest.mark.parametrize(("policy", "hit", "prefill", "snapshots"), TABLE, ids=[row[0].name for row in TABLE])
def test_published_policies(policy: Policy, hit: float, prefill: float, snapshots: Any, agentic: Columns) -> None:
    found = replay(agentic, policy)
    assert found.token_hit == pytest.approx(hit, abs=0.0006)
    rounding = 50 if isinstance(prefill, float) else 12
    assert found.prefill_tokens == pytest.approx(prefill, abs=rounding)
    if snapshots is not None:
        assert found.snapshots == pytest.approx(snapshots, abs=0.55)


def test_published_ranking(agentic: Columns) -> None:
    """From the least prefill to the most; the mixed policy needs three times the snapshots of the best."""
    order = sorted(TABLE, key=lambda row: row[2])
    found = [replay(agentic, row[0]).prefill_tokens for row in order]
    assert found == sorted(found)


def test_published_resumes(agentic: Columns) -> None:
    found = resumes_of(agentic)
    assert found.resumes == 47_948
    assert found.rewinds == pytest.approx(0.0198, abs=5e-5)
    assert found.beyond_preamble == pytest.approx(0.0026, abs=5e-5)


def test_replaying_answers_verbatim_saves_them(agentic: Columns) -> None:
    tails = Policy("tails", tails=2, tail_block_tokens=128, preamble=True)
    saved = replay(agentic, tails).prefill_tokens - replay(agentic, replace(tails, decode_end=True)).prefill_tokens
    assert saved > 250


@pytest.mark.parametrize(
    ("flags", "hit"),
    [
        ({"everywhere": True}, 0.374), ({"prompt_end": True}, 0.350),
        ({"prompt_end": True, "branches": True}, 0.359), ({"every_blocks": 16}, 0.240),
    ],
)  # fmt: skip
def test_published_mooncake_policies(flags: dict[str, Any], hit: float, public_trace: Callable[[str], Path]) -> None:
    found = replay_blocks(open_trace(public_trace("mooncake_conversation_trace.jsonl")), 512, **flags)
    assert found.token_hit == pytest.approx(hit, abs=0.0006)
    if "branches" in flags:
        assert found.snapshots == pytest.approx(10_300, rel=0.01)


def test_blocks_by_hand() -> None:
    """A shared opening of two blocks: the second prompt shows the branch, the third starts from it."""
    trace = [Request(str(n), 4 * 10, 0, blocks=(1, 2, 10 + n, 20 + n)) for n in range(3)]
    assert replay_blocks(trace, 10, everywhere=True).token_hit == 40 / 120
    ends = replay_blocks(trace, 10, prompt_end=True)
    assert (ends.token_hit, ends.snapshots) == (0, 3)
    both = replay_blocks(trace, 10, prompt_end=True, branches=True)
    assert (both.token_hit, both.snapshots) == (20 / 120, 4)
    assert replay_blocks(trace, 10, every_blocks=2).token_hit == 40 / 120
    with pytest.raises(UsageError, match="no block hashes"):
        replay_blocks([Request("a", 10, 0)], 10)


def by_hand(prompts: list[tuple[int, int]], preamble: int = 0) -> Columns:
    """One conversation: prompt and what it shares with the one before."""
    return read_columns(
        Request("a", size, 0, shared_tokens=shared, preamble_tokens=preamble) for size, shared in prompts
    )


def test_tails_by_hand() -> None:
    """Prompts of 1,000 and 1,100 that share 960: the tail at 960 is there, the one at the exact end, 1,000, is not."""
    columns = by_hand([(1000, 0), (1100, 960)], preamble=200)
    assert list(reached(columns, Policy("end", tails=1, tail_block_tokens=64))) == [0, 960]
    assert list(reached(columns, Policy("end", tails=1, tail_block_tokens=1))) == [0, 0]
    assert list(reached(columns, Policy("two", tails=2, tail_block_tokens=500))) == [0, 500]
    assert list(reached(columns, Policy("pre", preamble=True))) == [200, 200]
    assert list(reached(columns, Policy("none"))) == [0, 0]


_PROMPTS = st.lists(st.tuples(st.integers(1, 5000), st.floats(0, 1)), min_size=1, max_size=8)


@settings(max_examples=60, deadline=None)
@given(_PROMPTS, st.sampled_from([None, 64, 512, 1000]), st.integers(0, 2), st.integers(1, 300), st.booleans(),
       st.sampled_from(["every", "tails", "preamble", "decode_end"]))  # fmt: skip
def test_more_snapshots_never_lower_the_hit_rate(
    drawn: list[tuple[int, float]], every: int | None, tails: int, block: int, preamble: bool, added: str
) -> None:
    sizes = [size for size, _ in drawn]
    shared = [0, *(int(share * min(a, b)) for a, b, (_, share) in zip(sizes, sizes[1:], drawn[1:], strict=False))]
    columns = by_hand(list(zip(sizes, shared, strict=True)), preamble=100)
    policy = Policy("some", every, tails, block, preamble=preamble)
    more = {
        "every": replace(policy, every_tokens=(every or 2000) // 2), "tails": replace(policy, tails=tails + 1),
        "preamble": replace(policy, preamble=True), "decode_end": replace(policy, decode_end=True),
    }[added]  # fmt: skip
    assert (reached(columns, more) >= reached(columns, policy)).all()
    assert (reached(columns, policy) <= columns.input_tokens).all()


def economics(price: float, group: float, needing: float) -> Economics:
    return Economics(123_000, 449_372_160, 18_500, price, group, 1 / 56, needing)


@pytest.mark.parametrize(("needing", "hbm", "dram"), [(1, 7.0e3, 3.8e3), (0.02, 50e3, 27e3), (0.0026, 138e3, 74e3)])
def test_published_optimum_intervals(needing: float, hbm: float, dram: float) -> None:
    """K3: HBM at its share of eight B300 of 288 GB; DRAM at $0.005 per GB and hour beside GPUs at $5."""
    shadow = economics(1 / (8 * 288e9), 1.0, needing).optimum_tokens()
    host = economics(0.005 / 1e9 / 3600, 40 / 3600, needing).optimum_tokens()
    assert shadow == pytest.approx(hbm, rel=0.02)
    assert host == pytest.approx(dram, rel=0.02)


@settings(max_examples=40, deadline=None)
@given(st.floats(1e-13, 1e-9), st.floats(0.001, 10), st.floats(0.001, 1))
def test_the_optimum_interval_is_the_cheapest_of_all(price: float, group: float, needing: float) -> None:
    one = economics(price, group, needing)
    best = one.optimum_tokens()
    grid = np.geomspace(best / 50, best * 50, 4001)
    costs = [one.cost_per_s(interval) for interval in grid]
    assert grid[int(np.argmin(costs))] == pytest.approx(best, rel=0.003)
    assert one.cost_per_s(best) <= min(costs) * (1 + 1e-9)


def test_where_no_resume_needs_one_there_is_no_interval() -> None:
    assert economics(1e-12, 1, 0).optimum_tokens() == inf
    for change in ({"needing": -1.0}, {"prefill_tokens_per_s": 0.0}, {"price_per_byte_second": inf}):
        with pytest.raises(UsageError, match=next(iter(change))):
            replace(economics(1e-12, 1, 1), **change)


def test_policies_are_refused_by_field() -> None:
    with pytest.raises(UsageError, match="every_tokens 0"):
        Policy("x", every_tokens=0)
    with pytest.raises(UsageError, match="checkpoints need it"):
        replay(read_columns([Request("a", 5, 0)]), policies()[0])


TRACE = "session,input_tokens,output_tokens,lcp_prev,preamble_tokens,api_s,think_s\n" + "".join(
    f"a,{1000 + 500 * step},50,{max(0, 1000 + 500 * (step - 1) - 64) if step else 0},300,2,5\n" for step in range(20)
)


def test_checkpoints_on_the_command_line(answer: Any, tmp_path: Path) -> None:
    trace = tmp_path / "trace.csv"
    trace.write_text(TRACE)
    words = ("agents", "checkpoints", "kimi-k3", "--gpu", "B300:8", "--engine", "ideal", "--workload", str(trace),
             "--prefill-tokens-per-s", "18500", "--byte-price", "0.005", "--gpu-price", "B300=5/h")  # fmt: skip
    code, shown, _ = answer(*words)
    assert code == 0 and "449,372,160 bytes" in shown and max(map(len, shown.splitlines())) <= 80
    found = json.loads(answer(*words, "--json")[1])
    assert (found["schema"], found["resumes"]["resumes"]) == ("kvplan.checkpoints/1", 19)
    known = {one["name"]: one["value"] for one in found["assumptions"]}
    assert (known["gpu_price"], known["replica_gpus"], known["byte_price"]) == (5, 8, 0.005)
    resumes = found["resumes"]["per_open_second"]
    prompts = [int(line.split(",")[TRACE.splitlines()[0].split(",").index("input_tokens")])
               for line in TRACE.splitlines()[1:]]  # fmt: skip
    young = sqrt(2 * round(sum(prompts) / len(prompts)) * 449_372_160 * 18_500 * 0.005e-9 / (resumes * 8 * 5))
    assert found["optimum_interval_tokens"]["every_resume"] == pytest.approx(young)
    assert len(found["policies"]) == len(policies())


@pytest.mark.parametrize(
    ("text", "flags", "said"),
    [
        ("input_tokens\n5\n", (), "does not say what prompts share"),
        (TRACE, ("--prefill-tokens-per-s", "0"), "--prefill-tokens-per-s"),
        (TRACE, ("--gpu", "B300:8", "--gpu-price", "nan"), "--gpu-price"),
        (TRACE, ("--gpu", "B300:8", "--gpu-price", "H100=2/h"), "no price of b300"),
        (TRACE, ("--gpu-price", "4"), "name the GPUs of a replica"),
        (TRACE, ("--byte-price", "1e30"), "--byte-price"),
    ],
)  # fmt: skip
def test_checkpoints_refuse_by_flag(text: str, flags: tuple[str, ...], said: str, answer: Any, tmp_path: Path) -> None:
    trace = tmp_path / "trace.csv"
    trace.write_text(text)
    with pytest.raises(UsageError, match=said):
        answer("agents", "checkpoints", "kimi-k3", "--workload", str(trace), *flags)


def test_blocks_on_the_command_line(answer: Any, tmp_path: Path) -> None:
    trace = tmp_path / "trace.jsonl"
    rows = [{"timestamp": n, "input_length": 2048, "hash_ids": [1, 2, 10 + n, 20 + n]} for n in range(3)]
    trace.write_text("\n".join(map(json.dumps, rows)))
    found = json.loads(answer("agents", "checkpoints", "kimi-k3", "--workload", str(trace), "--json")[1])
    assert found["block_policies"]["prompt end, branch points"]["token_hit"] == pytest.approx(1 / 6)
    assert found["resumes"] is None and found["policies"] == []
