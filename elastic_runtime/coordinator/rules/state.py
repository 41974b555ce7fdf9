"""State of a job: what a coordinator has to remember beyond its own end, in sections of plain values.

A section is replaced and never changed; one that was replaced is journaled whole, before anything that depends on it is
published. What members report is not here: they report it again. `phases` alone sets the phase, the proposal and the
change that is under way.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property, lru_cache

from elastic_runtime.control.messages import RequestState, Shard, Size
from elastic_runtime.errors import BadInput
from elastic_runtime.model.data_shards import SampleOrder, check_workers
from elastic_runtime.model.layout import Layout, difference
from elastic_runtime.model.training import Training
from elastic_runtime.protocol.plan import Change, JobPhase, Member, Plan, TaskRole
from foundation.backoff import Failures
from foundation.python310 import StrEnum


class TaskState(StrEnum):
    """Where a task is."""

    WANTED = "wanted"
    """Somebody is to start it."""
    LIVE = "live"
    """Registered, and heard of in time."""
    LEAVING = "leaving"
    GONE = "gone"
    """Ended, lost or given up; its name is not used again."""


def task_number(name: str) -> int:
    """The order in which tasks of a role were wanted, as their names say it."""
    return int(name.rpartition("-")[2])


@dataclass(frozen=True)
class Task:
    """One worker or PS of the job."""

    name: str
    role: TaskRole
    state: TaskState = TaskState.WANTED
    incarnation: int = 0
    address_json: str = ""

    @property
    def live(self) -> bool:
        """Registered and not lost."""
        return self.state in {TaskState.LIVE, TaskState.LEAVING}

    @property
    def number(self) -> int:
        """Of its name."""
        return task_number(self.name)

    def member(self) -> Member:
        """As it stands in a view."""
        return Member(self.name, self.role, self.incarnation, self.address_json)


@dataclass(frozen=True)
class Roster:
    """All tasks that are wanted or there, and the number of the next one of each role."""

    tasks: Mapping[str, Task] = field(default_factory=dict)
    next_number: Mapping[TaskRole, int] = field(default_factory=lambda: {TaskRole.WORKER: 0, TaskRole.SERVER: 0})


@dataclass(frozen=True)
class Model:
    """What the first worker brought (JSON texts); before, of a restored job, the layout of its checkpoint."""

    layout_json: str = ""
    training_json: str = ""


class Purpose(StrEnum):
    """What a change is for."""

    RESIZE = "resize"
    REPAIR = "repair"
    """Tasks that are lost, or want to go, are taken out."""
    CHECKPOINT = "checkpoint"
    SUSPEND = "suspend"
    RESTART = "restart"
    FINISH = "finish"


@dataclass(frozen=True)
class Course:
    """Phase of the job, and the size that it is to have.

    Attributes:
        formed: while STARTING or RECOVERING: the new generation is published and waits for its servers.
        settled: `target` before the running resize; where an abort goes back to.
        losses: tasks lost since the durable step last grew.
        failures: of tasks, by the script's fault as far as is known; its progress is the durable step.
        notice: a line for people, of this start or resume.
    """

    phase: JobPhase = JobPhase.STARTING
    target: Size = field(default_factory=lambda: Size(1, 1))
    settled: Size = field(default_factory=lambda: Size(1, 1))
    formed: bool = False
    initialiser: str = ""
    failure: str = ""
    losses: int = 0
    failures: Failures = field(default_factory=Failures)
    last_failure: str = ""
    notice: str = ""


@dataclass(frozen=True)
class Generation:
    """Decisions since the checkpoint that all tasks began from.

    Attributes:
        moving: number of the confirmed change that is not over yet; 0: none.
        purpose: of the proposal, or of the change that is moving.
        minimum_bytes: what best-fit has to move in it.
        ended: a worker took the last step's values: every step is applied, and workers may go.
        ends_at: how many steps these are, where a script has ended the job before its time.
        lost: servers that the plans still name, and whose blocks their other holders have.
    """

    number: int = 0
    start_step: int = 0
    start_checkpoint: str = ""
    start_plan: Plan = field(default_factory=lambda: Plan((), ()))
    changes: tuple[Change, ...] = ()
    proposal: Change | None = None
    moving: int = 0
    purpose: Purpose = Purpose.RESIZE
    minimum_bytes: int = 0
    committed: int = 0
    ended: bool = False
    ends_at: int | None = None
    substitutes: Mapping[str, str] = field(default_factory=dict)
    lost: tuple[str, ...] = ()


@dataclass(frozen=True)
class Requests:
    """What schedulers asked for, oldest first; at most one runs."""

    rows: tuple[RequestState, ...] = ()


@dataclass(frozen=True)
class PendingCheckpoint:
    """A checkpoint that servers are writing, for a change."""

    name: str
    generation: int
    step: int
    servers: tuple[str, ...]
    shards: tuple[Shard, ...] = ()
    book_json: str = ""
    change: int = 0


@dataclass(frozen=True)
class Checkpoints:
    """Complete checkpoints (newest last) as (name, step), and the one being written.

    `book_json`: leases at the newest complete one.
    """

    durable: tuple[tuple[str, int], ...] = ()
    book_json: str = ""
    pending: PendingCheckpoint | None = None


@dataclass(frozen=True)
class Numbers:
    """Counters that never go back: the newest change, and a view number that none was published beyond."""

    change: int = 0
    view_limit: int = 0


@dataclass(frozen=True)
class Leases:
    """Asynchronous training: the table of leases, as `SampleLeaseTable` writes it."""

    book_json: str = ""


@dataclass(frozen=True)
class Leader:
    """The highest epoch of a scheduler's lease; 0 before one had a lease."""

    epoch: int = 0


