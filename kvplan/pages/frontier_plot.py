"""Frontier: what holds the load on each GPU and what it costs, and users against context on the cheapest of them."""

from typing import Any, ClassVar

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from kvplan.agents.frontier import Frontier
from kvplan.agents.options import Option
from kvplan.pages import _axes as draw
from kvplan.pages import _style as style
from kvplan.pages._base import Book, LeftOut, Numbers, Page
from kvplan.pages._text import clean, shorten
from kvplan.units import GIB

MOST_BARS = 16


class FrontierPlot(Page[Frontier]):
    name = "frontier"
    title = "What holds the load, and for how much"
    order = 10
    book: ClassVar[Book] = "frontier"

    def sheets(self, subject: Frontier) -> list[Numbers]:
        users = subject.users
        if not subject.by_gpu and users is None:
            raise LeftOut("nothing that was searched holds the load")
        priced = subject.sorted_by == "price"
        asked = subject.inputs
        bars = [_bar(one, priced) for one in subject.by_gpu[:MOST_BARS]]
        lost = (
            f" {len(subject.by_gpu) - MOST_BARS} dearer GPUs are not drawn." if len(subject.by_gpu) > MOST_BARS else ""
        )
        held = f"{len(subject.not_held)} kinds of GPU do not hold it." if subject.not_held else ""
        return [
            {
                "subtitle": _subtitle(subject, asked),
                "cost": "price an hour" if priced else "GPU memory in all, GiB",
                "options": bars,
                "users": [
                    {"context_tokens": row.context_tokens, "alike": row.alike, "spread": row.spread}
                    for row in (users.rows if users else ())
                ],
                "users_on": f"{users.gpus} GPUs" if users else "",
                "notes": [
                    f"Left: the cheapest deployment of each GPU that holds the load.{lost} {held}".strip(),
                    "Right: alike, all as long as that; spread, as the workload's are, with that mean, at the risk.",
                ],
                "assumptions": [{"name": one.name, "value": one.value, "kind": one.kind, "source": one.source}
                                for one in subject.assumptions],
            }
        ]  # fmt: skip

    def draw(self, figure: Figure, numbers: Numbers) -> None:
        bars = numbers["options"]
        left, right = draw.panels(figure, 1, 2, left_pt=74, label_pt=118)
        if bars:
            _bars(left, bars, numbers["cost"])
        else:
            left.remove()
        if numbers["users"]:
            _users(right, numbers["users"], numbers["users_on"])
        else:
            right.remove()


def _subtitle(subject: Frontier, asked: dict[str, Any]) -> str:
    load = f"{asked['sessions']:,} sessions of {subject.workload}" if asked.get("sessions") else subject.workload
    spare = asked.get("spare") or 0
    spares = f", {spare} group{'s' if spare != 1 else ''} to spare" if spare else ""
    return clean(
        f"{subject.model}, {subject.engine} {subject.rules_version or ''}: {load}, {asked['risk']:.1%} risk{spares}"
    )


def _bar(one: Option, priced: bool) -> dict[str, Any]:
    layout = " ".join(f"{axis}{size}" for axis, size in one.layout.items() if size > 1 and axis != "dp")
    settings = ", ".join(f"{name.split('_')[0]} {value}" for name, value in one.settings.items())
    return {
        "gpu": one.gpu, "gpus": one.gpus, "sessions": one.sessions, "price_per_hour": one.price_per_hour,
        "memory_bytes": one.memory_bytes, "layout": layout, "settings": settings,
        "cost": one.price_per_hour if priced else one.memory_bytes / GIB,
    }  # fmt: skip


def _bars(axes: Axes, bars: list[dict[str, Any]], cost: str) -> None:
    places = range(len(bars))
    axes.barh(places, [bar["cost"] for bar in bars], height=0.62, color=style.BLUE, zorder=2)
    size = min(style.SMALL_PT, draw.size_pt(axes)[1] / len(bars) / 2.6)
    for place, bar in zip(places, bars, strict=True):
        text = f"{bar['gpus']} GPUs, {bar['sessions']:,} held\n" + " ".join((bar["layout"], bar["settings"])).strip()
        axes.annotate(
            "\n".join(shorten(line, 112, size) for line in text.split("\n")), (1, place),
            xycoords=("axes fraction", "data"), xytext=(6, 0), textcoords="offset points", fontsize=size,
            color=style.MUTED, va="center", annotation_clip=False,
        )  # fmt: skip
    axes.set_yticks(places, [f"{bar['gpu']}" for bar in bars], color=style.INK)
    axes.set_ylim(len(bars) - 0.4, -0.6)
    axes.tick_params(axis="y", length=0)
    axes.set_xlim(0, max(bar["cost"] for bar in bars) * 1.05)
    axes.grid(axis="y", visible=False)
    axes.set_xlabel(cost)
    draw.title(axes, "The cheapest of each GPU")


def _users(axes: Axes, rows: list[dict[str, Any]], on: str) -> None:
    draw.token_axis(axes, rows[0]["context_tokens"], rows[-1]["context_tokens"], "mean context, tokens (K = 1,024)")
    lines = [("alike", style.BLUE, "-"), ("spread", style.VERMILION, "--")]
    every = [row[key] for row in rows for key, _, _ in lines if row[key]]
    draw.log_axis(axes, "sessions open at once (log)", min(every, default=1) * 0.8, max(every, default=1) * 1.25)
    labels = []
    for key, color, dash in lines:
        points = [(row["context_tokens"], row[key]) for row in rows if row[key]]
        if points:
            axes.plot(*zip(*points, strict=True), dash, color=color, marker="o", markersize=4)
            labels.append((points[-1][1], f"{key}\n{points[-1][1]:,}", draw.dark(color)))
    draw.end_labels(axes, labels)
    draw.title(axes, f"Users against context, {on}")


PAGE = FrontierPlot()
