"""The bench's table: time, bandwidth, arithmetic, and the share of this GPU's own measured roof."""

from collections.abc import Sequence
from typing import Any

from kvplan_kernels.calibration import MEASURED

Sample = dict[str, Any]


def roofs(samples: Sequence[Sample]) -> dict[str, float]:
    """Rates of this card: bytes a second of each movement beyond 2 GB, FLOPs a second of the matrix product.

    Of the fastest tenth, not the median: a roof is what the card can do, and a slow replay does not lower it.
    """
    best: dict[str, float] = {}
    for sample in samples:
        if sample["kernel"] == "matmul":
            best["matmul"] = max(best.get("matmul", 0.0), sample["flops"] / sample["p10_s"])
        elif sample["kernel"] == "move" and sample["bytes"] > 2e9:
            best[sample["how"]] = max(best.get(sample["how"], 0.0), sample["bytes"] / sample["p10_s"])
    return best


def share(sample: Sample, best: dict[str, float]) -> float | None:
    """The least time the roofs allow, over the time measured; None while a roof is missing."""
    moving = best.get("read" if sample["roof"] == "matmul" else sample["roof"])
    computing = best.get("matmul")
    if moving is None or computing is None:
        return None
    return float(max(sample["bytes"] / moving, sample["flops"] / computing) / sample["median_s"])


def _time(seconds: float) -> str:
    return f"{seconds * 1e3:.3f} ms" if seconds >= 1e-3 else f"{seconds * 1e6:.2f} us"


def rows(samples: Sequence[Sample]) -> list[list[str]]:
    best, result = roofs(samples), []
    for s in samples:
        shape = " ".join(f"{k}={v}" for k, v in s.items() if k not in (*MEASURED, "owner", "kernel"))
        part = share(s, best)
        spread = (s["p90_s"] - s["p10_s"]) / s["median_s"]
        rates = f"{s['bytes'] / s['median_s'] / 1e9:,.0f}", f"{s['flops'] / s['median_s'] / 1e12:,.1f}"
        last = "" if part is None else f"{part:.0%}"
        result.append([f"{s['kernel']} ({s['owner']})", shape, _time(s["median_s"]), f"{spread:.1%}", *rates, last])
    return result


HEAD = ["kernel", "shape", "median", "p10-p90", "GB/s", "TFLOP/s", "of roof"]


def text(samples: Sequence[Sample]) -> str:
    """Aligned columns for a terminal."""
    table = [HEAD, *rows(samples)]
    width = [max(len(row[n]) for row in table) for n in range(len(HEAD))]
    return "\n".join(
        "  ".join(
            cell.ljust(w) if n < 2 else cell.rjust(w) for n, (cell, w) in enumerate(zip(row, width, strict=True))
        ).rstrip()
        for row in table
    )


def markdown(samples: Sequence[Sample]) -> str:
    lines = ["| " + " | ".join(row) + " |" for row in [HEAD, *rows(samples)]]
    return "\n".join([lines[0], "|" + "---|" * len(HEAD), *lines[1:]])
