"""Page 6: the same model on the same GPUs by the rules of different engines."""

from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, MaxNLocator, NullLocator

from kvplan.capacity import Evaluation, evaluate, find_engine
from kvplan.cases import Case
from kvplan.errors import KvplanError
from kvplan.pages import _axes as draw
from kvplan.pages import _style as style
from kvplan.pages._base import LeftOut, Numbers, Page
from kvplan.pages._column import Column
from kvplan.pages._frame import BOTTOM_PT
from kvplan.pages._subject import Subject
from kvplan.pages._text import clean, short_names, shorten
from kvplan.units import format_gib, format_tokens

COMPARED = ("ideal", "vllm", "sglang")
LOOKS = {"ideal": (style.MUTED, "D"), "vllm": (style.BLUE, "o"), "sglang": (style.VERMILION, "s")}
_OTHER = (style.GREEN, "^")


class Engines(Page[Subject]):
    name = "engines"
    title = "The same GPUs by the rules of different engines"
    order = 60

    def sheets(self, subject: Subject) -> list[Numbers]:
        rows = [_row(case, engine) for case in subject.cases for engine in _names(case)]
        if sum(not one.get("refused") for one in rows) < 2:
            raise LeftOut("fewer than two engines' rules apply to these models and flags")
        if not any(fit["high"] for one in rows for fit in one.get("capacity", [])):
            raise LeftOut("not one sequence fits by any engine's rules")
        return [
            {
                "subtitle": subject.subtitle,
                "rows": rows,
                "notes": [
                    "The same flags under the newest rules of each engine (the report's own: as given); dtypes left to "
                    "`auto` are each engine's choice. Ideal: the dtypes of the report's engine, weights and bytes "
                    "alone."
                ],
                "sources": [f"{name}: {find_engine(name).source}" for name in COMPARED],
            }
        ]

    def draw(self, figure: Figure, numbers: Numbers) -> None:
        rows = numbers["rows"]
        lengths = sorted({fit["context_tokens"] for row in rows for fit in row.get("capacity", [])})
        shown = lengths if len(lengths) == 1 else [lengths[0], lengths[-1]]
        table_pt = 36.0 + 18.0 * len(rows) if len(rows) <= 6 else 0.0
        axes = draw.panels(figure, 1, len(shown), left_pt=150, label_pt=70, bottom_pt=BOTTOM_PT + table_pt)
        for place, tokens in enumerate(shown):
            _dots(axes[place], rows, tokens)
        if table_pt:
            _table(Column(figure, y_pt=BOTTOM_PT + table_pt - 8), rows)


def _names(case: Case) -> list[str]:
    return [*COMPARED, *([case.now.engine.name] if case.now.engine.name not in COMPARED else [])]


def _row(case: Case, name: str) -> dict[str, Any]:
    try:
        now = case.now if name == case.now.engine.name else _under(case, name)
    except KvplanError as error:
        return {"model": case.label, "engine": name, "refused": " ".join(str(error).split())}
    figures = now.allocation.figures if now.allocation else {}
    return {
        "model": case.label,
        "engine": name,
        "rules_version": str(figures.get("rules_version", now.engine.rules_version)),
        "pool_bytes": max(0, now.pool.bytes) if now.pool else None,
        "kv_cache_dtype": now.dtypes.kv,
        "mamba_ssm_dtype": now.dtypes.state,
        "says": now.engine.says(figures) if now.allocation else "",
        "capacity": [
            {"context_tokens": fit.context_tokens, "sequences": fit.sequences, "low": fit.low, "high": fit.high,
             "binds": fit.binds}
            for fit in now.capacity
        ],
    }  # fmt: skip


def _under(case: Case, name: str) -> Evaluation:
    """The case by another engine's rules; for the bound, with the dtypes that the case itself has."""
    flags: dict[str, Any] = {"engine": name, "engine_version": None, "max_model_len": case.limit_tokens}
    if name == "ideal":
        flags |= {"kv_cache_dtype": case.now.dtypes.kv, "mamba_ssm_dtype": case.now.dtypes.state}
    return evaluate(case.model, case.deployment.with_flags(**flags), case.gpu, list(case.contexts))


def _heights(rows: list[dict[str, Any]]) -> list[float]:
    """Where each row stands: one apart, and a model's name above its first."""
    found, at = [], 0.0
    for place, row in enumerate(rows):
        at += 1.0 if place and rows[place - 1]["model"] == row["model"] else 2.1
        found.append(at)
    return found


