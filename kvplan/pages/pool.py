"""Page 3: where the memory of one GPU goes while the pool is as full as is safe."""

from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Patch
from matplotlib.ticker import MaxNLocator

from kvplan.cases import Case
from kvplan.document import Capacity, PoolPart, Sequence
from kvplan.errors import UsageError
from kvplan.pages import _axes as draw
from kvplan.pages import _style as style
from kvplan.pages._base import LeftOut, Numbers, Page
from kvplan.pages._column import Column
from kvplan.pages._frame import BOTTOM_PT, TOP_PT
from kvplan.pages._subject import Subject
from kvplan.pages._text import clean, short_names, width_pt
from kvplan.units import GIB, format_gib, format_short, format_tokens

LOOKS = {
    "weights": ("#5b6168", ""), "activations": ("#8d949c", ""), "graphs": ("#a9afb6", ""), "other": ("#c3c8cd", ""),
    "kv": (style.BLUE, ""), "window": (style.SKY, ""), "index": (style.PURPLE, ""), "state": (style.ORANGE, ""),
    "snapshots": (style.GREEN, ""), "padding": (style.VERMILION, "////"), "free": ("#ffffff", ""),
    "padding and free": ("#ffffff", "////"), "unused": ("#ffffff", "...."),
}  # fmt: skip
"""Colour and hatching of each part, in the order in which they are stacked."""
OUTSIDE = ("weights", "activations", "graphs", "other")
INSIDE = ("kv", "window", "index", "state", "snapshots", "padding", "free", "padding and free")
_ZOOM_PT = 165.0


class PoolPage(Page[Subject]):
    name = "pool"
    title = "Where the memory of one GPU goes"
    order = 30

    def sheets(self, subject: Subject) -> list[Numbers]:
        bars = [bar for case in subject.cases for bar in _bars(case)]
        if not bars:
            raise LeftOut("no model has a pool")
        return [
            {
                "subtitle": subject.subtitle,
                "bars": bars,
                "notes": [
                    "The fullest rank, its pool as full as is safe with sequences of one length. Padding: what the "
                    "engine's blocks take beyond the bytes that are stored. Free: too little for one more. Unused: "
                    "what the engine's memory flag leaves alone."
                ],
                "sources": [case.now.engine.source for case in subject.cases],
            }
        ]

    def draw(self, figure: Figure, numbers: Numbers) -> None:
        bars = numbers["bars"]
        few, pooled = len(bars) <= 2, any(bar["pool_bytes"] for bar in bars)
        bottom = BOTTOM_PT + (1 + pooled) * _ZOOM_PT if few else BOTTOM_PT
        axes = draw.panels(figure, 1, 1, left_pt=150, label_pt=30, bottom_pt=bottom, top_pt=TOP_PT + 6)[0]
        _draw_bars(axes, bars, OUTSIDE + INSIDE + ("unused",), "GiB of one GPU")
        _key(axes, bars)
        if few and pooled:
            pool = draw.panels(figure, 1, 1, left_pt=150, label_pt=30, bottom_pt=BOTTOM_PT + _ZOOM_PT, top_pt=bottom)[0]
            _draw_bars(pool, bars, INSIDE, "GiB of its pool")
        if few:
            _table(Column(figure, y_pt=BOTTOM_PT + _ZOOM_PT - 8), bars)


def _bars(case: Case) -> list[dict[str, Any]]:
    made = case.plan
    if made.pool is None or made.per_rank is None:
        return []
    rows = {row.context_tokens: row for row in made.capacity}
    held = {row.context_tokens: row for row in made.per_rank.sequences}
    return [
        {
            "model": case.label,
            "context_tokens": tokens,
            "sequences": rows[tokens].sequences,
            "pool_bytes": made.pool.bytes,
            "pool_low_bytes": made.pool.low_bytes,
            "pool_high_bytes": made.pool.high_bytes,
            "total_bytes": made.pool.breakdown.total_bytes,
            "parts": _parts(case, made.pool, rows[tokens], held[tokens]),
        }
        for tokens in draw.asked(case.contexts)
    ]


def _parts(case: Case, pool: PoolPart, fit: Capacity, one: Sequence) -> dict[str, int]:
    """Bytes by part. With a total they add up to it, else to the pool."""
    known = pool.breakdown
    outside = {
        "weights": known.weights_bytes, "activations": known.activation_bytes, "graphs": known.graphs_bytes,
        "other": known.other_bytes,
    }  # fmt: skip
    held = {
        "kv": one.kv_bytes, "window": one.window_bytes, "index": one.index_bytes,
        "state": one.state_bytes + one.conv_bytes, "snapshots": one.snapshot_bytes,
    }  # fmt: skip
    parts = {name: size or 0 for name, size in outside.items()} | {
        name: size * fit.sequences for name, size in held.items()
    }
    inside = sum(size * fit.sequences for size in held.values())
    parts |= _rest(case, pool.bytes, fit, inside)
    if known.total_bytes is not None:
        parts["unused"] = known.total_bytes - sum(parts.values())
    return {name: size for name, size in parts.items() if size > 0}


