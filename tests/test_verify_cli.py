"""`kvplan verify` from the command line: documents, exit codes, what it leaves behind, the page that explains it."""

import json
import re
import shlex
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parent.parent
LOGS = ROOT / "tests" / "golden" / "logs"
PAGE = (ROOT / "docs" / "reading-a-boot-log.md").read_text(encoding="utf-8")
SHOWN = re.findall(r"^\$ (kvplan [^\n]+)\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)
K3 = str(LOGS / "vllm-kimi-k3-b300.log")
Run = Callable[..., Any]


@pytest.mark.parametrize(("command", "output"), SHOWN)
def test_the_page_shows_what_the_command_prints(kvplan: Run, command: str, output: str) -> None:
    assert len(SHOWN) == 2
    assert kvplan(*shlex.split(command)[1:], cwd=ROOT).stdout == output


def test_the_document(kvplan: Run) -> None:
    done = kvplan("verify", K3, "--json")
    found = json.loads(done.stdout)
    assert (done.returncode, done.stderr) == (0, "")
    assert found["schema"] == "kvplan.verify/1"
    assert (found["engine"], found["engine_version"], found["model"]) == ("vllm", "0.28.0", "kimi-k3")
    assert found["inputs"]["kv_cache_dtype"] == "fp8"
    tokens = next(row for row in found["lines"] if row["what"] == "kv_cache_tokens")
    assert {key: tokens[key] for key in ("printed", "computed", "unit", "verdict")} == {
        "printed": 3_249_215, "computed": 3_249_215, "unit": "tokens", "verdict": "exact",
    }  # fmt: skip
    assert {row["verdict"] for row in found["lines"]} <= {"exact", "within", "differs", "not-modelled"}
    assert all(set(row) == {"what", "printed", "computed", "unit", "verdict", "note", "line"} for row in found["lines"])


def test_standard_input_and_exit_codes(kvplan: Run) -> None:
    text = Path(K3).read_text(encoding="utf-8")
    assert kvplan("verify", "-", input=text).returncode == 0
    wrong = kvplan("verify", "-", input=text.replace("3,249,215", "3,249,216"))
    assert wrong.returncode == 1 and "DIFFERS" in wrong.stdout
    empty = kvplan("verify", "-", input="")
    assert (empty.returncode, empty.stdout, empty.stderr) == (2, "", "kvplan: the log is empty\n")
    missing = kvplan("verify", "nowhere.log")
    assert (missing.returncode, missing.stderr) == (2, "kvplan: nowhere.log: No such file or directory\n")


def test_a_command_gives_what_the_log_does_not_show(kvplan: Run) -> None:
    """The figures alone: InferenceX PR 2371."""
    lines = [
        "Available KV cache memory: 42.23 GiB",
        "GPU KV cache size: 3,249,215 tokens",
    ]
    command = "vllm serve moonshotai/Kimi-K3 -tp 8 --kv-cache-dtype fp8 --enable-prefix-caching --max-model-len 1048576"
    done = kvplan("verify", "-", "--engine-version", "0.28", "--", *shlex.split(command), input="\n".join(lines) + "\n")
    assert done.returncode == 0, done.stderr
    other = kvplan("verify", "-", "--", "llama-server", "-m", "x.gguf", input="\n".join(lines) + "\n")
    assert other.stderr == "kvplan: the log is vllm's, the command is llamacpp's\n"


def test_a_pool_from_scratch(kvplan: Run) -> None:
    log = str(LOGS / "vllm-qwen3-30b-a3b.log")
    done = kvplan("verify", log, "--gpu", "rtx-pro-6000", "--from-scratch", "--json")
    row = next(row for row in json.loads(done.stdout)["lines"] if row["what"] == "pool from scratch")
    assert row["printed"] == 33.16 and row["verdict"] in ("exact", "within", "differs")
    assert re.search(r"predicted, .* to .* GiB \([+-]\d+\.\d%\)$", row["note"])
    without = kvplan("verify", log, "--from-scratch", "--json")
    row = next(row for row in json.loads(without.stdout)["lines"] if "needs the GPU" in row["note"])
    assert row["verdict"] == "not-modelled"


def test_the_plan_that_the_log_implies(kvplan: Run, tmp_path: Path) -> None:
    out = tmp_path / "plan.json"
    assert kvplan("verify", K3, "--plan", str(out)).returncode == 0
    plan = json.loads(out.read_text(encoding="utf-8"))
    assert plan["schema"] == "kvplan.plan/1"
    assert (plan["pool"]["source"], plan["engine"]["num_blocks"]) == ("logged", 2135)
    assert plan["engine"]["kv_cache_tokens"] == 3_249_215
    failed = kvplan("verify", K3, "--plan", str(tmp_path))
    assert failed.returncode == 2 and "Is a directory" in failed.stderr


def test_a_log_becomes_a_measured_overhead(kvplan: Run, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("KVPLAN_HOME", str(tmp_path))
    log = str(LOGS / "vllm-qwen3-30b-a3b.log")
    done = kvplan("verify", log, "--gpu", "rtx-pro-6000", "--save")
    saved = tmp_path / "overheads" / "vllm-0.13.0-rtx-pro-6000-qwen3-30b-a3b-tp1.toml"
    assert done.stderr == f"kvplan: saved {saved}\n"

    from kvplan.overheads import measured_overheads
    from kvplan.profiles import paths

    paths.cache_clear()
    (one,) = measured_overheads("vllm", "RTX-PRO-6000", "0.13.0")
    paths.cache_clear()
    assert one.gpu_memory_utilization == 0.95
    budget = int(one.memory_bytes * one.gpu_memory_utilization)
    assert budget == one.weights_bytes + one.pool_bytes + one.other_bytes
    flags = ("--engine-version", "0.13.0", "--max-model-len", "4096", "--gpu-memory-utilization", "0.95", "--json")
    plan = json.loads(kvplan("estimate", "qwen3-30b-a3b", "--gpu", "rtx-pro-6000:1", *flags).stdout)
    assert plan["pool"]["breakdown"]["other_bytes"] == one.other_bytes
    assert abs(plan["pool"]["bytes"] - one.pool_bytes) < one.weights_bytes // 200
    for command, said in (
        (("verify", log), "needs the GPU"),
        (("verify", K3, "--gpu", "b300"), "no weights (`Model loading"),
    ):
        refused = kvplan(*command, "--save")
        assert refused.returncode == 2 and said in refused.stderr
