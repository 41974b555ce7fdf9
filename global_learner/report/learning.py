"""Section of learning: what versions are worth, over the updates that made them, and how late updates were."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from global_learner.report.words import change

MOST_BINS = 24
"""Bars that find room beside each other, also on a telephone; the rare late updates share one more."""
_RARE = 0.01


@dataclass(frozen=True, slots=True)
class CurvePoint:
    """What one version is worth.

    Attributes:
        by: cluster to average JCT over the reference's on the same jobs; 1 is as good.
    """

    version: int
    head_step: int
    by: Mapping[str, float]

    @property
    def mean(self) -> float:
        """Geometric, so that every cluster counts the same."""
        return math.exp(math.fsum(map(math.log, self.by.values())) / len(self.by))


def learning_curve(points: Sequence[CurvePoint], reference: str, of: str) -> dict[str, Any] | None:
    """A line per series and one for their mean; None without a score.

    Args:
        reference: what 1 stands for.
        of: what a series is (cluster, replay), and on which jobs.
    """
    if not points:
        return None
    means = [point.mean for point in points]
    finding = ""
    if len(points) > 1:
        first, last = points[0], points[-1]
        finding = f"v{last.version} needs {change(means[-1] / means[0], fine=True)} {_than(means)} v{first.version}"
    return {
        "reference": reference,
        "of": of,
        "finding": finding,
        "series": sorted({name for point in points for name in point.by}),
        "points": [
            {"version": point.version, "head_step": point.head_step, "mean": mean, "by": dict(point.by)}
            for point, mean in zip(points, means, strict=True)
        ],
    }


def _than(means: Sequence[float]) -> str:
    return "as" if "as much" in change(means[-1] / means[0]) else "than"


def staleness_histogram(counts: Mapping[str, Mapping[int, int]], of: str) -> dict[str, Any] | None:
    """Bars of equal width in head steps, and one for the latest hundredth if that is far away; None without updates.

    Args:
        counts: cluster to staleness to updates.
        of: which updates these are, for the caption.
    """
    every: Counter[int] = Counter()
    for by_staleness in counts.values():
        every.update(dict(by_staleness))
    total = every.total()
    if not total:
        return None
    oldest = max(steps for steps, count in every.items() if count)
    width = _quantile(every, total, 1.0 - _RARE) // MOST_BINS + 1
    beyond = (_quantile(every, total, 1.0 - _RARE) // width + 1) * width
    edges = [(first, first + width - 1) for first in range(0, beyond, width)]
    if oldest >= beyond:
        edges.append((beyond, oldest))
    return {
        "of": of,
        "total": total,
        "oldest": oldest,
        "median": _quantile(every, total, 0.5),
        "clusters": sorted(cluster for cluster, by_staleness in counts.items() if any(by_staleness.values())),
        "bins": [
            {
                "from": first,
                "to": last,
                "rest": first == beyond,
                "by": {
                    cluster: count
                    for cluster, by_staleness in sorted(counts.items())
                    if (count := sum(n for steps, n in by_staleness.items() if first <= steps <= last))
                },
            }
            for first, last in edges
        ],
    }


def _quantile(every: Counter[int], total: int, share: float) -> int:
    """The least staleness that this share of the updates does not exceed."""
    passed = 0
    for steps in sorted(every):
        passed += every[steps]
        if passed >= share * total:
            return steps
    raise AssertionError("all updates together are the whole")
