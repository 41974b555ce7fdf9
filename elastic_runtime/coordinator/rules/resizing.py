"""Decisions of a job that trains, one at a time: suspend, repair, resize, replace, checkpoint, in this order.

Read, decide, carry out: a decision follows from the situation alone. A resize waits until the tasks that it needs are
there and warm, finds new holders for the blocks, which move in portions, and is proposed as one change.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain

from elastic_runtime.control.messages import RequestState, ResizeMode, Size
from elastic_runtime.coordinator.rules.changes import PlannedChange, last_step, next_clock, propose
from elastic_runtime.coordinator.rules.job import CoordinatedJob, Timers
from elastic_runtime.coordinator.rules.moves import assign, stages
from elastic_runtime.coordinator.rules.requests import (
    end_resize,
    note_members,
    note_proposal,
    queued,
    running,
    start_next,
)
from elastic_runtime.coordinator.rules.settings import CoordinatorSettings
from elastic_runtime.coordinator.rules.state import JobModel, Purpose, TaskState, task_number
from elastic_runtime.coordinator.rules.tasks import dismiss, new_names, replace_missing, request_tasks, spares
from elastic_runtime.protocol.plan import ChangeStage, Plan, TaskRole


@dataclass(frozen=True, slots=True)
class JobSituation:
    """Facts that the next change of a job that trains is decided by; it has no halt, proposal or moving change.

    A decision is made from them alone and carried out afterwards. Only the timers run on: asking one begins it.

    Attributes:
        plan: the newest, with the other holders in the place of lost servers.
        named: likewise with the lost ones.
        working: live workers of the plan, each once; also those that were told to leave.
        live: tasks that were not told to leave, the oldest first, without the spares.
        coming: tasks that were wanted and have not registered, likewise.
        warm: live tasks that can be named in a plan.
        draining: live tasks that want to go, without the spares.
        spares: tasks that want to go, and have no part in the training.
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
        """Running size: tasks of the plan."""
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


@dataclass(frozen=True, slots=True)
class Members:
    """Who is to make up a size.

    Attributes:
        servers: that are there, and stay or are warm.
        workers: likewise, in the places that they have.
        missing: who has yet to register or to become warm.
        registered: whether all of these have registered.
        new: how many of them nobody has asked for yet, by role.
    """

    servers: tuple[str, ...]
    workers: tuple[str, ...]
    missing: tuple[str, ...]
    registered: bool
    new: Mapping[TaskRole, int]


@dataclass(frozen=True, slots=True)
class ResizeDecision:
    """What one look at a job led to.

    Attributes:
        aborts: why it is given up; empty: it is not.
    """

    change: PlannedChange | None = None
    members: Members | None = None
    is_complete: bool = False
    aborts: str = ""


def decide(job: CoordinatedJob, now: float) -> None:
    """Carry out the most pressing need of a job that trains; it has no halt, proposal or moving change."""
    at = situation_of(job, now)
    if at is None:
        return
    began = job.unix_clock()
    decision = decide_on(at)
    seconds = max(0.0, job.unix_clock() - began)
    change, members = decision.change, decision.members
    for role, count in members.new.items() if members is not None else ():
        if at.running is not None:
            request_tasks(job, role, count)
        else:
            replace_missing(job, role, count, now)
    dismiss(job, at.spares)
    if at.running is not None and members is not None:
        note_members(job, now, members.registered, not members.missing, seconds)
    if change is not None:
        note_proposal(job, now, change.purpose)
        propose(job, change, at.clock, now)
    elif at.running is None:
        start_next(job)
    elif decision.is_complete or decision.aborts:
        end_resize(job, at.running, decision.aborts)


