"""What stands around every page: title, subtitle, notes, and a footer with command, version and sources."""

from collections.abc import Sequence

from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from kvplan import __version__
from kvplan.pages import _style as style
from kvplan.pages._text import clean, width_pt, wrap

TOP_PT = style.HEIGHT_PT - 84.0
"""Pages draw from here …"""
BOTTOM_PT = 78.0
"""… down to here. Between it and the footer stand the notes."""
ROOM_PT = style.WIDTH_PT - 2 * style.MARGIN_PT
_MOST_NOTES, _MOST_FOOT = 2, 2


def put(
    figure: Figure, x_pt: float, y_pt: float, text: str, size: float = style.BODY_PT, *, color: str = style.INK,
    bold: bool = False, mono: bool = False, right: bool = False,
) -> None:  # fmt: skip
    """One line of text, its baseline at (x, y) in points from the lower left corner."""
    figure.text(
        x_pt / style.WIDTH_PT, y_pt / style.HEIGHT_PT, text, fontsize=size, color=color,
        fontweight="bold" if bold else "normal", fontfamily="monospace" if mono else "sans-serif",
        ha="right" if right else "left", va="baseline",
    )  # fmt: skip


def rule(figure: Figure, y_pt: float, x_pt: float = style.MARGIN_PT, to_pt: float | None = None) -> None:
    """A thin line across the page."""
    ends = (x_pt / style.WIDTH_PT, (to_pt or style.WIDTH_PT - style.MARGIN_PT) / style.WIDTH_PT)
    y = y_pt / style.HEIGHT_PT
    figure.add_artist(Line2D(ends, (y, y), color=style.RULE, linewidth=0.8))


def frame(
    figure: Figure, title: str, subtitle: str, notes: Sequence[str], sources: Sequence[str], command: str, place: str
) -> None:
    """Everything but the page itself. Notes and sources that find no room end in an ellipsis: the JSON holds them."""
    left, size = style.MARGIN_PT, style.FOOT_PT
    put(figure, left, style.HEIGHT_PT - 48, title, style.TITLE_PT, bold=True)
    for line in _cut(wrap(clean(subtitle), ROOM_PT, style.SUBTITLE_PT), 1):
        put(figure, left, style.HEIGHT_PT - 65, line, style.SUBTITLE_PT, color=style.MUTED)
    lines = _cut([line for note in notes for line in wrap(clean(note), ROOM_PT, style.SMALL_PT)], _MOST_NOTES)
    for number, line in enumerate(reversed(lines)):
        put(figure, left, 58 + 10 * number, line, style.SMALL_PT, color=style.MUTED)
    rule(figure, 52)
    last = f"kvplan {__version__}    {place}"
    put(figure, style.WIDTH_PT - left, 41, last, size, color=style.MUTED, right=True)
    room = ROOM_PT - width_pt(last, size) - 12
    typed = _cut(wrap(clean(command), room, size, mono=True), _MOST_FOOT)
    for number, line in enumerate(typed):
        put(figure, left, 41 - 9 * number, line, size, color=style.MUTED, mono=True)
    said = _cut(wrap(clean(f"Sources: {'; '.join(dict.fromkeys(sources))}"), ROOM_PT, size), 4 - len(typed))
    for number, line in enumerate(said if sources else []):
        put(figure, left, 41 - 9 * (len(typed) + number), line, size, color=style.MUTED)


def _cut(lines: list[str], most: int) -> list[str]:
    return lines if len(lines) <= most else [*lines[: most - 1], f"{lines[most - 1][:-2].rstrip()} …"]
