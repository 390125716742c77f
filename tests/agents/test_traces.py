"""Readers: what each kind of trace says, what is malformed in it, and that length costs no memory."""

import gzip
import json
import tracemalloc
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kvplan.agents.formats import BadRow, _common, _sessions
from kvplan.agents.request import Request
from kvplan.agents.traces import Trace, open_trace
from kvplan.errors import KvplanError, SourceError

MOONCAKE = '{"timestamp": 1500, "input_length": 6758, "output_length": 500, "hash_ids": [0, 1, 2]}\n'
AIPERF = (
    '{"session_id": "a", "input_length": 300, "output_length": 40, "timestamp": 0}\n'
    '{"session_id": "a", "input_length": 100, "output_length": 10, "delay": 2500}\n'
)
AZURE = (
    "TIMESTAMP,ContextTokens,GeneratedTokens\n2023-11-16 18:17:03.9799600,4808,10\n2023-11-16 18:17:05.9799600,3180,8\n"
)
BURST = (
    "Timestamp,Session ID,Elapsed time,Model,Request tokens,Response tokens,Total tokens,Log Type\n"
    "5,s1,2.5,ChatGPT,472,18,490,Conversation log\n"
)
BURST_OLD = "Timestamp,Model,Request tokens,Response tokens,Total tokens,Log Type\n5,ChatGPT,472,18,490,API log\n"
BAILIAN = (
    '{"chat_id": 7, "parent_chat_id": -1, "timestamp": 1.5, "input_length": 90, "output_length": 4, "type": "text",'
    ' "turn": 1, "hash_ids": [1]}\n'
    '{"chat_id": 9, "parent_chat_id": 7, "timestamp": 9.5, "input_length": 120, "output_length": 6, "type": "text",'
    ' "turn": 2, "hash_ids": [1, 2]}\n'
)
AGENTIC = (
    "session,agent,i,t_s,input_tokens,output_tokens,api_s,think_s,prev_input,lcp_prev,preamble_tokens,trigger\n"
    "0001,main,0,0.0,71175,169,7.34,0.0,0,0,17217,user\n"
    "0001,main,1,19.0,72762,296,,12.0,71175,71168,17217,tool\n"
    "0001,001,0,20.0,9526,363,2.81,0.0,0,0,15745,text/tool_result\n"
)
SESSIONS = (
    json.dumps(
        {
            "id": "x", "block_size": 64, "tool_tokens": 100, "system_tokens": 28,
            "requests": [
                {"t": 0, "input": 200, "output": 5, "blocks": [[1, 3]], "api": 2, "think": 0, "trigger": ["text"]},
                {"t": 9, "input": 300, "output": 5, "blocks": [[1, 2], [9, 2]], "api": 2, "think": 7,
                 "trigger": ["tool_result"]},
            ],
        }
    )
    + "\n"
)  # fmt: skip
KINDS = {
    "mooncake": MOONCAKE, "aiperf": AIPERF, "azure": AZURE, "burstgpt": BURST, "bailian": BAILIAN, "agentic": AGENTIC,
    "sessions": SESSIONS, "plain": "input_tokens,output_tokens\n70,3\n",
}  # fmt: skip


def written(folder: Path, text: str) -> Trace:
    path = folder / "trace"
    path.write_text(text, encoding="utf-8")
    return open_trace(path)


@pytest.mark.parametrize("kind", KINDS)
def test_each_kind_is_told_from_its_first_row(kind: str, tmp_path: Path) -> None:
    trace = written(tmp_path, KINDS[kind])
    assert trace.form.name == kind
    assert all(request.input_tokens > 0 for request in trace)
    assert not trace.malformed
    assert trace.form.untested == (kind in ("burstgpt", "bailian"))
    assert bool(trace.notes()) == trace.form.untested


def test_mooncake_counts_milliseconds_and_keeps_blocks(tmp_path: Path) -> None:
    trace = written(tmp_path, MOONCAKE)
    assert list(trace) == [Request("1", 6758, 500, at_s=1.5, blocks=(0, 1, 2))]
    assert trace.form.block_tokens == 512


def test_turns_of_aiperf_add_up(tmp_path: Path) -> None:
    first, second = written(tmp_path, AIPERF)
    assert (first.input_tokens, first.context_tokens, second.input_tokens) == (300, 340, 440)
    assert (second.shared_tokens, second.pause_s, second.session) == (340, 2.5, "a")


