"""Costs of restarts and resizes, learned from what jobs did, and jobs that are not to grow by a restart.

A plan that takes a job's tasks away for a better one pays twice: the other one starts now, and this one again later.
Between two jobs on one server that comes out even where the other's remaining time is shorter by two restarts, so a job
that holds tasks counts as that much nearer to its end. An all-reduce job is restarted for each other size, too: it is
offered more workers only where the time that they save is longer than a restart. What a resize costs the job that is
resized, `steps.py` counts. Where restarts cost nothing, nothing changes.
Source: our own; the exchange of two neighbours, as in proofs of shortest remaining processing time, with a set-up time.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from policy_net.baselines.needs import remaining_samples
from policy_net.domain import Allocation, ClusterState, Job, Progress, SpeedModel, speed_at
from policy_net.errors import BadInput
from policy_net.set_policy.steps import NO_COST, ResizeCost

LEAST_SECONDS = 5.0
"""Jobs that are resized while they train stand still for less: that is as good as nothing."""
_WEIGHT_OF_NEWEST = 0.1
"""Once ten were seen: what a restart costs changes as a machine does."""
_MOST_RESIZES = 100.0
"""Once so many were seen, all of them count half."""


class Restarts:
    """What restarts and resizes of a cluster's jobs cost at the mean; deterministic, also across a snapshot."""

    def __init__(self) -> None:
        self._seen = 0
        self._mean_seconds = 0.0
        self._starting: dict[str, float] = {}
        self._training: dict[str, Allocation | None] = {}  # and at which size; None: of an older snapshot
        self._resizes = 0.0
        self._resize_seconds = 0.0
        self._observed_seconds = 0.0

    @property
    def seconds(self) -> float:
        """Of one; where none has come to its end yet, the longest so far; 0 where none was seen."""
        return self._mean_seconds if self._seen else max(self._starting.values(), default=0.0)

    @property
    def resize_cost(self) -> ResizeCost:
        """Of one; nothing where none has come to its end yet, or next to nothing was seen."""
        seconds = self._resize_seconds / self._resizes if self._resizes else 0.0
        if seconds < LEAST_SECONDS:
            return NO_COST
        # As if one resize an hour had been seen before.
        interval = (self._observed_seconds + NO_COST.interval_seconds) / (self._resizes + 1.0)
        return ResizeCost(seconds, interval)

    def forget_jobs(self) -> None:
        """Know none of the jobs that are there; what restarts cost stays."""
        self._starting.clear()
        self._training.clear()

    def observe(self, progress: Sequence[Progress]) -> None:
        """Learn from what every job did between two decisions."""
        for entry in progress:
            if entry.finished or not entry.allocation.workers:
                self._training.pop(entry.job_id, None)
                self._starting.pop(entry.job_id, None)
            elif entry.job_id not in self._training:
                paused = self._starting.pop(entry.job_id, 0.0) + entry.paused_seconds
                if entry.seconds <= 0.0:
                    self._starting[entry.job_id] = paused
                    continue
                self._training[entry.job_id] = entry.allocation
                self._seen += 1
                weight = max(1.0 / self._seen, _WEIGHT_OF_NEWEST)
                self._mean_seconds += weight * (paused - self._mean_seconds)
            else:
                self._observe_training(entry)
        present = {entry.job_id for entry in progress}
        self._training = {job_id: size for job_id, size in self._training.items() if job_id in present}
        self._starting = {job_id: paused for job_id, paused in self._starting.items() if job_id in present}

    def _observe_training(self, entry: Progress) -> None:
        """Learn from a job that has trained since it was started: has it another size, and does it train again?"""
        self._observed_seconds += entry.paused_seconds + entry.seconds
        paused = self._starting.pop(entry.job_id, 0.0)
        before = self._training[entry.job_id]
        if before is None:
            self._training[entry.job_id] = entry.allocation
        elif entry.allocation != before:
            paused += entry.paused_seconds
            if entry.seconds <= 0.0:
                self._starting[entry.job_id] = paused
                return
            self._training[entry.job_id] = entry.allocation
            self._resizes += 1.0
            self._resize_seconds += paused
            if self._resizes >= _MOST_RESIZES:
                self._resizes /= 2.0
                self._resize_seconds /= 2.0
                self._observed_seconds /= 2.0

    def without_futile_growth(self, state: ClusterState, speeds: SpeedModel) -> ClusterState:
        """The state with no capacity to grow for jobs that would lose more by a restart than they gain by any size."""
        if self.seconds <= 0.0:
            return state
        jobs = tuple(
            replace(job, max_workers=job.current.workers) if self._is_futile_to_grow(job, speeds) else job
            for job in state.jobs
        )
        return replace(state, jobs=jobs)

    def _is_futile_to_grow(self, job: Job, speeds: SpeedModel) -> bool:
        now, most = job.current.workers, job.max_workers
        if job.kind.uses_ps or not 0 < now < most:
            return False
        grid = speeds.grid(job.job_type)
        present = speed_at(grid, 0, now)
        if present <= 0.0:
            return False
        best = float(grid[0, now : most + 1].max())
        samples = remaining_samples(job)
        return samples / present - samples / best <= self.seconds

    def digest(self) -> str:
        """SHA-256 over what a snapshot holds, hex."""
        return hashlib.sha256(repr(sorted(self.snapshot().items())).encode()).hexdigest()

    def snapshot(self) -> dict[str, Any]:
        """Everything learned, as JSON-able values; `restored` is its inverse."""
        return {
            "seen": self._seen,
            "mean_seconds": self._mean_seconds,
            "starting": sorted(self._starting.items()),
            "training": sorted(self._training),
            "resizes": [self._resizes, self._resize_seconds, self._observed_seconds],
            "sizes": sorted(
                [job_id, size.workers, size.ps] for job_id, size in self._training.items() if size is not None
            ),
        }

    @classmethod
    def restored(cls, entry: Any) -> Restarts:
        """Rebuild from `snapshot`'s value.

        Raises:
            BadInput: it is something else.
        """
        restarts = cls()
        try:
            restarts._seen = _count(entry["seen"])
            restarts._mean_seconds = _seconds(entry["mean_seconds"])
            restarts._starting = {str(job_id): _seconds(paused) for job_id, paused in entry["starting"]}
            restarts._training = {str(job_id): None for job_id in entry["training"]}
            # Snapshots from before resizes were learned have none.
            resizes = [_seconds(value) for value in entry.get("resizes", (0.0, 0.0, 0.0))]
            restarts._resizes, restarts._resize_seconds, restarts._observed_seconds = resizes
            for job_id, workers, ps in entry.get("sizes", ()):
                if job_id in restarts._training:
                    restarts._training[job_id] = Allocation(_count(workers), _count(ps))
        except (KeyError, TypeError, ValueError) as error:
            raise BadInput(f"not a snapshot of restarts: {error!r}; delete it to start anew") from error
        return restarts


def _seconds(value: Any) -> float:
    seconds = float(value)
    if not 0.0 <= seconds < math.inf:
        raise ValueError(f"{seconds} s")
    return seconds


def _count(value: Any) -> int:
    count = int(value)
    if count < 0:
        raise ValueError(f"{count} restarts or tasks")
    return count
