"""The learning curve: what versions are worth, over the updates that made them."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from global_learner.report.replays import CurvePoint
from global_learner.report.words import change


def learning_curve(points: Sequence[CurvePoint], reference: str, of: str) -> dict[str, Any] | None:
    """A line per series and one for their mean; None without a score.

    Args:
        reference: what 1 stands for.
        of: what a series is (cluster, replay), and on which jobs.
    """
    if not points:
        return None
    means = [math.exp(math.fsum(map(math.log, point.by.values())) / len(point.by)) for point in points]
    finding = ""
    if len(points) > 1:
        first, last = points[0], points[-1]
        finding = f"v{last.version} needs {change(means[-1] / means[0])} {_than(means)} v{first.version}"
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
