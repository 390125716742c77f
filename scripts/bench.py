"""How long kvplan takes and how much memory it holds, beside kvfit and hf-mem where they answer the same, in one run.

    python scripts/bench.py [--repeat 9] [--traces FOLDER]

kvplan, kvfit and hf-mem have to be installed in the running environment (`pip install kvfit hf-mem`). A hub on this
machine answers both that ask one. FOLDER holds mooncake_conversation_trace.jsonl and
agentic_claude_code_requests.csv.gz. Median wall time and peak resident memory; nothing is asserted: this is a
measurement, not a test. `bench_frontier.py` and `bench_agents.py` go into the depth of two rows.
"""

import argparse
import json
import os
import platform
import statistics
import subprocess
import sys
import tempfile
import time
import tomllib
from pathlib import Path

from loopback_hub import REDIRECT, Hub

TOOLS = Path(sys.executable).parent
PROFILES = Path(__file__).parent.parent / "profiles" / "models"
KVFIT = (
    "import json, sys; from kvfit.architectures import estimate_cache; "
    "estimate_cache(json.load(open(sys.argv[1])), context_tokens=131072)"
)
SEARCH = (
    "from kvplan.agents.frontier import frontier; from kvplan.agents.options import ask; "
    "print(frontier('kimi-k3', 'coding-agent', ask(64, 1.0, 1, None, 256, 0), flags={}).searched.configurations)"
)
K3 = ("kimi-k3", "--gpu", "B300:8", "--kv-cache-dtype", "fp8")
Command = list[str]


def measure(command: Command, repeat: int, environment: dict[str, str]) -> tuple[float, float]:
    """Median wall seconds and peak resident MB over `repeat` runs, after one that fills the page cache."""
    walls, peaks = [], []
    for number in range(repeat + 1):
        started = time.perf_counter()
        process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, env=environment)
        _, status, usage = os.wait4(process.pid, 0)
        wall = time.perf_counter() - started
        if status:
            raise SystemExit(f"{' '.join(command)} failed; run it by hand to see why")
        if number:
            walls.append(wall)
            peaks.append(usage.ru_maxrss / 1000)
    return statistics.median(walls), max(peaks)


def kvplan(*words: str) -> Command:
    return [str(TOOLS / "kvplan"), *words]


def rows(work: Path, config: Path, model: str, traces: Path | None) -> list[tuple[str, Command, str, Command | None]]:
    """What is measured: its name, our command, whose else, and theirs."""
    alone = [sys.executable, "-c", "pass"]
    hf_mem = [str(TOOLS / "hf-mem"), "--model-id", model, "--experimental", "--max-model-len", "131072"]
    found: list[tuple[str, Command, str, Command | None]] = [
        ("python alone", alone, "", None),
        ("--help", kvplan("--help"), "kvfit", [str(TOOLS / "kvfit"), "--help"]),
        (
            "estimate of a config", kvplan("estimate", str(config)), "kvfit's bare function",
            [sys.executable, "-c", KVFIT, str(config)],
        ),
        ("estimate of a hub id", kvplan("estimate", model), "hf-mem", hf_mem),
        ("K3 on 8x B300 by vLLM's rules", kvplan("estimate", *K3), "", None),
        ("… with times", kvplan("estimate", *K3, "--calibration", "h200"), "", None),
        ("agents, one page", kvplan("agents", *K3, "--workload", "coding-agent"), "", None),
        ("frontier, 161,464 configurations", [sys.executable, "-c", SEARCH], "", None),
        ("report of K3", kvplan("report", *K3, "-o", str(work / "report.pdf")), "", None),
    ]  # fmt: skip
    if traces:
        for name in ("mooncake_conversation_trace.jsonl", "agentic_claude_code_requests.csv.gz"):
            command = kvplan("agents", "residency", *K3, "--workload", str(traces / name))
            found.append((f"residency of {name.split('_')[0]}'s trace", command, "", None))
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repeat", type=int, default=9)
    parser.add_argument("--traces", type=Path)
    options = parser.parse_args()
    llama = tomllib.loads((PROFILES / "llama-3.1-8b.toml").read_text(encoding="utf-8"))
    model = "bench/llama-3.1-8b"
    hub = Hub({model: (llama["config"], llama["published"]["params_total"])})
    with tempfile.TemporaryDirectory() as folder:
        work = Path(folder)
        config = work / "config.json"
        config.write_text(json.dumps(llama["config"]), encoding="utf-8")
        (work / "sitecustomize.py").write_text(REDIRECT, encoding="utf-8")
        asks = {"HF_ENDPOINT": f"http://127.0.0.1:{hub.port}", "HF_HOME": str(work / "cache")}
        redirected = os.environ | asks | {"HUB_PORT": str(hub.port), "PYTHONPATH": str(work)}
        print(f"Python {platform.python_version()}, {platform.machine()}, {os.cpu_count()} cores, median of runs")
        print(f"{'':34}{'kvplan':>20}{'another':>20}   ratio")
        for name, ours, other, theirs in rows(work, config, model, options.traces):
            wall, peak = measure(ours, options.repeat if theirs else min(3, options.repeat), os.environ | asks)
            line = f"{name:34}{wall:9.2f} s {peak:6.0f} MB"
            if theirs:
                their_wall, their_peak = measure(theirs, options.repeat, redirected)
                line += f"{their_wall:9.2f} s {their_peak:6.0f} MB {wall / their_wall:6.2f}x  {other}"
            print(line, flush=True)
    hub.close()


if __name__ == "__main__":
    main()
