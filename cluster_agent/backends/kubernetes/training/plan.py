"""Plan of one TrainingJob: what to make, delete, report and ask for, from what is known of it now; nothing is touched.

The job's coordinator decides which tasks it needs; what is planned here is that their pods are there, that it hears how
they ended before others take their place, and that it gets the size that was decided. Planned again from what is seen,
every time: whoever follows an agent that was killed plans the same.

    nothing -> gang (coordinator and first tasks together) -> training <-> suspended (no pods) -> over
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from cluster_agent.backends.kubernetes.training.task_pods import KILLED, TaskPod
from cluster_agent.kubernetes.training.manifests import COORDINATOR
from cluster_agent.kubernetes.training.training_job import TrainingJob
from elastic_runtime.control.messages import JobStatus, Size
from elastic_runtime.protocol.plan import Phase
from foundation.errors import BAD_INPUT
from policy_net.domain import SUSPENDED, Allocation

GANG_SECONDS = 600.0
"""Longest wait for all of a job's first pods to run: images have to be pulled."""
LEAVE_SECONDS = 60.0
"""A task that was told to leave, and has not, is ended."""
UNLISTED_SECONDS = 30.0
"""One that nobody has heard of likewise."""
KEPT_SECONDS = 300.0
"""Of a running job, the pod of a task that has ended, for its log."""
AGAIN_SECONDS = 60.0
"""A size that a coordinator has given up is asked for again after this."""
_FIRST_PAUSE_SECONDS, _LONGEST_PAUSE_SECONDS = 10.0, 600.0
_RELEASED = frozenset({Phase.SUSPENDED, Phase.FINISHED, Phase.FAILED})


class Standing(StrEnum):
    """Where a job is, for people."""

    QUEUED = "Queued"
    STARTING = "Starting"
    RUNNING = "Running"
    RESIZING = "Resizing"
    RECOVERING = "Recovering"
    SUSPENDING = "Suspending"
    SUSPENDED = "Suspended"
    COMPLETE = "Complete"
    FAILED = "Failed"
    INVALID = "Invalid"


class Request(StrEnum):
    """What a coordinator is asked for."""

    RESIZE = "resize"
    SUSPEND = "suspend"
    RESUME = "resume"


_STANDING: Mapping[Phase, Standing] = {
    Phase.STARTING: Standing.STARTING,
    Phase.RUNNING: Standing.RUNNING,
    Phase.RESIZING: Standing.RESIZING,
    Phase.RECOVERING: Standing.RECOVERING,
    Phase.SUSPENDING: Standing.SUSPENDING,
    Phase.SUSPENDED: Standing.SUSPENDED,
    Phase.FINISHED: Standing.RUNNING,
    Phase.FAILED: Standing.FAILED,
}


@dataclass(frozen=True, slots=True)
class Told:
    """What a job's coordinator said last.

    Attributes:
        at_seconds: when.
    """

    status: JobStatus
    at_seconds: float


@dataclass(frozen=True, slots=True)
class Ended:
    """A task's end that the coordinator has to hear of.

    Attributes:
        uid: of its pod; empty where nobody has seen one.
    """

    task: str
    exit_code: int
    last_words: str
    uid: str = ""


@dataclass(frozen=True, slots=True)
class Ask:
    """A request to the coordinator; under its id it may be sent again."""

    request: Request
    request_id: str
    size: Size


@dataclass(frozen=True, slots=True)
class Step:
    """What is to be done about a job now.

    Attributes:
        create: tasks whose pods are missing; all of them, or nothing, of a gang.
        relaunched: the coordinator goes on with a job that ran before.
        begin: the size with which a new coordinator begins.
        report: ends, before anything else.
        delete: pods that are to go.
        line: what people are told.
        outcome: Complete or Failed, once it is over.
    """

    standing: Standing
    line: str = ""
    create: tuple[str, ...] = ()
    relaunched: bool = False
    begin: Allocation = SUSPENDED
    report: tuple[Ended, ...] = ()
    delete: tuple[TaskPod, ...] = ()
    ask: Ask | None = None
    outcome: str = ""

    @property
    def is_gang(self) -> bool:
        """Whether its pods are made together."""
        return COORDINATOR in self.create


