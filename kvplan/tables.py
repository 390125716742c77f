"""Tables and how they are printed: rich on a terminal, plain text in a pipe, Markdown, or CSV."""

import csv
import json
import os
import re
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import zip_longest
from textwrap import fill
from typing import Any

from kvplan import __version__
from kvplan.units import printable

WIDTH = 80
LABEL = 11
"""Columns of the word that begins a line: `PER GPU    …`."""
LEAST = 24
"""Columns that a last column of text gets, whatever stands before it."""


_NUMBER = re.compile(r"[-−]?\d[\d,.]*\s?[%A-Za-z]*(?: \(.*\))?")


@dataclass(frozen=True, slots=True)
class Table:
    """Cells are text; a column whose cells are all numbers is set flush right."""

    title: str
    columns: tuple[str, ...]
    rows: Sequence[tuple[str, ...]]

    @property
    def width(self) -> int:
        """Columns of the whole table, two between cells."""
        return sum(width + 2 for width in _widths(self)) - 2


def print_json(document: Any) -> None:
    """One JSON object on stdout. Anything that is not JSON (NaN) is a bug and raises."""
    unicode = (sys.stdout.encoding or "").lower() in ("utf-8", "utf8")
    print(json.dumps(document, indent=2, ensure_ascii=not unicode, allow_nan=False))


def print_rows(schema: str, key: str, rows: list[dict[str, Any]], as_json: bool, *, hidden: Sequence[str] = ()) -> None:
    """A listing: as a document, or as one table without the `hidden` columns."""
    if as_json:
        head = {"schema": schema, "kvplan_version": __version__, "inputs": {}, "assumptions": []}
        print_json(head | {key: rows})
        return
    columns = tuple(name for name in rows[0] if name not in hidden) if rows else (key,)
    print_text([], [Table("", columns, [tuple(_cell(row[name]) for name in columns) for row in rows])])


def _cell(value: Any) -> str:
    if isinstance(value, list):
        return ", ".join(str(item) for item in value)
    if isinstance(value, bool) or value is None:
        return {True: "yes", False: "no", None: ""}[value]
    return f"{value:,}" if isinstance(value, int) else str(value)


def print_text(lines: Sequence[str], tables: Sequence[Table]) -> None:
    """Lines, then tables: with rich on a terminal (or where FORCE_COLOR asks), plain otherwise."""
    lines, tables = [printable(line) for line in lines], [_fitted(_clean(table)) for table in tables]
    if sys.stdout.isatty() or os.environ.get("FORCE_COLOR"):
        _print_rich(lines, tables)
        return
    for line in lines:
        print(wrapped(line))
    for number, table in enumerate(tables):
        print("\n".join(plain(table) if lines or number else plain(table)[1:]))


def _clean(table: Table) -> Table:
    return Table(printable(table.title), table.columns, [tuple(map(printable, row)) for row in table.rows])


def wrapped(line: str) -> str:
    """A line broken at 80 columns, what follows its label set under it."""
    under = " " * LABEL if line[LABEL - 2 : LABEL] == "  " else "  "
    return fill(line, WIDTH, subsequent_indent=under, break_long_words=False, break_on_hyphens=False)


def _widths(table: Table) -> list[int]:
    grid = [table.columns, *table.rows]
    return [max(len(part) for row in grid for part in row[index].split("\n")) for index in range(len(table.columns))]


def _fitted(table: Table) -> Table:
    """The table with its last column, where that is text, broken at 80 columns or at what other columns leave."""
    if _is_numeric(table, len(table.columns) - 1):
        return table
    room = max(LEAST, WIDTH - sum(width + 2 for width in _widths(table)[:-1]))
    return Table(table.title, table.columns, [(*row[:-1], _broken(row[-1], room)) for row in table.rows])


def _broken(text: str, width: int) -> str:
    """Text in lines of at most `width`; a product and an address are kept whole."""
    whole = text.replace(" × ", "\xa0×\xa0")
    apart = "://" not in text and "×" not in text
    return fill(whole, width, break_long_words=apart, break_on_hyphens=False).replace("\xa0", " ")


def plain(table: Table) -> list[str]:
    """The table as aligned text; a cell of several lines goes on below."""
    widths = _widths(table)
    right = [_is_numeric(table, index) for index in range(len(table.columns))]
    lines = ["", *([table.title] if table.title else [])]
    for row in [table.columns, *table.rows]:
        for cells in zip_longest(*(cell.split("\n") for cell in row), fillvalue=""):
            aligned = (
                cell.rjust(width) if flush else cell.ljust(width)
                for cell, width, flush in zip(cells, widths, right, strict=True)
            )
            lines.append("  ".join(aligned).rstrip())
    return lines


def _is_numeric(table: Table, index: int) -> bool:
    cells = [row[index] for row in table.rows if row[index]]
    return bool(cells) and all(map(_NUMBER.fullmatch, cells))


def _print_rich(lines: Sequence[str], tables: Sequence[Table]) -> None:
    from rich import box
    from rich.console import Console
    from rich.table import Table as RichTable
    from rich.text import Text

    bare = bool(os.environ.get("NO_COLOR")) or os.environ.get("TERM") == "dumb"
    natural = max((table.width + 2 for table in tables), default=WIDTH)
    console = Console(highlight=False, color_system=None if bare else "auto", width=max(natural, WIDTH))
    for number, line in enumerate(lines):
        console.print(Text(wrapped(line), style="bold" if number < 2 else ""), soft_wrap=True)
    for number, table in enumerate(tables):
        grid = RichTable(box=box.SIMPLE_HEAD, show_edge=False, padding=(0, 1, 0, 0), header_style="bold")
        for index, name in enumerate(table.columns):
            grid.add_column(name, justify="right" if _is_numeric(table, index) else "left", no_wrap=True)
        for row in table.rows:
            grid.add_row(*(Text(cell) for cell in row))
        if lines or number:
            console.print()
        if table.title:
            console.print(Text(table.title, style="bold"))
        console.print(grid)


def print_markdown(lines: Sequence[str], tables: Sequence[Table]) -> None:
    """GitHub-flavoured Markdown."""
    for line in lines:
        print(f"{printable(line)}  ")
    for table in map(_clean, tables):
        print(f"\n### {table.title}\n" if table.title else "")
        right = [_is_numeric(table, index) for index in range(len(table.columns))]
        print("| " + " | ".join(table.columns) + " |")
        print("|" + "|".join("--:" if flush else "---" for flush in right) + "|")
        for row in table.rows:
            print("| " + " | ".join(cell.replace("|", "\\|") for cell in row) + " |")


def print_csv(rows: list[dict[str, Any]]) -> None:
    """Exact values, one header row."""
    rows = [{name: printable(cell) if isinstance(cell, str) else cell for name, cell in row.items()} for row in rows]
    writer = csv.DictWriter(sys.stdout, fieldnames=list(rows[0]), lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
