"""Read a trace of requests row by row: Mooncake, AIPerf, Azure, agent sessions, Bailian, BurstGPT or a plain CSV.

Nothing but one row is held at a time. Rows that are no requests are counted by what is wrong with them.
"""

import csv
import gzip
import json
import zlib
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any, cast

from kvplan.agents.formats import CSV_FORMATS, JSONL_FORMATS, BadRow, Format
from kvplan.agents.request import Request
from kvplan.errors import SourceError
from kvplan.sources.strict import open_regular, reason, shown

MAX_ROW_BYTES = 16 << 20
_GZIP = b"\x1f\x8b"
_TOO_LONG = f"longer than {MAX_ROW_BYTES >> 20} MiB"


class Trace:
    """A trace file. Iterating reads it anew; afterwards `rows`, `malformed` and `first_bad` describe the pass."""

    def __init__(self, path: Path, form: Format, columns: tuple[str, ...] | None) -> None:
        self.path, self.form, self._columns = path, form, columns
        self.requests = self.bad_rows = 0
        self.malformed: Counter[str] = Counter()
        """Rows that are no requests, by what is wrong."""
        self.first_bad: dict[str, int] = {}
        """The first line of each."""

    def __iter__(self) -> Iterator[Request]:
        self.requests = self.bad_rows = 0
        self.malformed, self.first_bad = Counter(), {}
        read = self.form.make()
        for number, line in _lines(self.path):
            if self._columns is not None and number == 1:
                continue
            try:
                for request in read(self._row(line), number):
                    self.requests += 1
                    yield request
            except BadRow as error:
                self._bad(str(error), number)
        if not self.requests:
            why = f" (line {min(self.first_bad.values())}: {next(iter(self.malformed))})" if self.malformed else ""
            raise SourceError(f"{shown(self.path)}: no request in this trace{why}")

    def _row(self, line: str | None) -> Mapping[str, Any]:
        if line is None:
            raise BadRow(f"{_TOO_LONG} or not UTF-8")
        if self._columns is None:
            return _json_object(line)
        cells = _cells(line)
        if len(cells) != len(self._columns):
            raise BadRow(f"not {len(self._columns)} columns")
        return dict(zip(self._columns, cells, strict=True))

    def _bad(self, why: str, number: int) -> None:
        self.bad_rows += 1
        self.malformed[why] += 1
        self.first_bad.setdefault(why, number)

    def notes(self) -> list[str]:
        """What whoever uses the figures should know about this file."""
        said = [
            f"malformed rows left out: {count:,} where {why}, the first in line {self.first_bad[why]:,}"
            for why, count in self.malformed.most_common()
        ]
        if self.form.untested:
            said.append(f"the {self.form.title} reader follows the published schema and is untested on real data")
        return said


def open_trace(path: Path | str) -> Trace:
    """The trace in a file, CSV or JSON lines, gzipped or not; the kind is told from its first row.

    Raises SourceError for what is no ordinary file, is unreadable, or is no kind of trace that is known.
    """
    path = Path(path)
    for _, line in _lines(path):
        first = line or ""
        if first.lstrip().startswith("{"):
            try:
                keys = frozenset(_json_object(first))
            except BadRow as error:
                raise SourceError(f"{shown(path)}: line 1: {error}") from None
            return Trace(path, _match(path, JSONL_FORMATS, keys), None)
        columns = _header(path, first)
        return Trace(path, _match(path, CSV_FORMATS, frozenset(columns)), columns)
    raise SourceError(f"{shown(path)}: empty")


def _header(path: Path, line: str) -> tuple[str, ...]:
    try:
        columns = tuple(cell.strip() for cell in _cells(line))
    except BadRow as error:
        raise SourceError(f"{shown(path)}: line 1: {error}") from None
    if len(set(columns)) != len(columns):
        raise SourceError(f"{shown(path)}: a column of the first line stands there twice")
    return columns


def _match(path: Path, formats: tuple[Format, ...], found: frozenset[str]) -> Format:
    for form in formats:
        if form.needs <= found:
            return form
    known = "; ".join(dict.fromkeys(f"{form.name}: {', '.join(sorted(form.needs))}" for form in formats))
    raise SourceError(f"{shown(path)}: no kind of trace that is known by these fields ({known})")


def _json_object(line: str) -> Mapping[str, Any]:
    try:
        found = json.loads(line)
    except (ValueError, RecursionError):
        raise BadRow("not valid JSON") from None
    if not isinstance(found, dict):
        raise BadRow("not a JSON object")
    return found


def _cells(line: str) -> list[str]:
    if '"' not in line:
        return line.split(",")
    try:
        return next(csv.reader([line], strict=True))
    except csv.Error:
        raise BadRow("not valid CSV") from None


def _lines(path: Path) -> Iterator[tuple[int, str | None]]:
    """Numbered lines that are not blank; None for one that is too long or no text."""
    try:
        with _opened(path) as file:
            number = 0
            while raw := file.readline(MAX_ROW_BYTES + 1):
                number += 1
                if len(raw) > MAX_ROW_BYTES:
                    while not raw.endswith(b"\n") and (raw := file.readline(MAX_ROW_BYTES)):
                        pass
                    yield number, None
                    continue
                if number == 1:
                    raw = raw.removeprefix(b"\xef\xbb\xbf")
                try:
                    text = raw.decode("utf-8").strip("\r\n")
                except UnicodeDecodeError:
                    yield number, None
                    continue
                if text.strip():
                    yield number, text
    except (OSError, EOFError, zlib.error) as error:
        raise SourceError(f"{shown(path)}: {reason(error)}") from None


@contextmanager
def _opened(path: Path) -> Iterator[IO[bytes]]:
    with open_regular(path) as file:
        packed = file.read(2) == _GZIP
        file.seek(0)
        if packed:
            with gzip.open(file) as inside:
                yield cast(IO[bytes], inside)
        else:
            yield file
