"""Claims, next pages: each as printed, as computed on the plain reading and on the basis that its verdict names."""

from typing import Any, ClassVar

from matplotlib.figure import Figure

from kvplan.claims import Judged
from kvplan.claims.judge import BasisResult
from kvplan.pages._base import Book, LeftOut, Numbers, Page
from kvplan.pages._column import Column
from kvplan.pages._text import clean
from kvplan.pages.claims_verdicts import source_of

PER_SHEET = 12
MOST_SHEETS = 5


class ClaimsTable(Page[list[Judged]]):
    name = "claims"
    title = "Each claim, as printed and as computed"
    order = 20
    book: ClassVar[Book] = "claims"

    def sheets(self, subject: list[Judged]) -> list[Numbers]:
        rows = [_row(one) for one in subject]
        if not rows:
            raise LeftOut("no claim was named")
        parts = [rows[start : start + PER_SHEET] for start in range(0, len(rows), PER_SHEET)]
        names = [subject[start : start + PER_SHEET] for start in range(0, len(rows), PER_SHEET)]
        more = sum(map(len, parts[MOST_SHEETS:]))
        return [
            {
                "subtitle": f"{part[0]['claim']} to {part[-1]['claim']}",
                "claims": part,
                "notes": [f"{more} more are in `kvplan claims check`."] if more and place == MOST_SHEETS else [],
                "sources": [source_of(one) for one in judged],
            }
            for place, (part, judged) in enumerate(zip(parts[:MOST_SHEETS], names, strict=False), 1)
        ]

    def draw(self, figure: Figure, numbers: Numbers) -> None:
        cells = [
            [clean(row[key]) for key in ("claim", "printed", "plain", "verdict", "on", "says")]
            for row in numbers["claims"]
        ]
        head = ["claim", "as printed", "plain reading", "verdict", "on what basis, or why", "in words"]
        Column(figure).table(head, cells, size=8.0, shares=(0.10, 0.13, 0.13, 0.12, 0.22, 0.30))


def _row(judged: Judged) -> dict[str, Any]:
    first = judged.bases[0] if judged.bases else None
    found = next((one for one in judged.bases if one.name == judged.basis), None)
    return {
        "claim": judged.name,
        "says": judged.claim.claim,
        "printed": ", ".join(f"{one.value} {one.unit}".strip() for one in judged.claim.printed),
        "plain": _computed(first),
        "plain_basis": first.name if first else None,
        "verdict": judged.verdict,
        "on": judged.detail,
        "on_basis": _computed(found),
        "as_expected": judged.as_expected,
    }


def _computed(result: BasisResult | None) -> str:
    if result is None:
        return ""
    return ", ".join(f"{one.computed} {one.unit}".strip() for one in result.comparisons if one.computed is not None)


PAGE = ClaimsTable()
