"""Machine of a coordinator, pure: events in; views, records and orders out. No files, sockets, threads, clock.

Each event is handled and then everything that follows from it is settled, so that a view always shows a state in which
nothing is left to do but to wait. Records (the sections that changed) have to be durable before the view is published.

Source: DL2 §5, whose coordinator sends messages at each step. Deviation: it publishes state; see decision 0025.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, fields, replace
from statistics import median
from typing import Any

from elastic_runtime.control.messages import JobStatus, MemberReport, RequestState, Size, TaskStatus
from elastic_runtime.coordinator.rules import (
    changes,
    checkpointing,
    generations,
    leases,
    members,
    registering,
    requests,
    resizing,
    tasks,
)
from elastic_runtime.coordinator.rules.checkpointing import ManifestOrder, Order, Orders, SearchOrder, SearchResult
from elastic_runtime.coordinator.rules.job import CoordinatedJob
from elastic_runtime.coordinator.rules.leases import samples_done
from elastic_runtime.coordinator.rules.phases import GATHERING, enter
from elastic_runtime.coordinator.rules.registering import Newcomer
from elastic_runtime.coordinator.rules.requests import stall_seconds
from elastic_runtime.coordinator.rules.settings import CoordinatorSettings
from elastic_runtime.coordinator.rules.state import (
    Checkpoints,
    CoordinatorState,
    Course,
    Leases,
    Model,
    Task,
    TaskState,
)
from elastic_runtime.coordinator.rules.tasks import count_replicated
from elastic_runtime.model.sample_leases import SampleLease
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


_MOST_ROUNDS = 1000
"""Settling takes a handful; more is a fault of ours that is to be seen, and not a coordinator that hangs."""
_VIEWS_RESERVED = 1000
"""View numbers that one record covers: after a restart this many at most are skipped."""


@dataclass(frozen=True)
class EventOutcome:
    """What an event led to, in the order in which it has to be done.

    Attributes:
        record: sections to make durable first, by name; empty: none changed.
        view: to be published then; None: the newest holds.
    """

    record: dict[str, Any]
    view: View | None
    orders: list[Order]


def begin(settings: CoordinatorSettings, found: SearchResult | None = None) -> CoordinatorState:
    """The state of a new job, which may begin from an older job's checkpoint."""
    target = Size(settings.servers, settings.workers)
    state = CoordinatorState(
        course=Course(target=target, settled=target, notice=found.line if found is not None else "")
    )
    restored = found.sound if found is not None else None
    if restored is not None:
        state.checkpoints = Checkpoints(durable=((restored.name, restored.step),), book_json=restored.book_json)
        state.leases = Leases(restored.book_json)
        state.model = Model(layout_json=restored.layout_json)
    return state


