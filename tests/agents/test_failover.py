"""Failures counted by hand, by brute force, and what may be promised."""

import json
from itertools import combinations
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kvplan.agents.failover import Fleetwide, groups_of, promise
from kvplan.agents.failover_report import FailoverOptions, FailoverReport, failover_report
from kvplan.agents.links import Link
from kvplan.deployment import Fleet, Layout
from kvplan.errors import KvplanError
from kvplan.interval import Interval

K3: dict[str, Any] = {"gpu": "B300:8", "kv_cache_dtype": "fp8", "kv_cache_memory": "42.23GiB"}


def fleet(nodes: int, per_node: int, **layout: int) -> Fleet:
    made = Layout(**layout)
    return Fleet(nodes * per_node, per_node, made)


@pytest.mark.parametrize(
    ("layout", "replicas", "gpu", "node"),
    [
        ({"tp": 8}, 4, 1, 1), ({"tp": 4}, 8, 1, 2), ({"tp": 8, "pp": 2}, 2, 1, 1), ({"tp": 2, "pp": 2}, 8, 1, 2),
        ({"tp": 1, "dp": 32, "ep": 8}, 32, 8, 8), ({"tp": 1, "dp": 32, "ep": 32}, 32, 32, 32),
        ({"tp": 1, "dp": 32, "ep": 16}, 32, 16, 16),
    ],
)  # fmt: skip
def test_replicas_that_four_nodes_of_eight_lose(layout: dict[str, int], replicas: int, gpu: int, node: int) -> None:
    """By hand. Replicas that share experts die together: 16 of one GPU each lie on two nodes, and either takes all."""
    groups = groups_of(fleet(4, 8, **layout))
    assert (groups.replicas, groups.lost("gpu", 1), groups.lost("node", 1)) == (replicas, gpu, node)
    assert groups.lost("gpu", 0) == groups.lost("node", 0) == 0
    assert groups.lost("gpu", 99) == groups.lost("node", 99) == replicas


