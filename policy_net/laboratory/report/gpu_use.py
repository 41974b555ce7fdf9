"""How many GPUs were in use at what time, and how long some idled while jobs waited for some."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from policy_net.laboratory.simulation.replay import ReplayResult
from policy_net.laboratory.workloads.workload import Workload

Array = NDArray[np.float64]


@dataclass(frozen=True)
class GpuUse:
    """A step function: from each time to the next, so many GPUs are held and so many jobs hold nothing.

    The last time is the end of the last job.
    """

    times_seconds: Array
    held: Array
    waiting: Array

    def idle_while_waiting_gpu_seconds(self, gpus: int) -> float:
        """GPU-seconds that nobody held while at least one job waited with nothing."""
        seconds = np.diff(self.times_seconds)
        idle = np.maximum(gpus - self.held[:-1], 0.0) * (self.waiting[:-1] > 0)
        return float((idle * seconds).sum())

    def waiting_at(self, seconds: float) -> int:
        """How many jobs held nothing just before this time."""
        before = np.searchsorted(self.times_seconds, seconds) - 1
        return int(self.waiting[before]) if before >= 0 else 0

    def averages(self, until_seconds: float, count: int) -> tuple[Array, Array]:
        """Middles of `count` equal spans from time zero, and the average number of GPUs held in each."""
        edges = np.linspace(0.0, until_seconds, count + 1)
        # The integral from the first time on; before it and after the last one nothing is held.
        integral = np.concatenate([[0.0], np.cumsum(self.held[:-1] * np.diff(self.times_seconds))])
        upto = np.interp(edges, self.times_seconds, integral)
        return (edges[:-1] + edges[1:]) / 2, np.diff(upto) / np.diff(edges)


def gpu_use(workload: Workload, result: ReplayResult) -> GpuUse:
    """Add up what the jobs of a replay with a timeline held."""
    changes: list[tuple[float, int, int]] = []
    for spec in workload.jobs:
        changes.append((spec.submit_time_seconds, 0, 1))
        gpus, trains = 0, False
        for time, workers, ps in result.timeline[spec.job_id]:
            new = workers * spec.worker_demand.gpu + ps * spec.ps_demand.gpu
            changes.append((time, new - gpus, int(trains) - int(workers > 0)))
            gpus, trains = new, workers > 0
        # The last entry is the job's end: it has let go of everything and waits no longer.
        changes.append((result.timeline[spec.job_id][-1][0], 0, -1))
    times, held, waiting = np.array(sorted(changes)).T
    last_of_time = np.append(np.diff(times) > 0, True)
    return GpuUse(times[last_of_time], np.cumsum(held)[last_of_time], np.cumsum(waiting)[last_of_time])
