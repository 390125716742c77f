"""`python -m kvplan_kernels report FILE --out DIR`: the table of a calibration or a precision study, and plots."""

import importlib.util
import re
from pathlib import Path
from typing import Any

from kvplan_kernels import calibration, table

Samples = list[dict[str, Any]]
COLOURS = (
    "#0072B2",
    "#E69F00",
    "#009E73",
    "#D55E00",
    "#CC79A7",
    "#56B4E9",
    "#000000",
)  # told apart by the colour-blind
MARKS = "os^Dv"  # the next for each round of the colours


def _head(document: dict[str, Any], title: str) -> list[str]:
    device, versions, source = document["device"], document["versions"], document["source"]
    parts = [f"`{source['command']}`", source["date"], f"driver {device['driver']}"]
    parts += [f"{k} {device[k]}" for k in ("link", "gpus_per_node", "nodes") if k in device]
    return [f"# {device['name']}: {title}", "", ", ".join([*parts, *(f"{k} {v}" for k, v in versions.items())]) + "."]


def markdown(document: dict[str, Any]) -> str:
    lines = _head(document, "kernels measured")
    for state in document.get("conditions", []):
        values = ", ".join(f"{k} {v:g}" for k, v in state.items() if k != "at")
        lines.append(f"At the {state['at']}: {values}.")
    lines += [
        "",
        "Share of the roof: the least time that this card's own measured roofs allow, over the time measured.",
        "",
    ]
    samples = document["samples"]
    if any(s["roof"] == "link" for s in samples):
        lines += ["Bytes are those that a rank must send (the bus bandwidth of nccl-tests); the roof is the best.", ""]
    return "\n".join([*lines, table.markdown(table.HEAD, table.rows(samples)), ""])


PRECISION = """
Relative error ||x - exact|| / ||x|| of the output of the last {window_tokens:,} tokens and of the state, against the
recurrence in fp64 on the same bf16 inputs; {heads} heads of {head_dim}. A bf16 state is rounded to nearest even where
it is stored: after every token in decode, after every call of {prefill_call_tokens:,} tokens in prefill (inside a call
it stays in fp32). Gates: fast decays by about e^-3 a token; slow has half its channels at about e^-0.001; still has
half at about e^-0.00001 and weak writes. Inputs are independent normal data. Each cell: output / state.
"""


def precision_markdown(document: dict[str, Any]) -> str:
    lines = _head(document, "accuracy of a bf16 recurrent state")
    body = table.markdown(*table.precision(document["errors"]))
    return "\n".join([*lines, PRECISION.format(**document["study"]), body, ""])


def write_precision(document: dict[str, Any], out: Path) -> int:
    """precision.md and, with matplotlib, precision.png: error of the state against tokens."""
    (out / "precision.md").write_text(precision_markdown(document), encoding="utf-8")
    if importlib.util.find_spec("matplotlib") is not None:
        lines: dict[str, list[tuple[float, float]]] = {}
        for e in document["errors"]:
            name = f"{e['gate']} gate, {e['path']}, {e['state']}"
            lines.setdefault(name, []).append((e["tokens"], e["state_error"]))
        title = f"{document['device']['name']}: error of the recurrent state"
        _draw(out / "precision.png", lines, title, "tokens", "relative error", log=True)
    print(f"precision.md in {out}")
    return 0


def _series(
    samples: Samples, kernel: str, x: str, label: tuple[str, ...], rate: str | None, **fixed: object
) -> dict[str, list[tuple[float, float]]]:
    """Points (x, time in us or rate in GB/s) of a kernel, one line a combination of the label's keys."""
    lines: dict[str, list[tuple[float, float]]] = {}
    for s in samples:
        if s["kernel"] == kernel and all(s.get(k) == v for k, v in fixed.items()):
            name = " ".join(f"{s[k]}" if k == "owner" else f"{k} {s[k]}" for k in label)
            y = s[rate] / s["median_s"] / 1e9 if rate else s["median_s"] * 1e6
            lines.setdefault(name, []).append((s[x], y))
    ordered = sorted(lines.items(), key=lambda line: [int(n) for n in re.findall(r"\d+", line[0])])
    return {name: sorted(points) for name, points in ordered if len(points) > 1}


