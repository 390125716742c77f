"""A report's files: the PDF, the JSON beside it, and a PNG of each page where a folder is named."""

import json
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.backends.backend_pdf import PdfPages
from matplotlib.figure import Figure
from PIL import Image

from kvplan import __version__
from kvplan.errors import UsageError
from kvplan.pages import _style as style
from kvplan.pages._base import Book, LeftOut, Numbers, Page, pages_of
from kvplan.pages._files import replacing
from kvplan.pages._frame import frame

SCHEMA = "kvplan.report/1"
MOST_SHEETS = 8
PNG_DPI, COLORS = 100, 192


@dataclass(frozen=True, slots=True)
class Sheet:
    """One page of paper. `name` is the page's, numbered where it has several sheets."""

    name: str
    page: Page[Any]
    numbers: Numbers


@dataclass(frozen=True, slots=True)
class Report:
    """A report before it is drawn. `left_out` says which pages are missing and why."""

    command: str
    inputs: dict[str, Any]
    assumptions: list[dict[str, Any]]
    sheets: list[Sheet]
    left_out: list[dict[str, str]] = field(default_factory=list)

    @property
    def refused(self) -> dict[str, str]:
        """Models that are not in the report, and why."""
        return {one["model"]: one["reason"] for one in self.sheets[0].numbers.get("refused", [])}

    def document(self) -> dict[str, Any]:
        """The JSON beside the PDF: every number that a page shows."""
        pages = [{"name": one.name, "title": one.page.title, "numbers": one.numbers} for one in self.sheets]
        return {
            "schema": SCHEMA, "kvplan_version": __version__, "inputs": self.inputs, "assumptions": self.assumptions,
            "command": self.command, "pages": pages, "left_out": self.left_out,
        }  # fmt: skip


def make_report(
    book: Book, subject: Any, *, command: str, inputs: dict[str, Any], pages: list[str] | None = None,
    progress: Callable[[str], None] = lambda label: None,
) -> Report:  # fmt: skip
    """Work out the sheets of every page, or of the `pages` named. Raises UsageError for a page that does not exist."""
    known = pages_of(book)
    if wrong := [name for name in pages or [] if name not in {page.name for page in known}]:
        raise UsageError(f"--pages {wrong[0][:40]!r}: no such page; use {', '.join(page.name for page in known)}")
    sheets: list[Sheet] = []
    left_out: list[dict[str, str]] = []
    for page in known:
        if pages and page.name not in pages:
            continue
        progress(page.title)
        try:
            made = page.sheets(subject)
        except LeftOut as error:
            left_out.append({"page": page.name, "title": page.title, "reason": str(error)})
            continue
        if len(sheets) + len(made) > MOST_SHEETS:
            why = f"a report has at most {MOST_SHEETS} pages; --pages {page.name} writes this one"
            left_out.append({"page": page.name, "title": page.title, "reason": why})
            continue
        names = [page.name] if len(made) == 1 else [f"{page.name}-{place}" for place in range(1, len(made) + 1)]
        sheets += [Sheet(name, page, numbers) for name, numbers in zip(names, made, strict=True)]
    if not sheets:
        raise UsageError(f"no page to write: {left_out[0]['reason']}" if left_out else "no page to write")
    sheets[0].numbers["left_out"] = left_out
    stated = sheets[0].numbers.get("assumptions", [])
    assumptions = [{key: one[key] for key in ("name", "value", "kind", "source")} for one in stated]
    return Report(command, inputs, assumptions, sheets, left_out)


def write_report(
    report: Report, out: Path, png: Path | None = None, progress: Callable[[str], None] = lambda label: None
) -> list[Path]:
    """Write OUT, OUT with .json in place of .pdf, and one PNG a page into `png`; returns the paths.

    The same report makes the same bytes. Raises UsageError where OUT is no .pdf, SourceError where it cannot be
    written; an interruption leaves the files that were there before.
    """
    if out.suffix.lower() != ".pdf":
        raise UsageError(f"-o {str(out)[:80]!r}: the report is a PDF; name a file that ends in .pdf")
    pictures = [png / f"{place}-{one.name}.png" for place, one in enumerate(report.sheets, 1)] if png else []
    paths = [out, out.with_suffix(".json"), *pictures]
    with replacing() as part_of, style.settled():
        metadata = {"Creator": f"kvplan {__version__}", "Producer": None, "CreationDate": None}
        with PdfPages(part_of(out), metadata=metadata) as pdf:
            for place, one in enumerate(report.sheets, 1):
                progress(one.page.title)
                figure = draw_sheet(report, place)
                pdf.savefig(figure)
                if png:
                    _picture(figure).save(part_of(pictures[place - 1]), format="PNG", optimize=True)
        text = json.dumps(report.document(), indent=1, ensure_ascii=False, allow_nan=False)
        part_of(paths[1]).write_text(f"{text}\n", encoding="utf-8")
    return paths


def _picture(figure: Figure) -> Image.Image:
    """The figure at PNG_DPI in as many colours as its pages need, which makes a third of the file."""
    canvas: Any = FigureCanvasAgg(figure)
    figure.set_dpi(PNG_DPI)
    canvas.draw()
    return Image.fromarray(np.asarray(canvas.buffer_rgba())[..., :3]).quantize(COLORS, Image.Quantize.MAXCOVERAGE)


def draw_sheet(report: Report, place: int) -> Figure:
    """The figure of sheet number `place`, from 1; the caller has set the style."""
    one = report.sheets[place - 1]
    figure = Figure(figsize=style.PAPER_IN)
    FigureCanvasAgg(figure)
    numbers = one.numbers
    frame(
        figure,
        one.page.title,
        numbers.get("subtitle", ""),
        numbers.get("notes", []),
        numbers.get("sources", []),
        report.command,
        f"page {place} of {len(report.sheets)}",
    )
    one.page.draw(figure, numbers)
    return figure
