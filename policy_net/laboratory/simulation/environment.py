"""Environment of a workload: the cluster's nodes, when decisions are taken and why, and what disturbs the jobs.

Slots: a decision at every multiple of the slot length. Events: with the next arrival or completion, but not before the
debounce is over, and at the latest one slot length after the decision before (a tick). When nodes come or go, events
mean a decision at once: what a lost node held must go elsewhere. Under slots it waits for the next slot.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from dataclasses import asdict, dataclass
from enum import StrEnum
from functools import cached_property, wraps
from typing import Any, ParamSpec, TypeVar

from policy_net.domain import CapacityMode, Node, Resources, Trigger
from policy_net.errors import BadInput

SHORTEST_MTBF_SECONDS = 60.0
"""Nodes that fail more often than once a minute do nothing else."""


class DecideOn(StrEnum):
    """When decisions are taken: at fixed slots (DL2), or on arrivals and completions (live clusters)."""

    SLOT = "slot"
    EVENT = "event"


class PlacementStrategy(StrEnum):
    """Whether tasks go to the least loaded nodes, or a job's workers to as few nodes as possible."""

    SPREAD = "spread"
    PACK = "pack"


@dataclass(frozen=True, slots=True)
class NodeChange:
    """A node that comes (`up`) or goes at a time; one that comes has the cluster's usual size unless it says so."""

    time_seconds: float
    node_id: str
    up: bool
    capacity: Resources | None = None
    gpu_type: str = ""