@dataclass
class CoordinatorState:
    """All sections; the rules replace them one by one."""

    roster: Roster = field(default_factory=Roster)
    model: Model = field(default_factory=Model)
    course: Course = field(default_factory=Course)
    generation: Generation = field(default_factory=Generation)
    requests: Requests = field(default_factory=Requests)
    checkpoints: Checkpoints = field(default_factory=Checkpoints)
    numbers: Numbers = field(default_factory=Numbers)
    leases: Leases = field(default_factory=Leases)
    leader: Leader = field(default_factory=Leader)

    def set_course(self, **changes: object) -> None:
        """Replace fields of the course."""
        course: Course = replace(self.course, **changes)  # type: ignore[arg-type]  # names are Course's
        if course != self.course:
            self.course = course

    def set_generation(self, **changes: object) -> None:
        """Replace fields of the generation."""
        generation: Generation = replace(self.generation, **changes)  # type: ignore[arg-type]  # likewise
        if generation != self.generation:
            self.generation = generation


@dataclass(frozen=True)
class JobModel:
    """The model section, read: a model's layout and the choices of its training."""

    layout: Layout
    training: Training

    @cached_property
    def order(self) -> SampleOrder:
        """Of the samples."""
        return self.training.order()

    @property
    def total_steps(self) -> int | None:
        """Steps of the whole job; None in asynchronous training, which has no common step."""
        return self.order.total_steps if self.training.synchronous else None

    def refusal(self, other: JobModel, task: str) -> str:
        """Why a worker with another model cannot join; empty if it can."""
        differs = difference(other.layout, self.layout)
        if differs:
            return f"{task} has another model than its job: {differs}"
        differs = other.training.difference(self.training)
        if differs:
            return f"{task} trains otherwise than its job (here: the task; there: the job): {differs}"
        return ""

    def check(self, servers: int, workers: int) -> None:
        """Refuse a size with which a task would have nothing to do.

        Raises:
            BadInput: more PSs than blocks, or more workers than the batch allows.
        """
        if self.training.synchronous:
            check_workers(workers, self.training.global_batch, self.training.min_worker_batch)
        blocks = len(self.layout.blocks)
        if servers > blocks:
            raise BadInput(
                f"{servers} PSs for a model of {blocks} blocks: ask for at most {blocks}, one for each block"
            )


@lru_cache(maxsize=8)
def read_model(layout_json: str, training_json: str) -> JobModel:
    """The model of two JSON texts.

    Raises:
        BadInput: they are not what this version writes.
    """
    layout = Layout.from_json(layout_json.encode())
    if not layout.blocks:
        raise BadInput("a model without parameters; there is nothing to train")
    return JobModel(layout, Training.from_json(training_json.encode()))
