"""The last page: the ledger of one sequence, every line with its arithmetic."""

from typing import Any

from matplotlib.figure import Figure

from kvplan.cases import Case
from kvplan.pages import _style as style
from kvplan.pages._base import LeftOut, Numbers, Page
from kvplan.pages._column import Column
from kvplan.pages._frame import ROOM_PT
from kvplan.pages._style import MARGIN_PT
from kvplan.pages._subject import Subject
from kvplan.pages._text import clean, shorten
from kvplan.units import format_tokens


class Arithmetic(Page[Subject]):
    name = "arithmetic"
    title = "The arithmetic of one sequence and of the weights"
    order = 90

    def sheets(self, subject: Subject) -> list[Numbers]:
        models = [_ledger(case) for case in subject.cases]
        if not any(one["lines"] for one in models):
            raise LeftOut("the models keep nothing per sequence")
        return [
            {
                "subtitle": subject.subtitle,
                "models": models,
                "notes": [
                    "Whole model, exact integers. The weights are as served; one GPU's share is on the first page."
                ],
                "sources": [clean(case.model.source.origin) for case in subject.cases],
            }
        ]

    def draw(self, figure: Figure, numbers: Numbers) -> None:
        models = numbers["models"]
        if len(models) == 1:
            column = Column(figure)
            for part in ("sequence", "weights"):
                _table(column, _heading(models[0], part), _lines(models[0], part), style.SMALL_PT)
            return
        half = (ROOM_PT - 24) / 2
        columns = [Column(figure, room_pt=half), Column(figure, MARGIN_PT + half + 24, half)]
        for one in models:
            column = max(columns, key=lambda column: column.y_pt)
            _table(column, _heading(one, "sequence"), _lines(one, "sequence"), style.FOOT_PT)


def _heading(one: dict[str, Any], part: str) -> str:
    what = f"{one['context_tokens']:,} tokens" if part == "sequence" else "weights"
    return f"{clean(one['model'])}: {what}"


def _lines(one: dict[str, Any], part: str) -> list[dict[str, Any]]:
    return [line for line in one["lines"] if line["of"] == part]


def _ledger(case: Case) -> dict[str, Any]:
    last = case.contexts[-1]
    lines = [line for line in case.plan.ledger if line.context_tokens in (None, last)]
    return {
        "model": case.label,
        "context": format_tokens(last),
        "context_tokens": last,
        "lines": [
            {"of": "sequence" if line.context_tokens else "weights", "owner": line.owner, "name": line.name,
             "bytes": line.bytes, "formula": line.formula}
            for line in lines
        ],
    }  # fmt: skip


def _table(column: Column, heading: str, lines: list[dict[str, Any]], size: float) -> None:
    """Lines and their sum, as many as fit."""
    heading = shorten(heading, column.room_pt, 9.0, bold=True)
    if column.left_lines(size) < 5:
        if column.left_lines(size) > 1:
            column.lines(f"{heading}: in the JSON", size, color=style.MUTED)
        return
    column.heading(heading, 9.0)
    rows = [[line["owner"], line["name"], line["formula"], f"{line['bytes']:,} B"] for line in lines]
    total = ["together", "", "", f"{sum(line['bytes'] for line in lines):,} B"]
    shown = column.table(["of", "tensor", "arithmetic", "bytes"], [*rows, total], size=size, numeric=1)
    if shown <= len(rows):
        column.lines(f"… and {len(rows) + 1 - shown} more lines in the JSON", style.FOOT_PT, color=style.MUTED)
    column.space(8)


PAGE = Arithmetic()
