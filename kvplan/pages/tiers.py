"""Page 8: where idle sessions can wait, how many each place holds, and how soon they are back."""

from collections import Counter
from collections.abc import Callable
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from kvplan.agents.tiers_report import TierOptions, TiersReport, tiers_report
from kvplan.cases import Case
from kvplan.errors import KvplanError
from kvplan.interval import Interval
from kvplan.pages import _axes as draw
from kvplan.pages import _style as style
from kvplan.pages._base import LeftOut, Numbers, Page
from kvplan.pages._subject import Subject
from kvplan.pages._text import clean, short_names, width_pt

_NEAR = 4.0
"""A time so close below that of computing again has its number under it, out of the lines."""


class Tiers(Page[Subject]):
    name = "tiers"
    title = "Where idle sessions can wait, and how soon they are back"
    order = 80

    def sheets(self, subject: Subject) -> list[Numbers]:
        if subject.workload is None:
            raise LeftOut("idle sessions need --workload NAME or a trace (`kvplan workloads list`)")
        found, why = {}, {}
        for case in subject.cases:
            try:
                found[case.label] = _report(case, subject.workload)
            except KvplanError as error:
                why[case.label] = str(error)
        if not found:
            raise LeftOut(next(iter(why.values())))
        first = next(iter(found.values()))
        return [
            {
                "subtitle": subject.subtitle,
                "models": [case.label for case in subject.cases],
                "workload": first.usage.name,
                "risk": first.risk,
                "replicas": [_numbers(label, one) for label, one in found.items()],
                "assumptions": [
                    {"name": one.name, "value": one.value, "kind": one.kind, "source": one.source}
                    for one in first.assumptions
                ],
                "notes": [
                    f"One replica, sessions of {first.usage.name}; times for its mean context. Bandwidths, sizes and "
                    "prices of tiers are assumed (`kvplan agents tiers` prints each with its source)."
                    + (f" Left out: {', '.join(map(clean, why))}: {clean(next(iter(why.values())))}." if why else "")
                ],
                "sources": sorted({one.source.removeprefix("published: ") for one in first.assumptions
                                   if one.source.startswith("published")}),
            }
        ]  # fmt: skip

    def draw(self, figure: Figure, numbers: Numbers) -> None:
        axes = draw.panels(figure, 1, 2, label_pt=112)
        names = short_names([clean(name) for name in numbers["models"]], 104, style.SMALL_PT)
        looks = {
            model: (style.SERIES[place], style.MARKERS[place], names[place])
            for place, model in enumerate(numbers["models"])
        }
        _sessions(axes[0], numbers, looks)
        _times(axes[1], numbers, looks)


def _report(case: Case, workload: str) -> TiersReport:
    return tiers_report(case.model, workload, flags=case.flags, options=TierOptions(), notes=[])


def _ends(seconds: Interval) -> dict[str, Any]:
    return {"value": seconds.value, "low": seconds.low, "high": seconds.high, "how": seconds.how}


def _numbers(label: str, report: TiersReport) -> dict[str, Any]:
    again = next(one.prefill_s for one in report.break_evens if one.context_tokens == report.context_tokens)
    return {
        "model": label,
        "context_tokens": report.context_tokens,
        "recompute_s": _ends(again),
        "best": report.best.name if report.best else None,
        "tiers": [
            {
                "name": row.name,
                "bytes_per_gpu": row.bytes_per_gpu,
                "sessions_at_risk": row.sessions_at_risk,
                "sessions_at_mean": row.sessions_at_mean,
                "resume_s": _ends(row.resume_s),
                "choice": row.choice,
                "crossing_bytes": row.crossing_bytes,
            }
            for row in report.rows
        ],
    }


Looks = dict[str, tuple[str, str, str]]


def _places(numbers: Numbers) -> tuple[list[str], list[dict[str, Any]], float]:
    """The tiers in order, the replicas, and the width of one mark."""
    names = list(dict.fromkeys(row["name"] for one in numbers["replicas"] for row in one["tiers"]))
    return names, numbers["replicas"], 0.86 / len(numbers["replicas"])


def _sessions(axes: Axes, numbers: Numbers, looks: Looks) -> None:
    """How many idle sessions each tier holds at the risk."""
    names, replicas, wide = _places(numbers)
    counts = [row["sessions_at_risk"] for one in replicas for row in one["tiers"] if row["sessions_at_risk"]]
    draw.log_axis(axes, "sessions (log)", 0.8, max([*counts, 10]) * 4)
    rows = [row for one in replicas for row in one["tiers"]]
    shared = _alike(rows, lambda row: row["sessions_at_risk"] is None, len(replicas))
    said = [_count(row) for row in rows if row["name"] not in shared]
    for place, one in enumerate(replicas):
        color, _, _ = looks[one["model"]]
        for row in one["tiers"]:
            x = names.index(row["name"]) + (place - (len(replicas) - 1) / 2) * wide
            count = row["sessions_at_risk"]
            if count:
                axes.bar(x, count, wide * 0.9, bottom=0, color=color)
            if row["name"] not in shared:
                _over(axes, _count(row), (x, max(count or 0, 0.8)), color, _turn(axes, said, wide / len(names)))
    for name in shared:
        _over(axes, "no limit", (names.index(name), 0.8), style.INK)
    _ticks(axes, names)
    labels = [(1.0, looks[one["model"]][2], draw.dark(looks[one["model"]][0])) for one in replicas]
    draw.end_labels(axes, labels if len(labels) > 1 else [])
    draw.title(axes, f"Sessions that each tier holds at {100 * numbers['risk']:g} % risk")


