"""What people paste is a part of a log: what it does not say is said to be missing, and never counted as wrong."""

import io

import pytest

from kvplan.logs import read_log
from kvplan.verify import Report, verify_log

NEXT = """\
(Worker_TP1 pid=6414) INFO [gpu_model_runner.py:2338] Starting to load model /data/Qwen3-Next-80B-A3B-Instruct...
(Worker_TP1 pid=6414) INFO [gpu_model_runner.py:2392] Model loading took 74.2812 GiB and 215.969277 seconds
(Worker_TP0 pid=6413) INFO [gpu_model_runner.py:2392] Model loading took 74.2812 GiB and 215.831224 seconds
(Worker_TP1 pid=6414) INFO [gpu_worker.py:298] Available KV cache memory: 44.59 GiB
(Worker_TP0 pid=6413) INFO [gpu_worker.py:298] Available KV cache memory: 44.59 GiB
(EngineCore_DP0 pid=5889) INFO [kv_cache_utils.py:1028] GPU KV cache size: 973,760 tokens
(EngineCore_DP0 pid=5889) INFO [kv_cache_utils.py:1032] Maximum concurrency for 262,144 tokens per request: 14.77x
(Worker_TP0 pid=6413) INFO [gpu_worker.py:391] Free memory on device (139.21/139.81 GiB) on startup. \
Desired GPU memory utilization is (0.9, 125.83 GiB). Actual usage is 74.28 GiB for weight, 5.58 GiB for peak \
activation, 1.38 GiB for non-torch memory, and 2.37 GiB for CUDAGraph memory. Replace gpu_memory_utilization config \
with `--kv-cache-memory=45175492096` to fit into requested memory, or `--kv-cache-memory=59540753920` to fully utilize \
gpu memory. Current kv cache memory in use is 47878721024 bytes.
"""
"""vLLM 0.10.2, two H200. The log goes on: `num_gpu_blocks is: 7162`."""
DIALECT = "INFO [gpu_worker.py:1] "


def report_of(text: str, model: str | None = None, **flags: object) -> Report:
    return verify_log(read_log(io.BytesIO(text.encode())), model=model, **flags)[0]


def verdicts(report: Report) -> dict[str, str]:
    return {row.what: row.verdict for row in report.lines}


def test_model_ranks_and_the_exact_pool_are_read_where_arguments_are_missing() -> None:
    report = report_of(NEXT)
    rows = {row.what: row for row in report.lines}
    assert report.model == "qwen3-next"
    assert (report.inputs["tp"], report.inputs["gpu_memory_utilization"]) == (2, "0.9")
    assert "kv_cache_memory" not in report.inputs
    assert rows["kv_cache_tokens"].computed == 973_760 and rows["max_concurrency"].computed == 14.77
    assert any("47,878,721,024 B: 7,162 blocks" in step for step in report.arithmetic)
    assert rows["weights"].verdict == "within"


def test_the_printed_total_stands_for_the_gpu() -> None:
    found = verify_log(read_log(io.BytesIO(NEXT.encode())), model=None, from_scratch=True)[0]
    row = next(row for row in found.lines if row.what == "pool from scratch")
    assert row.verdict in ("within", "exact")


def test_tokens_that_a_warning_speaks_of_are_those_of_the_log() -> None:
    said = " ".join(report_of(NEXT).warnings)
    assert "3,871,083 here" in said


@pytest.mark.parametrize(
    ("lines", "model"),
    [
        (f"{DIALECT}Available KV cache memory: 6.56 GiB\n{DIALECT}GPU KV cache size: 49,600 tokens\n", "qwen3.6-27b"),
        ("[TP0] max_total_num_tokens=580364, max_running_requests=1, context_len=8192, avail\n", "qwen3-8b"),
    ],
)
def test_a_fragment_that_other_arguments_explain_is_not_called_wrong(lines: str, model: str) -> None:
    report = report_of(lines, model)
    assert "differs" not in verdicts(report).values() and report.exit_code == 0
    assert any("give its command after --" in row.note for row in report.lines)


def test_weights_in_a_format_that_the_log_does_not_name() -> None:
    lines = NEXT.replace("74.2812", "39.1204").replace(
        "/data/Qwen3-Next-80B-A3B-Instruct", "/data/Qwen3-Next-80B-A3B-FP8"
    )
    row = next(row for row in report_of(lines, "qwen3-next").lines if row.what == "weights")
    assert (row.verdict, row.computed) == ("not-modelled", None)
    assert "does not say how its weights are stored" in row.note