class CoordinatorMachine:
    """One job's coordinator.

    Args:
        now: seconds in which this process was awake (`AwakeClock`); no event has an earlier one than the one before.
        state: what an earlier coordinator of this job recorded, or that of a new job (`begin`).
    """

    def __init__(
        self, settings: CoordinatorSettings, now: float, state: CoordinatorState, unix_clock: Callable[[], float]
    ) -> None:
        self._job = CoordinatedJob(settings, state, unix_clock)
        self._recorded = replace(state)
        self._fresh = not state.numbers.view_limit  # nothing was ever published
        self._view: View | None = None
        self._number = self._job.state.numbers.view_limit
        if not self._fresh:
            members.on_coordinator_return(self._job, now)

    def on_relaunch(self) -> None:
        """Begin with no processes: none that is remembered runs any more, and the settings say how many are to."""
        members.on_relaunch(self._job, Size(self._job.settings.servers, self._job.settings.workers))

    @property
    def state(self) -> CoordinatorState:
        """Remembered state."""
        return self._job.state

    def on_register(self, newcomer: Newcomer, now: float) -> tuple[str, EventOutcome]:
        """Let a task join; the line is why it may not."""
        refusal = registering.register(self._job, newcomer, now)
        return refusal, self._run_rules(now)

    def is_not_needed(self, task: str) -> bool:
        """Whether a task was refused only because the job does without it by now."""
        return registering.is_not_needed(self._job, task)

    def on_report(self, report: MemberReport, now: float) -> tuple[bool, EventOutcome]:
        """Take a member's report; False if it is no member."""
        known = members.on_report(self._job, report, now)
        return known, self._run_rules(now)

    def on_stream(self, task: str, incarnation: int, opened: bool, now: float) -> EventOutcome:
        """A member's stream of views was opened or closed."""
        known = self._job.task(task)
        if known is not None and known.live and known.incarnation == incarnation:
            self._job.reports.on_stream(task, opened, now)
        return self._run_rules(now)

    def on_task_ended(self, task: str, exit_code: int, last_line: str, now: float, epoch: int = 0) -> EventOutcome:
        """Take note of the end of a task's process, which its launcher saw.

        Raises:
            BadInput: the `epoch` of the caller's lease is over; nothing has changed.
        """
        requests.admit(self._job, epoch)
        members.on_process_ended(self._job, task, exit_code, last_line, now)
        return self._run_rules(now)

    def on_request(self, request: RequestState, now: float, epoch: int = 0) -> tuple[RequestState, EventOutcome]:
        """Take a scheduler's request.

        Raises:
            BadInput: it is refused, or comes from a scheduler that another one has followed; nothing has changed.
        """
        requests.admit(self._job, epoch)
        row = requests.submit(self._job, request)
        outcome = self._run_rules(now)
        return requests.find(self._job, row.request_id) or row, outcome

    def on_lease(
        self, worker: str, incarnation: int, generation: int, done: tuple[int, ...], batches: int, now: float
    ) -> tuple[tuple[tuple[SampleLease, ...], bool], EventOutcome]:
        """See `leases.lend`."""
        answer = leases.lend(self._job, worker, incarnation, generation, done, batches)
        return answer, self._run_rules(now)

    def on_checkpoint_completed(self, order: ManifestOrder, error: str, now: float) -> EventOutcome:
        """A manifest order was carried out; `error` is why not."""
        checkpointing.on_checkpoint_completed(self._job, order, error)
        return self._run_rules(now)

    def on_checkpoint_searched(
        self, order: SearchOrder, search: SearchResult | None, error: str, now: float
    ) -> EventOutcome:
        """A search order was carried out; `error` is why not."""
        members.on_checkpoint_searched(self._job, order, search, error, now)
        return self._run_rules(now)

    def on_tick(self, now: float, missed_seconds: float = 0.0) -> EventOutcome:
        """Let time pass.

        Args:
            missed_seconds: that are not in `now`, as this process did not run.
        """
        if missed_seconds:
            members.on_gap(self._job, now, missed_seconds)
        members.watch(self._job, now)
        return self._run_rules(now)

    def status(self, now: float) -> JobStatus:
        """See `views.status`."""
        return status(self._job, now)

    def _run_rules(self, now: float) -> EventOutcome:
        for _ in range(_MOST_ROUNDS):
            before = replace(self._job.state)
            self._advance(now)
            if _changed(before, self._job.state) == []:
                break
        else:
            raise AssertionError(f"a state that does not settle: {self._job.state}")
        return self._outcome()

    def _advance(self, now: float) -> None:
        job = self._job
        phase = job.state.course.phase
        tasks.release(job, now)
        if phase in GATHERING:
            if requests.is_stopping(job) and not job.live(TaskRole.WORKER):
                # Whoever asked it to stop has ended them too: what is durable is what there is.
                generations.suspend(job, "")
                return
            queued = requests.queued(job)
            if queued is not None and queued.kind == "suspend" and requests.start_next(job):
                generations.suspend(job, "the job was suspended")
                return
            generations.assemble(job, now)
        elif phase is JobPhase.SUSPENDED:
            _poll_requests(job)
        elif job.is_training:
            checkpointing.watch_checkpoint(job, now)
            if job.state.generation.proposal is not None:
                changes.count_votes(job, now)
            elif job.moving_change() is not None:
                changes.watch_moving(job, now)
            elif job.state.generation.ended:
                generations.end_training(job, now)
            elif not generations.end_halt(job, now) and tasks.await_workers(job, now):
                resizing.decide(job, now)

    def _outcome(self) -> EventOutcome:
        job = self._job
        orders = job.own(Orders).take()
        if self._view is not None and not _changed(self._recorded, job.state):
            return EventOutcome({}, None, orders)
        view = build_view(job.state, self._number)
        if self._view is None or view != self._view:
            self._number += 1
            if self._number > job.state.numbers.view_limit:
                job.state.numbers = replace(job.state.numbers, view_limit=self._number + _VIEWS_RESERVED)
            self._view = replace(view, number=self._number)
            published: View | None = self._view
        else:
            published = None
        names = (
            [field.name for field in fields(CoordinatorState)] if self._fresh else _changed(self._recorded, job.state)
        )
        self._fresh = False
        record = {name: getattr(job.state, name) for name in names}
        self._recorded = replace(job.state)
        return EventOutcome(record, published, orders)


def _changed(before: CoordinatorState, after: CoordinatorState) -> list[str]:
    return [
        field.name
        for field in fields(CoordinatorState)
        if getattr(before, field.name) is not getattr(after, field.name)
    ]


def _poll_requests(job: CoordinatedJob) -> None:
    if not requests.start_next(job):
        return
    running = requests.running(job)
    if running is None:
        return
    if running.kind == "suspend":
        generations.suspend(job, "")
        return
    enter(job.state, JobPhase.STARTING, formed=False, target=running.target, notice="")
    job.timers.clear("start", "gather")
