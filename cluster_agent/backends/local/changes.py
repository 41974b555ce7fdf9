"""Changes of running jobs to the sizes that were decided: what is given back first, then what it is given to.

A task's resources are free once its job's coordinator has acknowledged that it is gone, and not before: nothing is ever
given away twice. A change that is not through in time is given up and told; the others go on.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Protocol

import structlog

from cluster_agent.backends.local.elastic_job import Measured
from elastic_runtime.control.messages import RequestOutcome
from elastic_runtime.protocol.plan import Phase
from policy_net.domain import SUSPENDED, Allocation, Job, Resources

_log = structlog.get_logger()


class RunningJob(Protocol):
    """A job's processes, as `elastic_job` handles them."""

    name: str

    @property
    def launcher(self) -> int | None:
        """Process number of the launcher that looks after it now."""
        ...

    def start(self, allocation: Allocation) -> None:
        """Start it, or go on with it from its last checkpoint."""
        ...

    def measure(self) -> Measured:
        """How it is doing."""
        ...

    def request(self, request_id: str, allocation: Allocation, *, resume: bool) -> str:
        """Ask for another size; why not, empty if it was taken."""
        ...


def demand(job: Job, allocation: Allocation) -> Resources:
    """What an allocation takes."""
    return job.worker_demand * allocation.workers + job.ps_demand * allocation.ps


def peak(job: Job, before: Allocation, after: Allocation) -> Resources:
    """What a job may take at any moment between two sizes: newcomers start before those who go have gone."""
    most = Allocation(max(before.workers, after.workers), max(before.ps, after.ps))
    return demand(job, most)


@dataclass(slots=True)
class Change:
    """One job on its way to another size.

    Attributes:
        asked_seconds: when its coordinator or launcher was asked; None: it waits for room.
        took: the allocation holds.
        given_up: why it will not, in a line.
    """

    job: Job
    before: Allocation
    after: Allocation
    request_id: str
    asked_seconds: float | None = None
    took: bool = False
    given_up: str = ""

    @property
    def over(self) -> bool:
        """Nothing more is waited for."""
        return self.took or bool(self.given_up)

    @property
    def takes(self) -> Resources:
        """What has to be kept for the job now."""
        if self.took:
            return demand(self.job, self.after)
        if self.asked_seconds is None:
            return demand(self.job, self.before)
        return peak(self.job, self.before, self.after)


class Changes:
    """The changes that one decision makes.

    Args:
        changes: of all jobs, also of those that keep what they have.
        jobs: the processes of each.
        capacity: what all jobs together may take.
        limit_seconds: after which a change is given up.
        start_limit_seconds: likewise of a job that starts or goes on, which imports and reads its data first.
        clock: seconds, monotonic.
    """

    def __init__(
        self,
        changes: Mapping[str, Change],
        jobs: Mapping[str, RunningJob],
        capacity: Resources,
        limit_seconds: float,
        start_limit_seconds: float,
        clock: Callable[[], float],
    ) -> None:
        self._changes = changes
        self._jobs = jobs
        self._capacity = capacity
        self._limit_seconds = limit_seconds
        self._start_limit_seconds = start_limit_seconds
        self._clock = clock

    @property
    def pending(self) -> bool:
        """Whether any is not over."""
        return any(not change.over for change in self._changes.values())

    def advance(self) -> list[Change]:
        """Ask for whatever there is room for, and look how far the rest is; those that are over now."""
        over = [change for change in self._changes.values() if not change.over and self._look(change)]
        waiting = [change for change in self._changes.values() if change.asked_seconds is None and not change.over]
        # What gives back more than it takes goes first.
        for change in sorted(waiting, key=lambda one: one.takes != peak(one.job, one.before, one.after)):
            taken = Resources(0)
            for other in self._changes.values():
                taken += peak(change.job, change.before, change.after) if other is change else other.takes
            if taken.fits_in(self._capacity) and self._ask(change):
                over.append(change)
        return over

    def _ask(self, change: Change) -> bool:
        """Ask for it; whether it is over with that."""
        job = self._jobs[change.job.job_id]
        change.asked_seconds = self._clock()
        if change.before == change.after:
            change.took = change.after == SUSPENDED
        elif job.launcher is None:
            try:
                job.start(change.after)
            except OSError as error:
                change.given_up = f"it cannot be started ({error.strerror})"
        else:
            resume = change.before == SUSPENDED
            refused = job.request(change.request_id, change.after, resume=resume)
            if refused:
                _log.warning("resize-refused", job=change.job.job_id, request=change.request_id, line=refused)
                change.given_up = refused
        return change.over

    def _look(self, change: Change) -> bool:
        """Whether a change that was asked for is over."""
        if change.asked_seconds is None:
            return False
        measured = self._jobs[change.job.job_id].measure()
        if change.after == SUSPENDED:
            change.took = measured.phase is Phase.SUSPENDED and measured.held == SUSPENDED
        else:
            change.took = measured.fresh and measured.phase is Phase.RUNNING and measured.held == change.after
        if measured.is_ending:
            change.given_up = "it is at its end"
            return True
        row = next((row for row in measured.requests if row.request_id == change.request_id), None)
        if row is not None and row.state is RequestOutcome.ABORTED:
            change.given_up = row.detail
        limit = self._start_limit_seconds if change.before == SUSPENDED else self._limit_seconds
        if not change.over and self._clock() - change.asked_seconds > limit:
            change.given_up = f"not through after {limit:g} s"
        if change.given_up and not change.took:
            _log.warning("resize-given-up", job=change.job.job_id, wanted=str(change.after), line=change.given_up)
        return change.over
