"""The lessons, judged: every version on windows of later jobs that nobody learned from, against the first version.

Both meet the same jobs with the same models and noise, so that a window's change has little chance in it but for which
window it is; the mean's error is that of its windows.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from deploy.local.evaluation import Task, evaluate
from deploy.local.fleet import PublishedVersion
from deploy.local.lessons.pasts import Past
from policy_net.exchange.spec import SET

NORMAL_95 = 1.96


@dataclass(frozen=True, slots=True)
class Change:
    """Of average JCT against the first version's on the same jobs, as fractions: −0.01 is 1% less.

    Attributes:
        mean: over windows of all clusters.
        error: its standard error; 0 for the first version, and where there is one window.
        by: means of each cluster.
    """

    mean: float
    error: float
    by: dict[str, float]

    @property
    def interval(self) -> tuple[float, float]:
        """Of 95%."""
        return self.mean - NORMAL_95 * self.error, self.mean + NORMAL_95 * self.error


@dataclass(frozen=True, slots=True)
class LessonPoint:
    """One version."""

    version: int
    head_step: int
    change: Change


@dataclass(frozen=True, slots=True)
class Lessons:
    """What the pasts taught.

    Attributes:
        windows: that judge, of all clusters.
        jobs: of all of them.
        points: oldest first; the first is what others are compared with.
        shipped: the policy as it ships, without what a fleet can learn beside its network.
    """

    windows: int
    jobs: int
    points: tuple[LessonPoint, ...]
    shipped: Change

    def to_json(self) -> dict[str, Any]:
        """As `summary.json` has it."""
        last = self.points[-1].change
        return {
            "windows": self.windows,
            "jobs": self.jobs,
            "updates": self.points[-1].head_step,
            "learned_mean": last.mean,
            "learned_ci95": list(last.interval),
            "points": [
                {"version": point.version, "head_step": point.head_step, "mean": point.change.mean,
                 "error": point.change.error, "by": point.change.by}
                for point in self.points
            ],
        }  # fmt: skip


def judge_lessons(
    pasts: Sequence[Past], versions: Sequence[PublishedVersion], on_progress: Callable[[float], None]
) -> Lessons:
    """Replay every version on every held-out window.

    Raises:
        PolicyNetError: a replay fails.
    """
    files = [str(version.file) for version in versions]
    windows = [(past.later, world) for past in pasts for world in past.later.held_out]
    tasks = {
        (cluster.name, world, policy): Task(cluster, world, policy)
        for cluster, world in windows
        for policy in (SET, *files)
    }
    scores = evaluate(list(tasks.values()), on_progress)

    def change(policy: str) -> Change:
        logs: dict[str, list[float]] = {}
        for cluster, world in windows:
            took, before = (scores[tasks[cluster.name, world, each]].avg_jct_seconds for each in (policy, files[0]))
            logs.setdefault(cluster.name, []).append(math.log(took / before))
        return change_of(logs)

    points = [
        LessonPoint(version.version, version.head_step, change(file))
        for version, file in zip(versions, files, strict=True)
    ]
    return Lessons(len(windows), sum(cluster.jobs for cluster, _ in windows), tuple(points), change(SET))


def change_of(logs: dict[str, list[float]]) -> Change:
    """From log ratios of windows, by cluster."""
    every = [log for of_cluster in logs.values() for log in of_cluster]
    mean = math.fsum(every) / len(every)
    spread = math.fsum((log - mean) ** 2 for log in every) / (len(every) - 1) if len(every) > 1 else 0.0
    by = {cluster: math.expm1(math.fsum(values) / len(values)) for cluster, values in logs.items()}
    return Change(math.expm1(mean), math.sqrt(spread / len(every)), by)
