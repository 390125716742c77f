"""What the tests of pages share: the texts that a sheet draws, those off the paper, and those on top of each other."""

from typing import Any

import pytest
from matplotlib.text import Text

from kvplan.pages import _style as style
from kvplan.pages._write import Report, draw_sheet

TOUCH_PX = 0.75
"""Neighbours may share so much of an edge."""


def drawn(report: Report, place: int, monkeypatch: pytest.MonkeyPatch) -> tuple[Any, list[Text]]:
    """The figure of a sheet and every text that its renderer was given."""
    found: list[Text] = []
    draw = Text.draw

    def noted(self: Text, *args: Any, **kwargs: Any) -> None:
        if self.get_visible() and self.get_text().strip():
            found.append(self)
        draw(self, *args, **kwargs)

    with style.settled(), monkeypatch.context() as patch:
        figure = draw_sheet(report, place)
        patch.setattr(Text, "draw", noted)
        figure.canvas.draw()
    return figure, list(dict.fromkeys(found))


def off_paper(figure: Any, texts: list[Text]) -> list[str]:
    """Texts that the edge of the paper cuts."""
    paper = figure.bbox
    boxes = [(text, text.get_window_extent()) for text in texts]
    return [
        text.get_text()
        for text, box in boxes
        if box.x0 < 0 or box.y0 < 0 or box.x1 > paper.width or box.y1 > paper.height
    ]


def collisions(texts: list[Text]) -> list[tuple[str, str]]:
    """Pairs of texts that overlap."""
    boxes = [(text.get_text(), text.get_window_extent().padded(-TOUCH_PX)) for text in texts]
    return [
        (one, other)
        for place, (one, box) in enumerate(boxes)
        for other, beside in boxes[place + 1 :]
        if box.overlaps(beside)
    ]
