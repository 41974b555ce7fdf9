"""Requests of schedulers: a queue, in which one is found again by its id however often it is sent; and what it cost.

What a resize cost is measured while it is carried out and written into its row. The measures are forgotten with the
coordinator, as they are only told, never acted on.

Source: DL2 §5, whose four steps are registration, parameter assignment, parameter migration and worker update.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from elastic_runtime.control.checks import MOST_TASKS, check_request_id
from elastic_runtime.control.messages import MemberReport, RequestOutcome, RequestState, ResizeMode, Size
from elastic_runtime.coordinator.rules.job import CoordinatedJob
from elastic_runtime.coordinator.rules.phases import enter
from elastic_runtime.coordinator.rules.state import Leader, Purpose, Requests, TaskState
from elastic_runtime.coordinator.rules.tasks import dismiss
from elastic_runtime.errors import BadInput
from elastic_runtime.protocol.plan import ENDED, Change, JobPhase, TaskRole

_YEARS_SECONDS = 10 * 365 * 86400.0


def submit(job: CoordinatedJob, request: RequestState) -> RequestState:
    """Take a request, or find it.

    Raises:
        BadInput: it cannot be carried out, whatever the job does; nothing is remembered of it.
    """
    if request.kind == "resize" and request.target == Size(0, 0):
        request = replace(request, kind="suspend")
    known = find(job, request.request_id)
    if known is not None:
        if _wish(known) != _wish(request):
            raise BadInput(f"request id {request.request_id!r} was used for something else; take a new id")
        return known
    request = _checked(job, request)
    rows = (*job.state.requests.rows, request)
    ended = [row.request_id for row in rows if row.ended]
    forgotten = set(ended[: max(0, len(ended) - job.settings.requests_kept)])
    job.state.requests = Requests(tuple(row for row in rows if row.request_id not in forgotten))
    return request


def admit(job: CoordinatedJob, epoch: int) -> None:
    """Refuse a scheduler that another one has replaced.

    Args:
        epoch: of its lease; 0: it has none, and is not compared.

    Raises:
        BadInput: it is not the newest, or of a time that is not to come for years.
    """
    highest = job.state.leader.epoch
    # Epochs begin at the Unix time and rise with each holder; taken once, a far one would shut out all others for ever.
    if epoch > job.unix_clock() + _YEARS_SECONDS:
        raise BadInput(f"lease epoch {epoch} is no lease's: they are about as large as the Unix time")
    if 0 < epoch < highest:
        raise BadInput(
            f"lease epoch {epoch} is over: job {job.settings.job} was told of {highest}, so that another scheduler "
            "leads it now"
        )
    if epoch > highest:
        job.state.leader = Leader(epoch)


def _wish(request: RequestState) -> tuple[object, ...]:
    """Content of a request; its other fields say how it was carried out."""
    return request.kind, request.target, request.mode, sorted(request.victims)


def find(job: CoordinatedJob, request_id: str) -> RequestState | None:
    """Request of an id."""
    return next((row for row in job.state.requests.rows if row.request_id == request_id), None)


def running(job: CoordinatedJob) -> RequestState | None:
    """The one request that is being carried out."""
    return next((row for row in job.state.requests.rows if row.state is RequestOutcome.RUNNING), None)


def is_stopping(job: CoordinatedJob) -> bool:
    """Whether a suspend is carried out: what ends meanwhile ends with the job, and nothing is started in its place."""
    request = running(job)
    return request is not None and request.kind == "suspend"


def queued(job: CoordinatedJob) -> RequestState | None:
    """The oldest that waits."""
    return next((row for row in job.state.requests.rows if row.state is RequestOutcome.QUEUED), None)


def _put(job: CoordinatedJob, request: RequestState) -> None:
    rows = job.state.requests.rows
    job.state.requests = Requests(tuple(request if row.request_id == request.request_id else row for row in rows))


def start_next(job: CoordinatedJob) -> bool:
    """Begin with the oldest that waits; False if none does."""
    first = queued(job)
    if first is None:
        return False
    if first.kind == "resume" and job.state.course.phase is not JobPhase.SUSPENDED:
        end(job, first, RequestOutcome.ABORTED, "the job is not suspended")
        return True
    _put(job, replace(first, state=RequestOutcome.RUNNING, began_unix_seconds=job.unix_clock()))
    course = job.state.course
    if first.kind == "suspend":
        enter(job.state, JobPhase.SUSPENDING, settled=course.target)
    else:
        enter(job.state, JobPhase.RESIZING, settled=course.target, target=first.target)
    job.timers.clear("new tasks")
    job.own(_Measures).begin()
    return True


def end(job: CoordinatedJob, request: RequestState, state: RequestOutcome, detail: str) -> None:
    """End a request."""
    _put(job, replace(request, state=state, detail=detail, ended_unix_seconds=job.unix_clock()))


def end_resize(job: CoordinatedJob, running: RequestState, why: str = "") -> None:
    """End a running resize, done or given up for a reason: the job goes on with its plan's tasks, the others go."""
    plan = job.plan()
    names = [task.name for task in job.tasks(None, TaskState.LIVE, TaskState.WANTED)]
    dismiss(job, [name for name in names if name not in plan.workers and name not in plan.servers])
    if why:
        after = (
            JobPhase.RUNNING if job.is_training else job.state.course.phase
        )  # it may just have lost what it trains with
        enter(job.state, after, target=job.state.course.settled)
        end(job, running, RequestOutcome.ABORTED, why)
    else:
        enter(job.state, JobPhase.RUNNING, settled=running.target, target=running.target)
        row = replace(running, stall_seconds=stall_seconds(job, running.request_id))
        end(job, row, RequestOutcome.DONE, "")
    job.timers.clear("new tasks")


