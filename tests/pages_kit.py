"""What the tests of pages share: the texts that a sheet draws, those off the paper, and those on top of each other."""

from typing import Any

import numpy as np
import pytest
from matplotlib.text import Text

from kvplan.pages import _style as style
from kvplan.pages._write import Report, draw_sheet

TOUCH_PX = 0.75
"""Neighbours may share so much of an edge."""


def drawn(report: Report, place: int, monkeypatch: pytest.MonkeyPatch) -> tuple[Any, list[Text]]:
    """The figure of a sheet and every text that its renderer would be given; nothing is painted."""
    found: list[Text] = []

    def noted(self: Text, *args: Any, **kwargs: Any) -> None:
        if self.get_visible() and self.get_text().strip():
            found.append(self)

    with style.settled(), monkeypatch.context() as patch:
        figure = draw_sheet(report, place)
        patch.setattr(Text, "draw", noted)
        figure.draw_without_rendering()
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
    sides = np.array([text.get_window_extent().padded(-TOUCH_PX).extents for text in texts])
    left, bottom, right, top = (sides[:, side] for side in range(4))
    apart = (left[:, None] > right) | (right[:, None] < left) | (bottom[:, None] > top) | (top[:, None] < bottom)
    pairs = np.argwhere(np.triu(~apart, 1))
    return [(texts[one].get_text(), texts[other].get_text()) for one, other in pairs]