@dataclass(slots=True)
class Memory:
    """What is remembered of a job between two looks; forgetting it costs waits, and nothing else. Monotonic seconds."""

    reported: set[str] = field(default_factory=set)
    ended_since: dict[str, float] = field(default_factory=dict)
    unneeded_since: dict[str, float] = field(default_factory=dict)
    gang_since: float | None = None
    failed_gangs: int = 0
    not_before_seconds: float = -math.inf
    refused: str = ""
    asked: str = ""
    asked_again_at: float = -math.inf
    attempt: int = 0

    def on_gang_failed(self, why: str, now: float) -> None:
        """The first pods did not come: another try later, each time more so."""
        pause = min(_FIRST_PAUSE_SECONDS * 2.0**self.failed_gangs, _LONGEST_PAUSE_SECONDS)
        self.failed_gangs += 1
        self.not_before_seconds, self.gang_since, self.refused = now + pause, None, why

    def on_asked(self, request_id: str, given_up: str, now: float) -> None:
        """A coordinator took a request, or gave it up for a reason."""
        self.asked, self.refused = request_id, given_up
        if given_up:
            self.attempt += 1
            self.asked_again_at = now + AGAIN_SECONDS


def plan(
    job: TrainingJob,
    wanted: Allocation,
    decision: str,
    pods: Iterable[TaskPod],
    told: Told | None,
    memory: Memory,
    now: float,
) -> Step:
    """What to do about one job.

    Args:
        wanted: the size that it is to have; 0/0: none.
        decision: names the decision that said so.
        pods: all that carry its name.
        told: what its coordinator said; None where it cannot be asked.
        memory: of this job; is changed.
        now: monotonic seconds.
    """
    everything = tuple(pods)
    ours = {pod.task: pod for pod in everything if pod.owner == job.uid}
    coordinator = ours.get(COORDINATOR)
    if job.outcome:
        return _over(job, ours)
    if coordinator is None:
        left = [pod for pod in everything if pod.owner != job.uid]
        return _without_coordinator(job, wanted, ours, left, memory, now)
    if coordinator.ended:
        return _after_coordinator(coordinator, ours, memory)
    waiting: Step | None = None
    if job.trained_under != coordinator.uid and (told is None or told.status.phase is Phase.STARTING):
        waiting = _gang(wanted, ours, memory, now)
    if waiting is None and told is not None:
        return _training(job, wanted, decision, ours, told.status, memory, now)
    standing = Standing.RECOVERING if job.trained_under else Standing.STARTING
    return waiting or Step(standing, coordinator.trouble or "its coordinator does not answer yet")


def first_tasks(size: Allocation) -> tuple[str, ...]:
    """The names that a new coordinator gives its first tasks."""
    return (*(f"ps-{number}" for number in range(size.ps)), *(f"worker-{number}" for number in range(size.workers)))


def _over(job: TrainingJob, ours: Mapping[str, TaskPod]) -> Step:
    """Ended pods stay, for their logs; they go with the job."""
    running = tuple(pod for pod in ours.values() if not pod.ended and not pod.deleting)
    line = str(job.condition(job.outcome).get("message") or "")
    return Step(Standing(job.outcome), line, delete=running)