def test_text_of_aiperf_is_refused_for_want_of_a_tokenizer(tmp_path: Path) -> None:
    with pytest.raises(SourceError, match="tokenizer"):
        list(written(tmp_path, '{"session_id": "a", "text_input": "hello"}\n'))


def test_azure_seconds_since_the_first_row(tmp_path: Path) -> None:
    assert [(one.at_s, one.context_tokens) for one in written(tmp_path, AZURE)] == [(0.0, 4818), (2.0, 3188)]


def test_bailian_turns_belong_to_their_first(tmp_path: Path) -> None:
    assert [one.session for one in written(tmp_path, BAILIAN)] == ["7", "7"]


def test_burstgpt_of_both_releases(tmp_path: Path) -> None:
    assert list(written(tmp_path, BURST)) == [Request("s1", 472, 18, at_s=5.0, service_s=2.5)]
    assert list(written(tmp_path, BURST_OLD)) == [Request("2", 472, 18, at_s=5.0)]


def test_agents_of_a_session_are_streams_of_their_own(tmp_path: Path) -> None:
    one, two, child = written(tmp_path, AGENTIC)
    assert (one.stream, two.stream, child.stream) == (("0001", "main"), ("0001", "main"), ("0001", "001"))
    assert (two.service_s, two.pause_s, two.shared_tokens, two.trigger) == (None, 12.0, 71168, "tool")
    assert child.trigger == "mixed"


def test_whole_sessions_compare_runs_of_blocks(tmp_path: Path) -> None:
    one, two = written(tmp_path, SESSIONS)
    assert (one.shared_tokens, two.shared_tokens, two.preamble_tokens, two.trigger) == (0, 128, 128, "tool")


@settings(max_examples=60)
@given(st.lists(st.integers(1, 4), max_size=6), st.lists(st.integers(1, 4), max_size=6), st.integers(0, 12))
def test_runs_cut_differently_share_the_same_blocks(cuts: list[int], others: list[int], changed: int) -> None:
    def runs(widths: list[int]) -> list[tuple[int, int]]:
        starts = [sum(widths[:index]) for index in range(len(widths))]
        return [(start + (1000 if start >= changed else 0), width) for start, width in zip(starts, widths, strict=True)]

    def blocks(found: list[tuple[int, int]]) -> list[int]:
        return [start + step for start, width in found for step in range(width)]

    one, other = runs(cuts), runs(others)
    expected = 0
    for left, right in zip(blocks(one), blocks(other), strict=False):
        if left != right:
            break
        expected += 1
    assert _common(one, other) == expected


def test_gzip_and_byte_order_mark(tmp_path: Path) -> None:
    path = tmp_path / "trace.csv.gz"
    path.write_bytes(gzip.compress(b"\xef\xbb\xbf" + AGENTIC.encode()))
    assert len(list(open_trace(path))) == 3


def test_malformed_rows_are_counted_and_named(tmp_path: Path) -> None:
    rows = ["70,3", "x,3", "0,3", "70", "-1,3", "70,1.5", "9" * 30 + ",1", '"70",3', '"70,3', "", "80,4"]
    trace = written(tmp_path, "input_tokens,output_tokens\n" + "\n".join(rows) + "\n")
    assert [one.input_tokens for one in trace] == [70, 70, 80]
    assert trace.malformed == {
        "input_tokens is not a whole number": 3,
        "input_tokens is out of range": 1,
        "not 2 columns": 1,
        "output_tokens is not a whole number": 1,
        "not valid CSV": 1,
    }
    assert trace.first_bad["input_tokens is not a whole number"] == 3
    assert "3 where input_tokens is not a whole number, the first in line 3" in trace.notes()[0]


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"", "empty"), (b"\n\n", "empty"), (b"a,b\n1,2\n", "no kind of trace"), (b'{"a": 1}\n', "no kind of trace"),
        (b'{"timestamp": ', "not valid JSON"), (b"[" * 100_000, "no kind of trace"),
        (b"input_tokens,input_tokens\n1,1\n", "twice"), (b"input_tokens\nx\n", "no request .*line 2: input_tokens"),
        (b"\x1f\x8b\x00", "gzip|unknown|compress"),
        (gzip.compress(AGENTIC.encode(), mtime=0)[:60], "ended|end-of-stream"),
        (b"input_tokens\n\xff\xfe\n", "no request"),
    ],
)  # fmt: skip
def test_what_is_no_trace_is_one_line(content: bytes, said: str, tmp_path: Path) -> None:
    path = tmp_path / "trace"
    path.write_bytes(content)
    with pytest.raises(SourceError, match=f"(?i){said}"):
        list(open_trace(path))