def _count(row: dict[str, Any]) -> str:
    return "no limit" if row["sessions_at_risk"] is None else f"{row['sessions_at_risk']:,}"


def _alike(rows: list[dict[str, Any]], holds: Callable[[dict[str, Any]], bool], replicas: int) -> list[str]:
    """The tiers of which the same is true in every replica: said once."""
    found = Counter(row["name"] for row in rows if holds(row))
    return [name for name, count in found.items() if count == replicas]


def _turn(axes: Axes, texts: list[str], share: float) -> tuple[float, float]:
    """(degrees, size) of texts that each have `share` of the panel's width: turned where one is wider than that."""
    room = share * draw.size_pt(axes)[0]
    turned = max((width_pt(text, style.SMALL_PT) for text in texts), default=0.0) > room
    return (90.0, min(style.SMALL_PT, room * 0.8)) if turned else (0.0, style.SMALL_PT)


def _over(
    axes: Axes, text: str, at: tuple[float, float], color: str, turn: tuple[float, float] = (0.0, style.SMALL_PT),
    *, under: bool = False,
) -> None:  # fmt: skip
    axes.annotate(
        text, at, xytext=(0, -5 if under else 4), textcoords="offset points", ha="center",
        va="top" if under else "bottom", rotation=turn[0], fontsize=turn[1], color=draw.dark(color),
    )  # fmt: skip


def _times(axes: Axes, numbers: Numbers, looks: Looks) -> None:
    """Seconds until a session is back, beside computing its context again."""
    names, replicas, wide = _places(numbers)
    ends = [row["resume_s"][end] for one in replicas for row in one["tiers"] for end in ("low", "high")]
    ends += [one["recompute_s"][end] for one in replicas for end in ("low", "high")]
    known = [end for end in ends if end > 0]
    draw.log_axis(axes, "seconds until the session goes on (log)", min(known) / 3, max(known) * 3)
    rows = [row for one in replicas for row in one["tiers"]]
    shared = _alike(rows, lambda row: row["resume_s"]["value"] <= 0, len(replicas))
    said = [_back(row) for row in rows if row["name"] not in shared]
    again_s = [one["recompute_s"][end] for one in replicas for end in ("low", "value", "high")]
    turn, bottom = _turn(axes, said, wide / len(names)), axes.get_ylim()[0]
    labels = []
    for place, one in enumerate(replicas):
        color, marker, name = looks[one["model"]]
        again = one["recompute_s"]
        if len(replicas) <= 2:
            axes.axhspan(again["low"], again["high"], color=color, alpha=0.15, linewidth=0)
        axes.axhline(again["value"], color=color, linewidth=0.9, linestyle=(0, (4, 3)))
        labels.append((again["value"], f"{name}\ncomputed again: {again['value']:.2g} s", draw.dark(color)))
        for row in one["tiers"]:
            x = names.index(row["name"]) + (place - (len(replicas) - 1) / 2) * wide
            _time(axes, x, row["resume_s"], color, marker)
            if row["name"] not in shared and (len(replicas) <= 2 or row["resume_s"]["value"] <= 0):
                low, high = row["resume_s"]["low"], row["resume_s"]["high"]
                under = any(high < end < high * _NEAR for end in again_s)
                _over(axes, _back(row), (x, (low if under else high) or bottom), color, turn, under=under)
    for name in shared:
        _over(axes, "at once", (names.index(name), bottom), style.INK)
    _ticks(axes, names)
    draw.end_labels(axes, labels)
    contexts = {one["context_tokens"] for one in replicas}
    length = f" of {contexts.pop():,} tokens" if len(contexts) == 1 else ""
    draw.title(axes, f"Until a session{length} is back")


def _back(row: dict[str, Any]) -> str:
    return f"{row['resume_s']['value']:.2g}" if row["resume_s"]["value"] > 0 else "at once"


def _time(axes: Axes, x: float, seconds: dict[str, Any], color: str, marker: str) -> None:
    if seconds["value"] <= 0:
        return
    ends = [[seconds["value"] - seconds["low"]], [seconds["high"] - seconds["value"]]]
    axes.errorbar(
        [x], [seconds["value"]], ends, color=color, marker=marker, markersize=5, elinewidth=1.6, capsize=3, linewidth=0
    )


def _ticks(axes: Axes, names: list[str]) -> None:
    axes.set_xlim(-0.6, len(names) - 0.4)
    axes.set_xticks(range(len(names)), names, color=style.INK)
    axes.grid(axis="x", visible=False)
    axes.set_xlabel("tier")


PAGE = Tiers()
