"""Page 7: what was measured on the GPU, and the decode steps that follow from it."""

from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, LogLocator, MaxNLocator, NullLocator

from kvplan.cases import Case
from kvplan.errors import KvplanError, UsageError
from kvplan.latency import Calibration, Clock, make_clock, read_calibration
from kvplan.latency.device import AUTO, DATASHEET, nearest_calibration, own_calibration
from kvplan.pages import _axes as draw
from kvplan.pages import _style as style
from kvplan.pages._base import LeftOut, Numbers, Page
from kvplan.pages._subject import Subject
from kvplan.pages._text import clean, short_names, wrap
from kvplan.units import format_tokens
from kvplan_kernels.table import roofs

ROOF_ENDS = (0.3, 3000.0)
"""FLOPs a byte between which the roof is drawn."""
_MOST_LINES = 6
_FROM = {"measured": "from measured kernels", "scaled": "from scaled kernels", "bounds": "bounds alone"}
_LOOKS = {
    "kda_decode": style.BLUE, "kda_prefill": style.SKY, "mla_decode": style.VERMILION, "mla_prefill": style.ORANGE,
    "short_conv": style.PURPLE, "gemm": style.GREEN, "experts": style.GREEN,
}  # fmt: skip


class Kernels(Page[Subject]):
    name = "kernels"
    title = "What was measured on the GPU, and the decode steps that follow"
    order = 70

    def sheets(self, subject: Subject) -> list[Numbers]:
        calibration = _calibration(subject.cases[0])
        steps, why = [], []
        for case in subject.cases:
            try:
                steps.append(_steps(case, calibration))
            except KvplanError as error:
                why.append(f"{clean(case.label)}: {clean(str(error))}")
        samples = [one for one in calibration.samples if "source" not in one]
        if not _points(samples):
            raise LeftOut(f"calibration {calibration.title} holds no kernel that computes")
        notes = (
            f"Kernels: {calibration.title}, {calibration.gpu.title}, {calibration.date}; medians, no published times. "
        )
        notes += "Decode steps: bands are their range, dots end where the pool does. " if steps else ""
        return [
            {
                "subtitle": subject.subtitle,
                "models": [case.label for case in subject.cases],
                "measured_on": calibration.gpu.title,
                "roofs": roofs(samples),
                "samples": _points(samples),
                "bandwidth": _bandwidth(samples),
                "steps": steps,
                "notes": [notes + " ".join(f"No step of {one}." for one in why)],
                "sources": [f"calibration {name}" for name in calibration.names],
            }
        ]

    def draw(self, figure: Figure, numbers: Numbers) -> None:
        right = [name for name in ("bandwidth", "steps") if numbers[name]]
        _draw_roofline(draw.column(figure, 1, 0)[0], numbers)
        for name, axes in zip(right, draw.column(figure, len(right), 1) if right else [], strict=True):
            (_draw_bandwidth if name == "bandwidth" else _draw_steps)(axes, numbers)


def _calibration(case: Case) -> Calibration:
    """The one asked for, else the GPU's own; another card's only where it is asked for."""
    asked, gpu = case.deployment.calibration, case.gpu
    if asked is None or asked == AUTO:
        name = None if gpu is None else nearest_calibration(gpu) if asked else own_calibration(gpu)
        if name is None:
            raise LeftOut(
                f"no kernels measured on {gpu.title if gpu else 'this GPU'} are at hand; `kvplan bench` measures them, "
                "--calibration auto takes the nearest GPU's"
            )
        return read_calibration(name)
    if asked == DATASHEET:
        raise LeftOut("--calibration datasheet: a datasheet measures no kernel")
    return read_calibration(asked)


