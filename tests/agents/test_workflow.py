"""Trees of agents, counted by hand to the byte and against a slow walk through time."""

import json
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kvplan.agents.account import Account, account
from kvplan.agents.tree import place
from kvplan.agents.workflow import MOST_AGENTS, Workflow, parse_workflow
from kvplan.dtypes import Dtypes
from kvplan.errors import ProfileError, UsageError
from kvplan.ledger import Holding
from kvplan.sources import resolve

TOKEN, STATE = 27_648, 449_372_160
"""Kimi K3 with a bf16 cache and fp32 states, as engines store it: bytes per token and per sequence."""


def k3(state: str = "fp32", conv: str | None = "bf16") -> Holding:
    return Holding(resolve("kimi-k3").mixers(), Dtypes(kv="bf16", index="bf16", state=state, conv=conv))


def flow(*agents: dict[str, Any], prefixes: tuple[dict[str, Any], ...] = ()) -> Workflow:
    document = {"schema": "kvplan.workflow/1", "agents": list(agents), "prefixes": list(prefixes)}
    return parse_workflow(document, "here")


def agent(name: str, duration_s: float, end_tokens: int, **more: Any) -> dict[str, Any]:
    return {"name": name, "duration_s": duration_s, "end_tokens": end_tokens} | more


def run(*agents: dict[str, Any], prefixes: tuple[dict[str, Any], ...] = ()) -> Account:
    return account(flow(*agents, prefixes=prefixes), k3())


def at(found: Account, second: float) -> list[int]:
    return [moment.bytes for moment in found.moments if moment.at_s == second]


def test_one_agent() -> None:
    found = run(agent("a", 100, 1000))
    assert [moment.bytes for moment in found.moments] == [STATE, STATE + 1000 * TOKEN]
    assert found.byte_seconds == 100 * STATE + 50 * 1000 * TOKEN
    assert (found.peak.bytes, found.most_agents) == (STATE + 1000 * TOKEN, 1)


def test_the_published_million_tokens_with_fifty_snapshots() -> None:
    """50 × 217,055,232 of snapshots in 38.72 GB, on its own basis: bf16 states without their convolution tails."""
    holding = k3("bf16", None)
    found = account(flow(agent("a", 1, 1_000_000, snapshots=50)), holding)
    assert found.peak.bytes == 38_717_816_832


def test_forks_share_the_cache_and_never_the_state() -> None:
    """Three forks of a parent at 500 tokens: its 500 once, and four states."""
    found = run(agent("p", 100, 1000), agent("f", 50, 200, parent="p", context="fork", start_s=50, count=3))
    assert at(found, 50.0) == [STATE + 500 * TOKEN, 4 * STATE + 500 * TOKEN]
    assert at(found, 100.0)[0] == 4 * STATE + (1000 + 3 * 200) * TOKEN
    assert [(one.name, one.count, one.most_bytes) for one in found.branches] == [
        ("p", 1, STATE + 1000 * TOKEN), ("f", 3, STATE + 200 * TOKEN),
    ]  # fmt: skip
    assert found.most_agents == 4


def test_a_fork_keeps_its_parents_tokens_after_the_parent() -> None:
    found = run(agent("p", 100, 1000), agent("f", 150, 0, parent="p", context="fork", start_s=50))
    assert at(found, 100.0) == [2 * STATE + 1000 * TOKEN, STATE + 500 * TOKEN]
    assert at(found, 200.0) == [STATE + 500 * TOKEN]


def test_forks_of_forks_keep_the_whole_chain() -> None:
    """p ends at 100, f (forked at 500, 100 own by then) at 150, g (forked at 600) lives on: 500 of p, 100 of f."""
    found = run(
        agent("p", 100, 1000),
        agent("f", 100, 200, parent="p", context="fork", start_s=50),
        agent("g", 200, 40, parent="f", context="fork", start_s=50),
    )
    assert at(found, 150.0)[-1] == STATE + (500 + 100) * TOKEN + 10 * TOKEN
    assert at(found, 300.0)[-1] == STATE + (500 + 100 + 40) * TOKEN


def test_a_prefix_is_kept_once_with_one_state_from_first_to_last_use() -> None:
    tools = ({"name": "tools", "tokens": 300},)
    found = run(
        agent("a", 10, 100, prefix="tools", count=2), agent("b", 10, 0, prefix="tools", start_s=90), prefixes=tools
    )
    shared = 300 * TOKEN + STATE
    assert at(found, 0.0) == [shared + 2 * STATE]
    assert at(found, 10.0) == [shared + 2 * (STATE + 100 * TOKEN), shared]
    assert at(found, 100.0) == [shared + STATE]


