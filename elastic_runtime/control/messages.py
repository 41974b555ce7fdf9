"""Messages of the control plane beside views, as plain values: reports, registrations, requests, status.

The generated classes of the protocol stay inside `conversions`; a coordinator's state machine and its members' loops
know these only.
"""

from __future__ import annotations

from dataclasses import dataclass

from elastic_runtime.protocol.plan import JobPhase, TaskRole
from foundation.python310 import StrEnum


class ResizeMode(StrEnum):
    """How blocks get to their new owners."""

    ROLLING = "rolling"
    """A few blocks at each step, while training goes on."""
    STOP_THE_WORLD = "stop-the-world"
    """All blocks at one step, at which all workers wait."""
    CHECKPOINT_RESTART = "checkpoint-restart"
    """All tasks end after a checkpoint, and others begin from it."""


class RequestOutcome(StrEnum):
    """Where a request is."""

    QUEUED = "queued"
    RUNNING = "running"
    DONE = "done"
    ABORTED = "aborted"


@dataclass(frozen=True, slots=True)
class Size:
    """How many parameter servers and workers; 0/0 is a suspended job."""

    servers: int
    workers: int

    def __str__(self) -> str:
        servers, workers = "s" * (self.servers != 1), "s" * (self.workers != 1)
        return f"{self.servers} PS{servers} and {self.workers} worker{workers}"


@dataclass(frozen=True, slots=True)
class Shard:
    """What one parameter server wrote of the checkpoint at `step` that a `change` asked for; `name` is the file's."""

    name: str
    step: int
    size_bytes: int
    sha256: str
    change: int = 0


@dataclass(frozen=True, slots=True)
class MemberReport:
    """The whole state of a member as its coordinator has to know it; a newer report replaces an older one.

    Attributes:
        view: number of the newest view that was acted on.
        generation: the one that `step`, `ready` and the rest are of.
        step: workers: the step that is begun next or being computed; servers: the lowest version of their blocks.
        accepted: number of the newest proposal that the worker accepted; it does not begin the proposal's clock.
        refused: number of the newest proposal that came too late for the worker.
        ready: servers: the generation's blocks are loaded; workers: warmed up.
        arrived: servers: every block of the changes up to this number is here.
        initialised: this worker wrote the job's first checkpoint.
        failure: one line, if the user's script raised or the member cannot go on.
        bad_input: it is of wrong usage or bad input, so that another try would end the same.
        loss: of the newest step; None where unknown.
        stall_seconds: in resizes since the process began: workers: waited, or spent on going over to other plans;
            servers: pushes waited so long for blocks to arrive, of each step the slowest.
        suspects: peers of the data plane that do not answer.
        left: the member stopped working; its process is about to end.
        draining: the member was told to go, and does as soon as it is let go.
        signalled: a handler of the script's own got SIGTERM: however the process ends now, it was drained.
        damage: servers: what is wrong with the checkpoint that the generation begins from; it waits for another one.
    """

    task: str
    incarnation: int
    view: int = 0
    generation: int = 0
    step: int = 0
    accepted: int = 0
    refused: int = 0
    ready: bool = False
    arrived: int = 0
    shards: tuple[Shard, ...] = ()
    initialised: bool = False
    finished: bool = False
    failure: str = ""
    loss: float | None = None
    samples: int = 0
    samples_per_second: float = 0.0
    step_seconds: float = 0.0
    stall_seconds: float = 0.0
    bytes_sent: int = 0
    bytes_received: int = 0
    owned_bytes: int = 0
    moved_bytes: int = 0
    suspects: tuple[str, ...] = ()
    staleness: int = 0
    left: bool = False
    draining: bool = False
    damage: str = ""
    bad_input: bool = False
    signalled: bool = False


@dataclass(frozen=True, slots=True)
class TaskRegistration:
    """The coordinator's answer to a task that registered; the JSONs are what the job's first worker brought."""

    layout_json: bytes
    training_json: bytes
    report_every_seconds: float


@dataclass(frozen=True, slots=True)
class RequestState:
    """One request of a scheduler and how far it is; times are Unix seconds, 0 where not yet.

    Attributes:
        stall_seconds: how long the worker that waited longest did so because of it.
        clock: the first step for which it holds; `steps`: over how many it was spread.
        start_seconds: until its new processes were up; the others are seconds too, of DL2's steps:
        registration_seconds: until these were ready to take part.
        assignment_seconds: to find who is to own which blocks.
        agreement_seconds: until all workers had agreed to the clock, while they trained.
        migration_seconds: from then on until all moved blocks were where they belong, while the workers trained.
    """

    request_id: str
    kind: str
    state: RequestOutcome = RequestOutcome.QUEUED
    detail: str = ""
    target: Size = Size(0, 0)
    mode: ResizeMode = ResizeMode.ROLLING
    victims: tuple[str, ...] = ()
    began_unix_seconds: float = 0.0
    ended_unix_seconds: float = 0.0
    moved_bytes: int = 0
    minimum_bytes: int = 0
    stall_seconds: float = 0.0
    clock: int = 0
    steps: int = 0
    start_seconds: float = 0.0
    registration_seconds: float = 0.0
    assignment_seconds: float = 0.0
    agreement_seconds: float = 0.0
    migration_seconds: float = 0.0

    @property
    def ended(self) -> bool:
        """Nothing more happens to it."""
        return self.state in {RequestOutcome.DONE, RequestOutcome.ABORTED}


@dataclass(frozen=True, slots=True)
class TaskStatus:
    """One task, for people and schedulers; `state`: wanted, registered, member or leaving."""

    task: str
    role: TaskRole
    state: str
    step: int = 0
    samples_per_second: float = 0.0
    report_age_seconds: float = 0.0
    bytes_sent: int = 0
    bytes_received: int = 0
    owned_bytes: int = 0
    stall_seconds: float = 0.0
    step_age_seconds: float = 0.0


@dataclass(frozen=True, slots=True)
class JobStatus:
    """Status of a job.

    Attributes:
        step: steps that every worker has finished.
        durable_step: steps that no failure can undo.
        size: running; `target`: desired.
        samples: trained in the job, the repeated ones once.
        stall_seconds: the longest wait of any worker in resizes.
        staleness: asynchronous training: median of the last updates, in versions.
        replicas: holders that each block is to have; of `blocks` so many have two now: `blocks_with_replica`.
        failures: of the script, in the job's life; `failures_in_a_row`: of these, since a step became durable.
        last_failure: the newest, in a line; not the job's end, which is `failure`.
    """

    job: str
    phase: JobPhase
    generation: int = 0
    step: int = 0
    total_steps: int = 0
    epoch: float = 0.0
    total_epochs: float = 0.0
    durable_step: int = 0
    size: Size = Size(0, 0)
    target: Size = Size(0, 0)
    tasks: tuple[TaskStatus, ...] = ()
    requests: tuple[RequestState, ...] = ()
    loss: float | None = None
    samples_per_second: float = 0.0
    step_seconds: float = 0.0
    stall_seconds: float = 0.0
    failure: str = ""
    samples: int = 0
    wanted: tuple[str, ...] = ()
    leaving: tuple[str, ...] = ()
    staleness: int = 0
    mode: str = "synchronous"
    replicas: int = 1
    blocks: int = 0
    blocks_with_replica: int = 0
    failures: int = 0
    failures_in_a_row: int = 0
    last_failure: str = ""
