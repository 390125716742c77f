"""Start-up and memory of kvplan beside kvfit: `--help`, and an estimate from the same config, as ratios of one run.

    python scripts/bench_startup.py [--repeat 15]

kvplan and kvfit have to be installed in the running environment (`pip install kvfit`). Prints the median wall time and
the peak resident memory of each, and kvplan's over kvfit's. Nothing is asserted: this is a measurement, not a test.
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
from pathlib import Path

CONFIG = {
    "model_type": "llama", "architectures": ["LlamaForCausalLM"], "hidden_size": 4096, "num_hidden_layers": 32,
    "num_attention_heads": 32, "num_key_value_heads": 8, "intermediate_size": 14336, "vocab_size": 128256,
    "torch_dtype": "bfloat16", "max_position_embeddings": 131072, "tie_word_embeddings": False,
}  # fmt: skip
KVFIT = "import json, sys; from kvfit.architectures import estimate_cache; "
KVFIT += "estimate_cache(json.load(open(sys.argv[1])), context_tokens=131072)"


def measure(command: list[str], repeat: int) -> tuple[float, float]:
    """Median wall seconds and peak resident MB over `repeat` runs, after one that fills the page cache."""
    walls, peaks = [], []
    for number in range(repeat + 1):
        started = time.perf_counter()
        process = subprocess.Popen(command, stdout=subprocess.DEVNULL)
        _, status, usage = os.wait4(process.pid, 0)
        wall = time.perf_counter() - started
        if status:
            raise SystemExit(f"{' '.join(command)} failed")
        if number:
            walls.append(wall)
            peaks.append(usage.ru_maxrss / 1000)
    return statistics.median(walls), max(peaks)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--repeat", type=int, default=15)
    repeat = parser.parse_args().repeat
    tools = Path(sys.executable).parent
    with tempfile.TemporaryDirectory() as folder:
        config = Path(folder) / "config.json"
        config.write_text(json.dumps(CONFIG))
        pairs = {
            "--help": ([str(tools / "kvplan"), "--help"], [str(tools / "kvfit"), "--help"]),
            "estimate of a config": (
                [str(tools / "kvplan"), "estimate", str(config)],
                [sys.executable, "-c", KVFIT, str(config)],
            ),
            "python alone": ([sys.executable, "-c", "pass"],) * 2,
        }
        print(f"Python {platform.python_version()}, {platform.machine()}, median of {repeat}")
        print(f"{'':22}{'kvplan':>18}{'kvfit':>18}{'time':>8}{'memory':>8}")
        for name, (ours, theirs) in pairs.items():
            (wall, peak), (their_wall, their_peak) = measure(ours, repeat), measure(theirs, repeat)
            cells = f"{wall * 1000:7.0f} ms {peak:4.0f} MB{their_wall * 1000:10.0f} ms {their_peak:4.0f} MB"
            print(f"{name:22}{cells}{wall / their_wall:7.2f}x{peak / their_peak:7.2f}x")


if __name__ == "__main__":
    main()