def test_a_parent_waits_for_synchronous_children_alone() -> None:
    """100 s, 20 of them waiting: 1,000 tokens over 80 s. At 30 s 375 have grown, and at 50 s still."""
    child = {"parent": "p", "start_s": 30}
    waits = flow(agent("p", 100, 1000), agent("c", 20, 0, mode="sync", **child), agent("d", 5, 0, mode="sync", **child))
    parent = place(waits)[0]
    assert [parent.tokens(Fraction(second)) for second in (30, 40, 50, 100)] == [375, 375, 375, 1000]
    runs = place(flow(agent("p", 100, 1000), agent("c", 20, 0, **child)))[0]
    assert runs.tokens(Fraction(40)) == 400


def test_what_persists_stays_as_it_was() -> None:
    found = run(agent("a", 10, 100, persists_s=30))
    assert found.seconds == 40 and at(found, 40.0) == [STATE + 100 * TOKEN]
    assert found.byte_seconds == 40 * STATE + (5 + 30) * 100 * TOKEN
    assert found.most_agents == 1


def test_staggered_copies_overlap() -> None:
    """Three of 10 s, one each 5 s: never more than two at once."""
    found = run(agent("a", 10, 0, count=3, stagger_s=5.0))
    assert (found.most_agents, found.peak.bytes, found.seconds) == (2, 2 * STATE, 20)


def test_children_of_each_copy() -> None:
    found = run(agent("a", 10, 0, count=2), agent("b", 5, 0, parent="a", count=3))
    assert (found.most_agents, found.peak.bytes) == (8, 8 * STATE)


def test_a_model_without_states_pays_for_tokens_alone() -> None:
    holding = Holding(resolve("llama-3.1-8b").mixers(), Dtypes(kv="bf16", index="bf16", state="fp32", conv="bf16"))
    tree = flow(agent("p", 100, 1000), agent("f", 50, 0, parent="p", context="fork", start_s=50, count=9))
    assert account(tree, holding).peak.bytes == 1000 * 131_072


_SECONDS = st.integers(1, 20)


@st.composite
def trees(draw: st.DrawFn) -> Workflow:
    agents: list[dict[str, Any]] = [agent("0", draw(st.integers(20, 40)), draw(st.integers(0, 500)))]
    for number in range(1, draw(st.integers(1, 5))):
        above = draw(st.integers(0, number - 1))
        most = int(agents[above]["duration_s"])
        one = agent(str(number), draw(_SECONDS), draw(st.integers(0, 300)), parent=str(above),
                    start_s=draw(st.integers(0, most)), persists_s=draw(st.sampled_from([0, 7])))  # fmt: skip
        kind = draw(st.sampled_from(["fork", "fresh", "prefix", "sync"]))
        if kind == "fork":
            one["context"] = "fork"
        elif kind == "prefix":
            one["prefix"] = "x"
        elif kind == "sync" and one["start_s"] + one["duration_s"] <= most:
            one["mode"] = "sync"
        agents.append(one)
    try:
        made = flow(*agents, prefixes=({"name": "x", "tokens": 50},))
        place(made)
    except ProfileError:
        made = flow(agents[0])
    return made


def walked(workflow: Workflow, second: Fraction) -> int:
    """Bytes at a time, token by token: which cache entries somebody needs, and who has a state."""
    agents = place(workflow)
    entries: set[tuple[Any, int]] = set()
    states = 0
    for one in agents:
        if not one.start <= second < one.gone:
            continue
        states += 1
        chain, stop = one, one.tokens(second)
        while True:
            owner: Any = id(chain)
            entries |= {(owner, token) for token in range(chain.base_tokens, stop)}
            stop = min(stop, chain.base_tokens)
            if chain.spec.context == "fork" and chain.parent is not None:
                chain = chain.parent
                continue
            break
    users = [one for one in agents if one.spec.prefix]

    def last(one: Any) -> Fraction:
        return max([one.gone, *(last(child) for child in one.children if child.spec.context == "fork")])

    if users and min(one.start for one in users) <= second < max(map(last, users)):
        entries |= {("prefix", token) for token in range(50)}
        states += 1
    return len(entries) * TOKEN + states * STATE


