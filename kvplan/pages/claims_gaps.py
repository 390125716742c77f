"""Claims, last page: how far each printed figure is from the plain reading, and from the basis that fits it best."""

from typing import Any, ClassVar

from matplotlib.figure import Figure
from matplotlib.ticker import FixedLocator, FuncFormatter, NullLocator

from kvplan.claims import Judged
from kvplan.claims.judge import BasisResult, Comparison
from kvplan.pages import _axes as draw
from kvplan.pages import _style as style
from kvplan.pages._base import Book, LeftOut, Numbers, Page
from kvplan.pages._text import clean, shorten
from kvplan.pages.claims_verdicts import source_of

MOST_ROWS = 48
_TICKS = (-100, -10, -1, 0, 1, 10, 100)


class ClaimsGaps(Page[list[Judged]]):
    name = "gaps"
    title = "How far the printed figures are from the computed ones"
    order = 30
    book: ClassVar[Book] = "claims"

    def sheets(self, subject: list[Judged]) -> list[Numbers]:
        rows = [row for one in subject for row in _rows(one)]
        if not rows:
            raise LeftOut("no claim prints a figure that kvplan computes")
        more = f" {len(rows) - MOST_ROWS} more are not drawn." if len(rows) > MOST_ROWS else ""
        return [
            {
                "subtitle": f"{len(rows)} printed figures of {len({row['claim'] for row in rows})} claims",
                "figures": rows[:MOST_ROWS],
                "notes": [
                    "Computed over printed, less one; limits (`at least`, `at most`) are left out. Hollow: the plain "
                    f"reading. Filled: the basis that the verdict names, or the nearest.{more}"
                ],
                "sources": [source_of(one) for one in subject],
            }
        ]

    def draw(self, figure: Figure, numbers: Numbers) -> None:
        rows = numbers["figures"]
        axes = draw.panels(figure, 1, 1, left_pt=230, label_pt=170)[0]
        size = min(style.SMALL_PT, draw.size_pt(axes)[1] / len(rows) * 0.72)
        for place, row in enumerate(rows):
            color = style.BLUE if row["agrees"] else style.VERMILION
            axes.plot([100 * row["plain"], 100 * row["best"]], [place] * 2, color=style.RULE, linewidth=1.2, zorder=1)
            axes.plot(
                [100 * row["plain"]], [place], marker="o", markersize=5, color="white", markeredgecolor=style.MUTED
            )
            axes.plot([100 * row["best"]], [place], marker="o", markersize=5, color=color, zorder=3)
            near = "in its range" if row["ranged"] else "rounds to it"
            text = near if row["agrees"] else f"{100 * row['best']:+.3g} % at the nearest"
            axes.annotate(
                text, (1, place), xycoords=("axes fraction", "data"), xytext=(6, 0), textcoords="offset points",
                fontsize=size, color=color, va="center", annotation_clip=False,
            )  # fmt: skip
        axes.set_xscale("symlog", linthresh=1, linscale=0.6)
        reach = max(110.0, *(100 * abs(row[key]) for row in rows for key in ("plain", "best")))
        axes.set_xlim(-reach * 1.3, reach * 1.3)
        axes.xaxis.set_major_locator(FixedLocator(_TICKS))
        axes.xaxis.set_minor_locator(NullLocator())
        axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:+g} %" if value else "0"))
        names = [
            shorten(f"{clean(row['claim'])}: {row['figure']}, {row['printed']} {row['unit']}".strip(), 222, size)
            for row in rows
        ]
        axes.set_yticks(range(len(rows)), names, fontsize=size, color=style.INK)
        axes.set_ylim(len(rows) - 0.4, -0.6)
        axes.tick_params(axis="y", length=0)
        axes.set_xlabel("computed against printed (logarithmic beyond 1 %)")


def _rows(judged: Judged) -> list[dict[str, Any]]:
    if not judged.bases or judged.claim.out_of_scope is not None:
        return []
    named = next((one for one in judged.bases if one.name == judged.basis), judged.bases[0])
    rows = []
    for plain in judged.bases[0].comparisons:
        best = _same(named, plain)
        if plain.relation != "equal" or plain.deviation is None or best is None or best.deviation is None:
            continue
        rows.append({
            "claim": judged.name, "figure": plain.name, "printed": plain.printed, "unit": plain.unit,
            "plain": plain.deviation, "plain_computed": plain.computed, "plain_basis": judged.bases[0].name,
            "best": best.deviation, "best_computed": best.computed, "best_basis": named.name, "agrees": best.agrees,
            "ranged": named.figures[plain.name].ends is not None,
        })  # fmt: skip
    return rows


def _same(result: BasisResult, one: Comparison) -> Comparison | None:
    return next((other for other in result.comparisons if other.name == one.name), None)


PAGE = ClaimsGaps()
