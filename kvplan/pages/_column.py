"""A page of text: lines with a label, and tables, set from the top down."""

from collections.abc import Sequence
from dataclasses import dataclass

from matplotlib.figure import Figure

from kvplan.pages import _style as style
from kvplan.pages._frame import BOTTOM_PT, ROOM_PT, TOP_PT, put, rule
from kvplan.pages._text import width_pt, wrap

GAP_PT = 12.0
_LEADING = 1.38
_LEAST_PT = 30.0


@dataclass
class Column:
    """A column of text on a figure; `y_pt` is the next baseline."""

    figure: Figure
    x_pt: float = style.MARGIN_PT
    room_pt: float = ROOM_PT
    y_pt: float = TOP_PT
    bottom_pt: float = BOTTOM_PT

    def left_lines(self, size: float) -> int:
        """Lines of this size that still fit."""
        return max(0, int((self.y_pt - self.bottom_pt) / (size * _LEADING)) + 1)

    def heading(self, text: str, size: float = 10.0) -> None:
        put(self.figure, self.x_pt, self.y_pt, text, size, bold=True)
        self.y_pt -= size * _LEADING + 2

    def space(self, points: float) -> None:
        self.y_pt -= points

    def lines(self, text: str, size: float = style.BODY_PT, *, color: str = style.INK, mono: bool = False) -> None:
        """Wrapped text over the whole column."""
        for line in wrap(text, self.room_pt, size, mono=mono):
            put(self.figure, self.x_pt, self.y_pt, line, size, color=color, mono=mono)
            self.y_pt -= size * _LEADING

    def labelled(self, label: str, text: str, indent_pt: float, size: float = style.BODY_PT) -> None:
        """A label in grey, and text that is wrapped beside it."""
        put(self.figure, self.x_pt, self.y_pt, label, size, color=style.MUTED)
        for line in wrap(text, self.room_pt - indent_pt, size):
            put(self.figure, self.x_pt + indent_pt, self.y_pt, line, size)
            self.y_pt -= size * _LEADING

    def table(
        self, columns: Sequence[str], rows: Sequence[Sequence[str]], *, size: float = style.SMALL_PT, numeric: int = 0,
        shares: Sequence[float] = (),
    ) -> int:  # fmt: skip
        """A table of as many rows as fit with a line below them; returns how many.

        The last `numeric` columns are flush right. Columns are as wide as their cells, the widest wrapped where that is
        too much, or have `shares` of the width.
        """
        widths = [share * (self.room_pt - GAP_PT * (len(columns) - 1)) for share in shares] or self._widths(
            columns, rows, size
        )
        self._row(columns, widths, size, numeric, bold=True)
        rule(self.figure, self.y_pt + size * 0.75, self.x_pt, self.x_pt + self.room_pt)
        self.y_pt -= 2
        for number, row in enumerate(rows):
            lines = max(len(wrap(cell, width, size)) for cell, width in zip(row, widths, strict=True))
            if lines >= self.left_lines(size):
                return number
            self._row(row, widths, size, numeric)
        return len(rows)

    def _widths(self, columns: Sequence[str], rows: Sequence[Sequence[str]], size: float) -> list[float]:
        """As wide as the cells, heads in two lines where one is too much; then from the widest, then from the next."""
        heads = [width_pt(name, size, bold=True) for name in columns]
        cells = [max((width_pt(row[place], size) for row in rows), default=0.0) for place in range(len(columns))]
        if sum(map(max, heads, cells)) + GAP_PT * (len(heads) - 1) > self.room_pt:
            heads = [_halved(name, size) for name in columns]
        widths = list(map(max, heads, cells))
        while (over := sum(widths) + GAP_PT * (len(widths) - 1) - self.room_pt) > 0.01:
            first, second = sorted(widths, reverse=True)[:2] if len(widths) > 1 else (widths[0], 0.0)
            widest = widths.index(first)
            widths[widest] = max(first - over, second - 1.0, _LEAST_PT)
            if first <= _LEAST_PT:
                break
        return widths

    def _row(
        self, cells: Sequence[str], widths: Sequence[float], size: float, numeric: int, *, bold: bool = False
    ) -> None:
        x, height = self.x_pt, 1
        for place, (cell, width) in enumerate(zip(cells, widths, strict=True)):
            right = place >= len(cells) - numeric
            lines = wrap(cell, width, size, bold=bold)
            for number, line in enumerate(lines):
                y = self.y_pt - number * size * 1.25
                put(self.figure, x + width if right else x, y, line, size, bold=bold, right=right)
            x, height = x + width + GAP_PT, max(height, len(lines))
        self.y_pt -= (height - 1) * size * 1.25 + size * _LEADING


def _halved(head: str, size: float) -> float:
    """The least width at which a head has two lines."""
    words = head.split()
    parts = [(" ".join(words[:place]), " ".join(words[place:])) for place in range(1, len(words))] or [(head, "")]
    return min(max(width_pt(part, size, bold=True) for part in pair) for pair in parts)