@settings(max_examples=40, deadline=None)
@given(trees())
def test_a_slow_walk_through_time_agrees(workflow: Workflow) -> None:
    found = account(workflow, k3())
    starts = {}
    for moment in found.moments[::2]:
        starts[moment.at_s] = moment.bytes
    for second, bytes_ in starts.items():
        assert walked(workflow, Fraction(str(second))) == bytes_


@settings(max_examples=30, deadline=None)
@given(trees(), st.integers(0, 100))
def test_one_more_agent_never_costs_less(workflow: Workflow, tokens: int) -> None:
    more = workflow.model_dump(by_alias=True)
    more["agents"] = [*more["agents"], agent("more", 10, tokens)]
    one, other = account(workflow, k3()), account(parse_workflow(more, "here"), k3())
    assert other.peak.bytes > one.peak.bytes or other.most_agents >= one.most_agents
    assert other.peak.bytes >= one.peak.bytes and other.byte_seconds > one.byte_seconds


@pytest.mark.parametrize(
    ("agents", "said"),
    [
        ([], "agents"), ([agent("a", 0, 1)], "duration_s"), ([agent("a", 1, 1), agent("a", 1, 1)], "there twice"),
        ([agent("a", 1, 1, parent="b")], "no agent named b"), ([agent("a", 1, 1, prefix="b")], "no prefix named b"),
        ([agent("a", 1, 1, context="fork")], "a fork has a parent"), ([agent("a", 1, 1, mode="sync")], "sync needs"),
        ([agent("a", 1, 1, start_tokens=2)], "end_tokens is below"), ([agent("a", 1, 1, extra=2)], "extra"),
        ([agent("a", 1, 1, parent="b"), agent("b", 1, 1, parent="a")], "its own ancestor"),
        ([agent("a", 1, 1), agent("b", 1, 1, parent="a", start_s=2)], "starts after its parent"),
        ([agent("a", 5, 1), agent("b", 9, 1, parent="a", mode="sync")], "ends after its parent"),
        ([agent("a", 5, 1), agent("b", 5, 1, parent="a", mode="sync")], "all its life"),
        ([agent("a", 1, 1, count=MOST_AGENTS), agent("b", 1, 1, parent="a")], "more than"),
        ([agent("a", float("nan"), 1)], "duration_s"), ([agent("a", "x", 1)], "duration_s"), (["a"], "agents.0"),
    ],
)  # fmt: skip
def test_what_cannot_be_is_one_line(agents: list[Any], said: str) -> None:
    with pytest.raises(ProfileError, match=said) as caught:
        place(flow(*agents))
    assert "\n" not in str(caught.value)


def test_workflows_on_the_command_line(answer: Any, tmp_path: Path) -> None:
    path = tmp_path / "flow.toml"
    path.write_text(
        'schema = "kvplan.workflow/1"\nname = "pair"\n'
        '[[agents]]\nname = "p"\nduration_s = 100\nend_tokens = 1000\n'
        '[[agents]]\nname = "f"\nparent = "p"\ncontext = "fork"\nstart_s = 50\nduration_s = 50\nend_tokens = 200\n'
    )
    code, shown, _ = answer("agents", "workflow", str(path), "kimi-k3", "--gpu", "B300:8")
    peak = 2 * STATE + 1200 * TOKEN
    assert code == 0 and f"{peak:,} bytes" in shown and max(map(len, shown.splitlines())) <= 80
    found = json.loads(answer("agents", "workflow", str(path), "kimi-k3", "--kv-cache-memory", "1GiB", "--tp", "8",
                              "--json")[1])  # fmt: skip
    assert (found["schema"], found["whole"]["peak"]["bytes"]) == ("kvplan.workflow_plan/1", peak)
    rank = 2 * 56_171_520 + 1200 * TOKEN
    assert (found["per_rank"]["peak"]["bytes"], found["fits"]) == (rank, (1 << 30) // rank)
    assert answer("agents", "workflow", str(path), "kimi-k3", "--kv-cache-memory", "1MiB", "--tp", "8")[0] == 1
    with pytest.raises(ProfileError):
        answer("agents", "workflow", str(tmp_path / "none.toml"), "kimi-k3")
    with pytest.raises(UsageError, match="name a model"):
        answer("agents", "workflow", str(path))
