"""Timelines of a few jobs, for the learner's report; told only where the cluster's operator wants it.

A job is followed from its arrival to its end. About half of the places are for jobs in the system, the others for those
that were completed last. What is kept does not say whose job it is, nor what it is called: jobs are numbered as they
come, and times count from their submission.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field

from policy_net.domain import SUSPENDED, Allocation, ClusterState, Progress

MOST_POINTS = 96
"""Changes kept of one job; of one that is resized more often the oldest go."""
MOST_INTERVENTIONS = 24
"""Interventions of the guard kept of one job; the oldest go."""


@dataclass(frozen=True, slots=True)
class JobTimeline:
    """One job's life so far; all times in seconds since its submission.

    Attributes:
        sizes: moment, workers, parameter servers; each holds until the next.
        interventions: moment and reason of every time that the guard stepped in while the job was there.
        resizes: changes between two allocations with tasks, also those that are no longer in `sizes`.
        seconds: in the system until now; the completion time of a completed job.
    """

    number: int
    job_type: str
    sizes: tuple[tuple[float, int, int], ...]
    interventions: tuple[tuple[float, str], ...]
    resizes: int
    seconds: float
    completed: bool


@dataclass(slots=True)
class _Life:
    number: int
    job_type: str
    submit_seconds: float
    sizes: deque[tuple[float, int, int]] = field(default_factory=lambda: deque(maxlen=MOST_POINTS))
    interventions: deque[tuple[float, str]] = field(default_factory=lambda: deque(maxlen=MOST_INTERVENTIONS))
    latest: Allocation = SUSPENDED
    resizes: int = 0
    seconds: float = 0.0

    def add(self, time_seconds: float, grant: Allocation) -> None:
        if not self.sizes:
            self.sizes.append((0.0, 0, 0))
        if grant == self.latest:
            return
        self.resizes += SUSPENDED not in (grant, self.latest)
        self.latest = grant
        since = max(time_seconds - self.submit_seconds, 0.0)
        if self.sizes[-1][0] >= since:  # decided at the moment of its submission
            self.sizes.pop()
        self.sizes.append((since, grant.workers, grant.ps))

    def timeline(self, completed: bool) -> JobTimeline:
        return JobTimeline(
            self.number,
            self.job_type,
            tuple(self.sizes),
            tuple(self.interventions),
            self.resizes,
            self.seconds,
            completed,
        )


class JobTimelines:
    """Follows jobs for the decision loop; any thread may read the `latest`, in the order of their arrival."""

    def __init__(self, jobs: int, resumed: bool = False) -> None:
        """Follow at most so many jobs; of a `resumed` agent those that are there first have an unknown past."""
        self._places = jobs - jobs // 2
        self._done: deque[JobTimeline] = deque(maxlen=jobs // 2)
        self._lives: dict[str, _Life] = {}
        self._present: set[str] = set()
        self._begun = not resumed
        self._number = 0
        self._time_seconds = 0.0
        self.latest: tuple[JobTimeline, ...] = ()

    def on_interval(
        self, state: ClusterState, progress: Sequence[Progress], seconds: float, interventions: Sequence[str]
    ) -> None:
        """Note an interval: what the jobs held in it, who ended, and what the guard did about its decision."""
        if state.time_seconds < self._time_seconds:  # another episode: its jobs are others, whatever their names
            self._lives.clear()
            self._present.clear()
        self._time_seconds = state.time_seconds
        self._number_arrivals(state)
        ended = {entry.job_id: entry for entry in progress if entry.finished}
        sizes = {entry.job_id: entry.allocation for entry in progress}
        for job_id, life in list(self._lives.items()):
            life.add(state.time_seconds, sizes.get(job_id, SUSPENDED))
            age = state.time_seconds - life.submit_seconds
            life.interventions.extend((max(age, 0.0), reason) for reason in interventions)
            if job_id in ended:
                life.seconds = age + ended[job_id].paused_seconds + ended[job_id].seconds
                self._done.append(life.timeline(completed=True))
                del self._lives[job_id]
            else:
                life.seconds = age + seconds
        reported = [*self._done, *(life.timeline(completed=False) for life in self._lives.values())]
        self.latest = tuple(sorted(reported, key=lambda timeline: timeline.number))

    def _number_arrivals(self, state: ClusterState) -> None:
        """Number whoever arrived, follow those for whom there is a place, forget whoever is gone."""
        jobs = {job.job_id: job for job in state.jobs}
        for job_id in [job_id for job_id in self._lives if job_id not in jobs]:
            del self._lives[job_id]
        for job_id, job in jobs.items():
            if job_id in self._present:
                continue
            self._number += 1
            if self._begun and len(self._lives) < self._places:
                self._lives[job_id] = _Life(self._number, job.job_type, job.submit_time_seconds)
        self._present = set(jobs)
        self._begun = True
