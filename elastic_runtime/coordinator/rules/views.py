"""Views of a job: the one that members act on, and the status that people and schedulers read."""

from __future__ import annotations

from dataclasses import replace
from statistics import median

from elastic_runtime.control.messages import JobStatus, MemberReport, Size, TaskStatus
from elastic_runtime.coordinator.rules.job import CoordinatedJob
from elastic_runtime.coordinator.rules.leases import samples_done
from elastic_runtime.coordinator.rules.requests import stall_seconds
from elastic_runtime.coordinator.rules.state import CoordinatorState, Task, TaskState
from elastic_runtime.coordinator.rules.tasks import count_replicated
from elastic_runtime.protocol.plan import ENDED, JobPhase, Plan, TaskRole, View

_STANDS_SECONDS = 10.0
_STANDS_STEPS = 10.0
"""A worker that takes longer at a step than both has no speed; steps of one job differ, by evaluations say."""


def build_view(state: CoordinatorState, number: int) -> View:
    """View of a state: what members have to know."""
    generation, course = state.generation, state.course
    tasks = sorted(state.roster.tasks.values(), key=lambda task: (task.role, task.number))
    return View(
        number=number,
        generation=generation.number,
        phase=course.phase,
        start_step=generation.start_step,
        start_checkpoint=generation.start_checkpoint,
        start_plan=generation.start_plan,
        changes=generation.changes,
        proposal=generation.proposal,
        members=tuple(task.member() for task in tasks if task.live),
        committed=generation.committed,
        substitutes=dict(generation.substitutes),
        initialiser=course.initialiser,
        wanted=tuple(task.name for task in tasks if task.state is TaskState.WANTED),
        leaving=tuple(task.name for task in tasks if task.state is TaskState.LEAVING),
        failure=course.failure,
        lost_servers=generation.lost,
        notice=course.notice,
        ends_at=generation.ends_at,
    )


def status(job: CoordinatedJob, now: float) -> JobStatus:
    """Status at `now`, for people and schedulers."""
    model, course = job.model, job.state.course
    plan = job.plan() if job.is_training else Plan((), ())
    working = job.live_workers() if job.is_training or course.phase in ENDED else []
    reports = [job.report(name) for name in working if job.has_reported(name)]
    step = max(min((report.step for report in reports), default=0), job.durable_step())
    losses = [report.loss for report in reports if report.loss is not None]
    staleness = [job.report(task.name).staleness for task in job.tasks(TaskRole.SERVER) if task.live]
    return JobStatus(
        job=job.settings.job,
        phase=course.phase,
        generation=job.state.generation.number,
        step=step,
        total_steps=job.total_steps(),
        epoch=_samples(job, step) / model.training.samples if model else 0.0,
        total_epochs=float(model.order.epochs) if model else 0.0,
        durable_step=job.durable_step(),
        size=job.size(),
        target=course.target if course.phase is not JobPhase.SUSPENDED else Size(0, 0),
        tasks=tuple(_task(job, task, now) for task in job.tasks() if task.state is not TaskState.GONE),
        requests=tuple(
            replace(row, stall_seconds=max(row.stall_seconds, stall_seconds(job, row.request_id)))
            for row in job.state.requests.rows
        ),
        loss=sum(losses) / len(losses) if losses else None,
        samples_per_second=sum(_speed(job, report, now) for report in reports),
        step_seconds=max((report.step_seconds for report in reports), default=0.0),
        stall_seconds=max((report.stall_seconds for report in reports), default=0.0),
        failure=course.failure,
        samples=_samples(job, step),
        wanted=tuple(task.name for task in job.tasks(None, TaskState.WANTED)),
        leaving=tuple(task.name for task in job.tasks(None, TaskState.LEAVING)),
        staleness=int(median(staleness)) if staleness else 0,
        mode="synchronous" if model is None or model.training.synchronous else "asynchronous",
        replicas=job.settings.replicas,
        blocks=len(plan.owners),
        blocks_with_replica=count_replicated(job) if plan.owners else 0,
        failures=course.failures.total,
        failures_in_a_row=course.failures.in_a_row if job.durable_step() <= course.failures.progress else 0,
        last_failure=course.last_failure,
    )


def _speed(job: CoordinatedJob, report: MemberReport, now: float) -> float:
    """Samples a second of a worker: none of one that stands at its step for many times as long as steps take."""
    stands = job.reports.step_age_seconds(report.task, now) > max(_STANDS_SECONDS, _STANDS_STEPS * report.step_seconds)
    return 0.0 if stands else report.samples_per_second


def _samples(job: CoordinatedJob, step: int) -> int:
    model = job.model
    if model is None:
        return 0
    lent = samples_done(job)
    if lent is not None:
        return lent
    epochs, steps = divmod(step, model.order.steps_per_epoch)
    return epochs * model.training.samples + min(steps * model.training.global_batch, model.training.samples)


def _task(job: CoordinatedJob, task: Task, now: float) -> TaskStatus:
    if not task.live:
        return TaskStatus(task.name, task.role, "wanted")
    plan = job.plan()
    report = job.report(task.name)
    names = plan.workers if task.role is TaskRole.WORKER else plan.servers
    state = "leaving" if task.state is TaskState.LEAVING else "member" if task.name in names else "registered"
    return TaskStatus(
        task=task.name,
        role=task.role,
        state=state,
        step=report.step,
        samples_per_second=_speed(job, report, now),
        report_age_seconds=job.reports.silent_seconds(task.name, now),
        step_age_seconds=job.reports.step_age_seconds(task.name, now),
        bytes_sent=report.bytes_sent,
        bytes_received=report.bytes_received,
        owned_bytes=report.owned_bytes,
        stall_seconds=report.stall_seconds,
    )
