"""Jobs and nodes of a case of the compiled twin as its code reads them, the same for every scheduler."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from policy_net.domain import MAX_ALLREDUCE_WORKERS, MAX_TASKS_PER_ROLE, JobKind, PlacementEffect, Resources
from policy_net.laboratory.noise import JOB_PART, job_key, noise_factor
from policy_net.laboratory.simulation.case_nodes import NodeStages, all_node_ids
from policy_net.laboratory.simulation.environment import Environment
from policy_net.laboratory.simulation.kept import kept_for_the_latest
from policy_net.laboratory.workloads.workload import Workload, WorkloadJob
from policy_net.placement.layout import placing_order
from policy_net.twin.memory import JOB


@dataclass(frozen=True, slots=True)
class CaseJobs:
    """What follows from a workload and its cluster.

    Attributes:
        kinds: of every type, in the order of their numbers.
        beyond: types of which some job may have, or asks for, more than the usual number of workers.
        classes: what tasks need, each once, in placing order.
        rows: of `JOB`, one a job.
        nodes: that they meet.
    """

    kinds: Mapping[str, JobKind]
    beyond: Set[str]
    classes: Sequence[Resources]
    rows: NDArray[Any]
    nodes: NodeStages


@kept_for_the_latest
def case_jobs(workload: Workload, environment: Environment) -> CaseJobs:
    """The jobs of a workload on a cluster."""
    kinds = {job.job_type: job.kind for job in workload.jobs}
    beyond = {job.job_type for job in workload.jobs if max(job.max_workers, job.requested.workers) > MAX_TASKS_PER_ROLE}
    classes = _demand_classes(workload.jobs)
    rows = _job_rows(workload.jobs, environment, list(kinds), classes)
    return CaseJobs(kinds, beyond, classes, rows, NodeStages(environment, classes))


@kept_for_the_latest
def relative_speeds(
    effect: PlacementEffect, workload: Workload, environment: Environment
) -> Mapping[str, NDArray[np.float64]]:
    """By type, speeds over that in its best place, shape (65, 65) [workers, nodes that hold some]."""
    most_nodes, beyond = len(all_node_ids(environment)), case_jobs(workload, environment).beyond
    return {
        job_type: _relative_speeds(
            effect, job_type, MAX_ALLREDUCE_WORKERS if job_type in beyond else MAX_TASKS_PER_ROLE, max(most_nodes, 2)
        )
        for job_type in case_jobs(workload, environment).kinds
    }


def _demand_classes(jobs: Sequence[WorkloadJob]) -> list[Resources]:
    """What tasks need, each once, in placing order."""
    demands = {job.worker_demand for job in jobs} | {job.ps_demand for job in jobs if job.max_ps}
    return sorted(demands, key=placing_order)


def _job_rows(
    jobs: Sequence[WorkloadJob], environment: Environment, types: list[str], classes: list[Resources]
) -> NDArray[Any]:
    numbers = {job_type: number for number, job_type in enumerate(types)}
    places = {demand: place for place, demand in enumerate(classes)}
    keys = [job_key(environment.seed, job.job_id) for job in jobs]
    columns: dict[str, Sequence[float]] = {
        "submit_seconds": [job.submit_time_seconds for job in jobs],
        "total_epochs": [job.total_epochs for job in jobs],
        "declared_epochs": [math.nan if job.declared_epochs is None else job.declared_epochs for job in jobs],
        "samples_per_epoch": [job.samples_per_epoch for job in jobs],
        "speed_factor": [noise_factor(key, JOB_PART, environment.job_noise) for key in keys],
        "noise_key": keys,
        "type": [numbers[job.job_type] for job in jobs],
        "uses_ps": [job.kind.uses_ps for job in jobs],
        "work_known": [job.work_known for job in jobs],
        "worker_cpu": [job.worker_demand.cpu_milli for job in jobs],
        "worker_gpu": [job.worker_demand.gpu for job in jobs],
        "ps_cpu": [job.ps_demand.cpu_milli for job in jobs],
        "ps_gpu": [job.ps_demand.gpu for job in jobs],
        "worker_class": [places[job.worker_demand] for job in jobs],
        "ps_class": [places[job.ps_demand if job.max_ps else job.worker_demand] for job in jobs],
        "requested_workers": [job.requested.workers for job in jobs],
        "requested_ps": [job.requested.ps for job in jobs],
        "max_workers": [job.max_workers for job in jobs],
        "max_ps": [job.max_ps for job in jobs],
        "min_workers": [job.min_workers for job in jobs],
        "min_ps": [job.min_ps for job in jobs],
    }
    rows = np.zeros(len(jobs), dtype=JOB)
    for name, values in columns.items():
        rows[name] = values
    return rows


def _relative_speeds(effect: PlacementEffect, job_type: str, most: int, all_nodes: int) -> NDArray[np.float64]:
    """Speeds of a type over that in its best place, shape (65, 65) [workers, nodes that hold some], up to `most`."""
    side = MAX_ALLREDUCE_WORKERS + 1
    relative = np.ones((side, side))
    for workers in range(1, most + 1):
        for nodes in range(1, min(workers, all_nodes) + 1):
            apart = (("", workers - nodes + 1), *((("", 1),) * (nodes - 1)))
            relative[workers, nodes] = effect.relative_speed(job_type, apart)
    return relative
