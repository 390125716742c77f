"""Logs that are empty, foreign, cut, doubled or contradictory: a clear answer, never a wrong one."""

import gzip
import io
import random
from collections.abc import Callable

import pytest

from kvplan.errors import KvplanError
from kvplan.logs import Facts, read_log
from kvplan.verify import Report, verify_log

VLLM = b"""\
(APIServer pid=1) INFO 08-05 05:39:20 [utils.py:299]   version 0.28.0
(APIServer pid=1) INFO 08-05 05:39:20 [api_server.py:1] vLLM API server version 0.28.0
(APIServer pid=1) INFO [utils.py:233] non-default args: {'model': 'moonshotai/Kimi-K3', 'max_model_len': 1048576, \
'tensor_parallel_size': 8, 'kv_cache_dtype': 'fp8', 'enable_prefix_caching': True}
(Worker_TP0 pid=3) INFO [interface.py:1] Setting attention block size to 1536 tokens to ensure that
(Worker_TP0 pid=3) INFO [gpu_worker.py:773] Available KV cache memory: 42.23 GiB
(EngineCore pid=2) INFO [kv_cache_utils.py:1] GPU KV cache size: 3,249,215 tokens
"""
SGLANG = b"""\
[2026-02-27 16:59:00] server_args=ServerArgs(model_path='Qwen/Qwen3-235B-A22B', tp_size=4, mem_fraction_static=0.93)
[2026-02-27 17:10:28 TP0] Load weight end. type=Qwen3Moe, dtype=torch.bfloat16, avail mem=19.08 GB, mem usage=3.76 GB.
[2026-02-27 17:10:28 TP0] KV Cache is allocated. #tokens: 367404, K size: 8.23 GB, V size: 8.23 GB
[2026-02-27 17:10:28 TP0] Memory pool end. avail mem=4.02 GB
"""


def facts_of(data: bytes) -> Facts:
    return read_log(io.BytesIO(data))


def report_of(data: bytes) -> Report:
    return verify_log(facts_of(data))[0]


def verdicts(report: Report) -> dict[str, str]:
    return {row.what: row.verdict for row in report.lines if row.what != "weights"}


def test_the_whole_log_is_exact() -> None:
    assert verdicts(report_of(VLLM)) == {"kv_cache_tokens": "exact", "block_tokens": "exact", "pool": "not-modelled"}


@pytest.mark.parametrize(
    ("data", "said"),
    [
        pytest.param(b"", "the log is empty", id="empty"),
        pytest.param(b"\n \r\n\t\n", "the log is empty", id="blank"),
        pytest.param(random.Random(7).randbytes(200_000), "no memory figure", id="binary"),
        pytest.param(gzip.compress(VLLM), "no memory figure", id="compressed"),
        pytest.param(b'172.17.0.1 - - [05/May/2026] "GET /v1/models" 200\n' * 99, "no memory figure", id="web server"),
        pytest.param(
            b"The KV cache of vLLM holds 3,249,215 tokens, says the article.\n", "no memory figure", id="prose"
        ),
        pytest.param(b"<html><pre>Available KV cache memory: &nbsp; GiB</pre>\n", "no memory figure", id="page"),
        pytest.param(VLLM[:300], "no memory figure", id="cut before the figures"),
        pytest.param(VLLM + SGLANG, "give the lines of one of them", id="two engines"),
        pytest.param(
            VLLM.replace(b"moonshotai/Kimi-K3", b"/models/secret"), "give it with --model", id="unknown model"
        ),
        pytest.param(VLLM.replace(b"'model': 'moonshotai/Kimi-K3', ", b""), "names no model", id="no model"),
        pytest.param(VLLM.replace(b"_size': 8", b"_size': 7"), "does not divide", id="impossible layout"),
        pytest.param(VLLM.replace(b"'fp8'", b"'fp3'"), "--kv-cache-dtype", id="unknown dtype"),
        pytest.param(VLLM.replace(b"1048576", b"'many'"), "--max-model-len", id="no number"),
    ],
)
def test_what_cannot_be_read_is_said_in_one_line(data: bytes, said: str) -> None:
    with pytest.raises(KvplanError) as caught:
        report_of(data)
    assert said in str(caught.value)
    assert "\n" not in str(caught.value)


