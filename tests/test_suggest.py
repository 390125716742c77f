"""What the verdict says to try is what those flags give when they are typed."""

import shlex
from typing import Any

import pytest

from kvplan import gpu
from kvplan.plan import plan
from kvplan.show import _gained


def typed(words: str) -> dict[str, Any]:
    """Flags as the command line reads them."""
    pairs = shlex.split(words)
    return {
        flag.removeprefix("--").replace("-", "_"): value for flag, value in zip(pairs[::2], pairs[1::2], strict=True)
    }


@pytest.mark.parametrize(
    ("model", "flags"),
    [
        ("kimi-k3", {"gpu": "B300:8"}), ("kimi-k3", {"gpu": "H100:2"}),
        ("kimi-k3", {"gpu": "H200:8", "context": "128k"}),
        ("qwen3-next", {"gpu": "H100:2", "context": "8k,128k"}), ("llama-3.1-70b", {"gpu": "4090:2"}),
        ("llama-3.1-70b", {"gpu": "H100:2", "pp": 2, "tp": 1}), ("deepseek-v3.2", {"gpu": "H200:8"}),
    ],
)  # fmt: skip
def test_suggestions_hold_when_typed(model: str, flags: dict[str, Any]) -> None:
    made = plan(model, engine="ideal", **flags)
    assert made.verdict is not None and made.verdict.try_
    for attempt in made.verdict.try_:
        given = {name: value for name, value in flags.items() if name != "pp" or "--gpu" not in attempt.flags}
        again = plan(model, engine="ideal", **(given | typed(attempt.flags)))
        assert [row.sequences for row in again.capacity] == [row.sequences for row in attempt.sequences], attempt.flags


def test_more_gpus_than_a_node_holds_are_more_nodes() -> None:
    verdict = plan("kimi-k3", gpu="H100:2", engine="ideal").verdict
    assert verdict is not None
    assert verdict.fits == "no"
    assert verdict.try_[-1].flags.startswith("--gpu h100:8 --nodes ")
    assert _gained(verdict).startswith(" On 4 nodes of 8x H100: ")


def test_further_nodes_may_be_stages() -> None:
    """1,453.64 GiB over 16 H200 are 91 GiB each: two nodes do, in stages; vLLM pads MXFP4 experts cut 16 ways."""
    verdict = plan("kimi-k3", gpu="H200:8", context="128K").verdict
    assert verdict is not None
    assert verdict.try_[-1].flags == "--gpu h200:8 --nodes 2 --tp 8 --pp 2"
    assert _gained(verdict).startswith(" On 2 nodes of 8x H200: ")


def test_auto_means_every_gpu_of_this_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gpu, "_ask_driver", lambda: [["NVIDIA H200", "143771", "600"]] * 4)
    layout = {}
    for asked in ("auto", "AUTO", "auto:2"):
        per_rank = plan("llama-3.1-70b", gpu=asked, engine="ideal").per_rank
        assert per_rank is not None
        layout[asked] = per_rank.layout["tp"]
    assert layout == {"auto": 4, "AUTO": 4, "auto:2": 2}