@dataclass(frozen=True)
class Environment:
    """A simulated cluster.

    Attributes:
        nodes: how many there are at the beginning.
        slot_seconds: length of a slot; under event decisions, the longest time between two decisions.
        debounce_seconds: under event decisions, the shortest time between two decisions.
        speed_noise: standard deviation of a job's speed in one interval, relative to its true mean.
        job_noise: the same of a factor that a job keeps for life; only this part survives in its completion time.
        resize_seconds: pause of a running job whose number of tasks changes.
        resume_seconds: pause of a job that starts again after a suspension or the loss of a node.
        start_seconds: pause of a job's first start; 0 where recorded durations include it, as those of traces do.
        checkpoint_seconds: training time between two checkpoints, of which the loss of a node costs a job what it
            trained since the last; 0 if nothing is ever lost.
        placement: which nodes tasks go to, where a decision does not say it.
        node_sizes: what each node has at the beginning, where they differ; then `cpus_per_node` and `gpus_per_node` are
            those of nodes that come later.
        gpu_types: (name, number of nodes) of the first nodes, in this order; the others have no type.
        node_changes: nodes that come and go by plan, by time.
        node_mtbf_seconds, node_repair_seconds: mean time from a node's start to its failure, and from there to its
            return; 0 for no failures.
        seed: of the noise and the failures.
    """

    nodes: int
    gpus_per_node: int = 2
    cpus_per_node: int = 8
    slot_seconds: float = 1200.0
    decide_on: DecideOn = DecideOn.SLOT
    debounce_seconds: float = 60.0
    capacity_mode: CapacityMode = CapacityMode.NODES
    speed_noise: float = 0.0
    seed: int = 0
    job_noise: float = 0.0
    resize_seconds: float = 0.0
    resume_seconds: float = 0.0
    start_seconds: float = 0.0
    checkpoint_seconds: float = 0.0
    placement: PlacementStrategy = PlacementStrategy.SPREAD
    gpu_types: tuple[tuple[str, int], ...] = ()
    node_changes: tuple[NodeChange, ...] = ()
    node_mtbf_seconds: float = 0.0
    node_repair_seconds: float = 3600.0
    node_sizes: tuple[Resources, ...] = ()

    def __post_init__(self) -> None:
        least = {"nodes": (self.nodes, 1), "gpus_per_node": (self.gpus_per_node, 0)}
        least["cpus_per_node"] = (self.cpus_per_node, 1)
        for name, (value, minimum) in least.items():
            if value < minimum:
                raise BadInput(f"{name} is {value}: use {minimum} or more")
        if not (math.isfinite(self.slot_seconds) and self.slot_seconds > 0):
            raise BadInput(f"slot_seconds is {self.slot_seconds}: use a finite number above 0")
        for name in _FROM_ZERO:
            amount = getattr(self, name)
            if not (math.isfinite(amount) and amount >= 0):
                raise BadInput(f"{name} is {amount}: use a finite number from 0 on")
        if 0 < self.node_mtbf_seconds < SHORTEST_MTBF_SECONDS:
            raise BadInput(
                f"a node fails after {self.node_mtbf_seconds:g} s on average: use 0 for no failures, or"
                f" {SHORTEST_MTBF_SECONDS:g} s or more"
            )
        typed = sum(count for _, count in self.gpu_types)
        if typed > self.nodes or any(count < 1 for _, count in self.gpu_types):
            raise BadInput(f"gpu_types name {typed} nodes of {self.nodes}: give every type at least one, and no more")
        if self.node_sizes and len(self.node_sizes) != self.nodes:
            raise BadInput(f"node_sizes are of {len(self.node_sizes)} nodes of {self.nodes}: give every node its size")
        self._check_changes()

    def _check_changes(self) -> None:
        """Nodes must come before they go and the other way round, in order of time, and not all of them for good."""
        there = {f"node-{index}" for index in range(self.nodes)}
        previous = 0.0
        for change in self.node_changes:
            if not (math.isfinite(change.time_seconds) and change.time_seconds >= previous):
                raise BadInput(
                    f"node {change.node_id!r} changes at {change.time_seconds} s, after a change at {previous} s:"
                    " use finite times in order"
                )
            previous = change.time_seconds
            if change.up == (change.node_id in there):
                raise BadInput(
                    f"node {change.node_id!r} {'comes' if change.up else 'goes'} at {change.time_seconds:g} s, but is"
                    f" {'already' if change.up else 'not'} there"
                )
            there ^= {change.node_id}
        if not there:
            raise BadInput("the changes leave the cluster without a node: let one stay or come back")

    @property
    def node_capacity(self) -> Resources:
        """What one machine has."""
        return Resources(self.cpus_per_node * 1000, self.gpus_per_node)

    @property
    def changes_nodes(self) -> bool:
        """Whether nodes ever come or go."""
        return bool(self.node_changes or self.node_mtbf_seconds)

    @cached_property
    def node_list(self) -> tuple[Node, ...]:
        """The machines at the beginning, node-0, node-1, …; always the same object, as a key of caches."""
        types = [name for name, count in self.gpu_types for _ in range(count)]
        types += [""] * (self.nodes - len(types))
        sizes = self.node_sizes or (self.node_capacity,) * self.nodes
        return tuple(Node(f"node-{index}", sizes[index], types[index]) for index in range(self.nodes))

    @property
    def gpus(self) -> int:
        """GPUs of all machines at the beginning."""
        return sum(node.capacity.gpu for node in self.node_list)

    @property
    def notes(self) -> tuple[str, ...]:
        """What disturbs the jobs here, in plain words, to be printed with every result; nothing where nothing does."""
        notes = {
            f"a job's speed varies by {self.speed_noise:.0%} from interval to interval": self.speed_noise,
            f"a job's speed varies by {self.job_noise:.0%} from run to run": self.job_noise,
            f"a running job that is resized pauses {self.resize_seconds:g} s": self.resize_seconds,
            f"a job that starts again pauses {self.resume_seconds:g} s": self.resume_seconds,
            f"a job takes {self.start_seconds:g} s to start": self.start_seconds,
            f"a lost node costs what was trained since a checkpoint every {self.checkpoint_seconds:g} s": (
                self.checkpoint_seconds and self.changes_nodes
            ),
            f"a node fails after {self.node_mtbf_seconds / 3600:g} h on average and returns after"
            f" {self.node_repair_seconds / 3600:g} h": self.node_mtbf_seconds,
            f"nodes come and go by plan, {len(self.node_changes)} times": self.node_changes,
            "a job's workers are packed on few nodes": self.placement is PlacementStrategy.PACK,
        }
        return tuple(note for note, applies in notes.items() if applies)

    @cached_property
    def as_json(self) -> dict[str, Any]:
        """All settings as values that JSON gives back unchanged."""
        settings: dict[str, Any] = json.loads(json.dumps(asdict(self)))
        if not self.node_sizes:
            del settings["node_sizes"]  # as it was written before nodes could differ
        return settings


