"""llama.cpp's rules against lines that llama.cpp printed: booted tiny models of 11 architectures, and public logs."""

import json
import re
from pathlib import Path
from typing import Any

import pytest

from kvplan.deployment import Fleet, Layout, make_deployment, make_fleet
from kvplan.engines.base import Allocation, Share
from kvplan.engines.llamacpp import ENGINE
from kvplan.errors import PlacementError, UsageError
from kvplan.layers.base import Layer
from kvplan.layers.delta import Gdn, Kda
from kvplan.layers.dsa import Dsa
from kvplan.layers.full import Full
from kvplan.layers.linear import ShortConv
from kvplan.layers.mamba import Mamba1, Mamba2
from kvplan.layers.mla import Mla
from kvplan.layers.windowed import SlidingWindow
from kvplan.model import Model, Source
from kvplan.placement import stage_layers
from kvplan.sources import resolve

MIB = 1 << 20
GOLDEN = json.loads((Path(__file__).parent.parent / "golden" / "llamacpp_tiny.json").read_text())
KINDS: dict[str, type[Layer]] = {
    kind.kind: kind for kind in (Kda, Gdn, Mla, Dsa, Full, ShortConv, Mamba1, Mamba2, SlidingWindow)
}
SIZE = re.compile(r"size = +([\d.]+) MiB \( *(\d+) cells, +\d+ layers, +(\d+)[ /](?:(\d+) )?")


def tiny(arch: str) -> Model:
    made = GOLDEN["models"][arch]
    return Model(
        name=arch,
        source=Source("generated"),
        model_type=made["model_type"],
        architecture=arch,
        dtype="bf16",
        blocks=tuple(tuple(KINDS[kind](**sizes) for kind, sizes in block) for block in made["layers"]),
        max_context_tokens=131_072,
    )


def allocate(model: Model, pool_bytes: int = 1 << 42, contexts: tuple[int, ...] = (1024,), **flags: Any) -> Allocation:
    deployment, layout = make_deployment(**flags), Layout()
    share = Share(model, layout, ENGINE.dtypes(model, deployment), stage_layers(model, layout))
    return ENGINE.allocate(share, pool_bytes, deployment, list(contexts))


def printed(line: str, name: str) -> float:
    match = re.search(rf"{name} \(\w+\): +([\d.]+) MiB", line)
    assert match is not None
    return float(match[1])


def same(size_bytes: int, mib: float) -> bool:
    return abs(size_bytes / MIB - mib) <= 0.005 + 1e-9


@pytest.mark.parametrize(
    "case", GOLDEN["cases"], ids=lambda case: f"{case['arch']}-{'-'.join(map(str, case['flags'].values()))}"
)
def test_booted_models(case: dict[str, Any]) -> None:
    """Every line that llama.cpp printed for its caches, inside the rounding of two decimals."""
    model = tiny(case["arch"])
    if "refused" in case:
        with pytest.raises(UsageError, match="--cache-type-v"):
            allocate(model, **case["flags"])
        return
    figures = allocate(model, **case["flags"]).figures
    caches = [line for line in case["printed"] if line.startswith("llama_kv_cache")]
    states = [line for line in case["printed"] if line.startswith("llama_memory_recurrent")]
    main = caches[0]
    assert same(figures["k_bytes"], printed(main, "K"))
    assert same(figures["v_bytes"], printed(main, "V"))
    cells = SIZE.search(main)
    assert cells is not None
    assert int(cells[2]) == figures["n_ctx_seq"]
    assert int(cells[3]) == figures["n_seq_max"]
    second = figures["swa_bytes"] + figures["index_bytes"]
    assert bool(second) == (len(caches) == 2)
    if second:
        whole = SIZE.search(caches[1])
        assert whole is not None
        assert same(second, float(whole[1]))
    assert bool(states) == bool(figures["r_bytes"] + figures["s_bytes"])
    for line in states:
        assert same(figures["r_bytes"], printed(line, "R"))
        assert same(figures["s_bytes"], printed(line, "S"))