@settings(max_examples=80, deadline=None)
@given(st.integers(1, 5), st.sampled_from([1, 2, 4, 8]), st.sampled_from([1, 2, 4, 8, 16]), st.integers(0, 4))
def test_the_worst_nodes_by_brute_force(nodes: int, per_node: int, tp: int, failures: int) -> None:
    gpus = nodes * per_node
    if gpus % tp:
        return
    groups = groups_of(fleet(nodes, per_node, tp=tp))
    hit = [{gpu // tp for gpu in range(node * per_node, (node + 1) * per_node)} for node in range(nodes)]
    worst = max(len(set().union(*chosen)) for chosen in combinations(hit, min(failures, nodes)))
    assert groups.lost("node", failures) == worst


def test_a_storm_by_hand() -> None:
    """4 replicas of 17 sessions; one dies: 17 prefills of 6 s on 3 survivors, or 2 s each from a tier."""
    groups = groups_of(fleet(4, 8, tp=8))
    seconds = Interval(6.0, 5.0, 9.0, "published")
    found = Fleetwide(groups, 8, 17, 0.25, 100_000, seconds).loss(
        "gpu", (Link(Interval(1e9, 1e9, 1e9), Interval(0, 0, 0)), 2 * 10**9)
    )
    assert (found.replicas, found.gpus, found.sessions, found.tokens) == (1, 8, 17, 1_700_000)
    assert found.storm_s is not None and found.storm_s.how == "published"
    assert (found.storm_s.low, found.storm_s.value, found.storm_s.high) == pytest.approx((5 * 17 / 3, 34, 51))
    assert found.running == 4.25 and found.running_storm_s is not None
    assert found.running_storm_s.value == pytest.approx(6 * 4.25 / 3)
    assert found.reload_s is not None and found.reload_s.value == pytest.approx(2 * 17 / 3)
    assert (found.survivors, found.room) == (3, 51)


def test_the_last_replica_leaves_nobody() -> None:
    seconds = Interval(6.0, 5.0, 9.0, "published")
    found = Fleetwide(groups_of(fleet(1, 8, tp=8)), 8, 17, None, 100_000, seconds).loss("node", None)
    assert (found.survivors, found.room, found.storm_s, found.reload_s) == (0, 0, None, None)
    assert found.restored_s is not None and found.restored_s.value == pytest.approx(6 * 17)
    unknown = Fleetwide(groups_of(fleet(2, 8, tp=8)), 8, 17, 0.5, 100_000, None).loss("node", None)
    assert unknown.storm_s is None and unknown.running_storm_s is None and unknown.sessions == 17


@settings(max_examples=80, deadline=None)
@given(
    st.integers(1, 6), st.sampled_from([1, 2, 4, 8]), st.integers(0, 50), st.sampled_from(["gpu", "node", "replica"])
)
def test_more_spares_never_promise_more(nodes: int, tp: int, held: int, unit: Any) -> None:
    """And what is promised fits on what is left after any so many failures, and on everything before."""
    groups = groups_of(fleet(nodes, 8, tp=tp))
    found = [promise(groups, unit, spare, held) for spare in range(groups.replicas + 2)]
    assert [one.sessions for one in found] == sorted((one.sessions for one in found), reverse=True)
    assert found[0].sessions == groups.replicas * held and found[-1].sessions == 0
    assert all(one.sessions <= (groups.replicas - groups.lost(unit, one.spare)) * held for one in found)
    assert all(one.per_replica <= held for one in found)


@pytest.fixture(scope="module")
def four_nodes() -> FailoverReport:
    return failover_report("kimi-k3", "coding-agent", flags=K3 | {"nodes": 4}, options=FailoverOptions(), notes=[])


def test_k3_on_four_nodes(four_nodes: FailoverReport) -> None:
    """16 sessions at 1 % were published for this pool, 14 when contexts are weighted by time."""
    held = four_nodes.sessions_per_replica
    assert abs(held - 14) <= 1
    assert [one.sessions for one in four_nodes.promises] == [4 * held, 3 * held, 2 * held, held]
    assert four_nodes.asked.sessions == 3 * held and four_nodes.exit_code == 0
    storm = four_nodes.losses[0].storm_s
    assert storm is not None
    assert storm.value == pytest.approx(held * four_nodes.context_tokens / 18_500 / 3)


def test_a_reload_comes_from_what_outlives_the_node(four_nodes: FailoverReport) -> None:
    assert set(four_nodes.tiers.values()) == {"rdma"}
    reload, storm = four_nodes.losses[1].reload_s, four_nodes.losses[1].storm_s
    assert reload is not None and storm is not None and reload.high < storm.low


def test_one_replica_promises_nothing(answer: Any) -> None:
    words = ("kimi-k3", "--gpu", "B300:8", "--kv-cache-dtype", "fp8", "--workload", "coding-agent")
    code, shown, _ = answer("agents", "failover", *words)
    assert code == 1 and "nothing may be promised against 1 lost GPU" in shown.replace("\n  ", " ")
    assert all(len(line) <= 80 for line in shown.splitlines())
    code, shown, _ = answer("agents", "failover", *words, "--spare", "0", "--json")
    found = json.loads(shown)
    assert code == 0 and found["schema"] == "kvplan.failover/1"
    assert found["promised"]["sessions"] == found["sessions_per_replica"]
    assert [one["unit"] for one in found["losses"]] == ["gpu", "node", "replica"]


def test_a_weaker_promise_for_nodes_than_for_gpus() -> None:
    def asked(unit: str) -> int:
        flags = {"gpu": "H100:8", "nodes": 2, "tp": 2}
        options = FailoverOptions(spare_unit=unit, prefill_tokens_per_s=1e4)
        return failover_report("qwen3-32b", "chat", flags=flags, options=options, notes=[]).asked.replicas_left

    assert (asked("gpu"), asked("replica"), asked("node")) == (7, 7, 4)


@pytest.mark.parametrize(
    ("own", "said"),
    [({"spare": -1}, "--spare"), ({"spare_unit": "rack"}, "--spare-unit"), ({"risk": 100.0}, "--risk")],
)
def test_what_cannot_be_meant_is_one_line(own: dict[str, Any], said: str) -> None:
    with pytest.raises(KvplanError, match=said) as caught:
        failover_report("kimi-k3", "chat", flags=K3, options=FailoverOptions(**own), notes=[])
    assert "\n" not in str(caught.value)
