"""What several commands say about one deployment agrees, and where nothing fits each of them says so and why."""

import json
from itertools import groupby
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kvplan.agents.cache_sessions import _cover
from kvplan.agents.cache_store import Piece
from kvplan.agents.knee import _bracketed
from kvplan.agents.prefill import check_rate
from kvplan.errors import UsageError

RATE = ("--prefill-tokens-per-s", "10000")
NO_POOL = ("qwen3-next", "--gpu", "H100:2")
"""80 billion parameters in bf16 are 162.65 GB (74.25 GiB a GPU), and two H100 have 2 × 79.18 GiB less what runs."""


def words(command: str) -> tuple[str, ...]:
    return ("agents",) if command == "page" else ("agents", command)


def own(command: str) -> tuple[str, ...]:
    return {"page": ("--no-knee", *RATE), "tiers": RATE, "failover": RATE}.get(command, ())


@pytest.fixture(scope="module")
def alike(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Ten sessions of four requests, each of 131,072 tokens with its answer: 10 s of work, 20 s of pause."""
    path = tmp_path_factory.mktemp("trace") / "alike.csv"
    rows = [f"s{n // 4},130072,1000,{130072 if n % 4 else 0},10,20" for n in range(40)]
    path.write_text("\n".join(("session,input_tokens,output_tokens,lcp_prev,api_s,think_s", *rows)) + "\n")
    return str(path)


def negative(value: Any, path: str = "") -> list[str]:
    """Where a document states less than nothing, gains and savings aside."""
    if isinstance(value, dict):
        return [one for key, part in value.items() for one in negative(part, key)]
    if isinstance(value, list):
        return [one for part in value for one in negative(part, path)]
    signed = path in ("saving", "more_bytes", "gain_s", "gain_of_holding_s")
    return [path] if isinstance(value, (int, float)) and value < 0 and not signed else []


@pytest.mark.parametrize(
    ("command", "said"),
    [
        ("page", "NONE the weights leave nothing for a cache"),
        ("sessions", "NONE the weights leave nothing for a cache"),
        ("tiers", "not one session of chat fits: the weights leave nothing for a cache"),
        ("failover", "nothing may be promised: the weights leave nothing for a cache"),
    ],
)
def test_no_pool_is_no_negative_pool(answer: Any, command: str, said: str) -> None:
    asked = (*words(command), *NO_POOL, "--workload", "chat", *own(command))
    code, shown, _ = answer(*asked)
    assert code == 1 and said in " ".join(shown.split())
    assert "at a time" not in shown and "live best" not in shown
    code, out, _ = answer(*asked, "--json")
    found = json.loads(out)
    assert code == 1 and negative(found) == []
    if "sessions" in found:
        assert found["pool"]["bytes"] == 0
        assert {row["binds"] for row in found["sessions"]["at_risk"]} == {"weights"}
    assert found.get("best") is None and found.get("idle", {}).get("tier") is None


def test_residency_without_a_pool(answer: Any) -> None:
    code, shown, _ = answer(
        "agents", "residency", *NO_POOL, "--workload", "coding-agent", "--hours", "0.1", "--runs", "1"
    )
    assert code == 1 and "again: the weights leave nothing" in " ".join(shown.split()) and "x =" not in shown


def test_an_engine_that_does_not_start_says_with_which_length(answer: Any) -> None:
    """Llama 4 Scout's own limit is 10,485,760 tokens; `estimate --context 128K` asks vLLM for less."""
    scout = ("llama-4-scout", "--gpu", "H200:4", "--workload", "chat")
    shown = " ".join(answer("agents", "sessions", *scout)[1].split())
    assert "does not hold one sequence of 10,485,760 tokens, which vllm asks for when it starts" in shown
    code, out, _ = answer("agents", "sessions", *scout, "--max-model-len", "131072", "--json")
    assert code == 0 and json.loads(out)["sessions"]["at_risk"][-1]["sessions"] > 0


@pytest.mark.parametrize(
    ("flags", "per_replica"),
    [
        (("kimi-k3", "--gpu", "B300:8"), None), (("kimi-linear", "--gpu", "H200:8", "--tp", "4"), None),
        (("qwen3-next", "--gpu", "B300:8", "--tp", "4", "--pp", "2", "--engine", "sglang"), None),
        (("llama-3.1-8b", "--gpu", "B300:8", "--dp", "2", "--tp", "4", "--engine", "ideal"), None),
        (("nemotron-h-8b", "--gpu", "B300:8"), 2560),
    ],
)  # fmt: skip
def test_all_say_the_same(answer: Any, alike: str, flags: tuple[str, ...], per_replica: int | None) -> None:
    """Contexts all alike: at every risk what `estimate` holds of them. Nemotron-H reads 8,192 tokens and its memory
    holds more; vLLM's 1,024 sequences at work, 40 s of each 100 s, are 2,560 open ones."""
    page, sessions, tiers, failover = (
        json.loads(answer(*words(name), *flags, "--workload", alike, *own(name), "--json")[1])
        for name in ("page", "sessions", "tiers", "failover")
    )
    if per_replica is None:
        made = json.loads(answer("estimate", *flags, "--context", "128K", "--json")[1])
        per_replica = made["capacity"][0]["sequences"]
    assert {row["sessions"] for row in page["sessions"]["at_risk"]} == {per_replica}
    assert page["sessions"] == sessions["sessions"] and page["pool"] == sessions["pool"]
    assert failover["sessions_per_replica"] == tiers["tiers"][0]["sessions_at_risk"] == per_replica
    assert page["idle"]["tiers"] == tiers["tiers"] and page["failover"]["losses"] == failover["losses"]
    assert (tiers["risk"], failover["risk"]) == (0.01, 0.01)
    mean = sessions["sessions"]["mean_context_tokens"]
    assert tiers["context_tokens"] == failover["context_tokens"] == page["idle"]["context_tokens"] == round(mean)


def test_contexts_beyond_the_limit_are_told(answer: Any) -> None:
    """Qwen3-Next reads 262,144 tokens: the mean is of contexts as they are then, and the page says how many are cut."""
    asked = ("qwen3-next", "--gpu", "H200:4", "--workload", "coding-agent")
    code, shown, _ = answer("agents", *asked, "--no-knee")
    assert code == 0 and "CLIPPED 9.2% of the contexts" in " ".join(shown.split())
    cut = json.loads(answer("agents", *asked, "--no-knee", "--json")[1])
    assert cut["idle"]["context_tokens"] == round(cut["sessions"]["mean_context_tokens"]) < 130_000


def test_a_tier_that_cannot_hold_what_is_lost_is_not_read(answer: Any) -> None:
    asked = ("agents", "failover", "kimi-k3", "--gpu", "B300:8", "--nodes", "2", "--workload", "chat", "--json")
    tiers = {row["tier"] for row in json.loads(answer(*asked)[1])["losses"]}
    small = {row["tier"] for row in json.loads(answer(*asked, "--tier", "rdma=1GB")[1])["losses"]}
    assert tiers == {"rdma"} and "rdma" not in small


def test_equal_bytes_are_no_saving_and_no_loss(answer: Any) -> None:
    """Below the first chunk of 8,192 tokens Llama 4's layers with chunks keep what full attention keeps."""
    asked = ("llama-4-scout", "--gpu", "H200:8", "--max-model-len", "8192", "--workload", "chat", "--no-knee")
    shown = " ".join(answer("agents", *asked)[1].split())
    assert "stores as much as under" in shown and "0 B more" not in shown


@pytest.mark.parametrize(
    ("asked", "said"),
    [
        (("checkpoints", "kimi-k3", "--workload", "coding-agent"), "do not say what prompts share; give a trace"),
        (("residency", "kimi-k3", "--gpu", "B300:8", "--workload", "coding-agent", "--subagents"), "--subagents"),
        (("residency", "kimi-k3", "--gpu", "B300:8", "--workload", "coding-agent", "--sessions", ""), "--sessions"),
        (("residency", "kimi-k3", "--gpu", "B300:8", "--workload", "coding-agent", "--max-model-len", "1",
          "--hours", "0.1", "--runs", "1"), "however large the pool"),
        (("tiers", "kimi-k3", "--gpu", "B300:8", "--workload", "chat", "--tier", "dram="), "nothing is said about it"),
    ],
)  # fmt: skip
def test_what_was_guessed_in_silence_is_refused(answer: Any, asked: tuple[str, ...], said: str) -> None:
    with pytest.raises(UsageError, match=said):
        answer("agents", *asked)


@pytest.mark.parametrize("rate", [0.0, -1.0, 1e-300, 1e300, float("nan"), float("inf")])
def test_rates_that_no_replica_has(rate: float) -> None:
    with pytest.raises(UsageError, match="0\\.001 to 1,000,000,000"):
        check_rate(rate)


def test_less_time_than_a_session_is_warned_of(answer: Any, alike: str) -> None:
    """4 × 10 s of work and 3 × 20 s of pause are 100 s, and 0.02 h are 72 s."""
    asked = ("agents", "residency", "kimi-k3", "--gpu", "B300:8", "--workload", alike, "--runs", "1", "--hours")
    assert "--hours 0.02 is shorter than a session, 0.028 h" in answer(*asked, "0.02")[2]
    assert answer(*asked, "0.04")[2] == ""


_RUN = st.tuples(st.integers(0, 30), st.integers(1, 12), st.integers(0, 12), st.integers(0, 30))


@settings(max_examples=200, deadline=None)
@given(st.lists(_RUN, max_size=8), st.integers(0, 40))
def test_of_several_copies_the_oldest_at_every_block(runs: list[tuple[int, int, int, int]], limit: int) -> None:
    """Block by block: the copy that was cached first, up to the first block that nobody has."""
    pieces = []
    for age, (start, length, hole, good) in enumerate(runs):
        piece = Piece(start, start + length, 1, (age * 7) % 11)
        piece.cut(start + hole, start + hole + 1)
        piece.good = min(piece.good, good)
        pieces.append(piece)

    def oldest(block: int) -> Piece | None:
        there = [one for one in pieces if block < one.good and any(start <= block < stop for start, stop in one.ranges)]
        return min(there, key=lambda one: one.born, default=None)

    wanted: list[tuple[Piece, int, int]] = []
    for piece, blocks in groupby(range(limit), key=oldest):
        if piece is None:
            break
        held = list(blocks)
        wanted.append((piece, held[0], held[-1] + 1))
    assert _cover(pieces, limit) == wanted


@settings(max_examples=200, deadline=None)
@given(st.integers(0, 5000), st.integers(1, 20_000), st.integers(0, 3000), st.sampled_from([1.0, 0.2, 3.0]))
def test_a_knee_is_bracketed_from_wherever_it_is_looked_for(knee: int, start: int, step: int, bend: float) -> None:
    """The last count that keeps enough, to one part in forty, in a handful of looks."""
    looks = []

    def excess(count: int) -> float:
        looks.append(count)
        gap = knee + 0.5 - count
        return abs(gap) ** bend * (1 if gap > 0 else -1)

    found = _bracketed(excess, start, step)
    assert found <= knee < found + max(1, (found + max(1, knee // 38)) // 38) + 1
    assert len(set(looks)) == len(looks) < 60


def test_paths_of_workloads_stay_paths(tmp_path: Path, answer: Any) -> None:
    """A trace that is called like a profile is the trace."""
    trace = tmp_path / "chat"
    trace.write_text("session,input_tokens,lcp_prev\na,1000,0\na,2000,1000\n")
    code, out, _ = answer("agents", "checkpoints", "kimi-k3", "--workload", str(trace), "--json")
    assert code == 0 and json.loads(out)["resumes"]["resumes"] == 1


HEAD = "session,input_tokens,output_tokens,lcp_prev,api_s,think_s\n"


def test_a_trace_in_which_nothing_takes_time_ends(tmp_path: Path, answer: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    trace = tmp_path / "still.csv"
    monkeypatch.setattr("kvplan.agents.residency.MOST_REQUESTS", 500)
    trace.write_text(HEAD + "a,4000,10,0,0,0\n" + "a,4000,10,4000,0,0\n" * 4)
    asked = ("kimi-k3", "--gpu", "B300:8", "--engine", "ideal", "--workload", str(trace))
    _, out, said = answer("agents", "residency", *asked, "--hours", "0.01", "--runs", "1", "--json")
    assert "simulations ended at 60,000 requests" in said and json.loads(out)["knee"]["infinite_hit"] > 0.7


def test_more_shared_than_there_is_is_no_request(tmp_path: Path, answer: Any) -> None:
    trace = tmp_path / "trace.csv"
    trace.write_text(HEAD + "a,1000,10,0,1,1\na,500,1,999999,1,1\na,1200,10,1000,1,1\n")
    _, out, said = answer("agents", "checkpoints", "kimi-k3", "--workload", str(trace), "--json")
    assert "1 where lcp_prev is above input_tokens, the first in line 3" in said
    assert json.loads(out)["policies"][0]["token_hit"] == pytest.approx(1000 / 2200) and negative(json.loads(out)) == []


def test_no_room_at_all_is_null_in_json(alike: str, answer: Any) -> None:
    """N · E[F] / M has no end where M is 0."""
    asked = ("agents", "residency", *NO_POOL, "--workload", alike, "--hours", "0.1", "--runs", "1", "--json")
    code, out, _ = answer(*asked)
    assert code == 1 and json.loads(out)["rows"][0]["x"] is None


def test_workloads_fit_eighty_columns(answer: Any) -> None:
    for name in ("coding-agent", "chat", "short-code"):
        table = answer("workloads", "show", name)[1].split("PERCENTILES")[1]
        assert max(map(len, table.splitlines())) <= 80


def test_a_workflow_without_a_pool_fits_nowhere(tmp_path: Path, answer: Any) -> None:
    path = tmp_path / "workflow.toml"
    path.write_text('schema = "kvplan.workflow/1"\n[[agents]]\nname = "a"\nduration_s = 10\nend_tokens = 100\n')
    code, shown, _ = answer("agents", "workflow", str(path), *NO_POOL)
    assert code == 1 and "FITS       none: the weights leave nothing for a cache" in shown
    found = json.loads(answer("agents", "workflow", str(path), *NO_POOL, "--json")[1])
    assert (found["pool_bytes"], found["fits"], negative(found)) == (0, 0, [])
