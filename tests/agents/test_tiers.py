"""Tiers: published break-evens and resume times, closed forms, and what must always hold."""

import json
from math import exp, inf
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kvplan.agents.columns import Columns
from kvplan.agents.contexts import contexts_of_trace
from kvplan.agents.host_pools import balanced, replay_hits, split_of
from kvplan.agents.idle import Replica, dense_units, idle_units, read_replica, unit_bytes
from kvplan.agents.links import Link, break_even_bytes_per_s, choose, critical_reuse, transfer_s
from kvplan.agents.prefill import ConstantRate, find_prefill
from kvplan.agents.sessions import units_of
from kvplan.agents.tier_flag import find_tiers
from kvplan.agents.tiers import Case, TierRow, break_evens, crossing_bytes, nearest, tier_rows
from kvplan.agents.tiers_report import TierOptions, tiers_report
from kvplan.agents.ttl import best_ttl
from kvplan.agents.usage import read_usage
from kvplan.dtypes import Dtypes
from kvplan.errors import KvplanError, UsageError
from kvplan.gpu import find_gpu
from kvplan.interval import Interval
from kvplan.ledger import Holding
from kvplan.sources import resolve

B300: dict[str, Any] = {
    "gpu": "B300:8", "kv_cache_dtype": "fp8", "enable_prefix_caching": True, "kv_cache_memory": "42.23GiB",
}  # fmt: skip
NOTHING = Interval(0.0, 0.0, 0.0)
GIB = 1 << 30


def exactly(value: float) -> Interval:
    return Interval(value, value, value)


@pytest.fixture(scope="module")
def k3() -> Replica:
    return read_replica("kimi-k3", **B300)


@pytest.mark.parametrize(("flops", "published"), [(8 * 312e12, 6), (8 * 989e12, 19)])
def test_mooncakes_least_bandwidth(flops: float, published: int) -> None:
    """FAST'25, equation 2, LLaMA3-70B at 8,192 tokens on 8 x A800 and 8 x H800: its own arithmetic, our bytes."""
    layers, width, tokens, a, b = 80, 8192, 8192, 4, 22
    prefill = layers * (a * tokens**2 * width + b * tokens * width**2) / flops
    held = Holding(resolve("llama-3.1-70b").mixers(), Dtypes(kv="bf16")).bytes(tokens)
    found = break_even_bytes_per_s(held, exactly(prefill), NOTHING)
    assert found is not None and round(found.value / 1e9) == published


def test_k3s_break_evens(k3: Replica) -> None:
    """R·(k + S/L) with k = 13,824 B, S = 449,372,160 B and R = 18,500 tokens a second."""
    rate = ConstantRate(exactly(18_500.0))
    found = break_evens(k3, rate, [8_000, 32_000, 105_000, 1_000_000])
    for one, value in zip(found, (1.29, 0.52, 0.335, 0.26), strict=True):
        assert one.one_copy_bytes_per_s.value / 1e9 == pytest.approx(value, abs=0.0051)
        by_hand = 18_500 * (13_824 + 449_372_160 / one.context_tokens)
        assert one.one_copy_bytes_per_s.value == pytest.approx(by_hand)
        assert one.rank_bytes_per_s.value == pytest.approx(18_500 * (13_824 + 56_171_520 / one.context_tokens))
    assert critical_reuse(Link(exactly(54e9), NOTHING), found[2].one_copy_bytes_per_s) == pytest.approx(160, abs=2)


def test_published_resumes_of_105k_tokens(k3: Replica) -> None:
    """1.45 GB of latents and 56 MB of state a rank: 28 ms, 64 to 139 ms for eight copies, 0.25 s, 1.5 s."""
    tiers = {tier.name: tier for tier in find_tiers(k3.gpu, [], 8)}
    times = {
        name: transfer_s(crossing_bytes(k3, tier, 105_000), Link(tier.link.bytes_per_s, NOTHING))
        for name, tier in tiers.items()
    }
    assert times["dram"].value == pytest.approx(0.028, abs=0.0005)
    assert (round(times["rdma"].low, 3), round(times["rdma"].high, 3)) == (0.063, 0.139)
    assert times["nvme"].high == pytest.approx(0.25, abs=0.005)
    assert times["object"].value == pytest.approx(1.5, abs=0.01)


def test_host_memory_of_220_gib_a_rank(k3: Replica) -> None:
    """11,125 blocks by InferenceX's figure (rounded), each session at the mean of 123,889 tokens."""
    blocks, tokens = 220 * GIB // unit_bytes(k3), np.array([123_889])
    assert blocks in (11_124, 11_125)
    dense = dense_units(k3)
    assert dense is not None
    assert blocks // int(units_of(idle_units(k3), tokens)[0]) == 127
    assert blocks // int(units_of(dense, tokens)[0]) == 34


