"""Tables and how they are printed: rich on a terminal, plain text in a pipe, Markdown, or CSV."""

import csv
import json
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from textwrap import fill
from typing import Any

from kvplan import __version__

WIDTH = 80
LABEL = 11
"""Columns of the word that begins a line: `PER GPU    …`."""


@dataclass(frozen=True, slots=True)
class Table:
    """Cells are text; a column whose cells are all numbers is set flush right."""

    title: str
    columns: tuple[str, ...]
    rows: Sequence[tuple[str, ...]]


def print_json(document: Any) -> None:
    """One JSON object on stdout. Anything that is not JSON (NaN) is a bug and raises."""
    print(json.dumps(document, indent=2, ensure_ascii=False, allow_nan=False))


def print_rows(schema: str, key: str, rows: list[dict[str, Any]], as_json: bool) -> None:
    """A listing: as a document, or as one table."""
    if as_json:
        head = {"schema": schema, "kvplan_version": __version__, "inputs": {}, "assumptions": []}
        print_json(head | {key: rows})
        return
    columns = tuple(rows[0]) if rows else (key,)
    print_text([], [Table("", columns, [tuple(_cell(row[name]) for name in columns) for row in rows])])


def _cell(value: Any) -> str:
    if isinstance(value, list):
        return ", ".join(str(item) for item in value)
    return (
        "" if value is None else f"{value:,}" if isinstance(value, int) and not isinstance(value, bool) else str(value)
    )


def print_text(lines: Sequence[str], tables: Sequence[Table]) -> None:
    """Lines, then tables: with rich on a terminal, plain otherwise."""
    if sys.stdout.isatty():
        _print_rich(lines, tables)
        return
    for line in lines:
        print(wrapped(line))
    for table in tables:
        print("\n".join(plain(table)))


def wrapped(line: str) -> str:
    """A line broken at 80 columns, what follows its label set under it."""
    return fill(line, WIDTH, subsequent_indent=" " * LABEL, break_long_words=False, break_on_hyphens=False)


def plain(table: Table) -> list[str]:
    """The table as aligned text."""
    grid = [table.columns, *table.rows]
    widths = [max(len(row[index]) for row in grid) for index in range(len(table.columns))]
    right = [_is_numeric(table, index) for index in range(len(table.columns))]
    lines = [""] + ([table.title] if table.title else [])
    for row in grid:
        cells = (
            cell.rjust(width) if flush else cell.ljust(width)
            for cell, width, flush in zip(row, widths, right, strict=True)
        )
        lines.append("  ".join(cells).rstrip())
    return lines


def _is_numeric(table: Table, index: int) -> bool:
    cells = [row[index] for row in table.rows if row[index]]
    return bool(cells) and all(cell[0].isdigit() or cell[0] in "-−≥<(" for cell in cells)


def _print_rich(lines: Sequence[str], tables: Sequence[Table]) -> None:
    from rich import box
    from rich.console import Console
    from rich.table import Table as RichTable
    from rich.text import Text

    console = Console(highlight=False)
    for number, line in enumerate(lines):
        console.print(Text(wrapped(line), style="bold" if number < 2 else ""), soft_wrap=True)
    for table in tables:
        grid = RichTable(title=table.title or None, title_justify="left", box=box.SIMPLE_HEAD, pad_edge=False)
        for index, name in enumerate(table.columns):
            grid.add_column(name, justify="right" if _is_numeric(table, index) else "left", overflow="fold")
        for row in table.rows:
            grid.add_row(*(Text(cell) for cell in row))
        console.print(grid)


def print_markdown(lines: Sequence[str], tables: Sequence[Table]) -> None:
    """GitHub-flavoured Markdown."""
    for line in lines:
        print(f"{line}  ")
    for table in tables:
        print(f"\n### {table.title}\n" if table.title else "")
        right = [_is_numeric(table, index) for index in range(len(table.columns))]
        print("| " + " | ".join(table.columns) + " |")
        print("|" + "|".join("--:" if flush else "---" for flush in right) + "|")
        for row in table.rows:
            print("| " + " | ".join(cell.replace("|", "\\|") for cell in row) + " |")


def print_csv(rows: list[dict[str, Any]]) -> None:
    """Exact values, one header row."""
    writer = csv.DictWriter(sys.stdout, fieldnames=list(rows[0]), lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
