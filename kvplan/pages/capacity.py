"""Page 4: sequences against context, and open sessions at stated risks."""

from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from kvplan.agents.report import SessionsReport
from kvplan.document import Capacity
from kvplan.pages import _axes as draw
from kvplan.pages import _style as style
from kvplan.pages._base import LeftOut, Numbers, Page
from kvplan.pages._subject import Subject
from kvplan.pages._text import clean, short_names
from kvplan.units import format_tokens

_SESSIONS = (
    "Sessions: each context drawn from the workload; the pool overflows no more often than the risk says; bars are the "
    "range of the pool."
)
_NO_WORKLOAD = "Sessions at stated risks need --workload NAME or a trace (`kvplan workloads list`)."


class CapacityPage(Page[Subject]):
    name = "capacity"
    title = "How many fit, against context"
    order = 40

    def sheets(self, subject: Subject) -> list[Numbers]:
        curves = [_curve(label, rows) for label, rows in subject.curves.items() if any(row.sequences for row in rows)]
        if not curves:
            raise LeftOut("not one sequence fits at any length; the first page says what binds")
        notes = ["Lines: sequences that stay safe while all decode, one replica. Bands: the range of the pool. Dotted: "
                 "bytes alone."]  # fmt: skip
        sessions = [_sessions(label, report) for label, report in subject.sessions.items()]
        if sessions:
            notes.append(_SESSIONS)
        else:
            notes.append(_NO_WORKLOAD)
        notes += [f"{clean(label)}: {why}" for label, why in subject.sessions_refused.items()]
        return [
            {
                "subtitle": subject.subtitle,
                "models": [case.label for case in subject.cases],
                "curves": curves,
                "workload": next((report.workload for report in subject.sessions.values()), None),
                "sessions": sessions,
                "notes": [" ".join(notes)],
                "sources": [report.source for report in subject.sessions.values()]
                + [case.now.engine.source for case in subject.cases],
            }
        ]

    def draw(self, figure: Figure, numbers: Numbers) -> None:
        axes = draw.panels(figure, 1, 2 if numbers["sessions"] else 1, label_pt=112)
        names = dict(
            zip(numbers["models"], short_names([clean(name) for name in numbers["models"]], 104, style.SMALL_PT),
                strict=True)
        )  # fmt: skip
        looks = {name: (style.SERIES[place], style.MARKERS[place]) for place, name in enumerate(numbers["models"])}
        _draw_curves(axes[0], numbers["curves"], names, looks)
        if numbers["sessions"]:
            _draw_sessions(axes[1], numbers, names, looks)


def _curve(label: str, rows: list[Capacity]) -> dict[str, Any]:
    return {
        "model": label,
        "context_tokens": [row.context_tokens for row in rows],
        "sequences": [row.sequences for row in rows],
        "low": [row.low for row in rows],
        "high": [row.high for row in rows],
        "ideal": [row.ideal for row in rows],
        "binds": [row.binds for row in rows],
    }


def _sessions(label: str, report: SessionsReport) -> dict[str, Any]:
    found = report.sessions
    return {
        "model": label,
        "unit": found.unit,
        "capacity": found.capacity,
        "mean_context_tokens": found.mean_context_tokens,
        "at_mean_context": found.at_mean_context,
        "naive": found.naive,
        "naive_context_tokens": found.naive_context_tokens,
        "at_risk": [
            {"risk": row.risk, "sessions": row.sessions, "low": row.low, "high": row.high, "running": row.running,
             "binds": row.binds}
            for row in found.at_risk
        ],
    }  # fmt: skip


Looks = dict[str, tuple[str, str]]


