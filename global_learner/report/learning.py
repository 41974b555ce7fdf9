"""Sections of learning: worth of versions over their updates, lessons of recorded pasts, and how late updates were."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from foundation.figures import counted
from global_learner.report.words import against, change

MOST_BINS = 24
"""Bars that find room beside each other, also on a telephone; the rare late updates share one more."""
_RARE = 0.01


@dataclass(frozen=True, slots=True)
class CurvePoint:
    """One version's average JCT over a reference's on the same jobs, by cluster; 1 is as good."""

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
        reference: the scheduler that 1 stands for.
        of: kind of the series (cluster, replay), and their jobs.
    """
    if not points:
        return None
    means = [point.mean for point in points]
    finding = ""
    if len(points) > 1:
        first, last = points[0], points[-1]
        finding = f"v{last.version} needs {against(means[-1] / means[0], f'v{first.version}', fine=True)}"
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


@dataclass(frozen=True, slots=True)
class LessonScore:
    """One version's average JCT over the first version's on the same jobs; 1 is as good.

    Attributes:
        mean: over windows.
        low, high: ends of its 95% interval.
        by: mean by cluster.
    """

    version: int
    head_step: int
    mean: float
    low: float
    high: float
    by: Mapping[str, float]


@dataclass(frozen=True, slots=True)
class LessonCurve:
    """Versions of a fleet that learned from recordings alone.

    Attributes:
        scores: oldest first, from the version that has learned nothing.
        windows: of later jobs, on which all of them are judged; with `jobs` jobs.
        shipped: average JCT of the policy that ships over the first version's.
    """

    scores: Sequence[LessonScore]
    windows: int
    jobs: int
    shipped: float


def lesson_section(curve: LessonCurve | None) -> dict[str, Any] | None:
    """Section of lessons; None without any."""
    if curve is None:
        return None
    return {
        "finding": lesson_finding(curve),
        "note": _note(curve),
        "series": sorted({name for score in curve.scores for name in score.by}),
        "points": [asdict(score) for score in curve.scores],
    }


def lesson_finding(curve: LessonCurve) -> str:
    """Result of the lessons in a sentence, with how far chance reaches."""
    last = curve.scores[-1]
    if not last.head_step:
        return "no lesson was over in time, and nothing was learned"
    learned = f"{counted(last.head_step, 'update')} from recorded pasts: later jobs take {change(last.mean, fine=True)}"
    if last.low <= 1.0 <= last.high:
        reach = f"{change(last.low, fine=True)} to {change(last.high, fine=True)}"
        return f"{learned}, which chance alone might do (95% interval: {reach})"
    ends = sorted((last.low, last.high), key=lambda ratio: abs(ratio - 1.0))
    return f"{learned} (95% interval: {change(ends[0], fine=True).split(' ')[0]} to {change(ends[1], fine=True)})"


def _note(curve: LessonCurve) -> str:
    clusters, first = len(curve.scores[-1].by), curve.scores[0].version
    return (
        f"Another fleet, of {counted(clusters, 'cluster')}. Its v{first} is the policy set as it ships, with prices and"
        " a model of sessions added at their default values: jobs take"
        f" {against(1.0 / curve.shipped, 'set', fine=True)}."
        " Each cluster replays a recording of its past with slightly changed weights, and sends the learner how that"
        " changes completion times; no data of a job leaves the cluster."
        f" Versions are judged on {counted(curve.windows, 'window')} of later jobs, {curve.jobs:,} in all, on which no"
        " cluster learned. Simulated: a recording does not say what a job trains, so models are drawn."
    )


def staleness_histogram(counts: Mapping[str, Mapping[int, int]], of: str) -> dict[str, Any] | None:
    """Bars of equal width in head steps, and one for the latest hundredth if that is far away; None without updates.

    Args:
        counts: cluster to staleness to updates.
        of: the updates in words, for the caption.
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