def abort_all(job: CoordinatedJob, why: str) -> None:
    """Abort everything that was asked for."""
    for row in job.state.requests.rows:
        if not row.ended:
            end(job, row, RequestOutcome.ABORTED, why)


def _checked(job: CoordinatedJob, request: RequestState) -> RequestState:
    target, settings, course = request.target, job.settings, job.state.course
    check_request_id(request.request_id)
    if course.phase in ENDED:
        raise BadInput(f"job {settings.job} has {course.phase.value}; nothing can be changed any more")
    if request.kind == "suspend":
        if request.victims:
            raise BadInput(f"{target} suspends job {settings.job}, which ends all tasks; name no victims")
        return request
    if not (target.servers and target.workers):
        raise BadInput(f"{target}: a job needs both; 0 and 0 suspends it")
    if target.servers < settings.minimum_servers or target.workers < settings.minimum_workers:
        least = Size(settings.minimum_servers, settings.minimum_workers)
        raise BadInput(f"{target} is below job {settings.job}'s minimum of {least}")
    if target.servers + target.workers > MOST_TASKS:
        raise BadInput(f"{target}: a job has at most {MOST_TASKS} tasks")
    model = job.model
    if model is not None:
        model.check(target.servers, target.workers)
    for victim in request.victims:
        task = job.task(victim)
        if task is None or task.state is TaskState.GONE:
            raise BadInput(f"{victim} is no task of job {settings.job}")
    if request.mode is ResizeMode.STOP_THE_WORLD and model is not None and not model.training.synchronous:
        raise BadInput("asynchronous workers have no common step to stop at: take rolling or checkpoint-restart")
    if request.mode is ResizeMode.CHECKPOINT_RESTART and request.victims:
        raise BadInput("checkpoint-restart ends all tasks; name no victims")
    return request


@dataclass
class _Measures:
    """What the resize that is carried out costs.

    Attributes:
        moments: monotonic seconds: when it began, its new tasks had registered and were ready for a plan, the newest
            proposal was published, and all workers had agreed.
        stalled_before: seconds that each member had waited when it was proposed.
    """

    moments: dict[str, float] = field(default_factory=dict)
    assignment_seconds: float = 0.0
    moved_before: int = 0
    stalls: dict[str, float] = field(default_factory=dict)
    stalled_before: dict[str, float] = field(default_factory=dict)
    waited: dict[str, float] = field(default_factory=dict)

    def begin(self) -> None:
        self.moments.clear()
        self.assignment_seconds = 0.0

    def seconds_from(self, first: str, second: str) -> float:
        """Seconds from one moment to another; 0 if one has not come."""
        return self.moments[second] - self.moments[first] if {first, second} <= self.moments.keys() else 0.0