_FROM_ZERO = (
    "debounce_seconds",
    "speed_noise",
    "job_noise",
    "resize_seconds",
    "resume_seconds",
    "start_seconds",
    "checkpoint_seconds",
    "node_mtbf_seconds",
    "node_repair_seconds",
)


def next_decision(
    environment: Environment,
    now: float,
    completion_seconds: float,
    arrival_seconds: float,
    node_change_seconds: float = math.inf,
) -> tuple[float, Trigger]:
    """The decision after one taken `now`, given when a job next ends or arrives, or a node comes or goes (or never)."""
    if environment.decide_on is DecideOn.SLOT:
        return _slot_start(now, environment.slot_seconds, after=True), Trigger.SLOT
    event = max(min(completion_seconds, arrival_seconds), now + environment.debounce_seconds)
    tick = now + environment.slot_seconds
    if node_change_seconds <= min(event, tick):
        return node_change_seconds, Trigger.NODE_CHANGE
    if event > tick:
        return tick, Trigger.SLOT
    return event, Trigger.ARRIVAL if arrival_seconds <= completion_seconds else Trigger.COMPLETION


def decision_on_arrival(environment: Environment, arrival_seconds: float, earliest: float) -> tuple[float, Trigger]:
    """The decision that an arrival at an empty cluster brings; under events not before `earliest`."""
    if environment.decide_on is DecideOn.SLOT:
        return _slot_start(arrival_seconds, environment.slot_seconds), Trigger.SLOT
    return max(arrival_seconds, earliest), Trigger.ARRIVAL


def decision_on_nodes(environment: Environment, nodes_back_seconds: float) -> tuple[float, Trigger]:
    """The decision that the first node brings to a cluster that had none left."""
    if environment.decide_on is DecideOn.SLOT:
        return _slot_start(nodes_back_seconds, environment.slot_seconds), Trigger.SLOT
    return nodes_back_seconds, Trigger.NODE_CHANGE


def _slot_start(time: float, slot_seconds: float, *, after: bool = False) -> float:
    """The first slot start at or after a time, or strictly after it; always a slot number times the length."""
    number = math.floor(time / slot_seconds) - 1
    while number * slot_seconds < time or (after and number * slot_seconds <= time):
        number += 1
    return number * slot_seconds


# Workloads and environments never change, and many schedulers replay one workload: what follows from them alone is made
# once. They are told apart by identity: to compare a thousand jobs, or to hash them, costs as much as it would save.

KEPT = 2
"""Whoever compares schedulers takes one case after another; a case beside it is that of another thread."""

Parameters = ParamSpec("Parameters")
Result = TypeVar("Result")


def kept_for_the_latest(make: Callable[Parameters, Result]) -> Callable[Parameters, Result]:
    """A function of things that never change, called by position, that remembers its latest results by their identity.

    The things live as long as they are among the latest `KEPT`, so no other thing can take their identity meanwhile.
    Results are given to several callers, who must not change them.
    """
    latest: list[tuple[tuple[object, ...], Result]] = []

    @wraps(make)
    def kept(*things: Parameters.args, **named: Parameters.kwargs) -> Result:
        for known, result in latest:
            if len(known) == len(things) and all(one is other for one, other in zip(known, things, strict=True)):
                return result
        result = make(*things, **named)
        latest[:] = [(things, result), *latest[: KEPT - 1]]
        return result

    return kept
