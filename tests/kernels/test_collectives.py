"""Collectives between two processes on CPUs: what they compute, what rank 0 writes, how the suite must be started."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

torch = pytest.importorskip("torch", reason="kernel tests need torch (its CPU build will do) and triton")
from kvplan_kernels import calibration, collectives, device  # noqa: E402

KERNELS = str(Path(collectives.__file__).parents[1])
RANK = """
import sys
from pathlib import Path
import torch
from torch import distributed
from kvplan_kernels import collectives, runner, timing

rank, ranks, folder = int(sys.argv[1]), int(sys.argv[2]), Path(sys.argv[3])
distributed.init_process_group("gloo", init_method=f"file://{folder}/store", rank=rank, world_size=ranks)
here = torch.device("cpu")

def measure(calls, ranks):
    return timing.summary(ranks.slowest([1.0 + rank, 2.0, 3.0 - rank]))

timing.measure, torch.cuda.empty_cache, torch_device = measure, lambda: None, torch.device
runner.torch.device = lambda _: here
document = {"device": {}, "versions": {}, "source": {}, "conditions": [], "samples": []}
group = collectives.Ranks(here)
run = runner.Runner(folder / f"{rank}.toml", document, 60.0 if rank else 50.0, group, writes=group.first)
run.run(collectives.cases(ranks, tokens=(1, 5, 700), hidden=(24, 25)))
distributed.destroy_process_group()
sys.exit(run.failed)
"""


def test_two_ranks(tmp_path: Path) -> None:
    environment = {**os.environ, "PYTHONPATH": KERNELS}
    both = [
        subprocess.Popen([sys.executable, "-c", RANK, str(n), "2", str(tmp_path)], env=environment) for n in range(2)
    ]
    assert [process.wait(60) for process in both] == [0, 0]
    assert not (tmp_path / "1.toml").exists()
    samples = calibration.read(tmp_path / "0.toml")["samples"]
    shapes = [(s["kernel"], s["tokens"], s["hidden"]) for s in samples]
    divisible = [(t, h) for h in (24, 25) for t in (1, 5, 700) if t * h % 2 == 0]
    assert shapes == [(kind, t, h) for kind in collectives.KINDS for t, h in divisible]
    assert {(s["median_s"], s["p10_s"], s["ranks"], s["owner"]) for s in samples} == {(2.0, 2.0, 2, "nccl")}
    assert all(s["error"] < 4e-3 for s in samples)


def test_bytes_are_those_of_nccl_tests() -> None:
    """Its bus bandwidth for S bytes and n ranks: all-reduce 2 (n-1)/n S, the others (n-1)/n S (PERFORMANCE.md)."""
    assert collectives.sent_bytes("all_reduce", 800, 8) == 1400
    assert {collectives.sent_bytes(kind, 800, 8) for kind in collectives.KINDS[1:]} == {700}


@pytest.mark.parametrize(
    ("world", "gpus", "words"),
    [
        (None, 1, "this machine has 1"),
        (None, 4, "torchrun --nproc-per-node 4 -m kvplan_kernels bench --suite collectives"),
        ("1", 4, "two ranks or more"),
        ("2", 1, None),
    ],
)
def test_how_it_must_be_started(monkeypatch: pytest.MonkeyPatch, world: str | None, gpus: int, words: str) -> None:
    monkeypatch.delenv("WORLD_SIZE", raising=False)
    if world:
        monkeypatch.setenv("WORLD_SIZE", world)
    why = collectives.not_ready(gpus)
    assert why is None if words is None else words in why and "\n" not in why


def test_the_link_in_the_drivers_words() -> None:
    topology = (
        "\t\x1b[4mGPU0\tGPU1\tNIC0\tCPU Affinity\x1b[0m\nGPU0\t X \tNV18\tPXB\t0-47\nGPU1\tNV18\t X \tNODE\t0-47\n"
    )
    assert device.link_in(topology) == "NV18"
    assert device.link_in("no GPUs\n") == "unknown"