def _points(samples: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Every sample that computes."""
    return [
        {"kernel": one["kernel"], "owner": one["owner"], "flops_per_byte": one["flops"] / one["bytes"],
         "flops_per_s": one["flops"] / one["median_s"], "bytes_per_s": one["bytes"] / one["median_s"],
         "fp8": one["roof"] == "matmul_fp8"}
        for one in samples
        if one.get("flops") and one.get("bytes")
    ]  # fmt: skip


def _bandwidth(samples: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """KDA decode by heads and state dtype, GB/s over sequences: the widest first, no more lines than colours."""
    lines: dict[tuple[int, str], list[tuple[int, float]]] = {}
    for one in samples:
        if one["kernel"] == "kda_decode" and one["owner"] == "kvplan" and one.get("layout") == "vk":
            lines.setdefault((one["heads"], one["state"]), []).append((one["batch"], one["bytes"] / one["median_s"]))
    chosen = sorted(
        (key for key, points in lines.items() if len(points) > 1), key=lambda key: (key[1] != "fp32", -key[0])
    )
    return [
        {"heads": heads, "state": state, "sequences": [x for x, _ in sorted(lines[heads, state])],
         "bytes_per_s": [y for _, y in sorted(lines[heads, state])]}
        for heads, state in chosen[:_MOST_LINES]
    ]  # fmt: skip


def _steps(case: Case, calibration: Calibration) -> dict[str, Any]:
    """Decode steps at the shortest length asked about, from one sequence to as many as fit."""
    if case.gpu is None:
        raise LeftOut("name the GPU")
    clock: Clock = make_clock(case.model, case.deployment, case.gpu, calibration)
    tokens = case.contexts[0]
    most = case.now.capacity[0].sequences if case.now.capacity else 1
    if most == 0:
        raise UsageError(f"not one sequence of {format_tokens(tokens)} fits")
    counts = sorted({min(most, 1 << power) for power in range(most.bit_length() + 1)})
    found = [clock.decode_step_s(count, tokens) for count in counts]
    return {
        "model": case.label,
        "context_tokens": tokens,
        "basis": clock.basis,
        "sequences": counts,
        "seconds": [one.value for one in found],
        "low_s": [one.low for one in found],
        "high_s": [one.high for one in found],
    }


def _draw_roofline(axes: Axes, numbers: Numbers) -> None:
    points = numbers["samples"]
    best = numbers["roofs"]
    rates = [one["flops_per_s"] / 1e12 for one in points]
    draw.log_axis(axes, "TFLOP/s (log)", min(rates) / 2, max(max(rates), best.get("matmul", 0) / 1e12) * 2)
    axes.set_xscale("log")
    low = min(ROOF_ENDS[0], *(one["flops_per_byte"] for one in points)) / 1.3
    axes.set_xlim(low, max(ROOF_ENDS[1], *(one["flops_per_byte"] for one in points)) * 1.3)
    axes.xaxis.set_major_locator(LogLocator(base=10, numticks=9))
    axes.xaxis.set_minor_locator(NullLocator())
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,.6g}"))
    labels, others = [], list[str]()
    for kernel in dict.fromkeys(one["kernel"] for one in points):
        some = [one for one in points if one["kernel"] == kernel]
        color = _LOOKS.get(kernel, style.MUTED)
        reached = [one["flops_per_s"] / 1e12 for one in some]
        for narrow, face in ((False, color), (True, "white")):
            axes.plot([one["flops_per_byte"] for one in some if one["fp8"] is narrow],
                      [one["flops_per_s"] / 1e12 for one in some if one["fp8"] is narrow],
                      "o", color=color, markersize=2.4, markerfacecolor=face, markeredgewidth=0.6)  # fmt: skip
        middle = sorted(reached)[len(reached) // 2]
        if kernel in _LOOKS:
            labels.append((middle, kernel, draw.dark(color)))
        others += [] if kernel in _LOOKS else [kernel]
    keys = [f"grey: {', '.join(others)}"] if others else []
    keys += ["hollow: fp8, to which the bf16 roof does not apply"] if any(one["fp8"] for one in points) else []
    if keys:
        axes.text(0.98, 0.02, "\n".join(line for key in keys for line in wrap(key, 150, style.SMALL_PT)), ha="right",
                  va="bottom", size=style.SMALL_PT, color=style.MUTED, transform=axes.transAxes)  # fmt: skip
    if {"read", "matmul"} <= best.keys():
        edge = best["matmul"] / best["read"]
        xs = [low, edge, axes.get_xlim()[1]]
        axes.plot(xs, [min(best["matmul"], x * best["read"]) / 1e12 for x in xs], color=style.INK, linewidth=1.2)
        said = f"bf16 roof {best['matmul'] / 1e12:,.0f} TFLOP/s,\n{best['read'] / 1e9:,.0f} GB/s"
        labels.append((best["matmul"] / 1e12, said, style.INK))
    axes.set_xlabel("FLOP a byte (log)")
    draw.end_labels(axes, labels)
    draw.title(axes, f"Kernels under the roof, {numbers['measured_on']}")


def _draw_bandwidth(axes: Axes, numbers: Numbers) -> None:
    lines = numbers["bandwidth"]
    top = max(max(one["bytes_per_s"]) for one in lines) / 1e9
    axes.set_ylim(0, top * 1.1)
    draw.token_axis(axes, min(one["sequences"][0] for one in lines), max(one["sequences"][-1] for one in lines),
                    "sequences (log)")  # fmt: skip
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{round(value):,}"))
    axes.yaxis.set_major_locator(MaxNLocator(8))
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,.0f}"))
    axes.set_ylabel("GB/s")
    labels = []
    for place, one in enumerate(lines):
        color = style.SERIES[place]
        rates = [rate / 1e9 for rate in one["bytes_per_s"]]
        axes.plot(one["sequences"], rates, color=color, marker=style.MARKERS[place], markersize=3)
        labels.append((one["bytes_per_s"][-1] / 1e9, f"{one['heads']} heads {one['state']}", draw.dark(color)))
    draw.end_labels(axes, labels)
    draw.title(axes, "KDA decode")


def _draw_steps(axes: Axes, numbers: Numbers) -> None:
    lines = numbers["steps"]
    names = dict(zip(numbers["models"], short_names([clean(name) for name in numbers["models"]], 90, style.SMALL_PT),
                     strict=True))  # fmt: skip
    lowest, highest = (
        pick(value * 1e3 for one in lines for value in one[end]) for pick, end in ((min, "low_s"), (max, "high_s"))
    )
    draw.log_axis(axes, "ms a decode step (log)", lowest / 1.5, highest * 1.5)
    draw.token_axis(axes, 1, max(2, *(one["sequences"][-1] for one in lines)), "sequences decoding at once (log)")
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{round(value):,}"))
    labels = []
    for one in lines:
        place = numbers["models"].index(one["model"])
        color, marker = style.SERIES[place], style.MARKERS[place]
        axes.fill_between(one["sequences"], [value * 1e3 for value in one["low_s"]],
                          [value * 1e3 for value in one["high_s"]], color=color, alpha=0.18, linewidth=0)  # fmt: skip
        axes.plot(one["sequences"], [value * 1e3 for value in one["seconds"]], color=color, marker=marker, markersize=3)
        last = f"{1e3 * one['seconds'][-1]:.3g} ms for {one['sequences'][-1]:,}"
        labels.append((one["seconds"][-1] * 1e3, f"{names[one['model']]}\n{last}", draw.dark(color)))
    draw.end_labels(axes, labels)
    lengths = {one["context_tokens"] for one in lines}
    said = f" at {format_tokens(lengths.pop())}" if len(lengths) == 1 else ""
    draw.title(axes, f"Decode step{said}, {_FROM[lines[0]['basis']]}")


PAGE = Kernels()