def test_host_memory_over_the_whole_trace(k3: Replica, agentic: Columns) -> None:
    blocks, tokens = 220 * GIB // unit_bytes(k3), contexts_of_trace(agentic, "request").tokens
    dense = dense_units(k3)
    assert dense is not None
    assert int(blocks / units_of(idle_units(k3), tokens).mean()) == 127
    assert int(blocks / units_of(dense, tokens).mean()) == 34


def test_states_at_every_block_of_an_idle_session(k3: Replica) -> None:
    """3 groups of states: 2 copies of each while it decodes, and one at each of 65 whole blocks of 100,000 tokens."""
    dense = dense_units(k3)
    assert dense is not None
    assert (idle_units(k3).of(100_000), dense.of(100_000)) == (66 + 2 * 3, 66 + 65 * 3)
    assert dense.of(1_000) == idle_units(k3).of(1_000)


def test_hicache_serves_nothing_with_565_slots_and_everything_with_734() -> None:
    """sgl-project/sglang pull request 39436: 200 prompts of 8,448 tokens with 3 states each, then 8 evicted ones again.

    565 slots are too few for 600 states although the KV pool is a third empty; 734 are enough.
    """
    for slots, hits in ((565, 0), (734, 8)):
        assert replay_hits(2_680_896, slots, range(200), range(8), 8_448, 3) == hits
    few = split_of(2_680_896, 565, 7_919, 19_065_000, 8_448, 3)
    assert (few.kv_sessions, few.state_sessions, few.sessions) == (317, 188, 188)
    assert few.stranded_bytes == (2_680_896 - 188 * 8_448) * 7_919


@settings(max_examples=60, deadline=None)
@given(
    st.integers(10**6, 10**12), st.integers(1, 10**5), st.integers(1, 10**8), st.integers(1, 10**6), st.integers(1, 60)
)
def test_a_balanced_cut_strands_neither(budget: int, row: int, slot: int, tokens: int, states: int) -> None:
    found = balanced(budget, row, slot, tokens, states)
    assert found.kv_bytes + found.state_bytes <= budget
    assert found.kv_sessions == found.state_sessions == budget // (row * tokens + slot * states)


def test_holding_against_exponential_pauses_has_a_closed_form() -> None:
    """Memoryless pauses at rate λ: hold to the end if λ·C > F/M, else not at all."""
    rate, share = 1 / 50, 0.04
    count = 20_000
    pauses = -np.log(1 - (np.arange(count) + 0.5) / count) / rate
    for miss in (1.0, 1.9, 2.1, 10.0):
        found = best_ttl(pauses, miss, share)
        holds = rate * miss > share
        assert (found.hit > 0.999) == holds and (found.hit < 0.001) == (not holds)
        assert found.gain_of_holding_s == pytest.approx(miss - share / rate, abs=0.01)
        assert found.gain_s == pytest.approx(max(0.0, miss - share / rate), abs=0.01)


@settings(max_examples=60, deadline=None)
@given(st.lists(st.integers(0, 500), min_size=1, max_size=12), st.floats(0, 40), st.floats(0.001, 1))
def test_the_best_time_to_live_by_brute_force(pauses: list[int], miss: float, share: float) -> None:
    def gain(limit: float) -> float:
        return float(np.mean([(one <= limit) * miss - share * min(one, limit) for one in pauses]))

    found = best_ttl(np.array(pauses, dtype=float), miss, share)
    best = max(0.0, *(gain(limit) for limit in range(501)))
    assert found.gain_s == pytest.approx(best, abs=1e-9)
    if found.gain_s:
        assert gain(found.seconds if found.seconds != inf else max(pauses)) == pytest.approx(best, abs=1e-9)


def test_published_times_to_live(public_trace: Any) -> None:
    """At 4.1 % of the pool and 105k tokens: tools 140 s before 5.7 s of prefill, 30 s before an object store, 0 before
    host memory. For people 0 is published: holding 41 s gains 0.08 s of 5.7, so as good as nothing."""
    pauses = read_usage(str(public_trace("agentic_claude_code_requests.csv.gz"))).pauses_s
    assert best_ttl(pauses["tool"], 5.68, 0.041).seconds == pytest.approx(140, abs=5)
    assert best_ttl(pauses["tool"], 1.5, 0.041).seconds == pytest.approx(30, abs=5)
    for miss in (0.028, 0.139, 0.25):
        assert best_ttl(pauses["tool"], miss, 0.041).gain_s < 0.001
        assert best_ttl(pauses["user"], miss, 0.041).gain_s < 0.001
    assert best_ttl(pauses["user"], 5.68, 0.041).gain_s < 0.1


