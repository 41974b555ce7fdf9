"""Pace of polling TrainingJobs: of thousands, those of which something is new come in every step, others in turn.

Only how soon the end of a job's wait is seen depends on it, where nothing else is new: with few jobs at the next step,
as if all were polled; with 2,000 within ten seconds.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass

from cluster_agent.backends.kubernetes.training.step import CoordinatorReport, JobStanding, JobStep
from cluster_agent.backends.kubernetes.training.story.statuses import Granted
from cluster_agent.backends.kubernetes.training.task_pods import TaskPod
from cluster_agent.kubernetes.training.training_job import TrainingJob
from foundation.clocks import Clock
from policy_net.domain import SUSPENDED, Allocation

POLLS_A_SECOND = 200.0
"""At jobs of which nothing is new; each is some tenths of a millisecond."""
STEP_SECONDS = 2.0
"""Longest step: starts of many jobs at once, or a slow server, must not keep the others from being looked at."""
_RESTING = frozenset({JobStanding.QUEUED, JobStanding.SUSPENDED, JobStanding.INVALID})


@dataclass(frozen=True, slots=True)
class _Seen:
    """A job at its last look, when it was at rest."""

    version: str
    pods: tuple[TaskPod, ...]
    status: object
    granted: Granted | None
    at_seconds: float


class JobPace:
    """Says which jobs are polled in a step, in which order; used by one thread."""

    def __init__(self, clock: Clock, step_seconds: float = 1.0, polls_a_second: float = POLLS_A_SECOND) -> None:
        self._clock, self._step_seconds, self._polls_a_second = clock, step_seconds, polls_a_second
        self._seen: dict[str, _Seen] = {}
        self._waiting: set[str] = set()
        self._pause_seconds = 0.0
        self._began = clock()

    def begin(self, jobs: Collection[TrainingJob]) -> list[TrainingJob]:
        """Begin a step; the jobs in the order in which they are polled: first those that the last one left."""
        self._began = self._clock()
        self._pause_seconds = len(jobs) / self._polls_a_second
        uids = {job.uid for job in jobs}
        self._seen = {uid: seen for uid, seen in self._seen.items() if uid in uids}
        ordered = sorted(jobs, key=lambda job: (job.uid not in self._waiting, job.created, job.namespace, job.name))
        self._waiting = set()
        return ordered

    def is_over(self, left: Iterable[TrainingJob]) -> bool:
        """Whether the step has taken long enough; the jobs that are left come first in the next one."""
        if self._clock() - self._began < STEP_SECONDS:
            return False
        self._waiting = {job.uid for job in left}
        return True

    def is_at_rest(
        self, job: TrainingJob, pods: Iterable[TaskPod], job_report: CoordinatorReport | None, granted: Granted | None
    ) -> bool:
        """Whether nothing about a job is new, and it was polled not long ago."""
        if self._pause_seconds <= self._step_seconds:
            return False
        seen = self._seen.get(job.uid)
        if seen is None or self._clock() - seen.at_seconds >= self._pause_seconds:
            return False
        return (seen.version, seen.pods, seen.status, seen.granted) == (
            job.version,
            tuple(pods),
            _status_of(job_report),
            granted,
        )

    def note(
        self,
        job: TrainingJob,
        pods: Iterable[TaskPod],
        job_report: CoordinatorReport | None,
        granted: Granted | None,
        step: JobStep,
        desired: Allocation,
    ) -> None:
        """A job, which is to have this size, was polled."""
        if self._pause_seconds > self._step_seconds and _rests(job, job_report, step, desired):
            self._seen[job.uid] = _Seen(job.version, tuple(pods), _status_of(job_report), granted, self._clock())
        else:
            self._seen.pop(job.uid, None)


def _rests(job: TrainingJob, job_report: CoordinatorReport | None, step: JobStep, desired: Allocation) -> bool:
    """Whether there was nothing to do about a job, and will not be until something changes, or time passes."""
    if step.create or step.delete or step.report or step.ask is not None or job.queue or job.deleting:
        return False
    if job.outcome:
        return True
    if step.standing is JobStanding.RUNNING:
        return job_report is not None and job_report.status.size == job_report.status.target
    return step.standing in _RESTING and desired == SUSPENDED


def _status_of(job_report: CoordinatorReport | None) -> object:
    """What a coordinator said, without how far the job is."""
    if job_report is None:
        return None
    status = job_report.status
    return status.phase, status.size, status.target, status.wanted, status.leaving, status.requests, job_report.doubt
