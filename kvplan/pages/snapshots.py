"""Page 5: how often the state is saved, against the bytes that it takes and the tokens that are computed again."""

import os
from collections.abc import Sequence
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FixedLocator, FuncFormatter, NullLocator

from kvplan.agents.checkpoints import expected_replay_tokens, policies, replay
from kvplan.agents.columns import columns_of
from kvplan.agents.traces import open_trace
from kvplan.cases import Case
from kvplan.ledger import Holding
from kvplan.pages import _axes as draw
from kvplan.pages import _style as style
from kvplan.pages._base import LeftOut, Numbers, Page
from kvplan.pages._subject import Subject
from kvplan.pages._text import clean, short_names
from kvplan.units import GIB, format_short, format_tokens

LEAST_INTERVAL = 256


class Snapshots(Page[Subject]):
    name = "snapshots"
    title = "What saved states cost, and what they save"
    order = 50

    def sheets(self, subject: Subject) -> list[Numbers]:
        found = [one for one in map(_curve, subject.cases) if one]
        if not found:
            raise LeftOut(_why_none(subject.cases))
        plain = [clean(case.label) for case in subject.cases if _curve(case) is None]
        notes = [
            "Exact arithmetic for the whole model: context // interval copies of all that is fixed per sequence. A hit "
            "at a random place computes half an interval again on average. Dashed: what the sequence itself keeps. "
            "At the points: the interval and the copies."
        ]
        if plain:
            notes[0] += f" Without a state: {', '.join(plain)}."
        return [
            {
                "subtitle": subject.subtitle,
                "models": [case.label for case in subject.cases],
                "curves": found,
                "policies": _policies(subject.workload),
                "notes": notes,
                "sources": [clean(case.model.source.origin) for case in subject.cases]
                + ["Young, A first order approximation to the optimum checkpoint interval (1974): the half interval"],
            }
        ]

    def draw(self, figure: Figure, numbers: Numbers) -> None:
        axes = draw.panels(figure, 1, 2, label_pt=118)
        names = short_names([clean(name) for name in numbers["models"]], 110, style.SMALL_PT)
        looks = dict(zip(numbers["models"], zip(style.SERIES, names, strict=False), strict=True))
        _bytes(axes[0], numbers["curves"], looks)
        if numbers["policies"]:
            axes[1].remove()
            _replay(draw.column(figure, 2, 1, label_pt=118, keep=(0,))[0], numbers["curves"], looks)
            _measured(draw.column(figure, 2, 1, label_pt=128, left_pt=124, keep=(1,))[0], numbers["policies"])
        else:
            _replay(axes[1], numbers["curves"], looks)


def _why_none(cases: Sequence[Case]) -> str:
    if any(Holding(case.model.mixers(), case.now.dtypes).snapshot_bytes() for case in cases):
        return f"no length asked about is longer than the shortest interval drawn, {LEAST_INTERVAL} tokens"
    return "no model here keeps a state: every token of a prefix can be resumed from"


