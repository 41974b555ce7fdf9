"""What schedulers ask for: a queue, in which a request is found again by its id, however often it is sent."""

from __future__ import annotations

from dataclasses import replace

from elastic_runtime.control.checks import MOST_TASKS, check_request_id
from elastic_runtime.control.messages import RequestOutcome, RequestState, ResizeMode, Size
from elastic_runtime.coordinator.job import ENDED, Job
from elastic_runtime.coordinator.state import Purpose, Requests, TaskState
from elastic_runtime.errors import BadInput
from elastic_runtime.protocol.plan import Change, Phase, Role


def submit(job: Job, request: RequestState) -> RequestState:
    """Take a request, or find it.

    Raises:
        BadInput: it cannot be, whatever the job does; nothing is remembered of it.
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


def _wish(request: RequestState) -> tuple[object, ...]:
    """What is asked for; the rest says what became of it."""
    return request.kind, request.target, request.mode, sorted(request.victims)


def find(job: Job, request_id: str) -> RequestState | None:
    """The request of an id."""
    return next((row for row in job.state.requests.rows if row.request_id == request_id), None)


def running(job: Job) -> RequestState | None:
    """The one request that is being carried out."""
    return next((row for row in job.state.requests.rows if row.state is RequestOutcome.RUNNING), None)


def put(job: Job, request: RequestState) -> None:
    """Replace a request by its id."""
    rows = job.state.requests.rows
    job.state.requests = Requests(tuple(request if row.request_id == request.request_id else row for row in rows))


def start_next(job: Job) -> bool:
    """Begin with the oldest that waits; False if none does."""
    queued = next((row for row in job.state.requests.rows if row.state is RequestOutcome.QUEUED), None)
    if queued is None:
        return False
    if queued.kind == "resume" and job.state.course.phase is not Phase.SUSPENDED:
        end(job, queued, RequestOutcome.ABORTED, "the job is not suspended")
        return True
    put(job, replace(queued, state=RequestOutcome.RUNNING, began_unix_seconds=job.unix_clock()))
    course = job.state.course
    if queued.kind == "suspend":
        job.course(phase=Phase.SUSPENDING, settled=course.target)
    else:
        job.course(phase=Phase.RESIZING, settled=course.target, target=queued.target)
    job.timers.clear("new tasks")
    job.times = None
    return True


def end(job: Job, request: RequestState, state: RequestOutcome, detail: str) -> None:
    """A request is over."""
    put(job, replace(request, state=state, detail=detail, ended_unix_seconds=job.unix_clock()))


def note_begin(job: Job, change: Change, now: float) -> None:
    """A change is confirmed: if it is the running request's, remember where it began."""
    current = running(job)
    generation = job.state.generation
    if current is not None and generation.purpose in {Purpose.RESIZE, Purpose.RESTART, Purpose.SUSPEND}:
        row = replace(current, clock=change.clock, minimum_bytes=generation.minimum_bytes, steps=len(change.stages))
        times = job.times
        if times is not None:
            times.confirmed = now
            row = replace(
                row,
                start_seconds=times.start_seconds,
                registration_seconds=times.registration_seconds,
                assignment_seconds=times.assignment_seconds,
                agreement_seconds=times.agreement_seconds,
            )
        put(job, row)
        job.moved_before = _moved_bytes(job)


def note_end(job: Job, change: Change, now: float) -> None:
    """A change is over: if it is the running request's, remember what it moved."""
    current = running(job)
    if current is not None and current.clock == change.clock:
        seconds = job.times.migration_seconds(now) if job.times is not None else 0.0
        moved_bytes = max(0, _moved_bytes(job) - job.moved_before)
        put(job, replace(current, moved_bytes=moved_bytes, migration_seconds=seconds))


def _moved_bytes(job: Job) -> int:
    return sum(job.reports.of(task.name).moved_bytes for task in job.tasks(Role.SERVER) if task.live)


def abort_all(job: Job, why: str) -> None:
    """Nothing that was asked for is going to happen."""
    for row in job.state.requests.rows:
        if not row.ended:
            end(job, row, RequestOutcome.ABORTED, why)


def _checked(job: Job, request: RequestState) -> RequestState:
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