@settings(max_examples=60, deadline=None)
@given(st.integers(1, 1 << 40), st.floats(1e6, 1e12), st.floats(1e6, 1e12), st.floats(0, 10), st.floats(0.001, 1000))
def test_more_bandwidth_is_never_later(size: int, one: float, other: float, latency: float, prefill: float) -> None:
    slow, fast = (transfer_s(size, Link(exactly(rate), exactly(latency))) for rate in sorted((one, other)))
    assert fast.value <= slow.value
    if choose(slow, exactly(prefill)) == "reload":
        assert choose(fast, exactly(prefill)) == "reload"
    needed = break_even_bytes_per_s(size, exactly(prefill), exactly(latency))
    assert (needed is None) == (latency >= prefill)
    if needed is not None:
        at = transfer_s(size, Link(needed, exactly(latency)))
        assert at.value == pytest.approx(prefill)


def test_ends_that_overlap_are_too_close_to_call() -> None:
    assert choose(Interval(2, 1, 3), Interval(4, 2.5, 5)) == "close"
    assert choose(Interval(2, 1, 3), Interval(4, 3.5, 5)) == "reload"
    assert choose(Interval(9, 8, 10), Interval(4, 3.5, 5)) == "recompute"


def test_tiers_beside_a_gpu() -> None:
    """PCIe 4.0 at the share measured on 5.0; NVLink-C2C in PCIe's place; no host tier where memory is the host's."""
    names = {gpu: [tier.name for tier in find_tiers(find_gpu(gpu), [], 8)] for gpu in ("b300", "gb300", "gb10")}
    assert names["b300"] == ["dram", "rdma", "nvme", "object"]
    assert names["gb300"][0] == "dram-c2c" and "dram" not in names["gb300"] and "dram" not in names["gb10"]
    assert find_tiers(find_gpu("a100-80gb"), [], 8)[0].link.bytes_per_s.value == pytest.approx(54.3e9 / 2)


def test_what_is_typed_changes_a_tier() -> None:
    changes = ["dram=1.9TB@50GB/s,latency=2ms,price=0.01", "nvme=off", "object=@2GB/s,copies=one"]
    found = {tier.name: tier for tier in find_tiers(find_gpu("b300"), changes, 8)}
    assert list(found) == ["dram", "rdma", "object"]
    dram = found["dram"]
    assert dram.size_bytes_per_gpu == 1_900_000_000_000 // 8
    assert (dram.link.bytes_per_s.value, dram.link.latency_s.value, dram.price_per_gb_hour) == (50e9, 0.002, 0.01)
    assert dram.given == ("size", "bandwidth", "latency", "price")
    assert (found["object"].copies, found["object"].size_bytes_per_gpu) == ("one", None)


@pytest.mark.parametrize(
    "text", ["dram", "tape=1TB", "dram=1XB", "dram=1TB@fast", "dram=1TB,latency=long", "dram=,price=-1", "dram=,x=1",
             "dram=1TB,copies=two", "dram=1TB,off", "=1TB", "dram=1TB@54GB"],
)  # fmt: skip
def test_what_no_tier_can_mean_is_one_line(text: str) -> None:
    with pytest.raises(UsageError, match="--tier") as caught:
        find_tiers(find_gpu("b300"), [text], 8)
    assert "\n" not in str(caught.value)


@pytest.fixture(scope="module")
def case(k3: Replica) -> Case:
    return Case(k3, read_usage("coding-agent"), ConstantRate(exactly(18_500.0)), 0.01, 4.0)


def test_one_copy_takes_less_of_a_shared_tier(case: Case) -> None:
    def row(text: str) -> TierRow:
        tiers = find_tiers(case.replica.gpu, [text], 8)
        return next(one for one in tier_rows(case, tiers[1:2]) if one.name == "rdma")

    ranks, one = row("rdma=1.9TB"), row("rdma=1.9TB,copies=one")
    assert one.crossing_bytes * 6 < ranks.crossing_bytes and one.resume_s.value < ranks.resume_s.value / 5
    assert ranks.sessions_at_mean is not None and one.sessions_at_mean is not None
    assert one.sessions_at_mean > 5 * ranks.sessions_at_mean


def test_a_larger_tier_never_holds_fewer(case: Case) -> None:
    found = []
    for size in ("100GB", "500GB", "1.9TB"):
        row = tier_rows(case, find_tiers(case.replica.gpu, [f"dram={size}"], 8)[:1])[1]
        found.append((row.sessions_at_mean or 0, row.sessions_at_risk or 0))
    assert found == sorted(found) and found[0] < found[-1]


