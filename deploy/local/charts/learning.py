"""What the published versions are worth on workloads that nobody trained on."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import cycle

from matplotlib.axes import Axes

from deploy.local.charts.style import CLUSTER_COLOURS, POLICY_COLOURS
from policy_net.laboratory.report.chart_style import INK

UNSEEN = 0.005
"""A change below half a percent would be called 0%."""


@dataclass(frozen=True, slots=True)
class VersionScore:
    """One version on the held-out workloads; ratios are of average JCT to DRF's on the same jobs."""

    version: int
    head_step: int
    ratio_by_cluster: dict[str, float]

    @property
    def ratio(self) -> float:
        """Mean over the clusters."""
        return sum(self.ratio_by_cluster.values()) / len(self.ratio_by_cluster)


def finding(scores: Sequence[VersionScore]) -> str:
    """What the chart says: the first version against the last."""
    first, last = scores[0], scores[-1]
    word = "less" if last.ratio < first.ratio else "more"
    change = abs(1 - last.ratio / first.ratio)
    if change < UNSEEN:
        return f"On unseen workloads v{last.version} needs as much time as v{first.version}: {last.ratio:.0%} of DRF's"
    return f"On unseen workloads v{last.version} needs {change:.0%} {word} time than v{first.version}"


def draw_learning(axes: Axes, scores: Sequence[VersionScore]) -> None:
    """A line per cluster, and their mean."""
    steps = [score.head_step for score in scores]
    for colour, cluster in zip(cycle(CLUSTER_COLOURS), scores[0].ratio_by_cluster, strict=False):
        ratios = [score.ratio_by_cluster[cluster] for score in scores]
        axes.plot(steps, ratios, color=colour, alpha=0.55, linewidth=1.2, label=cluster)
    axes.plot(steps, [score.ratio for score in scores], color=INK, marker="o", markersize=4, label="mean")
    axes.axhline(1.0, color=POLICY_COLOURS["drf"], linewidth=1.4, linestyle="--", label="DRF")
    for score in (scores[0], scores[-1]):
        axes.annotate(f"v{score.version}", (score.head_step, score.ratio), (0, 8), textcoords="offset points")
    axes.set_xlabel("updates applied to the shared policy")
    axes.set_ylabel("average job completion time, DRF = 1")
    axes.set_title(finding(scores))
    axes.legend(fontsize=8.5, ncols=2)
