"""Style of all charts: few lines, text readable at half size, the same bytes from the same figures; a dark look."""

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

_STYLE: Any = {  # matplotlib types the keys as one long Literal
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

DARK = {
    "#ffffff": "#1a1f26",
    INK: "#dfe3e8",
    FAINT: "#343b44",
    "#8b9097": "#8b9097",
    "#868c94": "#98a1ab",
    "#1d5f9e": "#6db3f2",
    "#d98b2b": "#e5a04a",
    "#3c8d5a": "#63c08a",
    "#8a5fa8": "#c29ae0",
    "#b34757": "#f07f8e",
    "#4d8a94": "#74bcc8",
}
"""Each colour of a chart, in the dark."""

Draw = Callable[[Axes], None]


@contextmanager
def look() -> Iterator[None]:
    """Matplotlib with this style; restored afterwards."""
    with mpl.rc_context(_STYLE), warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Glyph .* missing from")  # a name in a script the font lacks
        yield


def in_both_lights(svg: str) -> str:
    """An SVG of Matplotlib's with rules for pages with a dark look."""
    rules = "".join(
        f'[style*="{name}: {light}"]{{{name}:{dark}!important}}'
        for light, dark in DARK.items()
        for name in ("fill", "stroke")
    )
    # Dots that were drawn as a picture cannot be told their colours one by one.
    rules += "image{filter:brightness(1.6)}"
    return svg.replace("</style>", f"@media (prefers-color-scheme:dark){{{rules}}}</style>", 1)
