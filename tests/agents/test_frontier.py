"""The cheapest deployment: what other commands say for its flags, closed forms, brute force, and what must hold."""

import csv
import io
import json
import shlex
from collections.abc import Callable
from functools import partial
from math import ceil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kvplan.agents.candidates import search_field
from kvplan.agents.contexts import contexts_of_workload
from kvplan.agents.draws import Draws
from kvplan.agents.frontier import Frontier, deployed_users, frontier
from kvplan.agents.frontier_screen import spelled, to_dict
from kvplan.agents.options import Asked, ask
from kvplan.agents.pools import SessionPool
from kvplan.agents.prices import Prices, parse_prices
from kvplan.agents.report import sessions_report
from kvplan.agents.search import Load, Search
from kvplan.agents.sessions import DRAWS, count_sessions, units_of
from kvplan.agents.workload import find_workload
from kvplan.engines.base import Units
from kvplan.errors import KvplanError, UsageError
from kvplan.gpu import find_gpu
from kvplan.plan import plan, settle
from kvplan.units import ceil_div

Answer = Callable[..., tuple[int, str, str]]
TWO: dict[str, Any] = {"pp": 1, "tp": 2, "kv_cache_dtype": "bf16"}
"""A small field, so that two searches are quick."""


def ready(sessions: int = 40, **other: Any) -> Asked:
    return Asked(sessions, risk=0.01, spare=0, prices=Prices(), **other)


def searched(model: str, asked: Asked, **flags: Any) -> Frontier:
    return frontier(model, "coding-agent", asked, flags=flags)