def _dots(axes: Axes, rows: list[dict[str, Any]], tokens: int) -> None:
    """One row for each model and engine, a dot with the range of the pool."""
    fits = [_fit(row, tokens) for row in rows]
    top = max((fit["high"] for fit in fits if fit), default=1)
    if top > 20:
        axes.set_xscale("symlog", linthresh=1, linscale=0.3)
        axes.set_xlim(-0.15, top * 1.5)
    else:
        axes.set_xlim(-0.02 * max(top, 2), max(2.0, top * 1.25))
        axes.xaxis.set_major_locator(MaxNLocator(6, integer=True))
    heights = _heights(rows)
    for height, row, fit in zip(heights, rows, fits, strict=True):
        if fit is None:
            _say(axes, height, _why(row))
            continue
        color, marker = LOOKS.get(row["engine"], _OTHER)
        axes.plot([fit["low"], fit["high"]], [height] * 2, color=color, linewidth=4, alpha=0.35, solid_capstyle="butt")
        axes.plot([fit["sequences"]], [height], color=color, marker=marker, markersize=6, clip_on=False, zorder=3)
        spread = "" if fit["low"] == fit["high"] else f" ({fit['low']:,}-{fit['high']:,})"
        axes.annotate(
            f"{fit['sequences']:,}{spread}", (max(fit["sequences"], fit["high"]), height), xytext=(8, 0),
            textcoords="offset points", fontsize=style.SMALL_PT, color=draw.dark(color), va="center",
        )  # fmt: skip
    _labels(axes, rows, heights)
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,.0f}"))
    axes.xaxis.set_minor_locator(NullLocator())
    axes.grid(axis="y", visible=False)
    axes.set_xlabel(f"sequences at once, one replica{' (log)' if top > 20 else ''}")
    draw.title(axes, f"At {format_tokens(tokens)} = {tokens:,} tokens")


def _fit(row: dict[str, Any], tokens: int) -> dict[str, Any] | None:
    return next((one for one in row.get("capacity", []) if one["context_tokens"] == tokens), None)


def _why(row: dict[str, Any]) -> str:
    return clean(row.get("refused") or "not asked of this model")


def _say(axes: Axes, height: float, text: str) -> None:
    room = draw.size_pt(axes)[0] + 60
    axes.annotate(
        shorten(text, room, style.FOOT_PT), (0, height), xycoords=("axes fraction", "data"), xytext=(6, 0),
        textcoords="offset points", fontsize=style.FOOT_PT, color=style.MUTED, va="center", annotation_clip=False,
    )  # fmt: skip


def _labels(axes: Axes, rows: list[dict[str, Any]], heights: list[float]) -> None:
    """Engine and pool beside each row, the model above its first."""
    names = dict(
        zip([row["model"] for row in rows], short_names([clean(row["model"]) for row in rows], 138, style.SMALL_PT,
            bold=True), strict=True)
    )  # fmt: skip
    size = min(style.SMALL_PT, draw.size_pt(axes)[1] / (heights[-1] + 0.6) * 0.75)
    axes.set_ylim(heights[-1] + 0.6, 0.4)
    axes.set_yticks([])
    for place, (height, row) in enumerate(zip(heights, rows, strict=True)):
        pool = f", {format_gib(row['pool_bytes'])}" if row.get("pool_bytes") is not None else ""
        color, _ = LOOKS.get(row["engine"], _OTHER)
        text = f"{row['engine']} {row.get('rules_version', '')}".strip() + pool
        _beside(axes, height, text, size, color=draw.dark(color))
        if place == 0 or rows[place - 1]["model"] != row["model"]:
            _beside(axes, height - 0.95, names[row["model"]], size, bold=True)
            if place:
                axes.axhline(height - 1.55, color=style.RULE, linewidth=0.8)


def _beside(axes: Axes, y: float, text: str, size: float, *, color: str = style.INK, bold: bool = False) -> None:
    axes.annotate(
        text, (0, y), xycoords=("axes fraction", "data"), xytext=(-8, 0), textcoords="offset points", fontsize=size,
        color=color, ha="right", va="center", fontweight="bold" if bold else "normal", annotation_clip=False,
    )  # fmt: skip


def _table(column: Column, rows: list[dict[str, Any]]) -> None:
    """What each engine makes of the pool, in its own units."""
    cells = [
        [clean(row["model"]), row["engine"], row.get("kv_cache_dtype", ""), row.get("mamba_ssm_dtype", ""),
         clean(row.get("refused") or row["says"] or "bytes over bytes")]
        for row in rows
    ]  # fmt: skip
    column.table(["model", "engine", "cache", "state", "in its own units"], cells)


PAGE = Engines()
