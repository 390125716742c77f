"""Panels at fixed places, axes in tokens and GiB, and labels beside what they name."""

from collections.abc import Iterable, Sequence

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FixedLocator, FuncFormatter, LogLocator, NullLocator

from kvplan.pages import _style as style
from kvplan.pages._frame import BOTTOM_PT, ROOM_PT, TOP_PT
from kvplan.pages._text import shorten, spread
from kvplan.units import GIB, format_tokens

_LEFT_PT, _UNDER_PT, _OVER_PT = 46.0, 34.0, 20.0


def panels(
    figure: Figure, rows: int, columns: int, *, label_pt: float = 84.0, left_pt: float = _LEFT_PT,
    top_pt: float = TOP_PT, bottom_pt: float = BOTTOM_PT,
) -> list[Axes]:  # fmt: skip
    """rows × columns axes that fill the page; each keeps `label_pt` free at its right for direct labels."""
    width, height = ROOM_PT / columns, (top_pt - bottom_pt) / rows
    found = []
    for place in range(rows * columns):
        row, column = divmod(place, columns)
        box = (
            (style.MARGIN_PT + column * width + left_pt) / style.WIDTH_PT,
            (top_pt - (row + 1) * height + _UNDER_PT) / style.HEIGHT_PT,
            (width - left_pt - label_pt) / style.WIDTH_PT,
            (height - _UNDER_PT - _OVER_PT) / style.HEIGHT_PT,
        )
        found.append(figure.add_axes(box))
    return found


def column(
    figure: Figure, rows: int, which: int, *, label_pt: float = 112.0, left_pt: float = _LEFT_PT,
    keep: Sequence[int] | None = None,
) -> list[Axes]:  # fmt: skip
    """So many panels above each other in the left (0) or right (1) half of the page; of them, those to `keep`."""
    found = panels(figure, rows, 2, label_pt=label_pt, left_pt=left_pt)
    kept = [2 * row + which for row in range(rows) if keep is None or row in keep]
    for place, axes in enumerate(found):
        if place not in kept:
            axes.remove()
    return [found[place] for place in kept]


def size_pt(axes: Axes) -> tuple[float, float]:
    """Width and height of the axes in points."""
    box = axes.get_position()
    return box.width * style.WIDTH_PT, box.height * style.HEIGHT_PT


def token_axis(axes: Axes, low: int, high: int, label: str = "context, tokens (K = 1,024)") -> None:
    """A binary-logarithmic x axis with ticks at powers of two that leave room for their labels."""
    axes.set_xscale("log", base=2)
    axes.set_xlim(low, max(high, low + 1))
    powers = [1 << power for power in range(41) if low <= 1 << power <= high]
    most = max(2, int(size_pt(axes)[0] / 34))
    step = -(-len(powers) // most) if powers else 1
    axes.xaxis.set_major_locator(FixedLocator(powers[::-1][::step][::-1]))
    axes.xaxis.set_minor_locator(NullLocator())
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: format_tokens(round(value))))
    axes.set_xlabel(label)


def log_axis(axes: Axes, label: str, low: float, high: float) -> None:
    """A decimal-logarithmic y axis in plain numbers."""
    axes.set_yscale("log")
    axes.set_ylim(low, high)
    few = high < 60 * low
    axes.yaxis.set_major_locator(LogLocator(base=10, subs=(1.0, 2.0, 5.0) if few else (1.0,), numticks=12))
    axes.yaxis.set_minor_locator(NullLocator())
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,.6g}"))
    axes.set_ylabel(label)


def gib(sizes: Iterable[int]) -> list[float]:
    return [size / GIB for size in sizes]


def end_labels(axes: Axes, labels: Sequence[tuple[float, str, str]], size: float = style.SMALL_PT) -> None:
    """(y, text, colour) at the right of the axes, moved apart; what lies outside the axes stands at its edge."""
    if not labels:
        return
    height = size_pt(axes)[1]
    to_display = axes.transData.transform
    box = axes.get_window_extent()
    x_data = axes.get_xlim()[1]
    places = [(to_display((x_data, y))[1] - box.y0) / box.height * height for y, _, _ in labels]
    lines = max(text.count("\n") + 1 for _, text, _ in labels)
    half = lines * size * 0.6
    for place, (_, text, color) in zip(spread(places, lines * size * 1.35, half, height - half), labels, strict=True):
        axes.annotate(
            text, (1.0, place / height), xycoords="axes fraction", xytext=(5, 0), textcoords="offset points",
            fontsize=size, color=color, va="center", ha="left", annotation_clip=False, linespacing=1.15,
        )  # fmt: skip


def title(axes: Axes, text: str, room_pt: float | None = None) -> None:
    """A panel's title, shortened to the panel and what lies at its right."""
    room = size_pt(axes)[0] + (60.0 if room_pt is None else room_pt)
    axes.set_title(shorten(text, room, 10.0, bold=True), pad=7)


def dark(color: str) -> str:
    """The colour for text on white: yellow, sky and orange are too light to read."""
    return {style.YELLOW: "#8a8000", style.SKY: "#2b7fae", style.ORANGE: "#a86f00", style.PURPLE: "#a8517f"}.get(
        color, color
    )


def on(color: str) -> str:
    """Black or white, whichever is legible on the colour."""
    red, green, blue = (int(color[place : place + 2], 16) for place in (1, 3, 5))
    return style.INK if 0.299 * red + 0.587 * green + 0.114 * blue > 140 else "#ffffff"


def grid_of(count: int) -> tuple[int, int]:
    """Rows and columns for so many panels."""
    return {1: (1, 1), 2: (1, 2), 3: (1, 3), 4: (2, 2)}.get(count, (2, 3))


def asked(plan_contexts: Sequence[int]) -> list[int]:
    """The first and the last of the lengths asked about."""
    return list(dict.fromkeys((plan_contexts[0], plan_contexts[-1])))