def _colours(data: bytes) -> bytes:
    return b"".join(
        b"\x1b[1;36m" + line.replace(b" INFO", b"\x1b[0;0m INFO") for line in data.splitlines(keepends=True)
    )


def _docker(data: bytes) -> bytes:
    return b"".join(b'{"log":"' + line + b'\\n","stream":"stderr"}\n' for line in data.splitlines())


@pytest.mark.parametrize(
    "change",
    [
        pytest.param(lambda data: data.replace(b"\n", b"\r\n"), id="crlf"),
        pytest.param(lambda data: data.decode().encode("utf-16"), id="utf-16"),
        pytest.param(_colours, id="colours"),
        pytest.param(lambda data: _colours(data).replace(b"\x1b", b""), id="colours without escape"),
        pytest.param(_docker, id="docker"),
        pytest.param(lambda data: data.replace(b"(", b"2026-08-05T05:39:20Z pod/vllm-0 | ("), id="pod names"),
        pytest.param(lambda data: b"x" * 3_000_000 + b"\n" + data, id="an endless line before"),
        pytest.param(lambda data: data.replace(b"\n", b"\nLoading: 10%\rLoading: 100%\r\n"), id="progress bars"),
        pytest.param(lambda data: data + b"\xff\xfe\x00garbage\n" * 50, id="bytes that are no text"),
        pytest.param(
            lambda data: data.replace(b"42.23", b"12.00").replace(b"3,249,215", b"9") + data, id="second boot"
        ),
    ],
)
def test_how_it_was_captured_does_not_matter(change: Callable[[bytes], bytes]) -> None:
    report = report_of(change(VLLM))
    assert verdicts(report) == {"kv_cache_tokens": "exact", "block_tokens": "exact", "pool": "not-modelled"}


@pytest.mark.parametrize("kept", range(1, len(VLLM), 37))
def test_a_cut_log_never_gives_another_figure(kept: int) -> None:
    """Cut anywhere: a figure is either whole or not there."""
    try:
        facts = facts_of(VLLM[:kept])
    except KvplanError:
        return
    assert {figure.text for figure in facts.figures} <= {"1536", "42.23", "3,249,215"}
    assert facts.values.get("tensor-parallel-size", 8) == 8


def test_a_figure_that_contradicts_the_pool_differs() -> None:
    report = report_of(VLLM.replace(b"3,249,215", b"9,249,215"))
    assert verdicts(report)["kv_cache_tokens"] == "differs"
    assert report.exit_code == 1


def test_a_rank_that_contradicts_itself_is_named() -> None:
    twice = b"(EngineCore pid=2) INFO [kv_cache_utils.py:1] GPU KV cache size: 1,000 tokens\n"
    report = report_of(VLLM.replace(b"(EngineCore", twice + b"(EngineCore"))
    assert verdicts(report)["kv_cache_tokens"] == "exact"
    assert any("different values" in text for text in report.warnings)


def test_the_rank_with_least_room_decides() -> None:
    other = b"(Worker_TP1 pid=4) INFO [gpu_worker.py:773] Available KV cache memory: 43.80 GiB\n"
    report = report_of(VLLM.replace(b"(EngineCore", other + b"(EngineCore"))
    assert verdicts(report)["kv_cache_tokens"] == "exact"
    assert any("42.23 to 43.80" in row.note for row in report.lines)


def test_absurd_figures_are_answered() -> None:
    for number in (b"0", b"999,999,999,999,999", b"9" * 60):
        try:
            report = report_of(VLLM.replace(b"3,249,215", number))
        except KvplanError:
            continue
        assert verdicts(report).get("kv_cache_tokens", "differs") == "differs"


def test_a_figure_between_two_block_counts_is_within() -> None:
    """Two places of a GiB leave several small blocks open; no count of them gives a number of tokens in between."""
    log = (
        b"INFO vLLM API server version 0.13.0\n"
        b"non-default args: {'model': 'Qwen/Qwen3-30B-A3B', 'max_model_len': 4096}\n"
        b"Available KV cache memory: 33.16 GiB\nGPU KV cache size: 362,225 tokens\n"
    )
    report = report_of(log)
    assert verdicts(report)["kv_cache_tokens"] == "within"
    assert report.exit_code == 0
