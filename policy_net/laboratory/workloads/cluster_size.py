"""Size of a cluster: how large a one suits a real trace, and whether one can hold a job at all."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from policy_net.domain import Allocation, Resources
from policy_net.laboratory.catalogue import ModelProfile

TARGET_LOAD = 0.9
"""GPUs asked for over GPUs there are: busy enough that scheduling matters, and stable."""


@dataclass(frozen=True, slots=True)
class GpuRequest:
    """When a job was submitted, how long it ran, and on how many GPUs."""

    submit_seconds: float
    duration_seconds: float
    gpus: int


@dataclass(frozen=True, slots=True)
class ClusterSize:
    """Equal nodes."""

    nodes: int
    gpus_per_node: int
    cpus_per_node: int

    @property
    def node(self) -> Resources:
        """What one node has."""
        return Resources(self.cpus_per_node * 1000, self.gpus_per_node)

    def holds(self, profile: ModelProfile, allocation: Allocation) -> bool:
        """Whether the empty cluster can hold the job: workers spread evenly, then PSs in the CPU that is left."""
        evenly, rest = divmod(allocation.workers, self.nodes)
        servers = 0
        for workers, count in ((evenly + 1, rest), (evenly, self.nodes - rest)):
            taken = profile.worker_demand * workers
            if count and not taken.fits_in(self.node):
                return False
            if not profile.kind.uses_ps:
                continue
            servers += count * ((self.node - taken).cpu_milli // profile.ps_demand.cpu_milli)
        return allocation.ps <= servers


def clipped_gpu_load(requests: Sequence[GpuRequest]) -> float:
    """GPUs in use on average between the first and the last submission, every job starting when it is submitted.

    Durations are clipped at the last submission: what would run on beyond it is no load of this window. 0 if all jobs
    are submitted at once, when there is no such time.
    """
    start = min(request.submit_seconds for request in requests)
    end = max(request.submit_seconds for request in requests)
    if end <= start:
        return 0.0
    gpu_seconds = (min(request.duration_seconds, end - request.submit_seconds) * request.gpus for request in requests)
    return math.fsum(gpu_seconds) / (end - start)


def nodes_for(requests: Sequence[GpuRequest], load: float, gpus_per_node: int, target_load: float = TARGET_LOAD) -> int:
    """Nodes that hold the largest request, and the load at 90% or what else is wanted."""
    largest = max(request.gpus for request in requests)
    return math.ceil(max(largest, load / target_load) / gpus_per_node)
