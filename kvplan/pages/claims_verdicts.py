"""Claims, page 1: how many stand, and which."""

from typing import Any, ClassVar, get_args

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from kvplan.claims import Judged
from kvplan.claims.schema import Outcome
from kvplan.pages import _axes as draw
from kvplan.pages import _style as style
from kvplan.pages._base import Book, LeftOut, Numbers, Page
from kvplan.pages._column import Column
from kvplan.pages._frame import ROOM_PT, TOP_PT
from kvplan.pages._text import clean

LOOKS = {
    "reproduced exactly": style.BLUE, "reproduced in range": style.GREEN, "reproduced on another basis": style.SKY,
    "not reproduced": style.VERMILION, "needs measurement": style.ORANGE, "out of scope": "#c3c8cd",
}  # fmt: skip
_MEANS = {
    "reproduced exactly": "the plain reading, with what engines store by default, rounds to every printed figure",
    "reproduced in range": "the printed figure lies in the interval that measured times give, on the plain reading",
    "reproduced on another basis": "some stated basis rounds to every printed figure, and the plain reading does not",
    "not reproduced": "no basis at hand rounds to the printed figures",
    "needs measurement": "a time or a trace that kvplan does not ship",
    "out of scope": "nothing that shapes and bytes could say",
}


class ClaimsVerdicts(Page[list[Judged]]):
    name = "verdicts"
    title = "Published claims, re-derived"
    order = 10
    book: ClassVar[Book] = "claims"

    def sheets(self, subject: list[Judged]) -> list[Numbers]:
        if not subject:
            raise LeftOut("no claim was named")
        wrong = [one.name for one in subject if not one.as_expected]
        said = "each verdict is the one that its file expects" if not wrong else f"NOT AS EXPECTED: {', '.join(wrong)}"
        return [
            {
                "subtitle": f"{len(subject)} claims; {said}",
                "verdicts": {
                    verdict: [one.name for one in subject if one.verdict == verdict] for verdict in get_args(Outcome)
                },
                "as_expected": not wrong,
                "notes": [
                    "A printed figure is reproduced when the computed one rounds to it. The first basis of a claim is "
                    "the plain reading."
                ],
                "sources": [source_of(one) for one in subject],
            }
        ]

    def draw(self, figure: Figure, numbers: Numbers) -> None:
        verdicts = {name: names for name, names in numbers["verdicts"].items() if names}
        axes = draw.panels(figure, 1, 1, left_pt=150, label_pt=60, bottom_pt=TOP_PT - 190)[0]
        _bars(axes, verdicts)
        column = Column(figure, room_pt=ROOM_PT, y_pt=TOP_PT - 204)
        for verdict, names in verdicts.items():
            column.heading(f"{verdict.capitalize()}: {_MEANS.get(verdict, 'as the claims say')}", 9.0)
            column.lines(clean(", ".join(names)), style.BODY_PT)
            column.space(6)
        for one in numbers.get("left_out", []):
            column.labelled("left out", f"{one['title']}: {one['reason']}", 58.0)


def source_of(judged: Judged) -> str:
    source = judged.claim.source
    return clean(", ".join(part for part in (source.title, source.by, source.date) if part))


def _bars(axes: Axes, verdicts: dict[str, Any]) -> None:
    counts = [len(names) for names in verdicts.values()]
    axes.barh(range(len(counts)), counts, 0.62, color=[LOOKS.get(name, style.MUTED) for name in verdicts])
    for place, count in enumerate(counts):
        axes.annotate(f"{count:,}", (count, place), xytext=(5, 0), textcoords="offset points", va="center",
                      fontsize=style.BODY_PT, fontweight="bold")  # fmt: skip
    axes.set_yticks(range(len(counts)), list(verdicts), fontsize=style.BODY_PT, color=style.INK)
    axes.set_ylim(len(counts) - 0.4, -0.6)
    axes.xaxis.set_major_locator(MaxNLocator(8, integer=True))
    axes.tick_params(axis="y", length=0)
    axes.grid(axis="y", visible=False)
    axes.set_xlabel("claims")


PAGE = ClaimsVerdicts()
