"""What `report` says on a screen: how far it is, what it wrote, and what it left out."""

import os
import shlex
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from kvplan.pages._write import Report
from kvplan.tables import print_json
from kvplan.units import printable

_ERASE = "\r\x1b[K"


def typed() -> str:
    """The command as it was typed, the program by its name alone."""
    return shlex.join(["kvplan", *sys.argv[1:]])


@contextmanager
def progress_line() -> Iterator[Callable[[str], None]]:
    """A function that shows what is being done on one line of standard error, on a terminal alone."""
    shown = sys.stderr.isatty() and os.environ.get("TERM") != "dumb"

    def progress(label: str) -> None:
        if shown:
            sys.stderr.write(f"{_ERASE}kvplan: {printable(label)[:66]} …")
            sys.stderr.flush()

    try:
        yield progress
    finally:
        if shown:
            sys.stderr.write(_ERASE)
            sys.stderr.flush()


def say_written(report: Report, paths: list[Path], *, as_json: bool) -> None:
    """The files on standard output, or the document; what was left out on standard error."""
    for one in report.left_out:
        print(f"kvplan: note: left out: {printable(one['title'])}: {printable(one['reason'])}", file=sys.stderr)
    for name, why in report.refused.items():
        print(f"kvplan: warning: {printable(name)} is not in the report: {printable(why)}", file=sys.stderr)
    if as_json:
        print_json(report.document())
        return
    count = len(report.sheets)
    print(f"{paths[0]}: {count} page{'s' if count > 1 else ''}, {paths[0].stat().st_size:,} bytes")
    for path in paths[1:]:
        print(f"{path}: {path.stat().st_size:,} bytes")
