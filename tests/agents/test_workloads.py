"""Profiles hold what was published about their traces, and what is generated from them holds what they hold."""

import json
import tomllib
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kvplan.agents.columns import Columns, read_columns
from kvplan.agents.fit import fit_workload, workload_of
from kvplan.agents.generate import generate
from kvplan.agents.quantiles import PERCENTS, measure
from kvplan.agents.report import fit_report
from kvplan.agents.request import Request
from kvplan.agents.traces import open_trace
from kvplan.agents.workload import find_workload, list_workloads, parse_workload, to_toml
from kvplan.errors import ProfileError, SourceError

NAMES = ["chat", "coding-agent", "short-code"]

PUBLISHED = {
    "context_tokens": {50: 105e3, 90: 236e3, 95: 302e3, 99: 500e3, "mean": 123.9e3},
    "output_tokens": {10: 105, 50: 216, 90: 899, 95: 1.5e3, 99: 3.7e3, "mean": 439},
    "new_tokens": {10: 230, 50: 705, 90: 4.1e3, 95: 8.0e3, 99: 66e3, "mean": 3.3e3},
    "service_s": {10: 3.4, 50: 6.1, 90: 18, 95: 28, 99: 61, "mean": 9.8},
    "tool_pause_s": {10: 4, 50: 9, 90: 67, 95: 139, 99: 607, "mean": 43},
    "user_pause_s": {10: 16, 50: 127, 90: 1541, 95: 3087, 99: 6854, "mean": 614},
    "requests_per_session": {10: 7, 50: 45, 90: 155, 95: 232, 99: 329, "mean": 69},
    "session_peak_tokens": {10: 67e3, 50: 148e3, 90: 340e3, 95: 468e3, 99: 791e3, "mean": 183e3},
    "preamble_tokens": {10: 11.9e3, 50: 14.9e3, 90: 15.9e3, 95: 16.8e3, 99: 21e3, "mean": 14.3e3},
}
"""A study of the same trace by others; it took a person's pauses together with mixed ones, hence 4 %."""


@pytest.mark.parametrize("table", PUBLISHED)
def test_the_coding_agent_is_as_published(table: str) -> None:
    found = find_workload("coding-agent").table(table)
    assert found is not None
    for percent, value in PUBLISHED[table].items():
        mine = found.mean if percent == "mean" else found.value(float(percent))
        assert mine == pytest.approx(value, rel=0.04), percent


def test_azure_is_as_published() -> None:
    for name, middle, ninety, mean in (("short-code", 1.5e3, 5.2e3, 2.0e3), ("chat", 1.0e3, 2.7e3, 1.2e3)):
        prompt = find_workload(name).table("input_tokens")
        assert prompt is not None
        assert prompt.value(50.0) == pytest.approx(middle, rel=0.04)
        assert prompt.value(90.0) == pytest.approx(ninety, rel=0.04)
        assert prompt.mean == pytest.approx(mean, rel=0.04)


def test_bundled_profiles_have_sources_and_round_trip() -> None:
    found = list_workloads()
    assert [one.name for one in found] == NAMES
    for one in found:
        assert one.source.url.startswith("https://") and one.source.licence
        assert parse_workload(tomllib.loads(to_toml(one)), one.name) == one


@pytest.mark.parametrize(
    ("name", "file"),
    [
        ("chat", "AzureLLMInferenceTrace_conv.csv"),
        ("short-code", "AzureLLMInferenceTrace_code.csv"),
    ],
)
def test_profiles_are_what_a_fit_gives(name: str, file: str, public_trace: Callable[[str], Path]) -> None:
    fitted, bundled = fit_workload(open_trace(public_trace(file)), name), find_workload(name)
    assert fitted.tables == bundled.tables
    assert (fitted.duty, fitted.session_share) == (bundled.duty, bundled.session_share)


def test_the_coding_agent_is_what_a_fit_gives(agentic: Columns) -> None:
    bundled = find_workload("coding-agent")
    fitted = workload_of(agentic, "coding-agent", bundled.title, bundled.source)
    assert fitted == bundled


@pytest.fixture(scope="module")
def made() -> Columns:
    return read_columns(generate(find_workload("coding-agent"), 600, seed=1))


@pytest.mark.parametrize(("table", "percent", "within"), [
    ("context_tokens", 50.0, 0.06), ("context_tokens", 90.0, 0.08), ("context_tokens", 95.0, 0.15),
    ("output_tokens", 50.0, 0.05), ("output_tokens", 95.0, 0.06), ("service_s", 50.0, 0.05),
    ("tool_pause_s", 90.0, 0.08), ("user_pause_s", 50.0, 0.06), ("requests_per_session", 50.0, 0.12),
    ("session_peak_tokens", 50.0, 0.2),
])  # fmt: skip
def test_what_is_generated_has_the_percentiles(made: Columns, table: str, percent: float, within: float) -> None:
    workload = find_workload("coding-agent")
    again = workload_of(made, "again", "", workload.source).table(table)
    asked = workload.table(table)
    assert again is not None and asked is not None
    assert again.value(percent) == pytest.approx(asked.value(percent), rel=within)