def test_plain_weights_are_compared_under_any_path() -> None:
    """vLLM 0.30: Llama 3.1 8B loads 14.9889 GiB."""
    log = (
        "INFO [core.py:74] Initializing a V1 LLM engine (v0.30.0) with config: model='/m/Llama-3.1-8B-Instruct', "
        "max_seq_len=131072, tensor_parallel_size=1, quantization=None, kv_cache_dtype=auto\n"
        f"{DIALECT}Model loading took 14.9889 GiB memory and 6.120 seconds\n"
        f"{DIALECT}Available KV cache memory: 53.71 GiB\n{DIALECT}GPU KV cache size: 439,984 tokens\n"
    )
    assert verdicts(report_of(log))["weights"] == "within"
    awq = log.replace("quantization=None", "quantization=awq_marlin")
    assert verdicts(report_of(awq))["weights"] == "not-modelled"
    wrong = log.replace("439,984", "449,984")
    assert verdicts(report_of(wrong))["kv_cache_tokens"] == "differs"


def test_one_line_for_both_pools_of_sglang() -> None:
    """Gemma 4 26B with an fp8 cache: 25 layers with windows at 102,400 B a token, 5 without at 10,240 B."""
    log = "[TP0] SWAKVPool mem usage: 3.18 GB, swa size: 29664, full size: 37081\n"
    report = report_of(log, "gemma-4-26b-a4b", kv_cache_dtype="fp8")
    assert verdicts(report) == {"both_pools": "exact", "swa_pool_tokens": "exact"}


def test_a_wrapped_line_of_llama_cpp() -> None:
    """Qwen3.5 9B, 4 slots; the widths of the 4B."""
    log = (
        "llama_kv_cache: size = 4224.00 MiB (135168 cells, 8 layers, 4/1 seqs),\n   K (f16): 2112.00 MiB\n"
        "llama_memory_recurrent: size = 201.00 MiB (4 cells, 32 layers, 4 seqs),\n   R (f32): 9.00 MiB\n"
    )
    assert verdicts(report_of(log, "qwen3.5-4b")) == {"kv_buffer": "exact", "state_buffer": "exact"}


def test_states_of_llama_cpp_say_how_many_slots() -> None:
    """Qwen3.5 27B: 149.62 MiB for one sequence."""
    log = "llama_memory_recurrent: size =  149.62 MiB (1 cell, 64 layers)\n"
    assert verdicts(report_of(log, "qwen3.5-27b")) == {"state_buffer": "exact"}


def test_windows_of_llama_cpp_need_the_batch() -> None:
    """gpt-oss 20B with 128 tokens a batch: 256 cells, which the log does not explain."""
    log = "llama_kv_cache: size = {} MiB ({} cells, 12 layers, 1/1 seqs), K (q8_0): {} MiB, V (q8_0): {} MiB\n"
    lines = log.format("102.00", "8192", "51.00", "51.00") + log.format("3.19", "256", "1.59", "1.59")
    rows = [row for row in report_of(lines, "gpt-oss-20b").lines if row.what == "kv_buffer"]
    assert [row.verdict for row in rows] == ["exact", "not-modelled"]
    report = report_of("llama_context: n_ubatch      = 128\n" + lines, "gpt-oss-20b")
    assert {row.verdict for row in report.lines} == {"exact"}


def test_one_line_a_worker_means_the_least() -> None:
    """vLLM 0.10.2, Qwen3 235B over eight GPUs: each worker's count is printed, the scheduler gets the smallest."""
    memory = ["11.55", "11.52", "11.51", "11.51", "11.55", "11.51", "11.52", "11.51"]
    log = "".join(
        f"(Worker_TP{rank}_EP{rank} pid={8092 + rank}) INFO 09-29 11:34:04 [gpu_worker.py:298] "
        f"Available KV cache memory: {gib} GiB\n"
        for rank, gib in enumerate(memory)
    )
    core = "(EngineCore_DP0 pid=7949) INFO 09-29 11:34:06 "
    for tokens, times in (("257,664", "7.86"), ("256,800", "7.84"), ("256,976", "7.84"), ("257,664", "7.86")):
        log += f"{core}[kv_cache_utils.py:864] GPU KV cache size: {tokens} tokens\n"
        log += f"{core}[kv_cache_utils.py:868] Maximum concurrency for 32,768 tokens per request: {times}x\n"
    wanted = {"pool": "not-modelled", "kv_cache_tokens": "exact", "max_concurrency": "exact"}
    assert verdicts(report_of(log, "qwen3-235b-a22b")) == wanted
