"""The cluster that a workload meets: its nodes, when decisions are taken, and how noisy speeds are."""

from __future__ import annotations

import math
from dataclasses import dataclass
from enum import StrEnum
from functools import cached_property

from policy_net.domain import CapacityMode, Node, Resources
from policy_net.errors import BadInput


class DecideOn(StrEnum):
    """When decisions are taken: at fixed slots (DL2), or on arrivals and completions (live clusters)."""

    SLOT = "slot"
    EVENT = "event"


@dataclass(frozen=True)
class Environment:
    """A simulated cluster.

    Attributes:
        slot_seconds: length of a slot; under event decisions, the longest time between two decisions.
        debounce_seconds: under event decisions, the shortest time between two decisions.
        speed_noise: standard deviation of a job's speed in one interval, relative to its true mean; 0 for none.
        seed: of the noise.
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

    def __post_init__(self) -> None:
        least = {"nodes": (self.nodes, 1), "gpus_per_node": (self.gpus_per_node, 0)}
        least["cpus_per_node"] = (self.cpus_per_node, 1)
        for name, (value, minimum) in least.items():
            if value < minimum:
                raise BadInput(f"{name} is {value}: use {minimum} or more")
        if not (math.isfinite(self.slot_seconds) and self.slot_seconds > 0):
            raise BadInput(f"slot_seconds is {self.slot_seconds}: use a finite number above 0")
        for name, amount in (("debounce_seconds", self.debounce_seconds), ("speed_noise", self.speed_noise)):
            if not (math.isfinite(amount) and amount >= 0):
                raise BadInput(f"{name} is {amount}: use a finite number from 0 on")

    @cached_property
    def node_list(self) -> tuple[Node, ...]:
        """The machines, named node-0, node-1, …; always the same object, so that what is derived from it is kept."""
        capacity = Resources(self.cpus_per_node * 1000, self.gpus_per_node)
        return tuple(Node(f"node-{index}", capacity) for index in range(self.nodes))
