"""Five configs, one question, every planner: what does one sequence of 131,072 tokens keep, in bf16, on no engine?

    python scripts/compare_planners.py [--tools DIR] [--markdown]

Installs the planners below into environments of their own (kept in DIR when given), answers their requests from a
stand-in for the hub on this machine, and prints each answer over the true one. Weights are a bare header, so that a
planner's figures for weights mean nothing here. kvplan is the one of the running environment.
"""

import argparse
import json
import os
import re
import subprocess
import sys
import tempfile
import time
import tomllib
import venv
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from loopback_hub import REDIRECT, Hub

PROFILES = Path(__file__).parent.parent / "profiles" / "models"
TOKENS = 131_072
GIB = 2**30
TRUTH = {
    "llama-3.1-8b": 32 * 2 * 8 * 128 * 2 * TOKENS,
    "deepseek-v3": 61 * (512 + 64) * 2 * TOKENS,
    "qwen3-next": 12 * 2 * 2 * 256 * 2 * TOKENS + 36 * (32 * 128 * 128 * 4 + (2 * 16 * 128 + 32 * 128) * 3 * 2),
    "kimi-linear": 7 * (512 + 64) * 2 * TOKENS + 20 * (32 * 128 * 128 * 4 + 3 * 32 * 128 * 3 * 2),
    "kimi-k3": 24 * (512 + 64) * 2 * TOKENS + 69 * (96 * 128 * 128 * 4 + 3 * 96 * 128 * 3 * 2),
}
"""Attention layers × elements per token × bytes; recurrent layers × (fp32 matrix + three bf16 taps)."""


@dataclass(frozen=True)
class Planner:
    """One planner: what to install, what to type (ID, CONFIG and NAME are put in), and how to read its answer."""

    name: str
    package: str
    command: tuple[str, ...]
    read: Callable[[str], float | None]
    rounding_bytes: float = 0.5
    """Half of the last digit that it prints."""


def _json(*keys: str) -> Callable[[str], float | None]:
    def read(text: str) -> float | None:
        value = json.loads(text)
        for key in keys:
            value = value[key]
        return float(value)

    return read


def _match(pattern: str, unit: float) -> Callable[[str], float | None]:
    def read(text: str) -> float | None:
        found = re.search(pattern, text)
        return float(found[1].replace(",", "")) * unit if found else None

    return read


def _parts(text: str) -> float | None:
    """vramscout's cache parts: what is neither weights, runtime, scratch nor reserve."""
    others = ("weights", "runtime", "scratch", "reserve")
    parts = json.loads(text)["parts_gib"]
    return sum(size * GIB for name, size in parts.items() if not any(word in name.lower() for word in others))


_KVFIT = """
import json, sys
from kvfit.architectures import estimate_cache
from kvfit.models import UnsupportedArchitecture
try:
    print(int(estimate_cache(json.load(open(sys.argv[1])), context_tokens=131072).total_bytes))
except UnsupportedArchitecture as error:
    sys.exit(str(error))
"""
_KVCACHE_AI = """
import sys
from kvcache_sim.calculator import calculate_cache_size, load_models_data, models_by_id
model = models_by_id(load_models_data()).get(sys.argv[1])
if model is None:
    sys.exit("not in the catalog")
size = calculate_cache_size(model, tokens=131072, precision="bf16_fp16", include_linear_attention_state=True)
print(int(size.total_bytes))
"""

PLANNERS = (
    Planner("kvfit", "kvfit==0.3.0", ("python", "-c", _KVFIT, "CONFIG"), float),
    Planner("kvcache.ai", "kvcache-simulator==0.1.3", ("python", "-c", _KVCACHE_AI, "NAME"), float),
    Planner(
        "vramscout", "vramscout==0.7.0",
        ("vramscout", "ID", "--context", str(TOKENS), "--json", "--vram-gib", "100000"), _parts,
    ),
    Planner(
        "ridgepoint", "ridgepoint==0.1.2",
        ("ridgepoint", "fit", "ID", "--gpu", "h100-80gb:8", "--ctx", str(TOKENS), "--kv-cache-dtype", "bf16", "--json"),
        _json("capacity", "bytes_per_seq"),
    ),
    Planner(
        "hf-mem", "hf-mem==0.5.6",
        ("hf-mem", "--model-id", "ID", "--experimental", "--max-model-len", str(TOKENS), "--kv-cache-dtype", "bfloat16",
         "--json-output"),
        _json("kv_cache"),
    ),
    Planner(
        "llm-cal", "llm-cal==0.2.0",
        ("llm-cal", "ID", "--gpu", "H200", "--context-length", str(TOKENS), "--lang", "en"),
        _match(r"131,072 tokens\s+([\d.]+) GB", 1e9), 0.005e9,
    ),
    Planner(
        "llm-mem-planner", "llm-mem-planner==0.2.2",
        ("llm-mem-planner", "--config", "CONFIG", "--seq-len", str(TOKENS), "--batch", "1", "--kv-dtype", "bf16"),
        _match(r"kv_per_rank=([\d.]+) GiB", GIB), 0.0005 * GIB,
    ),
    Planner(
        "servcalc", "servcalc==0.1.0", ("servcalc", "CONFIG", "--gpu", "H100 80GB", "--json"),
        _match(r'"kv_bytes_per_token": ([\d.]+)', TOKENS),
    ),
)  # fmt: skip


