"""The words that every part of fedl2 shares: what a cluster looks like, and what a scheduler says.

Everything here is frozen and free of behaviour beyond arithmetic on itself, so that a state can be logged, replayed and
compared bit for bit. CPU is counted in millicores and GPUs in whole devices: integers add up exactly.
Source: DL2 §3 (jobs, workers, parameter servers, slots).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from types import MappingProxyType
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

MAX_TASKS_PER_ROLE = 16
"""At most this many workers, and this many parameter servers, per job. Source: DL2 §6.1 (authors' set-up)."""


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


SUSPENDED = Allocation(0, 0)


class JobKind(StrEnum):
    """How a job's workers exchange gradients."""

    PS = "ps"
    ALLREDUCE = "allreduce"


class CapacityMode(StrEnum):
    """Whether tasks are placed on nodes, or only have to fit the cluster's total."""

    NODES = "nodes"
    POOLED = "pooled"


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
        current: what the job holds now, before the decision.
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


@dataclass(frozen=True, slots=True)
class Node:
    """One machine and its total resources."""

    node_id: str
    capacity: Resources


@dataclass(frozen=True, slots=True)
class ClusterState:
    """Everything a scheduler may look at when it decides.

    Attributes:
        jobs: unfinished jobs that have arrived, in arrival order.
        slot_seconds: the length of a slot, or of the tick under event decisions; also the unit of time features.
    """

    time_seconds: float
    nodes: tuple[Node, ...]
    jobs: tuple[Job, ...]
    slot_seconds: float
    capacity_mode: CapacityMode = CapacityMode.NODES

    @property
    def total(self) -> Resources:
        """The resources of all nodes together."""
        return Resources(
            sum(node.capacity.cpu_milli for node in self.nodes), sum(node.capacity.gpu for node in self.nodes)
        )


@dataclass(frozen=True, slots=True)
class Share:
    """The tasks of one job on one node."""

    node_id: str
    allocation: Allocation


Placement = Mapping[str, tuple[Share, ...]]
"""Job id to the nodes that hold its tasks."""


@dataclass(frozen=True, slots=True)
class Decision:
    """What a policy wants for every job until the next decision.

    A job that is not named is suspended. `reasons` are short words for the log, such as `fallback:nan`.
    """

    allocation: Mapping[str, Allocation]
    placement: Placement | None = None
    reasons: tuple[str, ...] = ()

    def of(self, job_id: str) -> Allocation:
        """The allocation of one job; 0/0 if the decision does not name it."""
        return self.allocation.get(job_id, SUSPENDED)


@dataclass(frozen=True, slots=True)
class Progress:
    """What one job did between two decisions; beliefs and rewards are made of these.

    Attributes:
        allocation: what the job really held.
        seconds: how long it held it (less than the interval if it finished in between).
        samples: trained samples in that time; zero for a one-sided allocation.
        epochs: `samples` in epochs of this job.
        remaining_epochs: at the *start* of the interval.
    """

    job_id: str
    job_type: str
    allocation: Allocation
    seconds: float
    samples: float
    epochs: float
    remaining_epochs: float
    finished: bool = False


class SpeedModel(Protocol):
    """How fast a job of a type trains with a number of parameter servers and workers.

    The simulator's truth and every belief implement this one protocol and are injected; nothing else tells them apart.
    """

    def samples_per_second(self, job_type: str, ps: int, workers: int) -> float:
        """Speed in samples/s; 0 if the allocation cannot train (no worker, or no parameter server for a PS job)."""
        ...

    def grid(self, job_type: str) -> NDArray[np.float64]:
        """Speeds in samples/s, shape (17, 17), indexed [ps, workers]; row and column 0 are zero. Do not write to it."""
        ...


@dataclass(frozen=True, slots=True)
class PolicyContext:
    """What a policy may be given when it is built.

    Attributes:
        seed: for policies that draw random numbers.
        true_speeds: the simulator's truth; None outside simulations, so that no live policy can come to depend on it.
    """

    seed: int = 0
    true_speeds: SpeedModel | None = None
    options: Mapping[str, object] = field(default_factory=lambda: MappingProxyType({}))
