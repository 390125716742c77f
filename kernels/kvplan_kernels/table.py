"""The bench's table: time, bandwidth, arithmetic, and the share of this GPU's own measured roof."""

from collections.abc import Sequence
from typing import Any

from kvplan_kernels.calibration import MEASURED

Sample = dict[str, Any]


def roofs(samples: Sequence[Sample]) -> dict[str, float]:
    """Rates of this card: bytes a second of each movement beyond 2 GB, FLOPs a second of the matrix product.

    Of a link between cards, the best that any collective reached; of fp8 products, the best of them.

    Of the fastest tenth, not the median: a roof is what the card can do, and a slow replay does not lower it.
    """
    best: dict[str, float] = {}
    for sample in samples:
        if sample["kernel"] == "matmul":
            best["matmul"] = max(best.get("matmul", 0.0), sample["flops"] / sample["p10_s"])
        elif sample["kernel"] == "move" and sample["bytes"] > 2e9:
            best[sample["how"]] = max(best.get(sample["how"], 0.0), sample["bytes"] / sample["p10_s"])
        elif sample["roof"] == "matmul_fp8":
            best["matmul_fp8"] = max(best.get("matmul_fp8", 0.0), sample["flops"] / sample["p10_s"])
        elif sample["roof"] == "link":
            best["link"] = max(best.get("link", 0.0), sample["bytes"] / sample.get("p10_s", sample["median_s"]))
    return best


def share(sample: Sample, best: dict[str, float]) -> float | None:
    """The least time the roofs allow, over the time measured; None while a roof is missing."""
    product = sample["roof"] if sample["roof"].startswith("matmul") else "matmul"
    moving = best.get("read" if product == sample["roof"] else sample["roof"])
    computing = best.get(product)
    if moving is None or (computing is None and sample["flops"]):
        return None
    least = max(sample["bytes"] / moving, sample["flops"] / computing if computing else 0.0)
    return float(least / sample["median_s"])


def _time(seconds: float) -> str:
    return f"{seconds * 1e3:.3f} ms" if seconds >= 1e-3 else f"{seconds * 1e6:.2f} us"


def rows(samples: Sequence[Sample]) -> list[list[str]]:
    best, result = roofs(samples), []
    for s in samples:
        shape = " ".join(f"{k}={v}" for k, v in s.items() if k not in (*MEASURED, "owner", "kernel"))
        part = share(s, best)
        spread = f"{(s['p90_s'] - s['p10_s']) / s['median_s']:.1%}" if "p90_s" in s else ""
        rates = f"{s['bytes'] / s['median_s'] / 1e9:,.0f}", f"{s['flops'] / s['median_s'] / 1e12:,.1f}"
        last = "" if part is None else f"{part:.0%}"
        result.append([f"{s['kernel']} ({s['owner']})", shape, _time(s["median_s"]), spread, *rates, last])
    return result


HEAD = ["kernel", "shape", "median", "p10-p90", "GB/s", "TFLOP/s", "of roof"]


def precision(errors: Sequence[Sample]) -> tuple[list[str], list[list[str]]]:
    """Head and rows of a precision study: one row a length, one column a gate, path and state, output / state error."""
    columns: dict[tuple[str, str], dict[tuple[str, int], str]] = {}
    for e in errors:
        cell = f"{e['output_error']:.1e} / {e['state_error']:.1e}"
        columns.setdefault((e["path"], e["state"]), {})[e["gate"], e["tokens"]] = cell
    keys = list(dict.fromkeys((e["gate"], e["tokens"]) for e in errors))
    head = ["gate", "tokens", *(f"{path}, {state} state" for path, state in columns)]
    return head, [[gate, f"{n:,}", *(c.get((gate, n), "") for c in columns.values())] for gate, n in keys]


def text(samples: Sequence[Sample]) -> str:
    """Aligned columns for a terminal."""
    return aligned(HEAD, rows(samples))


def aligned(head: list[str], body: list[list[str]]) -> str:
    """The first two columns flush left, the others right."""
    table = [head, *body]
    width = [max(len(row[n]) for row in table) for n in range(len(head))]
    return "\n".join(
        "  ".join(
            cell.ljust(w) if n < 2 else cell.rjust(w) for n, (cell, w) in enumerate(zip(row, width, strict=True))
        ).rstrip()
        for row in table
    )


def markdown(head: list[str], body: list[list[str]]) -> str:
    lines = ["| " + " | ".join(row) + " |" for row in [head, *body]]
    return "\n".join([lines[0], "|" + "---|" * len(head), *lines[1:]])
