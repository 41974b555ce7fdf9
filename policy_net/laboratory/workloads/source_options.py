"""Options of a workload, whatever its source: how much of it, how its jobs train, for which machines."""

from __future__ import annotations

import math
from dataclasses import dataclass, field

from policy_net.domain import SpeedModel
from policy_net.errors import BadInput
from policy_net.laboratory.speeds.speed import default_speeds
from policy_net.laboratory.workloads.workload import JobKindChoice


@dataclass(frozen=True, slots=True)
class WorkloadOptions:
    """How a workload is read; the defaults are those of `policy-net replay`.

    Attributes:
        seed: assigns models to the jobs of a real trace; also the generator's, unless its text names one.
        limit_jobs: consecutive jobs to take, by submit time; None for all.
        window: which run of `limit_jobs` jobs to take, from 0.
        job_kind: how the jobs of a real trace train; most of today's exchange gradients by all-reduce.
        nodes: of the cluster, if the user says how many; only the answer's words depend on it.
        gpus_per_node, cpus_per_node: of one node; a suggested size depends on them. None: what a recording shows, else
            2 GPUs, and 4 CPU cores for each, at least 8.
        machines_said_by: where the user says what the machines are; likewise for words alone.
        arrival_scale: every time between two arrivals is multiplied by this: 2 halves the arrival rate, 0.5 doubles
            it. The suggested size of the cluster is that of the unscaled workload, so that the load really changes.
        strict: whether a malformed row of a recorded workload is refused; else it is skipped and counted.
        speeds: the truth with which durations of a real trace are turned into work.
    """

    seed: int = 0
    limit_jobs: int | None = None
    window: int = 0
    job_kind: JobKindChoice = JobKindChoice.ALLREDUCE
    nodes: int | None = None
    gpus_per_node: int | None = None
    cpus_per_node: int | None = None
    machines_said_by: str = "--nodes, --gpus-per-node and --cpus-per-node"
    arrival_scale: float = 1.0
    strict: bool = False
    speeds: SpeedModel = field(default_factory=default_speeds)

    def __post_init__(self) -> None:
        if self.limit_jobs is not None and self.limit_jobs < 1:
            raise BadInput(f"limit-jobs is {self.limit_jobs}; use 1 or more")
        if self.window < 0:
            raise BadInput(f"window is {self.window}; the first one is 0")
        if self.window > 0 and self.limit_jobs is None:
            raise BadInput(f"window is {self.window}, but its length is not known; add limit-jobs")
        if self.seed < 0:
            raise BadInput(f"seed is {self.seed}; use 0 or more")
        if self.job_kind not in tuple(JobKindChoice):
            raise BadInput(f"job-kind is {self.job_kind!r}; use {', '.join(JobKindChoice)}")
        object.__setattr__(self, "job_kind", JobKindChoice(self.job_kind))  # a library user may give its text
        if not (math.isfinite(self.arrival_scale) and self.arrival_scale > 0):
            raise BadInput(f"arrival-scale is {self.arrival_scale}; use a finite number above 0")
