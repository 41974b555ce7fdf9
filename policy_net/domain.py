"""The words that every part of fedl2 shares: what a cluster looks like, and what a scheduler says.

Everything here is frozen and free of behaviour beyond arithmetic on itself, so that a state can be logged, replayed and
compared bit for bit. CPU is counted in millicores and GPUs in whole devices: integers add up exactly.
Source: DL2 §3 (jobs, workers, parameter servers, slots).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from types import MappingProxyType
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:  # the words weigh nothing: help and refusals of a program need them, and no arrays
    import numpy as np
    from numpy.typing import NDArray

MAX_TASKS_PER_ROLE = 16
"""At most this many workers, and this many parameter servers, of a job that has servers; and so many workers of any job
that asks for no more. Source: DL2 §6.1 (authors' set-up)."""

MAX_ALLREDUCE_WORKERS = 64
MOST_SAMPLES_PER_WORKER_SECOND = 1e8
"""No worker trains more: a sample of some ten bytes, forward and back, is what the memory of a core lets through in ten
nanoseconds, and what reaches a GPU over its bus."""
"""At most this many workers of an all-reduce job, if it asks for more than the usual 16: as many as were measured."""


@dataclass(frozen=True, slots=True)
class Resources:
    """An amount of CPU (millicores) and GPUs (devices): what a task needs, or what a node has."""

    cpu_milli: int
    gpu: int = 0

    def __add__(self, other: Resources) -> Resources:
        return Resources(self.cpu_milli + other.cpu_milli, self.gpu + other.gpu)

    def __sub__(self, other: Resources) -> Resources:
        return Resources(self.cpu_milli - other.cpu_milli, self.gpu - other.gpu)

    def __mul__(self, count: int) -> Resources:
        return Resources(self.cpu_milli * count, self.gpu * count)

    def fits_in(self, other: Resources) -> bool:
        """Whether this amount can be taken from `other` without going below zero."""
        return self.cpu_milli <= other.cpu_milli and self.gpu <= other.gpu


@dataclass(frozen=True, slots=True, order=True)
class Allocation:
    """How many workers and parameter servers a job has; 0/0 means suspended."""

    workers: int = 0
    ps: int = 0

    @property
    def tasks(self) -> int:
        """Workers and parameter servers together."""
        return self.workers + self.ps

    def most(self, other: Allocation) -> Allocation:
        """The more of both, of each role."""
        return Allocation(max(self.workers, other.workers), max(self.ps, other.ps))


SUSPENDED = Allocation(0, 0)


class JobKind(StrEnum):
    """How a job's workers exchange gradients: over servers in step, over servers each at its own pace, or directly."""

    PS = "ps"
    ASYNC = "async"
    ALLREDUCE = "allreduce"

    @property
    def uses_ps(self) -> bool:
        """Whether such a job trains only with parameter servers; else it never holds any."""
        return self is not JobKind.ALLREDUCE

    @property
    def most_workers(self) -> int:
        """The most workers that such a job may ask for."""
        return MAX_TASKS_PER_ROLE if self.uses_ps else MAX_ALLREDUCE_WORKERS

    @property
    def most_ps(self) -> int:
        """The most parameter servers that such a job may ask for."""
        return MAX_TASKS_PER_ROLE if self.uses_ps else 0

    def usual_max_workers(self, requested: int) -> int:
        """The most workers of a job of which nobody says it: the usual number, or what it asked for if that is more."""
        return min(max(requested, MAX_TASKS_PER_ROLE), self.most_workers)


class CapacityMode(StrEnum):
    """Whether tasks are placed on nodes, or only have to fit the cluster's total."""

    NODES = "nodes"
    POOLED = "pooled"


class Moves(StrEnum):
    """When a job's tasks may go to other nodes: with any decision, only with its size, or never while it has tasks."""

    FREELY = "freely"
    WITH_SIZE = "with-size"
    NEVER = "never"


class Trigger(StrEnum):
    """Why a decision is taken now."""

    SLOT = "slot"
    ARRIVAL = "arrival"
    COMPLETION = "completion"
    NODE_CHANGE = "node-change"


@dataclass(frozen=True, slots=True)
class Job:
    """An unfinished training job as a scheduler sees it at one moment.

    Attributes:
        job_type: the model's name, such as `vgg-16`; beliefs and one-hot columns are per type.
        samples_per_epoch: speed in samples/s divided by this is the speed in epochs/s.
        total_epochs: what the user declared; `remaining_epochs` is what is left of it.
        requested: the size the user asked for; fixed-size schedulers give exactly this.
        run_seconds: time so far during which the job held a usable allocation.
        kind: an all-reduce job never holds parameter servers (its `max_ps` and `min_ps` are 0).
        min_workers, min_ps: with fewer tasks, but for none at all, the job makes no progress.
        work_known: whether anybody declared `total_epochs`. If not, it and `remaining_epochs` are no more than a guess
            from what the job has trained so far: as much again.
        moves: when its tasks may go to other nodes, where a state says where they lie.
    """

    job_id: str
    job_type: str
    submit_time_seconds: float
    worker_demand: Resources
    ps_demand: Resources
    samples_per_epoch: float
    total_epochs: float
    remaining_epochs: float
    requested: Allocation = Allocation(1, 1)
    max_workers: int = MAX_TASKS_PER_ROLE
    max_ps: int = MAX_TASKS_PER_ROLE
    run_seconds: float = 0.0
    current: Allocation = SUSPENDED
    kind: JobKind = JobKind.PS
    min_workers: int = 1
    min_ps: int = 1
    work_known: bool = True
    moves: Moves = Moves.FREELY

    @property
    def smallest(self) -> Allocation:
        """The least with which the job makes progress: one worker and one parameter server, unless it says more."""
        return Allocation(self.min_workers, self.min_ps)

    def can_train(self, allocation: Allocation) -> bool:
        """Whether the job makes progress with this much."""
        return allocation.workers >= max(self.min_workers, 1) and allocation.ps >= self.min_ps


@dataclass(frozen=True, slots=True)
class Node:
    """One machine, its total resources, and the type of its GPUs, such as `v100`, where types matter."""

    node_id: str
    capacity: Resources
    gpu_type: str = ""


@dataclass(frozen=True, slots=True)
class Share:
    """The tasks of one job on one node."""

    node_id: str
    allocation: Allocation


Placement = Mapping[str, tuple[Share, ...]]
"""Job id to the nodes that hold its tasks."""


@dataclass(frozen=True, slots=True)
class ClusterState:
    """Everything a scheduler may look at when it decides.

    Attributes:
        jobs: unfinished jobs that have arrived, in arrival order.
        slot_seconds: the length of a slot, or of the tick under event decisions; also the unit of time features.
        placement: which nodes hold the jobs' tasks now, where it makes a difference and is known; None otherwise.
            A decision may then say where tasks are to go.
    """

    time_seconds: float
    nodes: tuple[Node, ...]
    jobs: tuple[Job, ...]
    slot_seconds: float
    capacity_mode: CapacityMode = CapacityMode.NODES
    placement: Placement | None = None

    @property
    def total(self) -> Resources:
        """The resources of all nodes together."""
        return Resources(
            sum(node.capacity.cpu_milli for node in self.nodes), sum(node.capacity.gpu for node in self.nodes)
        )


@dataclass(frozen=True, slots=True)
class DecisionOrigin:
    """Where a decision comes from, for whoever carries it out and says so: a policy's name, and a number of the log."""

    policy: str = ""
    number: int = 0


@dataclass(frozen=True, slots=True)
class Decision:
    """What a policy wants for every job until the next decision.

    A job that is not named is suspended. `reasons` are short words for the log, such as `fallback:nan`. Decisions are
    equal whoever took them.
    """

    allocation: Mapping[str, Allocation]
    placement: Placement | None = None
    reasons: tuple[str, ...] = ()
    origin: DecisionOrigin = field(default=DecisionOrigin(), compare=False)

    def of(self, job_id: str) -> Allocation:
        """The allocation of one job; 0/0 if the decision does not name it."""
        return self.allocation.get(job_id, SUSPENDED)


@dataclass(frozen=True, slots=True)
class Progress:
    """What one job did between two decisions; beliefs and rewards are made of these.

    Attributes:
        seconds: how long it trained with it: less than the interval if it finished or lost a task in between, without
            the time that it paused, and zero for fewer tasks than it trains with. So samples / seconds is its speed.
        epochs: `samples` in epochs of this job.
        remaining_epochs: at the *start* of the interval.
        paused_seconds: how long it held its tasks but paused first, because of a resize or a resumption.
        places: of every node that held workers the type of its GPUs and how many workers; empty where that makes no
            difference, or nobody knows.
    """

    job_id: str
    job_type: str
    allocation: Allocation
    seconds: float
    samples: float
    epochs: float
    remaining_epochs: float
    finished: bool = False
    paused_seconds: float = 0.0
    places: tuple[tuple[str, int], ...] = ()

    @property
    def is_possible(self) -> bool:
        """Whether any machine could have trained so much; what a script says of itself may be anything."""
        worker_seconds = self.seconds * self.allocation.workers
        return 0.0 <= self.samples <= MOST_SAMPLES_PER_WORKER_SECOND * worker_seconds

    @property
    def unmeasured(self) -> Progress:
        """The same without what it says of speed."""
        paused = self.paused_seconds + self.seconds
        return replace(self, seconds=0.0, samples=0.0, epochs=0.0, paused_seconds=paused)


class SpeedModel(Protocol):
    """How fast a job of a type trains with a number of parameter servers and workers."""

    def samples_per_second(self, job_type: str, ps: int, workers: int) -> float:
        """Speed in samples/s; 0 if the allocation cannot train (no worker, or no parameter server for a PS type)."""
        ...

    def grid(self, job_type: str) -> NDArray[np.float64]:
        """Speeds in samples/s, indexed [ps, workers]; column 0 is zero. Do not write to it.

        A type trains either with servers (shape (17, 17), row 0 is zero) or by all-reduce (shape (1, 65): there is only
        row 0). Beyond its shape a type cannot train; `speed_at` says 0 there.
        """
        ...


def speed_at(grid: NDArray[np.float64], ps: int, workers: int) -> float:
    """The speed in samples/s of one cell of a grid [ps, workers]; 0 beyond it, where the type cannot train."""
    rows, columns = grid.shape
    return float(grid[ps, workers]) if ps < rows and workers < columns else 0.0


class PlacementEffect(Protocol):
    """How much slower a job trains where its workers lie than the speed model says for its best place."""

    def relative_speed(self, job_type: str, workers_by_node: Sequence[tuple[str, int]]) -> float:
        """Speed there over the speed model's, above 0.

        Args:
            workers_by_node: for every node that holds workers of the job, its GPU type and how many.
        """
        ...


class RewardKind(StrEnum):
    """Which reward a policy that learns climbs; see `policy_net.learning.reward`."""

    SLOT_UTILITY = "slot-utility"
    PAPER = "paper"
    OWN_JOB = "own-job"


@dataclass(frozen=True, slots=True)
class PolicyContext:
    """What a policy may be given when it is built.

    Attributes:
        true_speeds: the simulator's truth; None outside simulations, so that no live policy can come to depend on it.
        measured_speeds: a fit to points that somebody measured beforehand; None where nobody did.
    """

    seed: int = 0
    true_speeds: SpeedModel | None = None
    measured_speeds: SpeedModel | None = None
    options: Mapping[str, object] = field(default_factory=lambda: MappingProxyType({}))