def test_prices_of_an_idle_session(case: Case) -> None:
    """Its share of 8 GPUs at 4 an hour; its bytes on 8 ranks at 0.005 per GB and hour."""
    hbm, dram = tier_rows(case, find_tiers(case.replica.gpu, [], 8)[:1])
    assert hbm.price_per_session_hour == pytest.approx(32 * case.pool_share())
    stored = 8 * (case.tokens * 13_824 + 56_171_520)
    assert dram.price_per_session_hour == pytest.approx(stored / 1e9 * 0.005)


def test_the_published_rate_is_of_one_case_alone(k3: Replica) -> None:
    found = find_prefill(k3, None)
    assert found is not None and found[0].prefill_s(18_500, 0).value == pytest.approx(1.0)
    assert find_prefill(read_replica("kimi-k3", gpu="B300:8", nodes=2, tp=16, kv_cache_memory="40GiB"), None) is None
    assert find_prefill(read_replica("kimi-linear", gpu="B300:8", kv_cache_memory="40GiB"), None) is None
    with pytest.raises(UsageError, match="--prefill-tokens-per-s"):
        tiers_report("kimi-linear", "chat", flags={"gpu": "H200:2"}, options=TierOptions(), notes=[])


def test_sglangs_two_host_pools() -> None:
    """Its own cut by device bytes leaves states that no rows go with; the balanced one holds more."""
    flags = {"gpu": "H200:2", "engine": "sglang", "enable_hierarchical_cache": True, "hicache_size": 64}
    options = TierOptions(prefill_tokens_per_s=20_000)
    host = tiers_report("kimi-linear", "coding-agent", flags=flags, options=options, notes=[]).host
    assert host is not None and host.now is not None
    assert host.budget_bytes == pytest.approx(64e9, rel=0.01)
    assert host.now.state_sessions > host.now.kv_sessions and host.now.stranded_bytes > 0
    assert host.balanced.sessions > host.now.sessions


def test_tiers_on_the_command_line(answer: Any) -> None:
    words = ("kimi-k3", "--gpu", "B300:8", "--kv-cache-dtype", "fp8", "--workload", "coding-agent")
    code, shown, _ = answer("agents", "tiers", *words, "--tier", "dram=1.9TB@54GB/s")
    assert code == 0 and shown.startswith("kimi-k3: idle sessions of coding-agent live best in dram")
    assert all(len(line) <= 80 for line in shown.splitlines())
    chat = ("kimi-k3", "--gpu", "B300:8", "--workload", "chat")
    assert all(len(line) <= 80 for line in answer("agents", "tiers", *chat)[1].splitlines())
    found = json.loads(answer("agents", "tiers", *words, "--json")[1])
    assert found["schema"] == "kvplan.tiers/1" and found["best"] == "dram"
    assert [row["name"] for row in found["tiers"]] == ["hbm", "dram", "rdma", "nvme", "object"]
    named = {one["name"]: one for one in found["assumptions"]}
    assert named["prefill_tokens_per_s"]["kind"] == "assumed" and "tier_dram_price" in named


def test_a_tier_that_holds_nobody_is_not_where_sessions_live(case: Case) -> None:
    rows = tier_rows(case, find_tiers(case.replica.gpu, ["dram=1GB"], 8)[:2])
    best = nearest(rows)
    assert rows[1].choice == "reload" and best is not None and best.name == "rdma"


@pytest.mark.parametrize(
    ("own", "said"),
    [
        ({"risk": 0.0}, "--risk"), ({"gpu_price": "-1"}, "--gpu-price"),
        ({"gpu_price": "H100=2/h"}, "--gpu-price"), ({"prefill_tokens_per_s": 0.0}, "--prefill"),
        ({"prefill_tokens_per_s": inf}, "--prefill"), ({"tier": ("dram=0B",)}, "--tier"),
    ],
)  # fmt: skip
def test_what_cannot_be_meant_is_one_line(own: dict[str, Any], said: str) -> None:
    with pytest.raises(KvplanError, match=said) as caught:
        tiers_report("kimi-k3", "chat", flags=B300, options=TierOptions(**own), notes=[])
    assert "\n" not in str(caught.value)


def test_the_exponential_gain_at_a_finite_limit() -> None:
    """The gain at τ is (1 − e^(−λτ))·(C − (F/M)/λ): its sign does not depend on τ."""
    rate, share, miss = 0.1, 0.05, 2.0
    count = 50_000
    pauses = -np.log(1 - (np.arange(count) + 0.5) / count) / rate
    at = 7.0
    gain = float(np.mean((pauses <= at) * miss - share * np.minimum(pauses, at)))
    assert gain == pytest.approx((1 - exp(-rate * at)) * (miss - share / rate), abs=1e-3)