def _after_coordinator(coordinator: TaskPod, ours: Mapping[str, TaskPod], memory: Memory) -> Step:
    """Its process has ended: the job is over, or goes on with another one."""
    word, _, line = coordinator.last_words.partition(": ")
    working = [pod for pod in ours.values() if pod.task.startswith("worker-") and not pod.ended]
    if coordinator.phase == "Succeeded" and word == Phase.FINISHED:
        if working:  # what a script does with the model takes as long as it takes
            return Step(Standing.RUNNING, f"{working[0].task} still works with the model")
        return Step(Standing.COMPLETE, line, outcome="Complete")
    if word == Phase.FAILED or coordinator.exit_code == BAD_INPUT:
        reason = line if word == Phase.FAILED else f"its coordinator cannot start: {coordinator.last_words}"
        return Step(Standing.FAILED, reason or "no reason was given", outcome="Failed")
    memory.gang_since = None
    delete = () if coordinator.deleting else (coordinator,)
    return Step(Standing.RECOVERING, "its coordinator has ended, and is replaced", delete=delete)


def _without_coordinator(
    job: TrainingJob, wanted: Allocation, ours: Mapping[str, TaskPod], left: list[TaskPod], memory: Memory, now: float
) -> Step:
    """There is none: the job waits, begins, or goes on from what was written down."""
    knows = job.has_started and bool(job.journal_claim)
    if ours and knows and wanted != SUSPENDED:
        # Its tasks wait for it, and it finds them in its journal.
        return Step(Standing.RECOVERING, "its coordinator was lost", create=(COORDINATOR,), begin=wanted)
    if ours:
        return Step(Standing.RECOVERING, "what is left of it goes first", delete=_not_going(ours))
    why = _why_it_waits(job, wanted, left, memory, now)
    if why:
        standing = Standing.SUSPENDED if job.suspend else Standing.INVALID if job.problem else Standing.QUEUED
        return Step(standing, why)
    memory.gang_since = now
    # A journal knows more than the numbers from which a new coordinator would count.
    tasks = () if knows else first_tasks(wanted)
    line = "its pods are made"
    return Step(Standing.STARTING, line, create=(COORDINATOR, *tasks), relaunched=job.has_started, begin=wanted)


def _why_it_waits(job: TrainingJob, wanted: Allocation, left: list[TaskPod], memory: Memory, now: float) -> str:
    if job.suspend:
        return "by its user"
    if job.problem:
        return job.problem
    if wanted == SUSPENDED:
        return "waits for resources"
    if left:
        return f"pod {left[0].name} of an earlier job of this name is still there"
    return memory.refused if now < memory.not_before_seconds else ""


def _gang(wanted: Allocation, ours: Mapping[str, TaskPod], memory: Memory, now: float) -> Step | None:
    """Whether the first pods have come; None: they have, or are as good as there."""
    pods = [pod for pod in ours.values() if not pod.ended]
    missing = [pod for pod in pods if pod.phase == "Pending"]
    if wanted == SUSPENDED:
        return Step(Standing.SUSPENDING, "it was only starting", delete=_not_going(ours))
    if not missing:
        memory.gang_since = None
        memory.failed_gangs, memory.refused = 0, ""
        return None
    memory.gang_since = now if memory.gang_since is None else memory.gang_since
    line = next((f"{pod.task}: {pod.trouble}" for pod in missing if pod.trouble), f"{missing[0].task} is not there yet")
    if now - memory.gang_since < GANG_SECONDS:
        return None if len(missing) < len(pods) else Step(Standing.STARTING, line)
    memory.on_gang_failed(f"its pods did not come in {GANG_SECONDS:g} s ({line}); it is tried again", now)
    return Step(Standing.QUEUED, memory.refused, delete=_not_going(ours))


def _not_going(ours: Mapping[str, TaskPod]) -> tuple[TaskPod, ...]:
    return tuple(pod for pod in ours.values() if not pod.deleting)