def _curve(case: Case) -> dict[str, Any] | None:
    held = Holding(case.model.mixers(), case.now.dtypes)
    one, last = held.snapshot_bytes(), case.contexts[-1]
    if not one or last <= LEAST_INTERVAL:
        return None
    steps = sorted({last, *(round(LEAST_INTERVAL * 2 ** (half / 2)) for half in range(80))})
    intervals = [tokens for tokens in steps if tokens <= last]
    return {
        "model": case.label,
        "context_tokens": last,
        "snapshot_bytes": one,
        "sequence_bytes": held.bytes(last),
        "interval_tokens": intervals,
        "snapshots": [last // interval for interval in intervals],
        "snapshots_bytes": [last // interval * one for interval in intervals],
        "replay_tokens": [expected_replay_tokens(interval) for interval in intervals],
        "snapshot_equals_kv_tokens": case.plan.crossings.snapshot_equals_kv_tokens,
    }


def _policies(workload: str | None) -> list[dict[str, Any]]:
    """Policies replayed on a trace that says what prompts share; none for a profile and for other traces."""
    if workload is None or not os.path.isfile(workload) or workload.lower().endswith(".toml"):
        return []
    columns = columns_of(open_trace(workload))
    if not (columns.shared_tokens >= 0).any():
        return []
    return [
        {
            "policy": one.policy.name,
            "token_hit": one.token_hit,
            "replay_tokens": one.replay_tokens,
            "snapshots": one.snapshots,
        }
        for one in (replay(columns, policy) for policy in policies())
    ]


def _measured(axes: Axes, rows: list[dict[str, Any]]) -> None:
    """Tokens that a request computes again under each policy, the hit rate, and the copies that a session keeps."""
    size = min(style.SMALL_PT, draw.size_pt(axes)[1] / len(rows) * 0.7)
    axes.set_xscale("symlog", linthresh=10, linscale=0.5)
    axes.set_xlim(-1, max(10.0, *(row["replay_tokens"] for row in rows)) * 2)
    for place, row in enumerate(rows):
        axes.plot([row["replay_tokens"]], [place], marker="o", markersize=5, color=style.GREEN)
        axes.annotate(
            f"{row['replay_tokens']:,.0f}; {row['token_hit']:.1%} hit; {row['snapshots']:,.1f} copies", (1, place),
            xycoords=("axes fraction", "data"), xytext=(5, 0), textcoords="offset points", fontsize=size, va="center",
            annotation_clip=False,
        )  # fmt: skip
    axes.set_yticks(range(len(rows)), [clean(row["policy"]) for row in rows], fontsize=size, color=style.INK)
    axes.set_ylim(len(rows) - 0.4, -0.6)
    axes.tick_params(axis="y", length=0)
    axes.xaxis.set_major_locator(FixedLocator([0, 100, 10_000]))
    axes.xaxis.set_minor_locator(NullLocator())
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,.0f}"))
    axes.set_xlabel("tokens computed again, mean (log)")
    draw.title(axes, "Policies replayed on the trace")


def _bytes(axes: Axes, curves: list[dict[str, Any]], looks: dict[str, tuple[str, str]]) -> None:
    sizes = [size / GIB for one in curves for size in (*one["snapshots_bytes"], one["sequence_bytes"])]
    draw.log_axis(axes, "GiB of snapshots per sequence (log)", min(sizes) / 2, max(sizes) * 2)
    draw.token_axis(axes, LEAST_INTERVAL, max(one["interval_tokens"][-1] for one in curves), _INTERVAL)
    labels = []
    for one in curves:
        color, name = looks[one["model"]]
        axes.plot(one["interval_tokens"], draw.gib(one["snapshots_bytes"]), color=color)
        axes.axhline(one["sequence_bytes"] / GIB, color=color, linewidth=0.9, linestyle=(0, (4, 3)))
        _mark(axes, one, color)
        end = one["snapshots_bytes"][-1] / GIB
        labels.append((end, f"{name}\n{format_short(one['snapshot_bytes'])} a copy", draw.dark(color)))
        if len(curves) <= 2:
            labels.append((one["sequence_bytes"] / GIB, f"the sequence of {format_tokens(one['context_tokens'])}:\n"
                           f"{format_short(one['sequence_bytes'])}", draw.dark(color)))  # fmt: skip
    draw.end_labels(axes, labels)
    draw.title(axes, "Bytes of the snapshots of one sequence")


_INTERVAL = "tokens between snapshots (K = 1,024)"


def _mark(axes: Axes, one: dict[str, Any], color: str) -> None:
    """The interval at which the snapshots weigh as much as the sequence's own growing cache."""
    even = one["snapshot_equals_kv_tokens"]
    if even is None or not one["interval_tokens"][0] < even < one["interval_tokens"][-1]:
        return
    size = one["context_tokens"] // even * one["snapshot_bytes"] / GIB
    axes.plot([even], [size], marker="o", markersize=6, color=color, markeredgecolor="white")


def _replay(axes: Axes, curves: list[dict[str, Any]], looks: dict[str, tuple[str, str]]) -> None:
    """Tokens that a hit computes again, against the bytes that make it so: one curve a model."""
    sizes = [size / GIB for one in curves for size in one["snapshots_bytes"]]
    replays = [tokens for one in curves for tokens in one["replay_tokens"]]
    draw.log_axis(axes, "GiB of snapshots per sequence (log)", min(sizes) / 2, max(sizes) * 2)
    draw.token_axis(axes, max(1, round(min(replays))), round(max(replays)), "tokens computed again after a hit, mean")
    labels = []
    upper = max(curves, key=lambda one: one["snapshots_bytes"][0])
    for one in curves:
        color, name = looks[one["model"]]
        axes.plot(one["replay_tokens"], draw.gib(one["snapshots_bytes"]), color=color)
        for wanted in (1024, 4096, 16384, 65536) if len(curves) <= 2 else ():
            _step(axes, one, wanted, color, above=one is upper)
        labels.append((one["snapshots_bytes"][-1] / GIB, name, draw.dark(color)))
    draw.end_labels(axes, labels)
    draw.title(axes, "The same against what a resume costs")


def _step(axes: Axes, one: dict[str, Any], interval: int, color: str, *, above: bool) -> None:
    """A point of the curve with its interval; of two curves the lower one has its labels below it."""
    if interval not in one["interval_tokens"]:
        return
    place = one["interval_tokens"].index(interval)
    at = (one["replay_tokens"][place], one["snapshots_bytes"][place] / GIB)
    axes.plot(*at, marker="o", markersize=5, color=color, markeredgecolor="white")
    axes.annotate(
        f"{format_tokens(interval)}: {one['snapshots'][place]:,}", at, xytext=(6, 5) if above else (-5, -3),
        ha="left" if above else "right", va="bottom" if above else "top", textcoords="offset points",
        fontsize=style.SMALL_PT, color=draw.dark(color),
    )  # fmt: skip


PAGE = Snapshots()