def test_a_folder_or_a_missing_file_is_one_line(tmp_path: Path) -> None:
    for path in (tmp_path, tmp_path / "none"):
        with pytest.raises(SourceError):
            open_trace(path)


_JSON: st.SearchStrategy[Any] = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=6,
)
_KEYS = ["timestamp", "input_length", "output_length", "hash_ids", "session_id", "delay", "chat_id", "parent_chat_id",
         "block_size", "requests", "id"]  # fmt: skip


@settings(max_examples=40, deadline=None)
@given(st.dictionaries(st.sampled_from(_KEYS), _JSON, max_size=8))
def test_any_json_in_any_field_is_a_request_or_one_line(row: dict[str, Any]) -> None:
    import tempfile

    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "trace"
        path.write_text(json.dumps(row) + "\n")
        try:
            list(open_trace(path))
        except KvplanError as error:
            assert "\n" not in str(error)


@settings(max_examples=40, deadline=None)
@given(st.lists(st.dictionaries(st.sampled_from(["input", "blocks", "trigger", "t", "api"]), _JSON, max_size=4)))
def test_any_json_inside_a_session_is_a_bad_row(requests: list[dict[str, Any]]) -> None:
    with suppress(BadRow):
        list(_sessions()({"block_size": 64, "requests": requests}, 1))


@pytest.mark.parametrize("kind", ["mooncake", "azure", "plain", "bailian"])
def test_memory_is_flat_in_the_length_of_a_trace(kind: str, tmp_path: Path) -> None:
    peaks = []
    for copies in (200, 2_000):
        lines = KINDS[kind].splitlines(keepends=True)
        head, body = (lines[:1], lines[1:]) if not lines[0].startswith("{") else ([], lines)
        path = tmp_path / f"{copies}"
        path.write_text("".join(head + body * copies))
        tracemalloc.start()
        for _ in open_trace(path):
            pass
        peaks.append(tracemalloc.get_traced_memory()[1])
        tracemalloc.stop()
    assert peaks[1] < peaks[0] * 1.5 + 20_000


@pytest.mark.parametrize(
    ("name", "kind", "requests"),
    [
        ("mooncake_conversation_trace.jsonl", "mooncake", 12_031),
        ("AzureLLMInferenceTrace_code.csv", "azure", 8_819),
        ("AzureLLMInferenceTrace_conv.csv", "azure", 19_366),
        ("agentic_sample_sessions.jsonl", "sessions", 934),
    ],
)
def test_public_traces_are_read_whole(name: str, kind: str, requests: int, public_trace: Callable[[str], Path]) -> None:
    trace = open_trace(public_trace(name))
    assert sum(1 for _ in trace) == requests
    assert (trace.form.name, trace.bad_rows) == (kind, 0)


def test_the_public_agent_trace_is_read_whole(agentic_requests: list[Request]) -> None:
    assert len(agentic_requests) == 49_334
    assert len({one.stream for one in agentic_requests}) == 710 + 63


def test_both_forms_of_the_public_agent_trace_agree(
    public_trace: Callable[[str], Path], agentic_requests: list[Request]
) -> None:
    """The CSV was reduced from the sessions; shared prefixes are computed here and were computed there."""
    csv: dict[str, list[Request]] = {}
    for request in agentic_requests:
        if request.agent == "main":
            csv.setdefault(request.session, []).append(request)
    whole: dict[str, list[Request]] = {}
    for request in open_trace(public_trace("agentic_sample_sessions.jsonl")):
        whole.setdefault(request.session.removeprefix("trace_"), []).append(request)
    for session, requests in whole.items():
        one = [(each.input_tokens, each.output_tokens, each.shared_tokens, each.trigger) for each in requests]
        other = [(each.input_tokens, each.output_tokens, each.shared_tokens, each.trigger) for each in csv[session]]
        assert one == other, session
