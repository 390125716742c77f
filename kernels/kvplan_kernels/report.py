"""`python -m kvplan_kernels report CALIBRATION --out DIR`: the table, and three plots where matplotlib is."""

import importlib.util
from pathlib import Path
from typing import Any

from kvplan_kernels import calibration, table

Samples = list[dict[str, Any]]


def markdown(document: dict[str, Any]) -> str:
    device, versions, source = document["device"], document["versions"], document["source"]
    lines = [f"# {device['name']}: kernels measured", ""]
    lines.append(
        f"`{source['command']}`, {source['date']}, driver {device['driver']}, "
        + ", ".join(f"{k} {v}" for k, v in versions.items())
        + "."
    )
    for state in document.get("conditions", []):
        values = ", ".join(f"{k} {v:g}" for k, v in state.items() if k != "at")
        lines.append(f"At the {state['at']}: {values}.")
    lines += [
        "",
        "Share of the roof: the least time that this card's own measured roofs allow, over the time measured.",
        "",
    ]
    return "\n".join([*lines, table.markdown(document["samples"]), ""])


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
    return {name: sorted(points) for name, points in lines.items() if len(points) > 1}


def _draw(
    path: Path, lines: dict[str, list[tuple[float, float]]], title: str, x: str, y: str, mark: str = "o-"
) -> None:
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(figsize=(8, 5))
    for name, points in lines.items():
        axes.plot(*zip(*points, strict=True), "k-" if name == "roof" else mark, label=name, markersize=4)
    axes.set(xscale="log", title=title, xlabel=x, ylabel=y)
    if "us" in y or "TFLOP" in y:
        axes.set_yscale("log")
    axes.grid(alpha=0.3)
    axes.legend(fontsize=8)
    figure.tight_layout()
    figure.savefig(path, dpi=110)
    pyplot.close(figure)


def _roofline(samples: Samples) -> dict[str, list[tuple[float, float]]]:
    """(FLOP a byte, TFLOP/s) of every sample that computes, and the roof itself."""
    lines: dict[str, list[tuple[float, float]]] = {}
    for s in samples:
        if s["flops"]:
            lines.setdefault(f"{s['kernel']} ({s['owner']})", []).append(
                (s["flops"] / s["bytes"], s["flops"] / s["median_s"] / 1e12)
            )
    best = table.roofs(samples)
    if {"read", "matmul"} <= best.keys():
        edge = best["matmul"] / best["read"]
        lines["roof"] = [(x, min(best["matmul"], x * best["read"]) / 1e12) for x in (0.3, edge, 3000.0)]
    return lines


def write(path: Path, out: Path) -> int:
    """Write table.md and, with matplotlib, roofline.png, bandwidth.png and context.png to `out`."""
    document = calibration.read(path)
    samples, name = document["samples"], document["device"]["name"]
    out.mkdir(parents=True, exist_ok=True)
    (out / "table.md").write_text(markdown(document), encoding="utf-8")
    if importlib.util.find_spec("matplotlib") is None:
        print(f"{out / 'table.md'} written; no plots, since matplotlib is not installed")
        return 0
    few = [s for s in samples if s.get("heads") in (96, 32, 12, 4)]
    decode = _series(few, "kda_decode", "batch", ("owner", "heads", "state"), "bytes", layout="vk")
    context = _series(samples, "mla_decode", "context", ("heads", "cache"), None, batch=1, query_tokens=1)
    plots = {
        "roofline": (_roofline(samples), "roofline", "FLOP a byte", "TFLOP/s", "."),
        "bandwidth": (decode, "KDA decode", "sequences", "GB/s", "o-"),
        "context": (context, "MLA decode, one sequence", "tokens of context", "time, us", "o-"),
    }
    for plot, (lines, title, x, y, mark) in plots.items():
        if lines:
            _draw(out / f"{plot}.png", lines, f"{name}: {title}", x, y, mark)
    print(f"table.md and plots in {out}")
    return 0
