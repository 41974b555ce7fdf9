"""Gang of an all-reduce job: its pods as they are now, and how they ended; pure.

Ranks are of use together or not at all. Each pod says which gang it is of, and how many ranks that has.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from cluster_agent.backends.kubernetes.training.task_pods import TaskPod
from cluster_agent.kubernetes.resources import Json, as_dict
from cluster_agent.kubernetes.training.manifests import FIRST_RANK, pod_name
from cluster_agent.kubernetes.training.training_job import TrainingJob
from foundation.backoff import Failures
from foundation.text import describe_end

FINISHED: Final = "finished:"
STOPPED: Final = "stopped:"
"""How the last words begin of a rank whose job is done, and of one that stopped with the others after a checkpoint."""
_LOST = "lost the others"
"""Of the words of a rank whose peer was gone first."""
_RANK = re.compile(r"worker-(0|[1-9][0-9]?)")
_FIRST_PAUSE_SECONDS, _LONGEST_PAUSE_SECONDS, _MOST_DOUBLINGS = 10.0, 600.0, 10


@dataclass(frozen=True, slots=True)
class Gang:
    """The pods of a job that are there, by rank; at least one.

    Attributes:
        number: of the gang; of pods of several gangs, the highest.
        world: how many ranks it has.
    """

    pods: tuple[TaskPod, ...]
    number: int
    world: int

    @property
    def is_one(self) -> bool:
        """Whether all pods say that they are of the same gang, and one that has their ranks."""
        same = all((pod.gang, pod.world) == (self.number, self.world) for pod in self.pods)
        return same and all(rank_of(pod) < self.world for pod in self.pods)

    @property
    def missing(self) -> tuple[str, ...]:
        """Ranks without a pod."""
        there = {pod.task for pod in self.pods}
        return tuple(task for task in tasks_of(self.world) if task not in there)

    @property
    def pending(self) -> tuple[TaskPod, ...]:
        """Pods that do not run yet."""
        return tuple(pod for pod in self.pods if pod.phase == "Pending")

    @property
    def first(self) -> TaskPod | None:
        """The pod of rank 0."""
        return next((pod for pod in self.pods if pod.task == FIRST_RANK), None)

    @property
    def is_going(self) -> bool:
        """Whether a rank is told to end, or has stopped: all others do likewise."""
        stopped = (pod.ended and (pod.disrupted or pod.last_words.startswith(STOPPED)) for pod in self.pods)
        return any(stopped) or any(pod.deleting for pod in self.pods)

    @property
    def is_done(self) -> bool:
        """Whether every rank came to the end of the training: the first one says so, or nobody told any to stop."""
        first = self.first
        if first is None or not all(_ended_well(pod) for pod in self.pods):
            return False
        return first.last_words.startswith(FINISHED) or not self.missing

    @property
    def is_finishing(self) -> bool:
        """Whether a rank has come to the end, and others still work with the model."""
        return any(_ended_well(pod) for pod in self.pods)

    @property
    def failed(self) -> tuple[TaskPod, ...]:
        """Ranks that ended badly, and not because they were told to; the one that tells most comes first."""
        found = [pod for pod in self.pods if pod.ended and pod.exit_code != 0 and not pod.deleting]
        return tuple(sorted(found, key=lambda pod: (_LOST in pod.last_words, pod.ended_at or "~", rank_of(pod))))

    @property
    def left(self) -> tuple[TaskPod, ...]:
        """Pods that nobody has told to go."""
        return tuple(pod for pod in self.pods if not pod.deleting)


def gang_of(job: TrainingJob, pods: Iterable[TaskPod]) -> Gang | None:
    """The job's own pods; None where there is none.

    Labels can be copied; the name is one pod's.
    """
    ours = [
        pod
        for pod in pods
        if pod.owner == job.uid and pod.name == pod_name(job, pod.task) and _RANK.fullmatch(pod.task)
    ]
    if not ours:
        return None
    number = max(pod.gang for pod in ours)
    world = max(pod.world for pod in ours if pod.gang == number)
    return Gang(tuple(sorted(ours, key=rank_of)), number, world)


def rank_of(pod: TaskPod) -> int:
    """Its number."""
    return int(pod.task.rpartition("-")[2])


def tasks_of(world: int) -> tuple[str, ...]:
    """The names of so many ranks."""
    return tuple(f"worker-{rank}" for rank in range(world))


def end_line(pod: TaskPod) -> str:
    """How a rank ended, in a line."""
    words = pod.last_words
    if words.startswith((FINISHED, STOPPED)):
        words = "after it had trained; see its log"
    return f"{pod.task} {describe_end(pod.exit_code)}" + (f": {words}" if words else "")


def _ended_well(pod: TaskPod) -> bool:
    """Whether it came to its own end. One that was told to end did so only where it says it."""
    if not pod.ended or pod.exit_code != 0 or pod.last_words.startswith(STOPPED):
        return False
    return not (pod.deleting or pod.disrupted) or pod.last_words.startswith(FINISHED)


@dataclass(frozen=True, slots=True)
class RankNotes:
    """What the status keeps of a job's gangs, for whoever looks after it next.

    Attributes:
        gang: number of the newest.
        failures: in a row, without progress in between.
        failed_gang: number of the gang whose failure was counted last.
        samples: that were trained then.
        reason: how it failed, in a line.
        total: failures in the job's life; `recent`: each within ten minutes of the one before.
    """

    gang: int = 0
    failures: int = 0
    failed_gang: int = 0
    samples: int = 0
    failed_unix_seconds: float = 0.0
    reason: str = ""
    total: int = 0
    recent: int = 0

    @property
    def again_unix_seconds(self) -> float:
        """When another gang may follow: each failure soon after another, or without progress, doubles the pause."""
        if not self.failures or self.failed_gang != self.gang:
            return -math.inf
        doublings = min(max(self.failures, self.recent) - 1, _MOST_DOUBLINGS)
        return self.failed_unix_seconds + min(_FIRST_PAUSE_SECONDS * 2.0**doublings, _LONGEST_PAUSE_SECONDS)

    def content(self) -> Json:
        """As it stands in the status."""
        return {
            "gang": self.gang,
            "failures": self.failures,
            "failedGang": self.failed_gang,
            "samples": self.samples,
            "failedUnixSeconds": int(self.failed_unix_seconds),
            "reason": self.reason,
            "totalFailures": self.total,
            "recentFailures": self.recent,
        }

    def and_another(self, gang: int, samples: int, unix_seconds: float, reason: str) -> RankNotes:
        """One more failure, of this gang."""
        known = Failures(self.failures, self.total, self.recent, self.samples, self.failed_unix_seconds)
        now = known.and_another(samples, unix_seconds)
        newest = max(self.gang, gang)
        return RankNotes(newest, now.in_a_row, gang, samples, unix_seconds, reason, now.total, now.recent)


def notes_of(job: TrainingJob) -> RankNotes:
    """As the status has them; what makes no sense there counts as nothing."""
    stated = as_dict(job.status.get("ranks"))
    return RankNotes(
        _count(stated, "gang"),
        _count(stated, "failures"),
        _count(stated, "failedGang"),
        _count(stated, "samples"),
        float(_count(stated, "failedUnixSeconds")),
        str(stated.get("reason") or ""),
        _count(stated, "totalFailures"),
        _count(stated, "recentFailures"),
    )


def samples_of(job: TrainingJob) -> int:
    """How many were trained, as the status says."""
    return _count(as_dict(job.status.get("progress")), "samples")


def _count(stated: Json, name: str) -> int:
    value = stated.get(name)
    return value if isinstance(value, int) and not isinstance(value, bool) and value >= 0 else 0
