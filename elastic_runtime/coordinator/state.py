"""What a coordinator has to remember beyond its own end: sections of plain values, replaced and never changed.

A section that was replaced is journaled whole, before anything that depends on it is published. What members report is
not here: they report it again.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from elastic_runtime.control.messages import RequestState, Shard, Size
from elastic_runtime.protocol.plan import Change, Member, Phase, Plan, Role


class TaskState(StrEnum):
    """Where a task is."""

    WANTED = "wanted"
    """Somebody is to start it."""
    LIVE = "live"
    """Registered, and heard of in time."""
    LEAVING = "leaving"
    """Live, told to end."""
    GONE = "gone"
    """Ended, lost or given up; its name is not used again."""


@dataclass(frozen=True)
class Task:
    """One worker or PS of the job."""

    name: str
    role: Role
    state: TaskState = TaskState.WANTED
    incarnation: int = 0
    address_json: str = ""

    @property
    def live(self) -> bool:
        """Registered and not lost."""
        return self.state in {TaskState.LIVE, TaskState.LEAVING}

    @property
    def number(self) -> int:
        """The order in which tasks of a role were wanted."""
        return int(self.name.rpartition("-")[2])

    def member(self) -> Member:
        """As it stands in a view."""
        return Member(self.name, self.role, self.incarnation, self.address_json)


@dataclass(frozen=True)
class Roster:
    """All tasks that are wanted or there, and the number of the next one of each role."""

    tasks: Mapping[str, Task] = field(default_factory=dict)
    next_number: Mapping[Role, int] = field(default_factory=lambda: {Role.WORKER: 0, Role.SERVER: 0})


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
    """Where the job is and what size it should have.

    Attributes:
        formed: while STARTING or RECOVERING: the new generation is published and waits for its servers.
        settled: what `target` was before the running resize; where an abort goes back to.
        losses: tasks lost since the durable step last grew.
        notice: a line for people, of this start or resume.
    """

    phase: Phase = Phase.STARTING
    target: Size = field(default_factory=lambda: Size(1, 1))
    settled: Size = field(default_factory=lambda: Size(1, 1))
    formed: bool = False
    initialiser: str = ""
    failure: str = ""
    losses: int = 0
    script_failures: int = 0
    notice: str = ""


@dataclass(frozen=True)
class Generation:
    """What was decided since the checkpoint that all began from.

    Attributes:
        moving: number of the confirmed change that is not over yet; 0: none.
        purpose: of the proposal, or of the change that is moving.
        minimum_bytes: what best-fit has to move in it.
        ended: a worker took the last step's values: every step is applied, and workers may go.
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
    """The complete checkpoints (newest last) as (name, step), and the one being written.

    `book_json`: what was lent to whom at the newest complete one.
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
    """Asynchronous training: what was lent to whom, as its book writes it."""

    book_json: str = ""


@dataclass
class State:
    """All sections; the machine replaces them one by one."""

    roster: Roster = field(default_factory=Roster)
    model: Model = field(default_factory=Model)
    course: Course = field(default_factory=Course)
    generation: Generation = field(default_factory=Generation)
    requests: Requests = field(default_factory=Requests)
    checkpoints: Checkpoints = field(default_factory=Checkpoints)
    numbers: Numbers = field(default_factory=Numbers)
    leases: Leases = field(default_factory=Leases)