def _training(
    job: TrainingJob,
    wanted: Allocation,
    decision: str,
    ours: Mapping[str, TaskPod],
    status: JobStatus,
    memory: Memory,
    now: float,
) -> Step:
    """Its coordinator answers."""
    over = status.phase in _RELEASED
    report = tuple(_ends(ours, status, memory))
    create = () if over or job.problem else tuple(task for task in status.wanted if task not in ours)
    ended = {pod.task for pod in ours.values() if pod.ended}
    known = {task.task for task in status.tasks} | set(status.wanted)
    gone = [pod for pod in ours.values() if not over and _has_been_over(pod, memory, now)]
    late = []
    for task, pod in ours.items():
        needed = task == COORDINATOR or (task in known and task not in status.leaving and not over)
        if needed or task in ended or pod.deleting:
            memory.unneeded_since.pop(task, None)
            continue
        since = memory.unneeded_since.setdefault(task, now)
        if now - since >= (LEAVE_SECONDS if task in status.leaving or over else UNLISTED_SECONDS):
            late.append(pod)
    standing = _STANDING[status.phase]
    line, ask = _request(wanted, decision, status, memory, now)
    working = set(ours) - ended - {COORDINATOR}
    if status.phase is Phase.FAILED:
        return Step(standing, status.failure, report=report, delete=tuple(late), outcome="Failed")
    if status.phase is Phase.FINISHED and not working:
        line = f"{status.epoch:g} epochs, {status.samples} samples"
        return Step(Standing.COMPLETE, line, report=report, outcome="Complete")
    if status.phase is Phase.SUSPENDED and wanted == SUSPENDED and not working:
        # Nothing of it is needed: it gives back even the little that its coordinator takes.
        why = "by its user" if job.suspend else "waits for resources"
        return Step(standing if job.suspend else Standing.QUEUED, why, report=report, delete=_not_going(ours))
    return Step(standing, line, create=create, report=report, delete=(*gone, *late), ask=ask)


def _has_been_over(pod: TaskPod, memory: Memory, now: float) -> bool:
    """Whether the log of a task that has left was there to be read for long enough."""
    if not pod.ended or pod.deleting or pod.uid not in memory.reported:
        return False
    return now - memory.ended_since.setdefault(pod.uid, now) >= KEPT_SECONDS


def _ends(ours: Mapping[str, TaskPod], status: JobStatus, memory: Memory) -> Iterable[Ended]:
    """Ends that were not reported yet: of pods that are there, and of tasks whose pods are not."""
    for task, pod in ours.items():
        if pod.ended and task != COORDINATOR and pod.uid not in memory.reported:
            yield Ended(task, pod.exit_code, pod.last_words, pod.uid)
    for known in status.tasks:
        if known.state != "wanted" and known.task not in ours:
            yield Ended(known.task, KILLED, "its pod is gone")


def _request(
    wanted: Allocation, decision: str, status: JobStatus, memory: Memory, now: float
) -> tuple[str, Ask | None]:
    """What to ask for, so that it gets the size that was decided."""
    size = Size(wanted.ps, wanted.workers)
    request = Request.RESIZE if wanted != SUSPENDED else Request.SUSPEND
    if status.phase is Phase.SUSPENDED:
        request = Request.RESUME
    done = wanted == SUSPENDED if request is Request.RESUME else status.target == size
    if done or status.phase not in (Phase.RUNNING, Phase.RESIZING, Phase.SUSPENDED):
        return "", None
    name = f"{decision}-{request}"
    line = {
        Request.RESIZE: f"becomes {_sizes(wanted)}",
        Request.SUSPEND: "gives back what it has",
        Request.RESUME: f"goes on with {_sizes(wanted)}",
    }[request]
    if now < memory.asked_again_at:
        return f"keeps what it has: {memory.refused}", None
    if status.phase is Phase.RESIZING and memory.asked.startswith(name):
        return line, None
    return line, Ask(request, f"{name}-{memory.attempt}", size)


def _sizes(size: Allocation) -> str:
    workers, servers = "s" * (size.workers != 1), "s" * (size.ps != 1)
    return f"{size.workers} worker{workers} and {size.ps} PS{servers}"
