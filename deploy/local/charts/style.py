"""The demo's pictures: a colour per policy and per cluster, in the look that all of fedl2's pictures have."""

from __future__ import annotations

from pathlib import Path

from matplotlib.figure import Figure

from policy_net.laboratory.report.chart_style import Draw, look

DOTS_PER_INCH = 150

POLICY_COLOURS = {"drf": "#b3b8bf", "optimus": "#e0a458", "v1": "#9cc5e3", "learned": "#1d5f9e"}
POLICY_LABELS = {"drf": "DRF", "optimus": "Optimus", "v1": "v1", "learned": "final version"}
CLUSTER_COLOURS = ("#1d5f9e", "#d1495b", "#3c8d5a", "#8a5fa8", "#c98a1b", "#4d6a7a")


def save(path: Path, draw: Draw, size_inches: tuple[float, float] = (7.2, 4.2)) -> Path:
    """Draw one chart into a PNG."""
    with look():
        figure = Figure(figsize=size_inches, layout="constrained")
        draw(figure.add_subplot())
        figure.savefig(path, dpi=DOTS_PER_INCH)
    return path


def save_grid(path: Path, draws: list[Draw], title: str) -> Path:
    """Draw several charts into one PNG, two in a row."""
    with look():
        figure = Figure(figsize=(13.6, 4.1 * ((len(draws) + 1) // 2)), layout="constrained")
        figure.get_layout_engine().set(w_pad=0.18, h_pad=0.14)  # type: ignore[union-attr, call-arg]  # constrained takes both
        figure.suptitle(title, fontsize=14, fontweight="bold", x=0.01, ha="left")
        for index, draw in enumerate(draws):
            draw(figure.add_subplot((len(draws) + 1) // 2, 2, index + 1))
        figure.savefig(path, dpi=110)
    return path
