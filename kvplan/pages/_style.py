"""How every page looks: paper, colours that colour-blind readers tell apart (Okabe and Ito), and fixed settings."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import matplotlib

PAPER_IN = (11.69, 8.27)
"""A4 on its side."""
WIDTH_PT, HEIGHT_PT = (72 * side for side in PAPER_IN)
MARGIN_PT = 36.0

INK, MUTED, RULE = "#1a1a1a", "#5f6368", "#d0d3d6"
BLUE, ORANGE, GREEN, VERMILION, PURPLE, SKY, YELLOW = (
    "#0072B2", "#E69F00", "#009E73", "#D55E00", "#CC79A7", "#56B4E9", "#F0E442",
)  # fmt: skip
SERIES = (BLUE, VERMILION, GREEN, PURPLE, ORANGE, SKY)
"""One for each of up to six models, in the order in which they were named."""
MARKERS = ("o", "s", "^", "D", "v", "P")
MOST_MODELS = len(SERIES)

KINDS = (BLUE, SKY, GREEN, PURPLE, YELLOW)
STATES = (ORANGE, VERMILION)

TITLE_PT, SUBTITLE_PT, BODY_PT, SMALL_PT, FOOT_PT = 15.0, 9.5, 8.5, 7.5, 6.5

SETTINGS: Any = {
    "font.family": "sans-serif",
    "font.sans-serif": ["DejaVu Sans"],
    "font.monospace": ["DejaVu Sans Mono"],
    "font.size": BODY_PT,
    "text.parse_math": False,  # a dollar sign in a command line is a dollar sign
    "text.color": INK,
    "text.hinting": "none",
    "axes.edgecolor": MUTED,
    "axes.labelcolor": INK,
    "axes.labelsize": BODY_PT,
    "axes.titlesize": 10.0,
    "axes.titleweight": "bold",
    "axes.titlelocation": "left",
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "axes.axisbelow": True,
    "grid.color": RULE,
    "grid.linewidth": 0.5,
    "xtick.labelsize": 8.0,
    "ytick.labelsize": 8.0,
    "xtick.color": MUTED,
    "ytick.color": MUTED,
    "lines.linewidth": 1.6,
    "hatch.linewidth": 0.4,
    "pdf.fonttype": 3,  # subsetting the other kind takes longer than everything else
    "pdf.compression": 9,
    "svg.hashsalt": "kvplan",
}


@contextmanager
def settled() -> Iterator[None]:
    """These settings and no user's own; whoever draws outside keeps theirs."""
    with matplotlib.rc_context():
        matplotlib.rcdefaults()
        matplotlib.rcParams.update(SETTINGS)
        yield