Q8 = {"cache_type_k": "q8_0", "cache_type_v": "q8_0"}
LOGS: list[tuple[str, dict[str, Any], dict[str, float]]] = [
    ("qwen3-next", {"ctx_size": 34048, "parallel": 1}, {"k": 399.0, "v": 399.0, "r": 3.38, "s": 72.0}),
    ("qwen3-next", {"ctx_size": 66816, "parallel": 1}, {"k": 783.0, "v": 783.0, "r": 3.38, "s": 72.0}),
    ("qwen3-next", {"ctx_size": 132352, "parallel": 1}, {"k": 1551.0, "v": 1551.0, "r": 3.38, "s": 72.0}),
    (
        "qwen3.6-27b",
        {"ctx_size": 131072, "parallel": 4, "kv_unified": True, **Q8},
        {"k": 2176.0, "v": 2176.0, "r": 22.5, "s": 576.0},
    ),
    ("falcon-h1-1.5b", {"ctx_size": 32768, "parallel": 1}, {"k": 384.0, "v": 384.0, "r": 0.98, "s": 72.0}),
    ("deepseek-v3", {"ctx_size": 32768, "parallel": 1}, {"k": 2196.0, "v": 0.0}),
    ("deepseek-v3", {"ctx_size": 65536, "parallel": 1, **Q8}, {"k": 2333.25, "v": 0.0}),
    ("deepseek-v3", {"ctx_size": 163840, "parallel": 1}, {"k": 10980.0, "v": 0.0}),
]
"""Public logs: strix-halo-guide (Qwen3-Next), a bug report (Qwen3.6), Falcon-H1 on a Jetson, ik_llama.cpp (-mla 2)."""


@pytest.mark.parametrize(("name", "flags", "mib"), LOGS, ids=lambda value: value if isinstance(value, str) else "")
def test_public_logs(name: str, flags: dict[str, Any], mib: dict[str, float]) -> None:
    figures = allocate(resolve(name), **flags).figures
    for letter, size in mib.items():
        assert same(figures[f"{letter}_bytes"], size), letter


def test_slots_are_sized_for_a_length() -> None:
    """Without --ctx-size the answer is the --parallel and --ctx-size that fill the device."""
    kept = allocate(resolve("qwen3-next"), pool_bytes=8 << 30, contexts=(32_768,))
    (fit,), (sized,) = kept.fits, kept.figures["sized_for"]
    assert sized == {"context_tokens": 32_768, "parallel": fit.sequences, "ctx_size": 32_768 * fit.sequences}
    again = allocate(resolve("qwen3-next"), 8 << 30, (32_768,), ctx_size=sized["ctx_size"], parallel=fit.sequences)
    assert again.fits[0].sequences == fit.sequences
    more = {"ctx_size": 32_768 * (fit.sequences + 1), "parallel": fit.sequences + 1}
    assert allocate(resolve("qwen3-next"), 8 << 30, (32_768,), **more).fits[0].sequences == 0


def test_a_shared_cache_holds_what_its_cells_hold() -> None:
    """llama-server without --parallel: four slots on one cache."""
    model = resolve("qwen3-next")
    (short, long) = allocate(model, contexts=(8_192, 32_768), ctx_size=65_536).fits
    assert (short.sequences, short.binds) == (4, "slots")
    assert (long.sequences, long.binds) == (2, "kv")


@pytest.mark.parametrize(
    ("flags", "word"),
    [
        ({"cache_type_k": "fp8"}, "--cache-type-k"),
        ({"kv_cache_dtype": "fp8"}, "--kv-cache-dtype"),
        ({"mamba_ssm_dtype": "bf16"}, "--mamba-ssm-dtype"),
    ],
)
def test_what_llama_cpp_has_not(flags: dict[str, Any], word: str) -> None:
    with pytest.raises(UsageError, match=word):
        allocate(resolve("qwen3-next"), **flags)


def test_layers_not_tensors_are_spread() -> None:
    model, layout = resolve("qwen3-next"), Layout(tp=2)
    share = Share(model, layout, ENGINE.dtypes(model, make_deployment()), stage_layers(model, layout))
    with pytest.raises(PlacementError, match="--pp"):
        ENGINE.allocate(share, 1 << 40, make_deployment(), [1024])


@pytest.mark.parametrize(
    ("flags", "layout"), [({}, Layout(pp=8)), ({"dp": 2}, Layout(pp=4, dp=2)), ({"tp": 8}, Layout(8))]
)
def test_without_tp_every_gpu_takes_layers(flags: dict[str, Any], layout: Layout) -> None:
    assert make_fleet(make_deployment(engine="llamacpp", gpu="H200:8", **flags)) == Fleet(8, 8, layout)
