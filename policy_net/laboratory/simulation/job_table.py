"""Table of a simulation's jobs: those that are still to come, are in the cluster, or have ended.

Only those in the cluster are more than a row of the workload and two times: memory does not grow with those that ended.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from policy_net.domain import Resources
from policy_net.errors import BadInput
from policy_net.laboratory.simulation.environment import Environment
from policy_net.laboratory.simulation.metrics import JobOutcome
from policy_net.laboratory.simulation.simulated_job import SimulatedJob
from policy_net.laboratory.workloads.workload import Workload, WorkloadJob


class SimulatedJobTable:
    """The jobs of one simulation.

    Args:
        grids: true samples/s per job type, indexed [ps][workers].

    Attributes:
        present: the jobs in the cluster, by arrival.
    """

    def __init__(
        self, workload: Workload, environment: Environment, grids: Mapping[str, Sequence[Sequence[float]]]
    ) -> None:
        self._workload = workload
        self._environment = environment
        self._grids = grids
        # One object per demand class: dictionaries compare by identity first.
        self._demands: dict[Resources, Resources] = {}
        self._ended: dict[str, tuple[float, float]] = {}
        self._arrived = 0
        self.present: dict[str, SimulatedJob] = {}

    @property
    def arrivals_pending(self) -> bool:
        """Whether jobs are still to arrive."""
        return self._arrived < len(self._workload.jobs)

    @property
    def next_arrival_seconds(self) -> float:
        """When the next job is submitted; infinite after the last."""
        return self._workload.jobs[self._arrived].submit_time_seconds if self.arrivals_pending else math.inf

    @property
    def last_end_seconds(self) -> float:
        """When the last of the jobs that have ended did so; there must be one."""
        return max(end for _, end in self._ended.values())

    def admit(self, until: float) -> None:
        """Take in the jobs that are submitted up to and including this time."""
        while self.next_arrival_seconds <= until:
            spec = self._workload.jobs[self._arrived]
            self.present[spec.job_id] = self._simulated(spec)
            self._arrived += 1

    def drop_ended(self) -> None:
        """Keep no more than the times of jobs that have ended."""
        for job_id, job in [(job_id, job) for job_id, job in self.present.items() if job.end is not None]:
            assert job.start is not None  # noqa: S101  (it has ended, so it was started; narrows the types)
            assert job.end is not None  # noqa: S101
            self._ended[job_id] = (job.start, job.end)
            del self.present[job_id]

    def outcomes(self) -> list[JobOutcome]:
        """Submission, first start and end of every job of the workload, in order."""
        return [self._outcome(spec) for spec in self._workload.jobs]

    def _outcome(self, spec: WorkloadJob) -> JobOutcome:
        ended = self._ended.get(spec.job_id)
        if ended is not None:
            return JobOutcome(spec.job_id, spec.submit_time_seconds, *ended)
        job = self.present.get(spec.job_id)
        return JobOutcome(spec.job_id, spec.submit_time_seconds, None if job is None else job.start, None)

    def _simulated(self, spec: WorkloadJob) -> SimulatedJob:
        worker = self._demands.setdefault(spec.worker_demand, spec.worker_demand)
        ps = self._demands.setdefault(spec.ps_demand, spec.ps_demand)
        return SimulatedJob(spec, self._grids[spec.job_type], self._environment, worker, ps)

    def to_snapshot(self) -> dict[str, Any]:
        """What has happened to the jobs, as JSON-able values."""
        return {
            "workload": self._workload.name,
            "jobs_in_workload": len(self._workload.jobs),
            "arrived": self._arrived,
            "ended": {job_id: list(times) for job_id, times in self._ended.items()},
            "present": [job.to_snapshot() for job in self.present.values()],
        }

    def check_snapshot(self, snapshot: Mapping[str, Any]) -> None:
        """Make sure that a snapshot is of this workload.

        Raises:
            BadInput: it is of another.
        """
        jobs = self._workload.jobs
        known = {*snapshot["ended"], *(row["job_id"] for row in snapshot["present"])}
        expected = {spec.job_id for spec in jobs[: snapshot["arrived"]]}
        if snapshot["jobs_in_workload"] != len(jobs) or known != expected:
            raise BadInput(
                f"the snapshot is of workload {snapshot['workload']!r} with {snapshot['jobs_in_workload']} jobs, not of"
                f" {self._workload.name!r} with {len(jobs)}: start again, or use the workload that it was taken of"
            )

    def restore(self, snapshot: Mapping[str, Any]) -> None:
        """Continue from a snapshot that `check_snapshot` let pass."""
        self._arrived = snapshot["arrived"]
        self._ended = {job_id: (start, end) for job_id, (start, end) in snapshot["ended"].items()}
        specs = {spec.job_id: spec for spec in self._workload.jobs[: self._arrived]}
        self.present = {}
        for row in snapshot["present"]:
            job = self.present[row["job_id"]] = self._simulated(specs[row["job_id"]])
            job.restore(row)
