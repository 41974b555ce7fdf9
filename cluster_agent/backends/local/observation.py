"""Observation of the machine: the jobs that a decision is about, what there is to share, and what may be decided.

A script of a fixed size keeps what it has until it ends, so it is out of what is decided about, and so is its share.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from statistics import median_high

from cluster_agent.backend_settings import LocalBackendSettings
from cluster_agent.backends.local.changes import demand
from cluster_agent.backends.local.job_processes import LocalMeasurement
from cluster_agent.backends.local.job_table import JobState, LocalJobRecord
from cluster_agent.backends.local.job_views import (
    GUESSED_SAMPLES_PER_EPOCH,
    UsualEpoch,
    samples_per_epoch,
    total_epochs,
)
from cluster_agent.backends.local.running_jobs import RunningJobs
from cluster_agent.errors import BadAgentConfig
from policy_net.domain import SUSPENDED, Allocation, CapacityMode, ClusterState, Decision, Job, Node, Resources
from policy_net.errors import InvalidAllocation

_LEAST_REMAINING_EPOCHS = 1e-3
"""A job that has not ended has something left, whatever it said that it would do."""


class Observation:
    """What there is to decide about now, on the machine `node` with all that jobs may have."""

    def __init__(self, jobs: RunningJobs, node: Node) -> None:
        self._jobs = jobs
        unended = jobs.table.unended
        stay = [record.file.takes(record.granted) for record in unended if _stays(record)]
        self._node = replace(node, capacity=node.capacity - sum(stay, Resources(0)))
        self._records = [record for record in unended if _is_scheduled(record)]

    @property
    def is_to_decide(self) -> bool:
        """Whether there is a job, and something to share."""
        return bool(self._records) and self._node.capacity.cpu_milli > 0

    def state(self, time_seconds: float, slot_seconds: float) -> ClusterState:
        """The machine as a policy sees it; measures every job."""
        usual, unknown = self._usual_epochs(), UsualEpoch()
        jobs = [
            scheduled_job(record, self._jobs.measure(record.name), usual.get(record.file.model_type, unknown))
            for record in self._records
        ]
        return ClusterState(time_seconds, (self._node,), tuple(jobs), slot_seconds, CapacityMode.POOLED)

    def _usual_epochs(self) -> dict[str, UsualEpoch]:
        """What an epoch has, by type: the median of its jobs."""
        known: dict[str, list[LocalJobRecord]] = {}
        for record in self._jobs.table:
            if record.samples_per_epoch:
                known.setdefault(record.file.model_type, []).append(record)
        return {
            model_type: UsualEpoch(
                median_high(record.samples_per_epoch for record in records),
                median_high([record.steps_per_epoch for record in records if record.steps_per_epoch] or [0.0]),
            )
            for model_type, records in known.items()
        }


def scheduled_job(record: LocalJobRecord, measured: LocalMeasurement, usual: UsualEpoch) -> Job:
    """What a policy may look at: nothing that a real cluster could not know; `usual` is an epoch of the job's type."""
    file = record.file
    per_epoch = samples_per_epoch(record, measured) or usual.samples or GUESSED_SAMPLES_PER_EPOCH
    done = max(measured.samples, record.samples) / per_epoch
    declared = total_epochs(record, measured, usual)
    total = max(2 * done, 1.0) if declared is None else declared
    # A held job may still have something: it is observed until it was taken away, and can get nothing.
    most = 0 if record.held else 1
    return Job(
        job_id=record.name,
        job_type=file.model_type,
        submit_time_seconds=record.submitted_unix_seconds,
        worker_demand=file.worker.demand,
        ps_demand=file.ps.demand,
        samples_per_epoch=per_epoch,
        total_epochs=total,
        remaining_epochs=max(total - done, _LEAST_REMAINING_EPOCHS),
        requested=SUSPENDED if record.held else _least(file.requested, record.most),
        max_workers=record.most.workers * most,
        max_ps=record.most.ps * most,
        run_seconds=record.run_seconds,
        current=measured.current,
        kind=file.kind,
        min_workers=file.least.workers,
        min_ps=file.least.ps,
        work_known=declared is not None,
    )


def _least(one: Allocation, other: Allocation) -> Allocation:
    return Allocation(min(one.workers, other.workers), min(one.ps, other.ps))


def check_decision(decision: Decision, jobs: Mapping[str, Job], total: Resources) -> None:
    """Refuse what was not asked about, or does not fit.

    Raises:
        InvalidAllocation: nothing has changed.
    """
    unknown = [name for name in decision.allocation if name not in jobs]
    if unknown:
        raise InvalidAllocation(f"{unknown[0]}: no job of that name was observed")
    taken = Resources(0)
    for name, job in jobs.items():
        desired = decision.of(name)
        if desired != SUSPENDED and (desired.workers > job.max_workers or desired.ps > job.max_ps):
            raise InvalidAllocation(f"{name}: {desired} is more than its {job.max_workers} workers, {job.max_ps} PSs")
        taken += demand(job, desired)
    if not taken.fits_in(total):
        raise InvalidAllocation(f"{taken} does not fit this machine's {total}")


def _is_scheduled(record: LocalJobRecord) -> bool:
    """Whether a decision is about it; about a held one as long as it has something."""
    wants = not record.held or record.state is JobState.RUNNING
    return wants and not record.cancelling and not _stays(record)


def _stays(record: LocalJobRecord) -> bool:
    """Whether it runs, and nobody but its user may stop it: it would start over."""
    return record.file.fixed and record.state is JobState.RUNNING and not record.held


NODE = "this-machine"
_CGROUP_LIMIT = Path("/sys/fs/cgroup/cpu.max")


def this_node(settings: LocalBackendSettings, gpus: int, cgroup_limit: Path = _CGROUP_LIMIT) -> Node:
    """Share of this machine that jobs may have: what this process may use, less what the operator keeps back.

    Raises:
        BadConfig: nothing is left, or there are not so many GPUs.
    """
    if settings.gpus is not None and settings.gpus > gpus:
        raise BadAgentConfig(
            f"setting backend.gpus = {settings.gpus}: NVIDIA's library finds {gpus} here; install nvidia-ml-py and a "
            "driver, or leave it out"
        )
    usable = len(os.sched_getaffinity(0)) * 1000
    limit = _container_limit_milli(cgroup_limit)
    if limit is not None:
        usable = min(usable, limit)
    cpu_milli = (usable if settings.cpu_milli is None else settings.cpu_milli) - settings.reserved_cpu_milli
    if cpu_milli <= 0:
        raise BadAgentConfig(
            f"setting backend.reserved_cpu_milli = {settings.reserved_cpu_milli}: nothing is left of this machine's "
            f"{usable} millicores"
        )
    return Node(NODE, Resources(cpu_milli, gpus if settings.gpus is None else settings.gpus))


def job_cores(node: Node) -> list[int]:
    """The cores that jobs run on: the last ones, as systems do their own work on the first."""
    usable = sorted(os.sched_getaffinity(0))
    return usable[-min(len(usable), -(-node.capacity.cpu_milli // 1000)) :]


def _container_limit_milli(file: Path) -> int | None:
    """A container's share of the cores; None where there is no limit. Source: cgroup v2, cpu.max: quota and period."""
    try:
        quota, period = file.read_text(encoding="ascii").split()
        return max(1, int(quota) * 1000 // int(period))
    except (OSError, ValueError):
        return None