def note_members(job: CoordinatedJob, now: float, registered: bool, ready: bool, assignment_seconds: float) -> None:
    """Note whether the running request's new tasks have registered, and can be named in a plan."""
    measures = job.own(_Measures)
    measures.assignment_seconds = assignment_seconds
    for moment, is_there in (("began", True), ("registered", registered or ready), ("ready", ready)):
        if is_there:
            measures.moments.setdefault(moment, now)


def note_proposal(job: CoordinatedJob, now: float, purpose: Purpose) -> None:
    """A change is proposed: what members waited until now was not for it."""
    measures = job.own(_Measures)
    if measures.moments:
        measures.moments["proposed"] = now
    if purpose is Purpose.RESIZE:
        measures.stalled_before = {
            task.name: job.reports.of(task.name).stall_seconds for task in job.tasks() if task.live
        }
        measures.waited.clear()


def note_begin(job: CoordinatedJob, change: Change, now: float) -> None:
    """Remember where the running request's change begins, as one is confirmed."""
    request = running(job)
    generation = job.state.generation
    if request is not None and generation.purpose in {Purpose.RESIZE, Purpose.RESTART, Purpose.SUSPEND}:
        row = replace(request, clock=change.clock, minimum_bytes=generation.minimum_bytes, steps=len(change.stages))
        measures = job.own(_Measures)
        if measures.moments:
            measures.moments["confirmed"] = now
            row = replace(
                row,
                start_seconds=measures.seconds_from("began", "registered"),
                registration_seconds=measures.seconds_from("registered", "ready"),
                assignment_seconds=measures.assignment_seconds,
                agreement_seconds=measures.seconds_from("proposed", "confirmed"),
            )
        _put(job, row)
        measures.moved_before = _moved_bytes(job)


def note_end(job: CoordinatedJob, change: Change, now: float) -> None:
    """Remember what the running request's change moved, as one is over."""
    request = running(job)
    if request is not None and request.clock == change.clock:
        measures = job.own(_Measures)
        seconds = now - measures.moments.get("confirmed", now)
        moved_bytes = max(0, _moved_bytes(job) - measures.moved_before)
        _put(job, replace(request, moved_bytes=moved_bytes, migration_seconds=seconds))


def _moved_bytes(job: CoordinatedJob) -> int:
    return sum(job.reports.of(task.name).moved_bytes for task in job.tasks(TaskRole.SERVER) if task.live)


def note_stall(job: CoordinatedJob, report: MemberReport) -> None:
    """Note the longest wait of workers since the newest resize was proposed.

    A worker knows of its own waits for the change; of pushes that waited for a block to arrive the block's new owner
    knows. Several of these may have waited at the same steps, which is not known here: their waits are added up.
    """
    measures = job.own(_Measures)
    before = measures.stalled_before.get(report.task)
    rows = [row.request_id for row in job.state.requests.rows if row.clock]
    if before is None or not rows:
        return
    waited = measures.waited
    waited[report.task] = max(0.0, report.stall_seconds - before)
    roles = {task.name: task.role for task in job.tasks()}
    at_workers = max((s for name, s in waited.items() if roles.get(name) is TaskRole.WORKER), default=0.0)
    at_servers = sum(s for name, s in waited.items() if roles.get(name) is TaskRole.SERVER)
    measures.stalls[rows[-1]] = max(measures.stalls.get(rows[-1], 0.0), at_workers + at_servers)


def stall_seconds(job: CoordinatedJob, request_id: str) -> float:
    """Longest wait of workers because of a request, as far as this coordinator saw."""
    return job.own(_Measures).stalls.get(request_id, 0.0)
