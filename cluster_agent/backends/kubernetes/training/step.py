"""Step of a TrainingJob: what is known of the job, and what a plan says is to be done about it now; pure."""

from __future__ import annotations

import math
from collections.abc import Collection
from dataclasses import dataclass, field
from enum import StrEnum

from cluster_agent.backends.kubernetes.observation import seconds_of
from cluster_agent.backends.kubernetes.training.task_pods import TaskPod
from cluster_agent.kubernetes.training.manifests import COORDINATOR
from cluster_agent.kubernetes.training.training_job import TrainingJob
from elastic_runtime.control.messages import JobStatus, RequestOutcome, Size
from elastic_runtime.protocol.plan import JobPhase
from foundation.figures import counted
from policy_net.domain import SUSPENDED, Allocation

AGAIN_SECONDS = 60.0
"""A size that a coordinator has given up is asked for again after this."""
_FIRST_PAUSE_SECONDS, _LONGEST_PAUSE_SECONDS = 10.0, 600.0
_MOST_DOUBLINGS = 10
_MOST = 1e15
"""Of samples and epochs: beyond anything that is trained, and still a whole number to every reader."""
_MOST_SIZE = 250
_FALSE_FROM = 1.01
"""An epoch has no whole number of batches: so much more than there are is no lie."""
_WARNED_AGAIN_SECONDS = 600.0
_GONE_SECONDS = 60.0
"""Longer than anything counts that a coordinator has said."""


@dataclass(frozen=True, slots=True)
class CoordinatorReport:
    """What a job's coordinator said when it was asked, at `at_seconds`: what has happened since it may not know.

    It went back where it counts less than it said can never be undone.
    """

    status: JobStatus
    at_seconds: float
    went_back: bool = False

    @property
    def falsehood(self) -> str:
        """What cannot be of what it counts, in a line; empty where all may be."""
        status = self.status
        numbers = (status.samples, status.epoch, status.total_epochs, status.samples_per_second)
        sizes = (status.size.workers, status.size.servers, status.target.workers, status.target.servers)
        if all(0 <= each <= _MOST for each in numbers) and all(0 <= each <= _MOST_SIZE for each in sizes):  # nor NaN
            return ""
        return (
            f"its coordinator counts {status.samples} samples, {status.epoch} of {status.total_epochs} epochs, "
            f"{status.samples_per_second} samples/s, {status.size}: not believed"
        )

    @property
    def doubt(self) -> str:
        """What is wrong with what it counts, in words that stay the same; empty where nothing is."""
        if self.falsehood:
            return "its coordinator counts what cannot be: nothing of it is believed"
        if self.status.epoch > _FALSE_FROM * self.status.total_epochs > 0.0:
            return "its coordinator counts more epochs than there are: how far it is, nobody knows"
        return "its coordinator counts less than it had counted for good" if self.went_back else ""


def goes_back(status: JobStatus, most: JobStatus) -> bool:
    """Whether a coordinator's count contradicts an earlier one (`most`) of the same coordinator.

    It may go back to a checkpoint where it says so, and new workers may be behind others: never behind what was
    durable.
    """
    if status.generation != most.generation:
        return False
    is_less = status.mode == "synchronous" and status.samples < most.samples and status.step >= most.step
    return is_less or min(status.step, status.durable_step) < most.durable_step


