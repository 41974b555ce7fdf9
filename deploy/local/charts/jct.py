"""How long jobs took, per cluster and policy, on the same jobs."""

from __future__ import annotations

from collections.abc import Mapping
from math import exp, log

from matplotlib.axes import Axes

from deploy.local.charts.style import POLICY_COLOURS, POLICY_LABELS

Figures = Mapping[str, Mapping[str, float]]
"""Cluster to policy to average JCT in seconds."""


def finding(figures: Figures) -> str:
    """What the chart says: the final version against DRF, as the geometric mean over clusters."""
    ratio = exp(sum(log(by["learned"] / by["drf"]) for by in figures.values()) / len(figures))
    word = "less" if ratio < 1 else "more"
    return f"Jobs take {abs(1 - ratio):.0%} {word} time under the final version than under DRF"


def draw_jct(axes: Axes, figures: Figures) -> None:
    """Grouped bars, in hours."""
    width = 0.8 / len(POLICY_COLOURS)
    for offset, policy in enumerate(POLICY_COLOURS):
        hours = [by[policy] / 3600 for by in figures.values()]
        places = [index + (offset - (len(POLICY_COLOURS) - 1) / 2) * width for index in range(len(figures))]
        bars = axes.bar(
            places, hours, width * 0.92, color=POLICY_COLOURS[policy], label=POLICY_LABELS[policy], zorder=2
        )
        axes.bar_label(bars, fmt="%.1f", fontsize=8, padding=2)
    axes.set_xticks(range(len(figures)), list(figures))
    axes.grid(axis="x", visible=False)
    axes.tick_params(axis="x", length=0)
    axes.set_ylabel("average job completion time [h]")
    axes.margins(y=0.18)
    axes.set_title(finding(figures))
    axes.legend(ncols=4, fontsize=8.5, loc="upper left", borderaxespad=0.2)