def _draw(
    path: Path,
    lines: dict[str, list[tuple[float, float]]],
    title: str,
    x: str,
    y: str,
    mark: str = "-",
    log: bool = False,
) -> None:
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(figsize=(8, 5))
    for n, (name, points) in enumerate(lines.items()):
        look = {"color": COLOURS[n % len(COLOURS)], "marker": MARKS[n // len(COLOURS) % len(MARKS)], "linestyle": mark}
        if name.startswith("roof"):
            look = {"color": "black", "linestyle": "-"}
        elif "fp8" in name:
            look |= {"markerfacecolor": "white"} | ({"linestyle": "--"} if mark else {})
        axes.plot(*zip(*points, strict=True), label=name, markersize=4, **look)
    axes.set(xscale="log", title=title, xlabel=x, ylabel=y)
    if log or "us" in y or "TFLOP" in y:
        axes.set_yscale("log")
    axes.grid(alpha=0.3)
    axes.legend(fontsize=8)
    figure.tight_layout()
    figure.savefig(path, dpi=110)
    pyplot.close(figure)


def _collectives(samples: Samples) -> dict[str, list[tuple[float, float]]]:
    """(bytes a rank sends, us), one line a collective and number of ranks."""
    lines: dict[str, list[tuple[float, float]]] = {}
    for s in samples:
        if s["roof"] == "link":
            lines.setdefault(f"{s['kernel']}, {s['ranks']} ranks", []).append((s["bytes"], s["median_s"] * 1e6))
    return {name: sorted(points) for name, points in lines.items()}


def _roofline(samples: Samples) -> dict[str, list[tuple[float, float]]]:
    """(FLOP a byte, TFLOP/s) of every sample that computes, and the roof itself."""
    lines: dict[str, list[tuple[float, float]]] = {}
    for s in samples:
        if s["flops"]:
            lines.setdefault(f"{s['kernel']}{' fp8' if s.get('format') == 'fp8' else ''} ({s['owner']})", []).append(
                (s["flops"] / s["bytes"], s["flops"] / s["median_s"] / 1e12)
            )
    best = table.roofs(samples)
    if {"read", "matmul"} <= best.keys():
        edge = best["matmul"] / best["read"]
        lines["roof of bf16"] = [(x, min(best["matmul"], x * best["read"]) / 1e12) for x in (0.3, edge, 3000.0)]
    return lines


def write(path: Path, out: Path) -> int:
    """Write table.md and, with matplotlib, a plot of each kind that the samples allow, to `out`."""
    document = calibration.read(path, calibration.SCHEMA, calibration.PRECISION_SCHEMA)
    out.mkdir(parents=True, exist_ok=True)
    if document["schema"] == calibration.PRECISION_SCHEMA:
        return write_precision(document, out)
    samples, name = document["samples"], document["device"]["name"]
    (out / "table.md").write_text(markdown(document), encoding="utf-8")
    if importlib.util.find_spec("matplotlib") is None:
        print(f"{out / 'table.md'} written; no plots, since matplotlib is not installed")
        return 0
    few = [s for s in samples if s.get("heads") in (96, 32, 12, 4)]
    decode = _series(few, "kda_decode", "batch", ("owner", "heads", "state"), "bytes", layout="vk")
    shown = [s for s in samples if s.get("heads") in (12, 32, 48, 96, 128)]
    context = _series(shown, "mla_decode", "context", ("heads", "cache"), None, batch=1, query_tokens=1)
    plots = {
        "roofline": (_roofline(samples), "roofline", "FLOP a byte", "TFLOP/s", ""),
        "bandwidth": (decode, "KDA decode", "sequences", "GB/s", "-"),
        "context": (context, "MLA decode, one sequence", "tokens of context", "time, us", "-"),
        "collectives": (_collectives(samples), "collectives", "bytes a rank sends", "time, us", "-"),
    }
    for plot, (lines, title, x, y, mark) in plots.items():
        if lines:
            _draw(out / f"{plot}.png", lines, f"{name}: {title}", x, y, mark)
    print(f"table.md and plots in {out}")
    return 0
