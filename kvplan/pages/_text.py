"""Text that stays where it belongs: measured, wrapped, shortened in the middle, and moved apart."""

from collections.abc import Sequence
from functools import cache

from matplotlib.font_manager import FontProperties, findfont, get_font
from matplotlib.textpath import text_to_path

from kvplan.units import printable

SLACK = 1.03
"""Renderers round the advance of each glyph, so a line may come out a little wider than measured."""


@cache
def _font(size: float, bold: bool, mono: bool) -> FontProperties:
    family = "DejaVu Sans Mono" if mono else "DejaVu Sans"
    return FontProperties(family=family, size=size, weight="bold" if bold else "normal")


@cache
def _advance_pt(char: str, size: float, bold: bool, mono: bool) -> float:
    return float(
        text_to_path.get_text_width_height_descent(f"{char}{char}|", _font(size, bold, mono), False)[0]
    ) - float(text_to_path.get_text_width_height_descent(f"{char}|", _font(size, bold, mono), False)[0])


def width_pt(text: str, size: float, *, bold: bool = False, mono: bool = False) -> float:
    """Width of one line in points, its characters beside each other; kerning only narrows a line."""
    return SLACK * sum(_advance_pt(char, size, bold, mono) for char in text)


@cache
def _drawable(char: str) -> bool:
    return bool(get_font(findfont(_font(8.0, False, False))).get_char_index(ord(char)))


def clean(text: str) -> str:
    """Text with what the font cannot draw as escapes."""
    return "".join(char if _drawable(char) else ascii(char)[1:-1] for char in printable(" ".join(text.split())))


def wrap(text: str, room_pt: float, size: float, *, bold: bool = False, mono: bool = False) -> list[str]:
    """Lines of at most `room_pt`; a word that is wider than that is broken."""
    lines, line = [], ""
    for word in text.split():
        joined = f"{line} {word}".strip()
        if width_pt(joined, size, bold=bold, mono=mono) <= room_pt:
            line = joined
            continue
        lines += [line] if line else []
        while width_pt(word, size, bold=bold, mono=mono) > room_pt and len(word) > 1:
            most = _fitting(word, room_pt, size, bold, mono)
            lines.append(word[:most])
            word = word[most:]
        line = word
    return [*lines, line] if line or not lines else lines


def _fitting(word: str, room_pt: float, size: float, bold: bool, mono: bool) -> int:
    """Characters of the word that fit, at least one."""
    low, high = 1, len(word)
    while low < high:
        middle = (low + high + 1) // 2
        fits = width_pt(word[:middle], size, bold=bold, mono=mono) <= room_pt
        low, high = (middle, high) if fits else (low, middle - 1)
    return low


def shorten(text: str, room_pt: float, size: float, *, bold: bool = False) -> str:
    """The text itself, or its beginning and end around an ellipsis."""
    if width_pt(text, size, bold=bold) <= room_pt:
        return text
    low, high = 1, len(text) - 1
    while low < high:
        kept = (low + high + 1) // 2
        low, high = (kept, high) if width_pt(_cut(text, kept), size, bold=bold) <= room_pt else (low, kept - 1)
    return _cut(text, low) if low > 1 else "…"


def _cut(text: str, kept: int) -> str:
    return f"{text[: (kept + 1) // 2]}…{text[len(text) - kept // 2 :]}"


def short_names(names: Sequence[str], room_pt: float, size: float, *, bold: bool = False) -> list[str]:
    """Each name shortened to the room, and told apart by its place where that makes two different ones alike."""
    unique = list(dict.fromkeys(names))
    short = [shorten(name, room_pt, size, bold=bold) for name in unique]
    if len(set(short)) < len(unique):
        room = room_pt - width_pt(" (9)", size, bold=bold)
        again = [shorten(name, room, size, bold=bold) for name in unique]
        short = [f"{name} ({place})" if again.count(name) > 1 else name for place, name in enumerate(again, 1)]
    found = dict(zip(unique, short, strict=True))
    return [found[name] for name in names]


def spread(places: Sequence[float], gap: float, low: float, high: float) -> list[float]:
    """The places moved apart to at least `gap` inside low to high, their order kept and each moved little.

    Where they do not fit at that gap, they are spaced evenly.
    """
    if not places:
        return []
    gap = min(gap, (high - low) / max(1, len(places) - 1))
    order = sorted(range(len(places)), key=lambda index: places[index])
    moved = [min(max(places[index], low), high) for index in order]
    for index in range(1, len(moved)):
        moved[index] = max(moved[index], moved[index - 1] + gap)
    moved[-1] = min(moved[-1], high)
    for index in range(len(moved) - 2, -1, -1):
        moved[index] = min(moved[index], moved[index + 1] - gap)
    found = [0.0] * len(places)
    for index, place in zip(order, moved, strict=True):
        found[index] = place
    return found
