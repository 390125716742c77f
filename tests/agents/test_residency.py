"""Open sessions: the published table and its approximation, the knee, and what must always hold."""

import json
from collections.abc import Callable
from dataclasses import replace
from itertools import accumulate, pairwise
from math import inf, sqrt
from statistics import fmean, stdev
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kvplan.agents.cache_store import Store
from kvplan.agents.cache_vllm import VllmCache
from kvplan.agents.cache_whole import WholeCache
from kvplan.agents.che import Load, characteristic_s, che_hit, che_knee, load_of
from kvplan.agents.columns import Columns, read_columns
from kvplan.agents.generate import generate
from kvplan.agents.knee import Knee, Loop, dense_knees, find_knee, rows_of
from kvplan.agents.pools import SessionPool, session_pool
from kvplan.agents.request import MAIN, Request
from kvplan.agents.residency import Conversation, Outcome, Turn, conversations, simulate
from kvplan.agents.residency_report import ResidencyOptions, residency_report
from kvplan.agents.workload import find_workload
from kvplan.capacity import evaluate
from kvplan.engines.base import Reuse, Units
from kvplan.errors import KvplanError, UsageError
from kvplan.plan import settle
from kvplan.sources import resolve

B300: dict[str, Any] = {
    "gpu": "B300:8", "kv_cache_dtype": "fp8", "enable_prefix_caching": True, "kv_cache_memory": "42.23GiB",
}  # fmt: skip
WORDS = ("kimi-k3", "--gpu", "B300:8", "--kv-cache-dtype", "fp8", "--enable-prefix-caching", "--kv-cache-memory",
         "42.23GiB")  # fmt: skip
CLIENTS = (16, 24, 32, 48, 64, 96)
SIMULATED = {1: (0.953, 0.888, 0.811, 0.675, 0.522, 0.281), 4: (0.453, 0.303, 0.178, 0.063, 0.021, 0.003)}
APPROXIMATED = {1: (0.963, 0.880, 0.821, 0.710, 0.576, 0.323), 4: (0.602, 0.354, 0.174, 0.032, 0.004, 0.0)}
"""By how many times the blocks of a context, measured by others on the public coding-agent trace for 2,135 blocks of
1,536 tokens with pauses of at most 300 s: means of five runs of three hours, and what the Che approximation says."""


@pytest.fixture(scope="module")
def talks(agentic: Columns) -> list[Conversation]:
    return conversations(agentic, 300.0, 1 << 20)