def decide_on(at: JobSituation) -> ResizeDecision:
    """Decision on the most pressing need; of changes, the most pressing one for which there is time."""
    running = at.running
    if running is not None and running.kind == "suspend":
        return ResizeDecision(PlannedChange(Purpose.SUSPEND, checkpoint=True, halt=True))
    change = _first(at, _repair(at), _replicate(at))
    if change is not None:
        return ResizeDecision(change)
    if running is not None:
        return _resize(at, running)
    return _keep(at) if at.queued is None else ResizeDecision()


def _first(at: JobSituation, *changes: Iterator[PlannedChange]) -> PlannedChange | None:
    """The first change for which there is time; one is only looked for if there is none before it."""
    return next((change for change in chain(*changes) if _fits(at, change)), None)


def _fits(at: JobSituation, change: PlannedChange) -> bool:
    """Whether training goes on until a change's last stage; it may well end with a halt."""
    return change.halt or at.steps_left is None or max(len(change.stages), 1) <= at.steps_left


def _resize(at: JobSituation, running: RequestState) -> ResizeDecision:
    restart = running.mode is ResizeMode.CHECKPOINT_RESTART  # ends all tasks, whether they want to go or not
    members = choose_members(at, running.target, (*running.victims, *(() if restart else at.draining)))
    if members.missing:
        limit_seconds = at.settings.new_task_seconds
        if at.timers.passed("new tasks", at.now, limit_seconds):
            names = " and ".join(members.missing)
            return ResizeDecision(
                members=members, aborts=f"{names} did not come within {limit_seconds:g} s; nothing changed"
            )
        return ResizeDecision(_first(at, _relieve(at, members), _checkpoint(at)), members)
    at.timers.clear("new tasks")
    if (set(members.servers), members.workers) == (set(at.plan.servers), at.plan.workers):
        return ResizeDecision(members=members, is_complete=True)
    if restart:
        return ResizeDecision(PlannedChange(Purpose.RESTART, checkpoint=True, halt=True), members)
    # In turn with checkpoints, or requests that follow each other would leave the job without.
    checkpoint = iter(()) if at.purpose is Purpose.CHECKPOINT else _checkpoint(at)
    change = _first(at, checkpoint, _change_to(at, members.servers, members.workers, running.mode))
    return ResizeDecision(change, members, aborts="" if change is not None else "the job ends before the resize could")


def _keep(at: JobSituation) -> ResizeDecision:
    """Decision where nothing is asked for: replace who was lost, or is about to go; write checkpoints in time."""
    members = None
    replacing: Iterator[PlannedChange] = iter(())
    if at.size != at.target or at.draining:
        members = choose_members(at, at.target, at.draining)
        if at.draining:
            replacing = _relieve(at, members)
        elif set(members.servers) > set(at.plan.servers) or set(members.workers) > set(at.plan.workers):
            replacing = _change_to(at, members.servers, members.workers, ResizeMode.ROLLING)
    return ResizeDecision(_first(at, replacing, _checkpoint(at)), members)


def choose_members(at: JobSituation, target: Size, victims: Sequence[str] = ()) -> Members:
    """Servers and workers for a size, and which of them have yet to come.

    Victims go first, then the newest. Who stays keeps its place, as that decides which slice it computes.
    """
    chosen: dict[TaskRole, tuple[str, ...]] = {}
    new: dict[TaskRole, int] = {}
    missing: list[str] = []
    for role, planned, count in (
        (TaskRole.SERVER, at.plan.servers, target.servers),
        (TaskRole.WORKER, tuple(dict.fromkeys(at.plan.workers)), target.workers),
    ):
        live = at.live[role]
        staying = [name for name in planned if name in live and name not in victims]
        oldest = sorted(staying, key=task_number)[:count]
        staying = [name for name in staying if name in oldest]
        need = count - len(staying)
        fresh = [name for name in live if name not in planned and name not in victims]
        warm = [name for name in fresh if name in at.warm][:need]
        coming = [*(name for name in fresh if name not in warm), *at.coming[role]]
        lacking = max(0, need - len(warm))
        new[role] = max(0, lacking - len(coming))
        missing += [*coming, *new_names(role, at.next_number[role], new[role])][:lacking]
        chosen[role] = (*staying, *warm)
    here = {name for role in TaskRole for name in at.live[role]}
    registered = here.issuperset(missing)
    return Members(chosen[TaskRole.SERVER], chosen[TaskRole.WORKER], tuple(missing), registered, new)


