"""Step of a TrainingJob: what a plan says that is to be done about it now, and where it stands; pure."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from cluster_agent.backends.kubernetes.observation import seconds_of
from cluster_agent.backends.kubernetes.training.memory import CoordinatorReport, JobMemory
from cluster_agent.backends.kubernetes.training.task_pods import TaskPod
from cluster_agent.kubernetes.training.manifests import COORDINATOR
from cluster_agent.kubernetes.training.training_job import TrainingJob
from elastic_runtime.control.messages import JobStatus, RequestOutcome, Size
from elastic_runtime.protocol.plan import JobPhase
from foundation.figures import counted
from policy_net.domain import SUSPENDED, Allocation


@dataclass(frozen=True, slots=True)
class SeenJob:
    """A job at one poll.

    Attributes:
        desired: the size that it is to have; 0/0: none.
        pods: all that carry its name.
        job_report: what its coordinator, or first rank, said; None where it cannot be asked.
        memory: of this job; plans change it.
        now: monotonic seconds.
        unix_seconds: the time of day, for failures that are counted in the status, which outlives the agent.
        decision: names the decision that said what is desired.
    """

    job: TrainingJob
    desired: Allocation
    pods: tuple[TaskPod, ...]
    job_report: CoordinatorReport | None
    memory: JobMemory
    now: float
    unix_seconds: float = 0.0
    decision: str = ""


# Requests to a job's coordinator: which one is next, and under which id; pure.
#
# An id is never used for two different things: it names the decision, what is asked for, and the try. Tries are counted
# by what the coordinator remembers, so that an agent that has just begun goes on with the next.

_MOST_TRIES = 10**9


class Request(StrEnum):
    """What a coordinator is asked for."""

    RESIZE = "resize"
    SUSPEND = "suspend"
    RESUME = "resume"


@dataclass(frozen=True, slots=True)
class Ask:
    """A request to the coordinator; under its id it may be sent again."""

    request: Request
    request_id: str
    size: Size


def next_ask(seen: SeenJob, status: JobStatus) -> tuple[str, Ask | None]:
    """What people are told, and what to ask the coordinator for, so that a job gets the size that is desired.

    Args:
        status: what its coordinator said.
    """
    wanted = seen.desired
    size = Size(wanted.ps, wanted.workers)
    request = Request.RESIZE if wanted != SUSPENDED else Request.SUSPEND
    if status.phase is JobPhase.SUSPENDED:
        request = Request.RESUME
    done = wanted == SUSPENDED if request is Request.RESUME else status.target == size
    if done or status.phase not in (JobPhase.RUNNING, JobPhase.RESIZING, JobPhase.SUSPENDED):
        return "", None
    name = f"{seen.decision}-{request}-{size.servers}x{size.workers}"
    line = {
        Request.RESIZE: f"becomes {size_words(wanted)}",
        Request.SUSPEND: "gives back what it has",
        Request.RESUME: f"goes on with {size_words(wanted)}",
    }[request]
    given_up, why = seen.memory.given_up
    if given_up.rpartition("-")[0] == name and seen.now < seen.memory.asked_again_at:
        return f"keeps what it has: {why}", None
    number = _number(name, status, given_up)
    return line, None if number is None else Ask(request, f"{name}-{number}", size)


def _number(name: str, status: JobStatus, given_up: str) -> int | None:
    """Of the next try, as the coordinator remembers those before; None: one is under way.

    One decision may be carried out several times, as when a job is suspended by its user in between.
    """
    rows = {int(row.request_id.rpartition("-")[2]): row for row in status.requests if _is_try(row.request_id, name)}
    if not rows:
        return 0
    newest = max(rows)
    row = rows[newest]
    if not row.ended:
        return None
    # One that was given up is asked for once more: the answer says why.
    return newest if row.state is RequestOutcome.ABORTED and row.request_id != given_up else newest + 1


def _is_try(request_id: str, name: str) -> bool:
    before, _, number = request_id.rpartition("-")
    return before == name and number.isascii() and number.isdecimal() and len(number) < len(str(_MOST_TRIES))


def size_words(size: Allocation | Size) -> str:
    """A size, for people."""
    counts = ((size.workers, "worker"), (size.ps if isinstance(size, Allocation) else size.servers, "PS"))
    return " and ".join(counted(count, noun) for count, noun in counts if count) or "nothing"


class JobStanding(StrEnum):
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
class JobStep:
    """What is to be done about a job now.

    Attributes:
        create: tasks whose pods are missing; all of them, or nothing, of a gang.
        relaunched: the coordinator goes on with a job that ran before.
        begin: the size with which a new coordinator begins.
        report: ends, before anything else.
        delete: pods that are to go.
        outcome: Complete or Failed, once it is over.
        grace_seconds: of deletions, where it is not the pods' own.
        admission: a condition of the job's: what Kueue says of it.
        forbidden: why its namespace takes no pod like one of its, in a line.
    """

    standing: JobStanding
    line: str = ""
    create: tuple[str, ...] = ()
    relaunched: bool = False
    begin: Allocation = SUSPENDED
    report: tuple[Ended, ...] = ()
    delete: tuple[TaskPod, ...] = ()
    ask: Ask | None = None
    outcome: str = ""
    grace_seconds: int | None = None
    admission: tuple[str, bool, str, str] | None = None
    forbidden: str = ""

    @property
    def is_gang(self) -> bool:
        """Whether its pods are made together, or not at all; a coordinator alone joins tasks that wait for it."""
        return COORDINATOR in self.create and self.standing is JobStanding.STARTING

    @property
    def needs(self) -> tuple[str, ...]:
        """Of a gang: the tasks that there has to be room for before any is made."""
        return (COORDINATOR, *first_tasks(self.begin))


def first_tasks(size: Allocation) -> tuple[str, ...]:
    """The names that a new coordinator gives its first tasks."""
    return (*(f"ps-{number}" for number in range(size.ps)), *(f"worker-{number}" for number in range(size.workers)))


# Last checkpoint of a TrainingJob that was deleted, where its author asked for one: how long it is waited for; pure.
#
# The agent's finalizer keeps such a job until its coordinator has written a checkpoint and let its tasks go. All that
# it takes is seen again by an agent that has just begun: when the job was deleted, its pods, and what its coordinator
# says.

_WRITTEN = (JobPhase.SUSPENDED, JobPhase.FINISHED)
_NOTHING_NEW = (JobPhase.STARTING, JobPhase.RECOVERING)
"""It has trained nothing since its last checkpoint."""
_WITHOUT_PODS = (JobStanding.QUEUED, JobStanding.SUSPENDED)


@dataclass(frozen=True, slots=True)
class Parting:
    """A deleted job may go.

    Attributes:
        is_written: its last checkpoint is there.
        line: what people are told; empty: nothing.
    """

    is_written: bool = True
    line: str = ""


def parting(seen: SeenJob, limit_seconds: float) -> Parting | None:
    """Whether a deleted job may go; None: its last checkpoint is waited for.

    Args:
        limit_seconds: longest wait since the deletion.
    """
    job = seen.job
    if job.outcome or not job.has_started:
        return Parting()
    ours = [pod for pod in seen.pods if pod.owner == job.uid]
    found = _by_its_word(seen.job_report) if seen.job_report is not None else _by_its_pods(job, ours)
    # A time that nobody can read was long ago: then nothing is waited for.
    if found is None and seen.unix_seconds - seconds_of(job.deleted) >= limit_seconds:
        why = seen.memory.given_up[1] or seen.memory.trouble
        return _lost(f"there was none within {limit_seconds:g} s{f': {why}' if why else ''}")
    return found


def _by_its_word(job_report: CoordinatorReport) -> Parting | None:
    status = job_report.status
    if status.phase in _WRITTEN:
        return Parting(line=f"its last checkpoint is of {status.epoch:g} epochs, {status.samples} samples")
    if status.phase is JobPhase.FAILED:
        return _lost(f"it has failed: {status.failure}")
    return Parting() if status.phase in _NOTHING_NEW else None


def _by_its_pods(job: TrainingJob, ours: list[TaskPod]) -> Parting | None:
    """Whether an answer can still come, where there is none now."""
    coordinator = next((pod for pod in ours if pod.task == COORDINATOR), None)
    if coordinator is not None and not coordinator.ended and not coordinator.deleting:
        return None
    stays = any(not pod.deleting and (not pod.ended or pod is coordinator) for pod in ours)
    if not stays and str(job.status.get("phase") or "") in _WITHOUT_PODS:
        return Parting()  # it was suspended, with a checkpoint
    if coordinator is not None and coordinator.exit_code == 0 and coordinator.last_words.startswith(JobPhase.FINISHED):
        return Parting()
    return _lost("its coordinator is gone")


def _lost(why: str) -> Parting:
    return Parting(False, f"no last checkpoint: {why}; what it trained since the one before is lost")
