"""Situation of a job that trains: all that its next change is decided by, read once and then not again.

A decision is made from it alone, and carried out afterwards; in between nothing moves. Only the timers run on: asking
one is what begins it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from elastic_runtime.control.messages import RequestState, Size
from elastic_runtime.coordinator.rules.changes import last_step, next_clock
from elastic_runtime.coordinator.rules.job import CoordinatedJob, Timers
from elastic_runtime.coordinator.rules.requests import queued, running
from elastic_runtime.coordinator.rules.settings import CoordinatorSettings
from elastic_runtime.coordinator.rules.state import JobModel, Purpose, TaskState
from elastic_runtime.coordinator.rules.tasks import spares
from elastic_runtime.protocol.plan import Plan, TaskRole


@dataclass(frozen=True, slots=True)
class JobSituation:
    """One look at a job that trains, without a halt, a proposal or a moving change.

    Attributes:
        settings: of the job.
        timers: of the job.
        now: seconds, monotonic.
        model: what is trained; None until it is known.
        target: the size that the job is to have.
        purpose: of the newest change.
        running: the request that is being carried out.
        queued: the oldest that waits.
        plan: the newest, with the other holders in the place of lost servers.
        named: likewise with the lost ones.
        working: live workers of the plan, each once; also those that were told to leave.
        live: tasks that were not told to leave, the oldest first, without the spares.
        coming: tasks that were wanted and have not registered, likewise.
        warm: live tasks that can be named in a plan.
        draining: live tasks that want to go, without the spares.
        spares: tasks that want to go, and have no part in the training.
        next_number: of the next new task.
        clock: a step that the next change can begin with.
        writing: whether a checkpoint is being written.
    """

    settings: CoordinatorSettings
    timers: Timers
    now: float
    model: JobModel | None
    target: Size
    purpose: Purpose
    running: RequestState | None
    queued: RequestState | None
    plan: Plan
    named: Plan
    working: tuple[str, ...]
    live: Mapping[TaskRole, tuple[str, ...]]
    coming: Mapping[TaskRole, tuple[str, ...]]
    warm: frozenset[str]
    draining: tuple[str, ...]
    spares: tuple[str, ...]
    next_number: Mapping[TaskRole, int]
    clock: int
    writing: bool

    @property
    def is_asynchronous(self) -> bool:
        """Whether workers train each for itself."""
        return self.model is not None and not self.model.training.synchronous

    @property
    def size(self) -> Size:
        """What the plan consists of."""
        return Size(len(self.plan.servers), len(self.working))

    @property
    def steps_left(self) -> int | None:
        """From the clock on; None in asynchronous training, which has no common step."""
        total = self.model.total_steps if self.model is not None else None
        return None if total is None else total - self.clock


def situation_of(job: CoordinatedJob, now: float) -> JobSituation | None:
    """The situation; None until all workers have done a step since the last change, as a new one has no vote before."""
    working, generation = job.live_workers(), job.state.generation
    if not job.is_asynchronous:  # there nobody votes
        changes = generation.changes
        least = last_step(changes[-1]) + 1 if changes else generation.start_step
        if not all(job.has_reported(name) and job.report(name).step >= least for name in working):
            return None
    plan = job.plan()
    free = spares(job, (*plan.workers, *plan.servers))
    live = {role: tuple(name for name in job.live(role) if name not in free) for role in TaskRole}
    staying = [name for role in TaskRole for name in live[role]]
    coming = {role: tuple(task.name for task in job.tasks(role, TaskState.WANTED)) for role in TaskRole}
    # A worker has tried the model; a server has come to this generation.
    warm = [name for name in live[TaskRole.WORKER] if job.reports.of(name).ready]
    warm += [name for name in live[TaskRole.SERVER] if job.report(name).ready]
    return JobSituation(
        settings=job.settings,
        timers=job.timers,
        now=now,
        model=job.model,
        target=job.state.course.target,
        purpose=generation.purpose,
        running=running(job),
        queued=queued(job),
        plan=plan,
        named=job.named(),
        working=tuple(working),
        live=live,
        coming=coming,
        warm=frozenset(warm),
        draining=tuple(name for name in staying if job.reports.of(name).draining),
        spares=free,
        next_number=job.state.roster.next_number,
        clock=next_clock(job, now),
        writing=job.state.checkpoints.pending is not None,
    )