def _rest(case: Case, pool_bytes: int, fit: Capacity, inside: int) -> dict[str, int]:
    """What the stored bytes leave of the pool: padding of the engine's units, and what is free.

    As one part where the engine has pools apart for states, or no units that sessions share.
    """
    left = max(0, pool_bytes - inside)
    try:
        assert case.now.share is not None
        units = case.now.engine.units(case.now.share, pool_bytes, case.deployment, case.limit_tokens)
    except UsageError:
        return {"padding and free": left}
    if units.most_open is not None or not units.capacity:
        return {"padding and free": left}
    blocks = (case.plan.engine or {}).get("num_blocks") or units.capacity
    padding = fit.sequences * units.of(fit.context_tokens) * (pool_bytes // blocks) - inside
    return {"padding": padding, "free": left - padding} if 0 <= padding <= left else {"padding and free": left}


def _draw_bars(axes: Axes, bars: list[dict[str, Any]], shown: tuple[str, ...], label: str) -> None:
    size = style.SMALL_PT
    height = min(0.62, 40 * len(bars) / draw.size_pt(axes)[1])
    axes.set_xlim(0, max(sum(bar["parts"].get(name, 0) for name in shown) for bar in bars) / GIB * 1.0001)
    per_gib = draw.size_pt(axes)[0] / axes.get_xlim()[1]
    for place, bar in enumerate(bars):
        left = 0.0
        for name in shown:
            part = bar["parts"].get(name, 0) / GIB
            color, hatch = LOOKS[name]
            edge = style.MUTED if hatch or name == "free" else "white"
            axes.barh(place, part, height, left, color=color, hatch=hatch, edgecolor=edge, linewidth=0.4)
            _inside(axes, left + part / 2, place, part * per_gib, name, bar["parts"].get(name, 0))
            left += part
    labels = short_names([clean(bar["model"]) for bar in bars], 140, size)
    axes.set_yticks(
        range(len(bars)),
        [
            f"{name}\n{bar['sequences']:,} of {format_tokens(bar['context_tokens'])}"
            for name, bar in zip(labels, bars, strict=True)
        ],
        fontsize=size,
        color=style.INK,
    )
    axes.set_ylim(len(bars) - 0.4, -0.6)
    axes.xaxis.set_major_locator(MaxNLocator(10))
    axes.grid(axis="y", visible=False)
    axes.tick_params(axis="y", length=0)
    axes.set_xlabel(label)


def _inside(axes: Axes, x: float, y: int, room_pt: float, name: str, part_bytes: int) -> None:
    """Name and size in a part that is wide enough, else its size, else nothing."""
    size, (color, hatch) = style.SMALL_PT, LOOKS[name]
    short = format_short(part_bytes)
    text = next((one for one in (f"{name} {short}", short) if width_pt(one, size) + 6 < room_pt), "")
    if not text:
        return
    plate = {"facecolor": "white", "edgecolor": "none", "pad": 1.0} if hatch else None
    axes.text(
        x, y, text, fontsize=size, ha="center", va="center", color=draw.on("#ffffff" if hatch else color), bbox=plate
    )


def _key(axes: Axes, bars: list[dict[str, Any]]) -> None:
    shown = [name for name in LOOKS if any(name in bar["parts"] for bar in bars)]
    patches = [Patch(facecolor=LOOKS[name][0], hatch=LOOKS[name][1], edgecolor=style.MUTED, linewidth=0.4,
                     label=name) for name in shown]  # fmt: skip
    axes.legend(
        handles=patches, loc="lower left", bbox_to_anchor=(0.0, 1.0), ncols=len(shown), frameon=False,
        fontsize=style.SMALL_PT, handlelength=1.2, handleheight=0.9, columnspacing=1.2, borderaxespad=0.2,
    )  # fmt: skip


def _table(column: Column, bars: list[dict[str, Any]]) -> None:
    """Every part of a few bars, to the MiB."""
    shown = [name for name in LOOKS if any(name in bar["parts"] for bar in bars)]
    head = [f"{bar['sequences']:,} of {format_tokens(bar['context_tokens'])}" for bar in bars]
    rows = [[name, *(format_gib(bar["parts"].get(name, 0)) for bar in bars)] for name in shown]
    rows.append(["together", *(format_gib(sum(bar["parts"].values())) for bar in bars)])
    column.table(["part of one GPU", *head], rows, numeric=len(bars))


PAGE = PoolPage()