@pytest.fixture(scope="module")
def alike(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A workload of which every context is 32,768 tokens."""
    row = ", ".join(["32768"] * 12)
    path = tmp_path_factory.mktemp("workload") / "alike.toml"
    path.write_text(
        'schema = "kvplan.workload/1"\nname = "alike"\ntitle = "t"\nrequests = 1\nsessions = 1\n'
        "percents = [0, 1, 5, 10, 25, 50, 75, 90, 95, 99, 99.9, 100]\n"
        '[source]\ntitle = "t"\nurl = ""\ndate = ""\nlicence = ""\n'
        f"[tables.context_tokens]\nvalues = [{row}]\nmean = 32768\n"
    )
    return str(path)


def test_equal_contexts_by_hand(alike: str) -> None:
    """Llama 3.1 8B keeps 32 layers × 2 × 8 × 128 × 2 B = 131,072 B a token, and weighs 8,030,261,248 parameters."""
    memory = find_gpu("h200").engine_memory_bytes
    each = (int(memory * 0.92) - 2 * 8_030_261_248) // (131_072 * 32_768)
    flags = {"gpu": "h200", "engine": "ideal", "tp": 1, "pp": 1, "kv_cache_dtype": "bf16"}
    found = frontier("llama-3.1-8b", alike, Asked(100, 0.01, 1, Prices()), flags=flags)
    assert found.answer is not None
    assert found.answer.sessions_per_replica == each
    assert (found.answer.gpus, found.answer.groups) == (ceil(100 / each) + 1,) * 2
    assert found.answer.sessions == ceil(100 / each) * each


@pytest.mark.parametrize(
    ("model", "sessions", "flags"),
    [
        ("kimi-k3", 64, {"gpu": "B300", "pp": 1}),
        ("qwen3-next", 40, {"gpu": "H100,B200:4", "engine": "sglang", "pp": 1}), ("llama-3.1-70b", 12, {"gpu": "H100"}),
        ("kimi-linear", 90, {"gpu": "l40s,h100", "pp": 1}), ("deepseek-v3.2", 60, {"gpu": "H200:16", "pp": 1}),
    ],
)  # fmt: skip
def test_the_answer_is_what_the_other_commands_say(model: str, sessions: int, flags: dict[str, Any]) -> None:
    found = searched(model, Asked(sessions, 0.05, 1, Prices()), **flags)
    assert found.answer is not None
    best = found.answer
    said = sessions_report(model, "coding-agent", flags=best.flags, risk="5")
    row = said.sessions.at_risk[0]
    assert (row.sessions, row.deployment_sessions * (best.groups - 1) // best.groups) == (
        best.sessions_per_replica, best.sessions,
    )  # fmt: skip
    assert best.sessions >= sessions
    made = plan(model, **best.flags)
    assert made.per_rank is not None and made.per_rank.layout["gpus"] == best.gpus
    assert {axis: made.per_rank.layout[axis] for axis in ("tp", "pp", "dcp", "ep")} == {
        axis: best.layout[axis] for axis in ("tp", "pp", "dcp", "ep")
    }
    for other in (*found.by_gpu, *found.nearest[:1]):
        again = said if other is best else sessions_report(model, "coding-agent", flags=other.flags, risk="5")
        assert again.sessions.at_risk[0].sessions == other.sessions_per_replica, other.flags


@pytest.mark.parametrize(("model", "gpu"), [("kimi-k3", "b300"), ("qwen3-next", "h100")])
def test_brute_force_finds_the_same(model: str, gpu: str) -> None:
    read, deployment, _, contexts = settle(model)
    field = search_field(read, deployment, {"gpu": gpu, "pp": 1, "tp": 8, "kv_cache_dtype": "fp8"}, 64, None)
    workload = contexts_of_workload(find_workload("coding-agent"))
    search = Search(read, field.candidates, workload, contexts[-1], 0.01)
    best = search.cheapest(range(len(field.candidates)), Load(50, 1), lambda one, gpus: float(gpus), field.most_gpus)
    every = Search(read, field.candidates, workload, contexts[-1], 0.01)
    gpus = []
    for index, one in enumerate(field.candidates):
        exact = every.exact(index)
        assert every.bounds[index] >= exact and every.rough(index) >= exact
        if exact:
            gpus.append((ceil(50 / (exact * one.group_replicas)) + 1) * one.group_gpus)
    assert best is not None
    assert best.gpus == min(gpus)
    assert search.evaluated < len(every.candidates) / 2


def test_draws_made_once_are_the_draws_of_sessions() -> None:
    random = np.random.default_rng(5)
    contexts = contexts_of_workload(find_workload("coding-agent"))
    for risk in (0.5, 0.1, 0.01, 0.001):
        of = partial(ceil_div, by=int(random.integers(16, 4096)))
        units = [Units("blocks", size, of, "") for size in (0, 50, 700, 9_000, 10**7)]
        draws = Draws(units_of(units[0], contexts.tokens), risk, seed=3)
        for one in reversed(units):
            pool = SessionPool(settle("kimi-k3")[0], "", "", one, one, one, 0, "given", 1, 1 << 20)
            assert draws.sessions(one.capacity) == count_sessions(pool, contexts, (risk,), seed=3).at(risk)
    assert DRAWS == 20_000


@given(st.lists(st.integers(1, 10**6), min_size=1, max_size=200), st.integers(1, 5000))
@settings(max_examples=60, deadline=None)
def test_lengths_that_are_skipped_take_what_their_neighbours_take(tokens: list[int], block: int) -> None:
    of = Units("blocks", 1, lambda one: -(-one // block) + (one > 500_000), "")
    assert units_of(of, np.array(tokens)).tolist() == [of.of(one) for one in tokens]


def test_prices_decide() -> None:
    by_memory = searched("kimi-linear", ready(20), gpu="h100,l40s", **TWO).answer
    dear = Asked(20, 0.01, 0, parse_prices("l40s=0.5/h,H100=9/h"))
    by_price = searched("kimi-linear", dear, gpu="h100,l40s", **TWO).answer
    assert by_memory is not None and by_price is not None
    assert (by_memory.gpu, by_memory.price_per_hour) == ("h100", None)
    assert (by_price.gpu, by_price.price_per_hour) == ("l40s", by_price.gpus * 0.5)


def test_only_priced_gpus_are_searched() -> None:
    found = searched("kimi-linear", Asked(4, 0.01, 0, parse_prices("h200=3.5,l40s=1/h")), **TWO)
    assert found.searched is not None and found.searched.gpus == ["h200", "l40s"]
    with pytest.raises(UsageError, match="no price for h100"):
        searched("kimi-linear", Asked(4, 0.01, 0, parse_prices("h200=3.5")), gpu="h100")


@pytest.mark.parametrize("text", ["3x", "H200", "H200=", "H200=1,H200=2", "-1/h", "0/h", "h200=1;b300=2", "1e3"])
def test_prices_that_cannot_be_meant(text: str) -> None:
    with pytest.raises(UsageError, match="--gpu-price"):
        parse_prices(text)


def test_more_load_and_more_spares_never_cost_less() -> None:
    found = searched("kimi-linear", ready(32), gpu="l40s,h100", **TWO)
    assert [one.load for one in found.by_load] == [8, 16, 32, 64, 128]
    costs = [one.memory_bytes for one in found.by_load]
    assert costs == sorted(costs)
    assert found.answer is not None
    spared = searched("kimi-linear", Asked(32, 0.01, 2, Prices()), gpu="l40s,h100", **TWO).answer
    assert spared is not None and spared.memory_bytes > found.answer.memory_bytes and spared.groups >= 3


def test_what_is_typed_stays() -> None:
    found = searched("kimi-k3", ready(), gpu="b300", tp=8, kv_cache_dtype="bf16", dcp=4)
    assert found.searched is not None and found.answer is not None
    assert (found.searched.axes["tp"], found.searched.axes["dcp"]) == ([8], [4])
    assert "kv_cache_dtype" not in found.searched.axes
    assert all(one.flags["kv_cache_dtype"] == "bf16" for one in (found.answer, *found.nearest))


def test_users_by_context_are_the_sequences_of_estimate() -> None:
    flags = {"gpu": "B300:8", "nodes": 3, "tp": 8, "dcp": 8, "kv_cache_dtype": "fp8"}
    found = deployed_users("kimi-k3", "coding-agent", Asked(0, 0.01, 1, Prices()), flags=flags)
    assert found.users is not None and found.exit_code == 0
    lengths = [row.context_tokens for row in found.users.rows]
    assert lengths == [1 << step for step in range(13, 21)]
    made = plan("kimi-k3", context=",".join(map(str, lengths)), **flags)
    assert [row.alike for row in found.users.rows] == [row.sequences * 2 for row in made.capacity]
    alike = [row.alike for row in found.users.rows]
    assert alike == sorted(alike, reverse=True)
    for row in found.users.rows:
        each = (row.alike if row.spread is None else row.spread) // 2
        assert row.gpus == tuple((ceil(load / each) + 1) * 8 for load in found.users.loads)


def test_nothing_holds_it(answer: Answer) -> None:
    code, out, _ = answer("frontier", "kimi-k3", "--sessions", "5", "--gpu", "l4,h100:2")
    assert code == 1
    assert "NOT HELD" in out and "h100  the weights leave no pool" in out and "RUN" not in out


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ("kimi-k3", "name the GPUs"),
        ("kimi-k3 --sessions 4 --nodes 2", "--nodes: the search sets it"),
        ("kimi-k3 --sessions 4 --dp 2", "--dp: the search sets"),
        ("kimi-k3 --sessions 4 --risk 0", "--risk 0"),
        ("kimi-k3 --sessions 4 --tp 7", "--tp 7 does not divide"),
        ("kimi-k3 --sessions 4 --tp 8 --dcp 3", "--dcp 3 does not divide --tp 8"),
        ("kimi-k3 --sessions 4 --gpu h200:4 --tp 8", "no layout of kimi-k3 with these flags lies on 4 h200"),
        ("kimi-k3 --sessions 4 --gpu H200:x", "NAME:COUNT"),
        ("kimi-k3 --gpu H200:8 --gpu-price 3", "--gpu-price needs --sessions"),
        ("kimi-k3 --gpu B300:8 --spare 1", "--spare 1: the deployment has 1 group"),
        ("llama-3.1-8b --sessions 4 --engine llamacpp", "--engine llamacpp"),
        ("deepseek-v4-pro --sessions 4 --engine sglang --gpu b300", "--engine sglang"),
        ("kimi-k3 --sessions 4 --workload nosuch", "no workload named"),
        ("kimi-k3 --sessions 4 --json --csv", "two output formats"),
    ],
)
def test_questions_that_cannot_be_meant(answer: Answer, words: str, said: str) -> None:
    with pytest.raises(KvplanError) as error:
        answer("frontier", *words.split())
    assert said in str(error.value) and error.value.exit_code == 2


def test_a_refusal_is_one_line(kvplan: Any) -> None:
    done = kvplan("frontier", "kimi-k3")
    assert (done.returncode, done.stdout) == (2, "")
    assert "name the GPUs" in done.stderr and done.stderr.count("\n") == 1


def test_forms_hold_the_same_answer(answer: Answer, monkeypatch: pytest.MonkeyPatch) -> None:
    once: dict[str, Frontier] = {}

    def search_once(*asked: Any, **flags: Any) -> Frontier:
        key = repr((asked, flags))
        if key not in once:
            once[key] = frontier(*asked, **flags)
        return once[key]

    monkeypatch.setattr("kvplan.agents.frontier.frontier", search_once)
    words = ("frontier", "kimi-k3", "--sessions", "64", "--gpu", "b300", "--tp", "8", "--gpu-price", "b300=6/h")
    _, text, _ = answer(*words)
    assert "CHEAPEST   8x B300" in text and max(map(len, text.splitlines())) <= 80
    check = text.split("CHECK")[1].split("RUN")[0]
    code, out, _ = answer(*shlex.split(" ".join(check.split()))[1:])
    assert code == 0 and "kimi-k3 holds 71 sessions" in out
    document = json.loads(answer(*words, "--json")[1])
    assert document["schema"] == "kvplan.frontier/1" and document["answer"]["sessions"] == 71
    assert document["searched"]["configurations"] == 16 * (32 + 16 + 8 + 4 + 16 + 8)
    table = list(csv.DictReader(io.StringIO(answer(*words, "--csv")[1])))
    assert (table[0]["kind"], table[0]["gpus"], table[0]["sessions"]) == ("answer", "8", "71")
    assert "| b300 |" in answer(*words, "--markdown")[1]
    assert "1,344 configurations in " in answer(*words, "--count")[1]


def test_flags_are_spelled_as_they_are_typed() -> None:
    flags = {"gpu": "b300:8", "enable_prefix_caching": False, "enforce_eager": True, "gpu_memory_utilization": 0.9}
    assert spelled(flags) == "--gpu b300:8 --no-enable-prefix-caching --enforce-eager --gpu-memory-utilization 0.9"


def test_every_bundled_gpu_is_searched() -> None:
    found = searched("kimi-linear", ready(8), tp=8, pp=1, kv_cache_dtype="bf16")
    bundled = {path.stem for path in (Path(__file__).parents[2] / "profiles" / "gpus").glob("*.toml")}
    assert found.searched is not None and set(found.searched.gpus) == bundled
    assert {one.gpu for one in (*found.by_gpu, *found.not_held)} == bundled
    assert json.loads(json.dumps(to_dict(found)))["answer"]
    assert ask(None, 1.0, 0, None, 8, 0).sessions == 0


def test_the_command_to_run_has_what_the_flags_say() -> None:
    found = searched("kimi-linear", ready(40), gpu="h200:8", tp=1, dp=2, ep=2, enable_prefix_caching=False)
    assert found.answer is not None and found.run is not None
    assert (found.answer.group_gpus, found.answer.layout["dp"]) == (2, 2)
    assert " -dp 2 --enable-expert-parallel " in found.run and "--no-enable-prefix-caching" in found.run
    assert not any("prefix" in one.change for one in found.nearest)