def _checkpoint(at: JobSituation) -> Iterator[PlannedChange]:
    if at.timers.passed("next checkpoint", at.now, at.settings.checkpoint_seconds) and not at.writing:
        yield PlannedChange(Purpose.CHECKPOINT, checkpoint=True)


def _repair(at: JobSituation) -> Iterator[PlannedChange]:
    """Take lost workers out of the plan, so that their stand-ins are not slower than the others for long."""
    if at.working and at.working != at.plan.workers:
        yield PlannedChange(Purpose.REPAIR, (ChangeStage({}, at.working),))


def _replicate(at: JobSituation) -> Iterator[PlannedChange]:
    """Give blocks that lost one of their holders another one, of the servers that are there."""
    if _lacks_replicas(at):
        yield from _change_to(at, at.plan.servers, at.plan.workers, ResizeMode.ROLLING, Purpose.REPAIR)


def _lacks_replicas(at: JobSituation) -> bool:
    """Whether blocks have one holder that should have two, and could."""
    if at.settings.replicas == 1 or len(at.plan.servers) == 1:
        return False
    return not at.plan.replicas or not all(at.plan.replicas)


def _relieve(at: JobSituation, members: Members) -> Iterator[PlannedChange]:
    """Take tasks that want to go out of the plan, once others can have their part; the rest stays as it is."""
    servers, workers = at.plan.servers, at.plan.workers
    if _can_do_without(at, TaskRole.SERVER, servers, members.servers):
        servers = members.servers
    if _can_do_without(at, TaskRole.WORKER, workers, members.workers):
        workers = members.workers
    if (set(servers), workers) != (set(at.plan.servers), at.plan.workers):
        yield from _change_to(at, servers, workers, ResizeMode.ROLLING, Purpose.REPAIR)


def _can_do_without(at: JobSituation, role: TaskRole, before: Sequence[str], after: Sequence[str]) -> bool:
    """Whether those who stay, and the replacements that have come, are to take over from those who want to go.

    Another worker can compute any slice, so nobody waits for a new one. A server's blocks would move twice: its
    replacement has some time to come.
    """
    leaving = [name for name in at.draining if name in before]
    waited = [at.timers.passed(f"drain {name}", at.now, at.settings.replacement_seconds) for name in leaving]
    if role is TaskRole.WORKER:
        return bool(leaving) and len(after) >= min(at.target.workers, at.settings.minimum_workers)
    enough = len(after) >= at.target.servers or (len(after) >= at.settings.minimum_servers and all(waited))
    return bool(leaving) and enough


def _change_to(
    at: JobSituation,
    servers: Sequence[str],
    workers: tuple[str, ...],
    mode: ResizeMode,
    purpose: Purpose = Purpose.RESIZE,
) -> Iterator[PlannedChange]:
    if at.model is None:
        return
    layout, after = at.model.layout, at.plan
    if set(servers) != set(after.servers) or _lacks_replicas(at):
        after = assign(layout, servers, after, at.settings.replicas)
    at_once = mode is ResizeMode.STOP_THE_WORLD
    # Servers of asynchronous training send a few blocks at a time by themselves.
    budget_bytes = layout.total_bytes
    if not (at_once or at.is_asynchronous):
        budget_bytes = max(int(layout.total_bytes * at.settings.stage_fraction), at.settings.stage_bytes)
    new_workers = workers if workers != at.plan.workers else None
    cut, moved_bytes = stages(layout, at.named, at.plan, after, new_workers, budget_bytes)
    yield PlannedChange(purpose, cut, barrier=at_once and moved_bytes > 0, minimum_bytes=moved_bytes)
