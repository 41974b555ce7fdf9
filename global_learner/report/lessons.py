"""Section of lessons: what recorded pasts taught, judged on later jobs, with how far chance reaches."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from global_learner.report.words import change, counted


@dataclass(frozen=True, slots=True)
class LessonScore:
    """What one version is worth; all figures are of average JCT over the first version's on the same jobs.

    Attributes:
        mean: over windows; 1 is as good.
        low, high: ends of its 95% interval.
        by: cluster to its own mean.
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
        windows: of later jobs, on which all of them are judged; `jobs` are theirs.
        shipped: what the policy that ships takes over the first version's time.
    """

    scores: Sequence[LessonScore]
    windows: int
    jobs: int
    shipped: float


def lesson_section(curve: LessonCurve | None) -> dict[str, Any] | None:
    """As the page reads it; None without lessons."""
    if curve is None:
        return None
    return {
        "finding": lesson_finding(curve),
        "note": _note(curve),
        "series": sorted({name for score in curve.scores for name in score.by}),
        "points": [
            {
                "version": score.version,
                "head_step": score.head_step,
                "mean": score.mean,
                "low": score.low,
                "high": score.high,
                "by": dict(score.by),
            }
            for score in curve.scores
        ],
    }


def lesson_finding(curve: LessonCurve) -> str:
    """The answer in a sentence, and whether it is one."""
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
    clusters = len(curve.scores[-1].by)
    first = curve.scores[0].version
    return (
        f"Another fleet of {counted(clusters, 'cluster')}, which begins with the policy set as it ships, given prices"
        f" and a model of sessions at their usual numbers (v{first}); this alone makes jobs take"
        f" {change(1.0 / curve.shipped, fine=True)} than it. Each cluster replays a recording of its past under"
        " slightly other weights, and sends what that says of them; nothing of a job leaves it."
        f" Judged on {counted(curve.windows, 'window')} of later jobs, {curve.jobs:,} in all, which nobody learned"
        " from. Simulated: in a recording nobody says what a job trains, so models are drawn."
    )