def profile(name: str) -> dict:
    return tomllib.loads((PROFILES / f"{name}.toml").read_text(encoding="utf-8"))


def installed(planner: Planner, tools: Path) -> Path:
    """The environment's programs; installed on first use."""
    home = tools / planner.name
    if not (home / "done").exists():
        venv.create(home, with_pip=True)
        subprocess.run([home / "bin" / "pip", "install", "--quiet", planner.package], check=True)
        (home / "done").touch()
    return home / "bin"


def ask(planner: Planner, programs: Path, name: str, config: Path, environment: dict[str, str]) -> tuple[str, float]:
    """The answer over the true one, or what came instead; and the seconds that it took."""
    words = {"ID": profile(name)["hf_id"], "CONFIG": str(config), "NAME": name}
    command = [words.get(word, word) for word in planner.command]
    started = time.perf_counter()
    try:
        run = subprocess.run(
            [programs / command[0], *command[1:]], env=environment, capture_output=True, text=True, timeout=120
        )
    except subprocess.TimeoutExpired:
        return "no answer in 120 s", time.perf_counter() - started
    seconds = time.perf_counter() - started
    try:
        answer = planner.read(run.stdout)
    except (ValueError, KeyError, TypeError):
        answer = None
    if not answer:
        return ("crashed" if "Traceback" in run.stderr else "refused") if run.returncode else "no figure", seconds
    return judged(answer, TRUTH[name], planner.rounding_bytes), seconds


def judged(answer: float, truth: int, rounding_bytes: float) -> str:
    if abs(answer - truth) <= rounding_bytes:
        return "right"
    share = answer / truth
    return f"{share:.2f}x" if abs(share - 1) > 0.005 else f"{share:.4f}x"


def kvplan(config: Path, name: str) -> tuple[str, float]:
    command = [Path(sys.executable).parent / "kvplan", "estimate", str(config), "--context", "128K", "--json"]
    started = time.perf_counter()
    run = subprocess.run(command, capture_output=True, text=True, check=True)
    total = json.loads(run.stdout)["per_sequence"][0]["total_bytes"]
    return judged(total, TRUTH[name], 0), time.perf_counter() - started


def compare(tools: Path, work: Path) -> list[list[str]]:
    hub = Hub(
        {
            profile(name)["hf_id"]: (profile(name)["config"], profile(name)["published"]["params_total"])
            for name in TRUTH
        }
    )
    (work / "sitecustomize.py").write_text(REDIRECT, encoding="utf-8")
    environment = os.environ | {
        "PYTHONPATH": str(work), "HUB_PORT": str(hub.port), "HF_ENDPOINT": f"http://127.0.0.1:{hub.port}",
        "HF_HOME": str(work / "cache"), "NO_COLOR": "1", "COLUMNS": "200",
    }  # fmt: skip
    configs = {}
    for name in TRUTH:
        configs[name] = work / name / "config.json"
        configs[name].parent.mkdir()
        configs[name].write_text(json.dumps(profile(name)["config"]), encoding="utf-8")
    rows = [_row("kvplan", [kvplan(configs[name], name) for name in TRUTH])]
    for planner in PLANNERS:
        programs = installed(planner, tools)
        answers = [ask(planner, programs, name, configs[name], environment) for name in TRUTH]
        rows.append(_row(planner.package.replace("==", " "), answers))
    hub.close()
    return rows


def _row(name: str, answers: list[tuple[str, float]]) -> list[str]:
    return [name, *(answer for answer, _ in answers), f"{sorted(seconds for _, seconds in answers)[2]:.2f} s"]


def show(rows: list[list[str]], markdown: bool) -> None:
    heads = ["planner", *TRUTH, "median time"]
    if markdown:
        print("|", " | ".join(heads), "|\n|", " | ".join("---" for _ in heads), "|")
        for row in rows:
            print("|", " | ".join(row), "|")
        return
    widths = [max(len(row[n]) for row in [heads, *rows]) for n in range(len(heads))]
    for row in [heads, *rows]:
        print("  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--tools", type=Path, help="keep the planners' environments here")
    parser.add_argument("--markdown", action="store_true")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        work = Path(folder)
        rows = compare(options.tools or work / "tools", work)
    show(rows, options.markdown)


if __name__ == "__main__":
    main()
