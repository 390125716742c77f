"""How long `kvplan frontier` takes over every bundled GPU: configurations, seconds and peak memory, one process each.

    python scripts/bench_frontier.py [--max-gpus 256]

Seconds are of the whole search, the model's reading and the tables included, and not of the interpreter's start.
"""

import argparse
import os
import platform
import resource
import subprocess
import sys
from time import perf_counter

CASES = (
    ("kimi-k3", 64, "vllm"), ("kimi-k3", 64, "sglang"), ("qwen3-next", 200, "vllm"), ("llama-3.1-70b", 300, "vllm"),
    ("deepseek-v3.2", 100, "vllm"), ("gpt-oss-120b", 500, "vllm"),
)  # fmt: skip


def one(model: str, sessions: int, engine: str, most: int) -> None:
    from kvplan.agents.frontier import frontier
    from kvplan.agents.options import ask

    started = perf_counter()
    found = frontier(model, "coding-agent", ask(sessions, 1.0, 1, None, most, 0), flags={"engine": engine})
    seconds = perf_counter() - started
    assert found.searched is not None
    best = f"{found.answer.gpus}x {found.answer.gpu}" if found.answer else "not held"
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1000
    counts = f"{found.searched.configurations:>10,}{found.searched.candidates:>11,}{found.searched.evaluated:>8,}"
    print(f"{model:16}{engine:8}{sessions:>5}{counts}{seconds:>9.2f}{peak:>8.0f}  {best}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--max-gpus", type=int, default=256)
    parser.add_argument("--case", type=int, help=argparse.SUPPRESS)
    asked = parser.parse_args()
    if asked.case is not None:
        one(*CASES[asked.case], asked.max_gpus)
        return
    print(f"Python {platform.python_version()}, {platform.machine()}, {os.cpu_count()} cores")
    print(
        f"{'model':16}{'engine':8}{'N':>5}{'configs':>10}{'candidates':>11}{'rules':>8}{'seconds':>9}{'MB':>8}  answer"
    )
    for number in range(len(CASES)):
        command = [sys.executable, __file__, "--case", str(number), "--max-gpus", str(asked.max_gpus)]
        subprocess.run(command, check=True)


if __name__ == "__main__":
    main()