@dataclass(slots=True)
class JobMemory:
    """What is remembered of a job between two polls; forgetting it costs waits only. Monotonic seconds.

    Attributes:
        reported: uids of pods whose ends the coordinator knows.
        seen: tasks whose pods were there at the last poll, or were made since.
        gone_at: when the pods of others were first missed.
        gang_since: since when pods are missing without which it cannot train.
        silent_since: since when its coordinator runs, and does not answer.
        refused: why its first pods did not come; `trouble`: why the coordinator was not heard of.
        forbidden: why the namespace takes no pod like one of its, in a line; holds until the next try.
        counted: uid of the coordinator's pod whose end was counted.
        given_up: id of the request that was given up last, and why.
        desired: the size that its coordinator went for when it was last heard of; None before.
        requested: a size that it was asked for since, and when.
        may_go: it was deleted, and nothing holds it any more.
        too_large: why no node would have capacity for it, in a line, and when that was found.
    """

    reported: set[str] = field(default_factory=set)
    seen: set[str] = field(default_factory=set)
    gone_at: dict[str, float] = field(default_factory=dict)
    ended_since: dict[str, float] = field(default_factory=dict)
    unneeded_since: dict[str, float] = field(default_factory=dict)
    gang_since: float | None = None
    silent_since: float | None = None
    trouble: str = ""
    failed_gangs: int = 0
    not_before_seconds: float = -math.inf
    refused: str = ""
    forbidden: str = ""
    counted: str = ""
    given_up: tuple[str, str] = ("", "")
    retry_at: float = -math.inf
    made_again_at: float = -math.inf
    desired: Size | None = None
    requested: tuple[Size, float] = (Size(0, 0), -math.inf)
    warned_at: dict[str, float] = field(default_factory=dict)
    may_go: bool = False
    too_large: tuple[str, float] = ("", -math.inf)

    def keep(self, tasks: Collection[str], uids: Collection[str], now: float) -> None:
        """Forget all but these pods, which are there now: a job that runs for months has had many."""
        gone = {task: at for task, at in self.gone_at.items() if task not in tasks and now - at < _GONE_SECONDS}
        self.gone_at = {**gone, **dict.fromkeys(self.seen.difference(tasks), now)}
        self.seen = set(tasks)
        self.reported.intersection_update(uids)
        self.ended_since = {uid: since for uid, since in self.ended_since.items() if uid in uids}
        self.unneeded_since = {task: since for task, since in self.unneeded_since.items() if task in tasks}

    def on_gap(self, now: float) -> None:
        """Give whoever kept it waiting the whole time again: nobody looked for a while."""
        self.gang_since = None if self.gang_since is None else now
        self.silent_since = None if self.silent_since is None else now
        self.ended_since = dict.fromkeys(self.ended_since, now)
        self.unneeded_since = dict.fromkeys(self.unneeded_since, now)

    def was_listed_before(self, job_report: CoordinatorReport, task: str) -> bool:
        """Whether a coordinator spoke before a task's pod was gone: it may want the pod that it had, and no other."""
        return job_report.at_seconds <= self.gone_at.get(task, -math.inf)

    def warns(self, trouble: str, now: float) -> bool:
        """Whether to report a trouble: not again at every poll."""
        self.warned_at = {each: at for each, at in self.warned_at.items() if now - at < _WARNED_AGAIN_SECONDS}
        if trouble in self.warned_at:
            return False
        self.warned_at[trouble] = now
        return True

    def on_gang_failed(self, why: str, now: float) -> None:
        """The first pods did not come: another try later, each time more so; long after what would be refused again."""
        pause = min(_FIRST_PAUSE_SECONDS * 2.0 ** min(self.failed_gangs, _MOST_DOUBLINGS), _LONGEST_PAUSE_SECONDS)
        self.failed_gangs += 1
        pause = _LONGEST_PAUSE_SECONDS if self.forbidden else pause
        self.not_before_seconds, self.gang_since, self.refused = now + pause, None, why

    def on_trains(self) -> None:
        """All that it needs is there."""
        self.gang_since, self.failed_gangs, self.refused, self.not_before_seconds = None, 0, "", -math.inf

    def on_pod_refused(self, now: float) -> None:
        """A pod of a job that runs could not be made: not again at every look."""
        self.made_again_at = now + (_LONGEST_PAUSE_SECONDS if self.forbidden else _FIRST_PAUSE_SECONDS)

    def forbids(self, now: float) -> str:
        """Why the namespace takes no pod like one of its; empty where it does, or where that is to be tried again."""
        return self.forbidden if now < max(self.not_before_seconds, self.made_again_at) else ""

    def on_requested(self, request_id: str, given_up: str, now: float) -> None:
        """A coordinator took a request, or gave it up for a reason."""
        if given_up:
            self.given_up, self.retry_at = (request_id, given_up), now + AGAIN_SECONDS
            self.requested = Size(0, 0), now


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
    """What people are told, and what to ask the coordinator for, so that a job gets the size that is desired."""
    desired = seen.desired
    size = Size(desired.ps, desired.workers)
    request = Request.RESIZE if desired != SUSPENDED else Request.SUSPEND
    if status.phase is JobPhase.SUSPENDED:
        request = Request.RESUME
    done = desired == SUSPENDED if request is Request.RESUME else status.target == size
    if done or status.phase not in (JobPhase.RUNNING, JobPhase.RESIZING, JobPhase.SUSPENDED):
        return "", None
    name = f"{seen.decision}-{request}-{size.servers}x{size.workers}"
    line = {
        Request.RESIZE: f"becomes {size_words(desired)}",
        Request.SUSPEND: "gives back what it has",
        Request.RESUME: f"goes on with {size_words(desired)}",
    }[request]
    given_up, why = seen.memory.given_up
    if given_up.rpartition("-")[0] == name and seen.now < seen.memory.retry_at:
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
    """A task's end that the coordinator has to hear of; without the uid of a pod nobody has seen one."""

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
        """Of a gang: the tasks that there has to be capacity for before any is made."""
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
    """A deleted job may go: whether its last checkpoint is there, and what people are told, if anything."""

    is_written: bool = True
    line: str = ""


def parting(seen: SeenJob, limit_seconds: float) -> Parting | None:
    """Whether a deleted job may go; None: its last checkpoint is waited for, at most so long since the deletion."""
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