def blocks_of(times: int) -> Callable[[int], int]:
    return lambda tokens: -(-tokens // 1536) * times + 6


@pytest.mark.parametrize("times", [1, 4])
def test_published_hits_of_open_sessions(times: int, talks: list[Conversation]) -> None:
    """Within 0.03, or within two standard errors of five runs: few large sessions differ by 0.07 from run to run."""
    for clients, published in zip(CLIENTS, SIMULATED[times], strict=True):
        hits = [simulate(talks, clients, WholeCache(2135, blocks_of(times)), seed=seed).hit for seed in range(5)]
        assert fmean(hits) == pytest.approx(published, abs=max(0.03, 2 * stdev(hits) / sqrt(5)))


@pytest.mark.parametrize("times", [1, 4])
def test_published_approximation(times: int, talks: list[Conversation]) -> None:
    load = load_of(talks, blocks_of(times))
    for clients, published in zip(CLIENTS, APPROXIMATED[times], strict=True):
        assert che_hit(load, clients, 2135) == pytest.approx(published, abs=0.015)


def test_the_approximation_tracks_the_simulation_where_it_should(talks: list[Conversation]) -> None:
    """Within 0.05 for x up to 2 and 24 sessions and more."""
    load = load_of(talks, blocks_of(1))
    for clients in (24, 32, 48):
        hits = [simulate(talks, clients, WholeCache(2135, blocks_of(1)), seed=seed).hit for seed in range(5)]
        assert che_hit(load, clients, 2135) == pytest.approx(fmean(hits), abs=0.05)


def test_blocks_and_states_hold_up_to_the_knee_and_fall_faster_past_it(talks: list[Conversation]) -> None:
    """vLLM's own rules agree with the published figures while everything fits, and lose more than whole sessions do
    once half of a context is worth nothing."""

    def hit(clients: int) -> float:
        cache = VllmCache(Store(2134, "lru"), block_tokens=1536, state_groups=3, chunk_tokens=16384)
        return simulate(talks, clients, cache).hit

    assert hit(16) == pytest.approx(SIMULATED[1][0], abs=0.03)
    assert hit(64) < SIMULATED[1][4] - 0.1


def test_inference_x_collapses_inside_the_bracket(talks: list[Conversation]) -> None:
    """InferenceX pull request 2371: equal arms below 8 at once, 2.7 % hits at 16, with every state kept."""
    flags = B300 | {"max_num_batched_tokens": 8192}
    loop = Loop(talks, session_pool("kimi-k3", **flags), reuse_of("kimi-k3", **flags), "lru", 3.0, 1, 0)
    found = dense_knees(loop, 0.9)
    assert found == (pytest.approx(6, abs=1), pytest.approx(15, abs=1))
    assert found[0] <= 8 <= found[1] <= 16


def test_subagents_start_at_zero_on_their_own_clocks(agentic_requests: list[Request]) -> None:
    """Why the published peak of three sub-agents at once cannot be found again: the trace does not say when, on their
    parent's clock, they began."""
    firsts: dict[tuple[str, str], Request] = {}
    for request in agentic_requests:
        if request.agent != MAIN:
            firsts.setdefault(request.stream, request)
    assert len(firsts) == 63 and {first.at_s for first in firsts.values()} == {0.0}


def talk(*sizes: int, pause: float = 9.0) -> Conversation:
    """Prompts that grow, each with all of the one before."""
    return [Turn(size, 0, before, 1.0, pause if before else 0.0) for before, size in pairwise((0, *sizes))]


def pool(capacity: int, unit: int = 1) -> SessionPool:
    units = Units("units", capacity, lambda tokens: -(-tokens // unit), "as given")
    return SessionPool(resolve("llama-3.1-8b"), "ideal", "1", units, units, units, capacity, "given", 1, 10**6)


def test_sessions_that_fit_are_found_and_one_too_many_ruins_all() -> None:
    """Equal sessions of 20 requests take turns: everything but the first requests, or nothing."""
    sessions = [talk(*[100] * 20)] * 5
    fits = simulate(sessions, 4, WholeCache(400, lambda tokens: tokens), hours=0.05)
    ruined = simulate(sessions, 4, WholeCache(399, lambda tokens: tokens), hours=0.05)
    assert fits.hit == (fits.requests - 4) / fits.requests and ruined.hit == 0
    assert fits == Outcome(4 * 19, 7600, 7200, 0, 0)


def test_requests_wait_for_memory_or_are_left_out() -> None:
    """Ten blocks: two requests of six wait for each other; one of eleven never fits, and its session goes on."""

    def small() -> VllmCache:
        return VllmCache(Store(10, "lru"), block_tokens=1, chunk_tokens=100)

    found = simulate([talk(6, 6)] * 2, 2, small(), hours=0.001)
    assert (found.requests, found.waited) == (2, 1)
    found = simulate([talk(11, 5, 5)], 1, small(), hours=20 / 3600)
    assert (found.requests, found.refused) == (2, 1)


def test_the_approximation_by_hand() -> None:
    """One session for ever, 4 units, 10 s between requests of 1 s and 9 s of pause."""
    load = load_of([talk(*[4] * 1000)], lambda _: 4)
    assert che_hit(load, 1, 10) == pytest.approx(0.999)
    assert characteristic_s(load, 1, 10**6) == inf
    assert characteristic_s(load, 2, 4) == pytest.approx(5, rel=0.01)
    assert che_hit(load, 2, 4) == 0 and che_knee(load, 10, 0.9) == 2


_STEPS = st.lists(st.integers(1, 50), min_size=1, max_size=6)
_TALKS = st.lists(_STEPS.map(lambda steps: talk(*accumulate(steps))), min_size=1, max_size=6)


@settings(max_examples=50, deadline=None)
@given(_TALKS, st.integers(1, 200), st.integers(0, 100), st.integers(1, 8))
def test_more_memory_never_holds_fewer_by_the_approximation(
    sessions: list[Conversation], capacity: int, more: int, clients: int
) -> None:
    load = load_of(sessions, lambda tokens: tokens)
    assert che_hit(load, clients, capacity) <= che_hit(load, clients, capacity + more)
    assert che_hit(load, clients + 1, capacity) <= che_hit(load, clients, capacity)
    least = 0.9 * che_hit(load, 1, 10**9)
    assert che_knee(load, capacity, least) <= che_knee(load, capacity + more, least)


@settings(max_examples=15, deadline=None)
@given(st.integers(2, 30), st.integers(0, 30))
def test_more_memory_never_moves_the_knee_down(capacity: int, more: int) -> None:
    """Equal sessions of two units: with room for them all everything is found, and half of it is the knee."""
    sessions = [talk(*[2] * 30)] * 3
    small, large = (Loop(sessions, pool(size), None, "lru", 0.2, 1, 0) for size in (capacity, capacity + more))
    assert find_knee(small, 0.5).sessions == capacity // 2 <= find_knee(large, 0.5).sessions


@settings(max_examples=25, deadline=None)
@given(_TALKS, st.randoms(use_true_random=False))
def test_the_order_of_sessions_in_a_trace_changes_nothing(sessions: list[Conversation], random: Any) -> None:
    def requests(order: list[int]) -> list[Conversation]:
        rows = (
            Request(str(index), turn.prompt, turn.answer, service_s=turn.service_s, pause_s=turn.pause_s,
                    shared_tokens=turn.shared)
            for index in order for turn in sessions[index]
        )  # fmt: skip
        return conversations(read_columns(rows), 300.0, 1 << 20)

    order = list(range(len(sessions)))
    random.shuffle(order)
    one, other = requests(sorted(order)), requests(order)
    outcomes = [simulate(found, 3, WholeCache(60, lambda tokens: tokens), hours=0.05) for found in (one, other)]
    assert outcomes[0] == outcomes[1]
    loads: list[Load] = [load_of(found, lambda tokens: tokens) for found in (one, other)]
    assert che_hit(loads[0], 3, 60) == che_hit(loads[1], 3, 60)


def test_past_the_knee_nothing_is_promised() -> None:
    loop = Loop([talk(*[2] * 30)] * 3, pool(20), None, "lru", 0.2, 1, 0)
    knee = find_knee(loop, 0.5)
    below, above = rows_of(loop, knee, (5, 40), beyond=False)
    assert (knee.sessions, knee.x) == (10, 1.0)
    assert (below.past_knee, above.past_knee, above.hit, above.whole, above.che) == (False, True, None, None, None)
    assert rows_of(loop, knee, (40,), beyond=True)[0].hit is not None


def test_many_sessions_are_simulated_in_proportion() -> None:
    sessions = [talk(*[2] * 30)] * 3
    loop = Loop(sessions, pool(400), None, "lru", 0.2, 1, 0, most_clients=16)
    assert loop.hit(200) > 0.9 and loop.scaled and loop.hit(201) == 0


def reuse_of(model: str, **flags: Any) -> Reuse | None:
    read, deployment, gpu, contexts = settle(model, **flags)
    now = evaluate(read, deployment, gpu, contexts)
    assert now.pool is not None and now.share is not None
    return now.engine.reuse(now.share, now.pool.bytes, now.deployment, contexts[-1])


def test_the_k3_pool_as_a_cache() -> None:
    """2,135 blocks, one of them the null block; 24 latent layers in one group, 69 states in three."""
    found = reuse_of("kimi-k3", **B300)
    assert found is not None
    assert (found.capacity, found.block_tokens, found.lists, found.state_units) == (2134, 1536, 1, 3)
    assert (found.retention_tokens, found.states_first) == (0, True)
    older = reuse_of("kimi-k3", **B300 | {"engine_version": "0.28"})
    spread = reuse_of("kimi-k3", **B300 | {"dcp": 8})
    assert older is not None and older.retention_tokens is None
    assert (
        spread is not None
        and spread.capacity == 8 * (spread.capacity // 8)
        and (spread.state_units, spread.shares) == (24, 8)
    )


def test_caches_of_other_models_and_engines() -> None:
    plain = reuse_of("llama-3.1-8b", gpu="H100")
    assert plain is not None and (plain.block_tokens, plain.state_units) == (16, 0)
    assert reuse_of("gpt-oss-20b", gpu="H100") is None
    assert reuse_of("kimi-k3", **B300 | {"engine": "ideal", "tp": 8}) is None
    slots = reuse_of("kimi-linear", engine="sglang", gpu="H200:2")
    assert slots is not None and slots.slots and slots.keeps == "pages"
    with pytest.raises(UsageError, match="--enable-prefix-caching"):
        reuse_of("kimi-k3", **B300 | {"enable_prefix_caching": False})
    with pytest.raises(UsageError, match="--disable-radix-cache"):
        reuse_of("kimi-linear", engine="sglang", gpu="H200:2", disable_radix_cache=True)


def test_residency_on_the_command_line(answer: Any) -> None:
    own = ("--workload", "coding-agent", "--hours", "0.1", "--runs", "1", "--sessions", "8,90")
    code, out, _ = answer("agents", "residency", *WORDS, *own, "--json")
    found = json.loads(out)
    assert (code, found["schema"], found["cache"]["capacity"]) == (0, "kvplan.residency/1", 2134)
    below, above = found["rows"]
    assert below["hit"] > 0.7 and above["hit"] is None and above["past_knee"]
    code, shown, _ = answer("agents", "residency", *WORDS, *own)
    assert code == 0 and "knee" in shown and "is not predicted" in " ".join(shown.split())
    assert all(len(line) <= 80 for line in shown.splitlines())


def test_equal_seeds_equal_answers_and_more_memory_more_sessions() -> None:
    """Sessions made up from the bundled profile on the K3 pool and on a half and twice of it, by blocks and states."""
    columns = read_columns(generate(find_workload("coding-agent"), 40, 0))

    def knee(memory: str, seed: int = 0) -> Knee:
        flags = B300 | {"kv_cache_memory": memory}
        cache = reuse_of("kimi-k3", **flags)
        made = conversations(columns, 300.0, 1 << 20)
        return find_knee(Loop(made, session_pool("kimi-k3", **flags), cache, "lru", 0.3, 1, seed), 0.9)

    middle = knee("42.23GiB")
    assert middle == knee("42.23GiB") != knee("42.23GiB", seed=1)
    assert 0 < knee("21GiB").sessions < middle.sessions < knee("84GiB").sessions


def test_a_pool_that_holds_nobody_is_a_no(answer: Any) -> None:
    words = (*WORDS[:-1], "1GiB", "--workload", "coding-agent", "--hours", "0.05", "--runs", "1")
    code, shown, _ = answer("agents", "residency", *words)
    assert code == 1 and "not one open session" in shown


def test_a_trace_of_blocks_has_pools_instead_of_a_knee(answer: Any, tmp_path: Any) -> None:
    trace = tmp_path / "trace.jsonl"
    rows = [{"timestamp": n, "input_length": 4000, "hash_ids": [1, 2, 3, 4, 5, 6, 10 + n, 20 + n]} for n in range(3)]
    trace.write_text("\n".join(map(json.dumps, rows)))
    code, out, _ = answer("agents", "residency", *WORDS, "--workload", str(trace), "--json")
    found = json.loads(out)
    assert code == 0 and found["knee"] is None
    assert found["pools"][-1]["hit"] == pytest.approx(2 * 3072 / 12_000)
    shown = answer("agents", "residency", *WORDS, "--workload", str(trace))[1]
    assert "infinite" in shown and all(len(line) <= 80 for line in shown.splitlines())


TIMED = "session,input_tokens,lcp_prev,api_s,think_s\na,10,0,1,0\na,12,10,1,5\n"


@pytest.mark.parametrize(
    ("text", "flags", "said"),
    [
        ("input_tokens\n5\n", (), "does not say what prompts share"),
        ("session,input_tokens,lcp_prev\na,5,0\n", (), "gives no times"),
        (TIMED.replace("12,10", "12,0"), (), "shares anything"),
        (TIMED, ("--eviction", "x"), "--eviction"), (TIMED, ("--retention", "x"), "--retention"),
        (TIMED, ("--sessions", "a"), "--sessions"), (TIMED, ("--sessions", "0"), "--sessions"),
        (TIMED, ("--keep", "0"), "--keep"), (TIMED, ("--hours", "nan"), "--hours"), (TIMED, ("--runs", "0"), "--runs"),
        (TIMED, ("--gap-cap", "-1"), "--gap-cap"),
    ],
)  # fmt: skip
def test_residency_refuses_in_one_line(
    text: str, flags: tuple[str, ...], said: str, answer: Any, tmp_path: Any
) -> None:
    trace = tmp_path / "trace.csv"
    trace.write_text(text)
    with pytest.raises(KvplanError, match=said) as caught:
        answer("agents", "residency", *WORDS, "--workload", str(trace), *flags)
    assert "\n" not in str(caught.value)


def test_a_workload_without_conversations_is_refused() -> None:
    with pytest.raises(UsageError, match="no conversations"):
        residency_report("llama-3.1-8b", "chat", flags={"gpu": "H100"}, options=ResidencyOptions(), notes=[])
    with pytest.raises(UsageError, match="keeps no states"):
        options = replace(ResidencyOptions(), retention="dense")
        residency_report("llama-3.1-8b", "coding-agent", flags={"gpu": "H100"}, options=options, notes=[])