def _draw_curves(axes: Axes, curves: list[dict[str, Any]], names: dict[str, str], looks: Looks) -> None:
    top = max(max(*one["high"], *one["ideal"]) for one in curves)
    draw.log_axis(axes, "sequences at once (log)", 0.8, top * 1.6)
    draw.token_axis(
        axes, min(one["context_tokens"][0] for one in curves), max(one["context_tokens"][-1] for one in curves)
    )
    labels = []
    for one in curves:
        color, marker = looks[one["model"]]
        lengths = one["context_tokens"]
        some = [max(count, 0.5) for count in one["sequences"]]
        axes.fill_between(
            lengths, [max(count, 0.5) for count in one["low"]], [max(count, 0.5) for count in one["high"]], color=color,
            alpha=0.18, linewidth=0,
        )  # fmt: skip
        axes.plot(lengths, [max(count, 0.5) for count in one["ideal"]], color=color, linestyle=":", linewidth=1.0)
        axes.plot(lengths, some, color=color, marker=marker, markersize=3.2, linewidth=1.4)
        last = f"{one['sequences'][-1]:,} at {format_tokens(lengths[-1])}"
        labels.append((max(0.8, some[-1]), f"{names[one['model']]}\n{last}", draw.dark(color)))
    draw.end_labels(axes, labels)
    draw.title(axes, "Sequences of one length, one replica")


def _draw_sessions(axes: Axes, numbers: Numbers, names: dict[str, str], looks: Looks) -> None:
    rows = numbers["sessions"]
    risks = [row["risk"] for row in rows[0]["at_risk"]]
    wide = 0.6 / max(1, len(rows))
    labels = []
    for place, one in enumerate(rows):
        color, marker = looks[one["model"]]
        xs = [index + (place - (len(rows) - 1) / 2) * wide for index in range(len(risks))]
        counts = [row["sessions"] for row in one["at_risk"]]
        below = [row["sessions"] - row["low"] for row in one["at_risk"]]
        above = [row["high"] - row["sessions"] for row in one["at_risk"]]
        axes.errorbar(
            xs, counts, [below, above], color=color, marker=marker, markersize=5, linewidth=0, elinewidth=1.6, capsize=3
        )
        if len(rows) <= 2:
            _counts(axes, xs, one["at_risk"], color, to_left=place == 0 and len(rows) == 2)
        said = f"{names[one['model']]}\n{counts[-1]:,} at {100 * risks[-1]:g} %"
        labels.append((counts[-1], said, draw.dark(color)))
    if len(rows) == 1:
        _divided(axes, rows[0])
    highest = max(row["high"] for one in rows for row in one["at_risk"])
    if len(rows) == 1:
        highest = max(highest, rows[0]["at_mean_context"])
    axes.set_ylim(0, max(1.0, highest * 1.12))
    axes.set_xlim(-0.6, len(risks) - 0.4)
    axes.set_xticks(range(len(risks)), [f"{100 * risk:g} %" for risk in risks])
    axes.yaxis.set_major_locator(MaxNLocator(8, integer=True))
    axes.set_xlabel("risk that the sessions overflow the pool")
    axes.set_ylabel("open sessions at once")
    draw.end_labels(axes, labels + (_references(rows[0]) if len(rows) == 1 else []))
    draw.title(axes, f"Open sessions of {clean(numbers['workload'])}, one replica")


def _counts(axes: Axes, xs: list[float], rows: list[dict[str, Any]], color: str, *, to_left: bool) -> None:
    for x, row in zip(xs, rows, strict=True):
        axes.annotate(
            f"{row['sessions']:,}", (x, row["sessions"]), xytext=(-6 if to_left else 6, 0), textcoords="offset points",
            fontsize=style.SMALL_PT, color=draw.dark(color), va="center", ha="right" if to_left else "left",
        )  # fmt: skip


def _divided(axes: Axes, one: dict[str, Any]) -> None:
    for value in (one["naive"], one["at_mean_context"]):
        axes.axhline(value, color=style.MUTED, linewidth=0.9, linestyle=(0, (4, 3)))


def _references(one: dict[str, Any]) -> list[tuple[float, str, str]]:
    longest = format_tokens(one["naive_context_tokens"])
    return [
        (one["naive"], f"pool / {longest} each:\n{one['naive']:,.1f}", style.MUTED),
        (one["at_mean_context"], f"pool / mean context:\n{one['at_mean_context']:,.1f}", style.MUTED),
    ]


PAGE = CapacityPage()
