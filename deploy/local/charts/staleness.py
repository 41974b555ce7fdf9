"""How old the head was that a gradient had been computed at, when it arrived."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from itertools import cycle

from matplotlib.axes import Axes
from matplotlib.ticker import MaxNLocator

from deploy.local.charts.style import CLUSTER_COLOURS

Updates = Mapping[str, Sequence[int]]
"""Cluster to the staleness of each of its applied updates, in head steps."""


def finding(updates: Updates) -> str:
    """What the chart says: how many updates arrived with nobody in between, and the oldest."""
    every = [staleness for values in updates.values() for staleness in values]
    if not every:
        return "No update was applied"
    limit = max(2, len(updates) - 1)
    share = sum(staleness <= limit for staleness in every) / len(every)
    return f"{share:.0%} of {len(every):,} updates were at most {limit} steps old; the oldest {max(every)}"


def draw_staleness(axes: Axes, updates: Updates) -> None:
    """Stacked bars: updates by staleness."""
    counts = {cluster: Counter(values) for cluster, values in updates.items()}
    largest = max((max(count) for count in counts.values() if count), default=0)
    below = [0] * (largest + 1)
    for colour, (cluster, count) in zip(cycle(CLUSTER_COLOURS), counts.items(), strict=False):
        heights = [count[staleness] for staleness in range(largest + 1)]
        axes.bar(range(largest + 1), heights, 0.85, bottom=below, color=colour, label=cluster, zorder=2)
        below = [low + height for low, height in zip(below, heights, strict=True)]
    axes.grid(axis="x", visible=False)
    axes.set_xlim(-0.7, largest + 0.7)
    axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    axes.set_xlabel("staleness: steps the shared policy moved while the gradient was under way")
    axes.set_ylabel("updates")
    axes.set_title(finding(updates))
    axes.legend(fontsize=8.5)
