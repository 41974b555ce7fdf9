"""The lessons, judged: every version on windows of later jobs that nobody learned from, against the first version.

Both meet the same jobs with the same models and noise, so that a window's change has little chance in it but for which
window it is; the mean's error is that of its windows.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from deploy.local.evaluation import Task, evaluate
from deploy.local.fleet import PublishedVersion
from deploy.local.lessons.pasts import Past
from global_learner.report.learning import LessonCurve, LessonScore
from policy_net.exchange.spec import SET

NORMAL_95 = 1.96


def judge_lessons(
    pasts: Sequence[Past], versions: Sequence[PublishedVersion], on_progress: Callable[[float], None]
) -> LessonCurve:
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

    def logs(policy: str) -> dict[str, list[float]]:
        """Log ratios of windows, by cluster."""
        found: dict[str, list[float]] = {}
        for cluster, world in windows:
            took, before = (scores[tasks[cluster.name, world, each]].avg_jct_seconds for each in (policy, files[0]))
            found.setdefault(cluster.name, []).append(math.log(took / before))
        return found

    points = [
        lesson_score(version.version, version.head_step, logs(file))
        for version, file in zip(versions, files, strict=True)
    ]
    shipped = lesson_score(0, 0, logs(SET)).mean
    return LessonCurve(points, len(windows), sum(cluster.jobs for cluster, _ in windows), shipped)


def lesson_score(version: int, head_step: int, logs: Mapping[str, Sequence[float]]) -> LessonScore:
    """What a version is worth.

    Args:
        logs: of average JCT over the first version's in each window, by cluster.
    """
    every = [log for of_cluster in logs.values() for log in of_cluster]
    mean = math.fsum(every) / len(every)
    spread = math.fsum((log - mean) ** 2 for log in every) / (len(every) - 1) if len(every) > 1 else 0.0
    reach = NORMAL_95 * math.sqrt(spread / len(every))
    by = {cluster: math.exp(math.fsum(values) / len(values)) for cluster, values in logs.items()}
    ratio = math.exp(mean)
    return LessonScore(version, head_step, ratio, ratio - reach, ratio + reach, by)


def lessons_json(lessons: LessonCurve) -> dict[str, Any]:
    """As `summary.json` has it: changes of average JCT, as fractions; −0.01 is 1% less."""
    last = lessons.scores[-1]
    return {
        "windows": lessons.windows,
        "jobs": lessons.jobs,
        "updates": last.head_step,
        "learned_mean": last.mean - 1.0,
        "learned_ci95": [last.low - 1.0, last.high - 1.0],
        "points": [
            {"version": score.version, "head_step": score.head_step, "mean": score.mean - 1.0,
             "error": (score.high - score.low) / (2 * NORMAL_95),
             "by": {cluster: ratio - 1.0 for cluster, ratio in score.by.items()}}
            for score in lessons.scores
        ],
    }  # fmt: skip
