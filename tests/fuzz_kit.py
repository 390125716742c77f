"""What may be fuzzed: each target takes any bytes, and only a KvplanError may come of it.

`tests/test_fuzz.py` drives the targets with hypothesis, `scripts/fuzz.py` for as long as one likes, led by coverage.
"""

import io
import json
import struct
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

from kvplan.agents.traces import open_trace
from kvplan.agents.workflow import parse_workflow
from kvplan.agents.workload import parse_workload
from kvplan.calibration import find_calibration
from kvplan.diff.read import check_plan
from kvplan.errors import KvplanError
from kvplan.launch.command import parse_command
from kvplan.logs.read import read_log
from kvplan.plan import plan
from kvplan.profiles import parse, paths
from kvplan.sources.local import from_path
from kvplan.sources.safetensors import read_file
from kvplan.verify.case import make_case

Target = Callable[[bytes], None]
MODELS = ("kimi-k3", "kimi-linear", "qwen3-next", "deepseek-v3.2", "deepseek-v4-flash", "llama-3.1-8b", "gpt-oss-20b")


def _text(data: bytes) -> str:
    return data.decode("utf-8", "replace")


def _written(data: bytes, name: str, read: Callable[[Path], Any]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / name
        path.write_bytes(data)
        read(path)


def config(data: bytes) -> None:
    """A config.json, planned on GPUs by two engines."""

    def run(path: Path) -> None:
        model = from_path(str(path))
        if model is not None:
            for engine in ("vllm", "sglang"):
                plan(model, gpu="H200:8", engine=engine, context="128K")

    _written(data, "config.json", run)


def header(data: bytes) -> None:
    """A safetensors file."""
    _written(data, "model.safetensors", lambda path: read_file(path))


def log(data: bytes) -> None:
    """A boot log, as far as the case that it makes."""
    make_case(read_log(io.BytesIO(data)), None, {})


def trace(data: bytes) -> None:
    """A trace, by the reader that its first lines ask for."""
    for name in ("trace.csv", "trace.jsonl"):
        try:
            _written(data, name, lambda path: list(open_trace(path)))
        except KvplanError:
            continue


def toml(data: bytes) -> None:
    """A TOML file as each of the things that users write."""
    document = parse(_text(data), Path("fuzz.toml"))
    for read in (parse_workflow, parse_workload):
        try:
            read(document, "fuzz.toml")
        except KvplanError:
            continue


def calibration(data: bytes) -> None:
    _written(data, "mine.toml", lambda path: find_calibration(str(path)))


def plan_json(data: bytes) -> None:
    """A plan that somebody else wrote."""
    try:
        document = json.loads(data)
    except (ValueError, RecursionError):
        return
    check_plan(document, "fuzz.json")


def command(data: bytes) -> None:
    """An engine's command line, words apart by NUL."""
    parse_command(_text(data).split("\0"))


TARGETS: dict[str, Target] = {
    "config": config, "header": header, "log": log, "trace": trace, "toml": toml, "calibration": calibration,
    "plan": plan_json, "command": command,
}  # fmt: skip


def seeds(target: str) -> list[bytes]:
    """Well-formed inputs to start from."""
    return [seed.encode() if isinstance(seed, str) else seed for seed in _SEEDS[target]()]


def bundled_config(name: str) -> dict[str, Any]:
    config = parse(paths("models")[name].read_text(encoding="utf-8"), Path(name))["config"]
    assert isinstance(config, dict)
    return config


def _headers() -> list[bytes]:
    tensor = {"dtype": "BF16", "shape": [4, 8], "data_offsets": [0, 64]}
    document = json.dumps({"__metadata__": {"format": "pt"}, "w": tensor}).encode()
    return [struct.pack("<Q", len(document)) + document + bytes(64), struct.pack("<Q", 2**63) + document]


_LOG = """INFO 11-02 api_server.py:1289] vLLM API server version 0.28.0
INFO 11-02 [utils.py:233] non-default args: {'model': 'moonshotai/Kimi-K3', 'tensor_parallel_size': 8}
INFO 11-02 [gpu_worker.py:440] Available KV cache memory: 42.23 GiB
INFO 11-02 [kv_cache_utils.py:1305] GPU KV cache size: 3,249,215 tokens
INFO 11-02 [kv_cache_utils.py:1310] Maximum concurrency for 1,048,576 tokens per request: 3.10x
"""
_SGLANG = """[2026-11-02 10:00:00] server_args=ServerArgs(model_path='Qwen/Qwen3-Next-80B-A3B-Instruct', tp_size=2)
[2026-11-02 10:00:09 TP0] Load weight end. type=Qwen3NextForCausalLM, dtype=torch.bfloat16, avail mem=60.1 GB
[2026-11-02 10:00:10 TP0] Mamba Cache is allocated. max_mamba_cache_size: 429, conv_state size: 1.00GB, \
ssm_state size: 28.55GB
[2026-11-02 10:00:10 TP0] KV Cache is allocated. #tokens: 1033126, K size: 5.9 GB, V size: 5.9 GB
"""
_TRACES = (
    "TIMESTAMP,ContextTokens,GeneratedTokens\n"
    "2023-11-16 18:15:46.6805900,374,44\n2023-11-16 18:15:50.9951690,396,109\n",
    '{"timestamp": 0, "input_length": 6758, "output_length": 500, "hash_ids": [0, 1, 2]}\n',
)
_WORKFLOW = """schema = "kvplan.workflow/1"
[agent.root]
start_tokens = 1000
end_tokens = 5000
lifetime_s = 60.0
"""
_SEEDS: dict[str, Callable[[], list[Any]]] = {
    "config": lambda: [json.dumps(bundled_config(name)) for name in MODELS],
    "header": _headers,
    "log": lambda: [_LOG, _SGLANG],
    "trace": lambda: list(_TRACES),
    "toml": lambda: [_WORKFLOW, paths("workloads")["chat"].read_text(encoding="utf-8")],
    "calibration": lambda: [paths("calibration")["h200"].read_text(encoding="utf-8")[:3000]],
    "plan": lambda: [json.dumps(plan("kimi-linear", gpu="H200").to_dict())],
    "command": lambda: [
        "vllm serve moonshotai/Kimi-K3 -tp 8 --kv-cache-dtype fp8 --block-size=64".replace(" ", "\0"),
        "python -m sglang.launch_server --model-path Qwen/Qwen3-Next-80B-A3B-Instruct --tp 2".replace(" ", "\0"),
    ],
}  # fmt: skip