def test_generated_sessions_grow_and_repeat() -> None:
    workload = find_workload("coding-agent")
    one, other = list(generate(workload, 5, seed=3)), list(generate(workload, 5, seed=3))
    assert one == other != list(generate(workload, 5, seed=4))
    by_session: dict[str, list[Request]] = {}
    for request in one:
        by_session.setdefault(request.session, []).append(request)
    for requests in by_session.values():
        assert all(a.context_tokens <= b.context_tokens for a, b in pairwise(requests))
        assert all(a.at_s is not None and b.at_s is not None and a.at_s <= b.at_s
                   for a, b in pairwise(requests))  # fmt: skip


def test_chat_is_generated_without_times() -> None:
    request = next(generate(find_workload("chat"), 1))
    assert (request.service_s, request.pause_s, request.preamble_tokens) == (None, None, None)


@settings(max_examples=50, deadline=None)
@given(st.lists(st.integers(0, 10**6), min_size=1, max_size=30), st.randoms(use_true_random=False))
def test_percentiles_are_values_and_do_not_depend_on_the_order(values: list[int], random: Any) -> None:
    found = measure(values)
    shuffled = list(values)
    random.shuffle(shuffled)
    assert found is not None and found == measure(shuffled)
    assert list(found.values) == sorted(found.values)
    assert np.all(np.diff(found.at(np.linspace(0, 1, 50))) >= -1e-6)


def test_weights_count() -> None:
    found = measure([1, 2, 3], [0, 98, 2])
    assert found is not None
    assert (found.value(0.0), found.value(50.0), found.value(99.0), found.mean) == (2, 2, 3, 2.02)
    assert measure([]) is None


@pytest.mark.parametrize(
    ("change", "field"),
    [
        ({"percents": [0, 50, 100]}, "percents"), ({"requests": 0}, "requests"), ({"extra": 1}, "extra"),
        ({"duty": 1.5}, "duty"), ({"tables": {}}, "context_tokens"), ({"name": "A b"}, "name"),
        ({"tables": {"lunch": {"values": [0] * 12, "mean": 0}}}, "lunch"),
        ({"tables": {"context_tokens": {"values": [1] * 3, "mean": 0}}}, "values"),
        ({"tables": {"context_tokens": {"values": [2, *range(11)], "mean": 0}}}, "ascend"),
        ({"tables": {"context_tokens": {"values": [float("nan")] * 12, "mean": 0}}}, "values"),
        ({"source": {"title": "x"}}, "source"), ({"schema": "kvplan.gpu/1"}, "schema"),
    ],
)  # fmt: skip
def test_a_malformed_profile_is_one_line(change: dict[str, Any], field: str) -> None:
    document = tomllib.loads(to_toml(find_workload("chat"))) | change
    with pytest.raises(ProfileError, match=field) as caught:
        parse_workload(document, "here")
    assert "\n" not in str(caught.value)
    assert len(PERCENTS) == 12


def test_workloads_on_the_command_line(answer: Any, tmp_path: Path) -> None:
    listed = json.loads(answer("workloads", "list", "--json")[1])
    assert (listed["schema"], [row["name"] for row in listed["workloads"]]) == ("kvplan.workloads/1", NAMES)
    trace = tmp_path / "trace.csv"
    trace.write_text("input_tokens,output_tokens\n" + "".join(f"{size},1\n" for size in range(1, 101)) + "x,1\n")
    out = tmp_path / "mine.toml"
    code, printed, said = answer("workloads", "fit", str(trace), "--out", str(out), "--name", "mine")
    assert code == 0 and "100 requests" in printed and max(map(len, printed.splitlines())) <= 88
    assert "1 where input_tokens is not a whole number, the first in line 102" in said
    for workload, name in ((out, "mine"), (trace, "trace.csv")):
        words = ("agents", "sessions", "llama-3.1-8b", "--gpu", "H100", "--workload", str(workload), "--json")
        shown = json.loads(answer(*words)[1])
        assert shown["workload"]["name"] == name
    shown = json.loads(answer("workloads", "show", "Chat", "--json")[1])
    assert (shown["schema"], shown["requests"]) == ("kvplan.workload/1", 19_366)
    with pytest.raises(ProfileError, match="did you mean chat"):
        find_workload("chatt")


def test_a_fit_that_cannot_be_is_one_line(tmp_path: Path) -> None:
    trace = tmp_path / "trace.csv"
    trace.write_text("input_tokens,agent,session\n5,child,a\n")
    with pytest.raises(SourceError, match="only sub-agents"):
        fit_workload(open_trace(trace), "mine")
    with pytest.raises(ProfileError, match="name"):
        fit_workload(open_trace(trace), "A name!", subagents=True)
    with pytest.raises(SourceError):
        fit_report(str(trace), "mine", subagents=True, out=str(tmp_path / "no" / "folder.toml"))
