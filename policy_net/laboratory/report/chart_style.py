"""Style of all charts: few lines, text readable at half size, and the same bytes from the same figures."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import matplotlib as mpl

mpl.use("Agg")  # No display is needed, and none is looked for.

from matplotlib.axes import Axes

INK = "#2b2f36"
FAINT = "#d9dce1"

_LOOK: Any = {  # matplotlib types the keys as one long Literal
    "font.family": "DejaVu Sans",
    "font.size": 10.0,
    "text.color": INK,
    "text.parse_math": False,  # names from files may hold a $
    "axes.edgecolor": "#8b9097",
    "axes.labelcolor": INK,
    "axes.titlesize": 11.5,
    "axes.titleweight": "bold",
    "axes.titlelocation": "left",
    "axes.titlepad": 12.0,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "axes.axisbelow": True,
    "grid.color": FAINT,
    "grid.linewidth": 0.7,
    "xtick.color": INK,
    "ytick.color": INK,
    "legend.frameon": False,
    "lines.linewidth": 1.8,
    "figure.facecolor": "white",
    "svg.hashsalt": "fedl2",  # else ids in an SVG are drawn at random
}

Draw = Callable[[Axes], None]


@contextmanager
def look() -> Iterator[None]:
    """Matplotlib with this style, and as it was afterwards."""
    with mpl.rc_context(_LOOK), warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Glyph .* missing from")  # a name in a script the font lacks
        yield
