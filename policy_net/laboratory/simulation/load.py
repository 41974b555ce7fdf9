"""Load of a replay over its time: GPUs in use and jobs that wait, from its timeline, or as it was recorded."""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate

import numpy as np
from numpy.typing import NDArray

from policy_net.laboratory.workloads.workload import Workload

NEARLY_ALL = 0.95
"""Share of the jobs with whose end a picture ends: the last few may run alone for days, which says little."""

Timeline = Mapping[str, Sequence[tuple[float, int, int]]]
"""Job to (seconds, workers, PSs) at every change of its tasks; the last entry is its end."""


@dataclass(frozen=True, slots=True)
class Load:
    """One cluster's load under one policy.

    Attributes:
        seconds: moments of changes, rising.
        used, waiting: GPUs in use and jobs that wait from each of them to the next; none before the first.
        ends: when each job ended, rising.
    """

    gpus: int
    seconds: Sequence[float]
    used: Sequence[int]
    waiting: Sequence[int]
    ends: Sequence[float]

    def at(self, seconds: float) -> tuple[int, int]:
        """GPUs in use and jobs that wait at one moment."""
        index = bisect_right(self.seconds, seconds) - 1
        return (0, 0) if index < 0 else (self.used[index], self.waiting[index])

    def means(
        self, steps: int, begin_seconds: float = 0.0, end_seconds: float | None = None
    ) -> tuple[list[float], list[float]]:
        """GPUs in use and jobs that wait, on average over each of so many equal parts of a time; up to the last end."""
        last = self.ends[-1]
        bounds = np.linspace(begin_seconds, last if end_seconds is None else end_seconds, steps + 1)
        times = [*self.seconds, last]
        return _means(times, self.used, bounds), _means(times, self.waiting, bounds)


def _means(times: Sequence[float], values: Sequence[int], bounds: NDArray[np.float64]) -> list[float]:
    """Of a value from each time to the next, over each part between two bounds; zero before the first time."""
    areas = np.concatenate([[0.0], np.cumsum(np.diff(times) * values)])
    means: list[float] = (np.diff(np.interp(bounds, times, areas)) / np.diff(bounds)).tolist()
    return means


def nearly_done(ends: Sequence[float]) -> float:
    """When nearly all jobs had ended, given the ends of all of them, in any order."""
    return sorted(ends)[math.ceil(NEARLY_ALL * len(ends)) - 1]


def load_of(workload: Workload, gpus: int, timeline: Timeline) -> Load:
    """Load of a replay: a job waits from its submission to its end whenever it holds nothing."""
    changes: list[tuple[float, int, int]] = []
    for job in workload.jobs:
        # A decision at the start of a slot is noted with the slot's beginning, also for a job that came in it.
        held = [(job.submit_time_seconds, 0, 0)]
        held += [(max(at, job.submit_time_seconds), workers, ps) for at, workers, ps in timeline[job.job_id]]
        used = [workers * job.worker_demand.gpu + ps * job.ps_demand.gpu for _, workers, ps in held]
        waits = [int(not workers and not ps) for _, workers, ps in held]
        waits[-1] = 0
        for index, (seconds, _, _) in enumerate(held):
            before = (used[index - 1], waits[index - 1]) if index else (0, 0)
            changes.append((seconds, used[index] - before[0], waits[index] - before[1]))
    return _of_changes(changes, gpus, [held[-1][0] for held in timeline.values()])


def recorded_load(workload: Workload, gpus: int) -> Load | None:
    """Load as it was recorded; None unless start and end of each job are. It may go beyond the simulated `gpus`."""
    changes: list[tuple[float, int, int]] = []
    ends: list[float] = []
    for job in workload.jobs:
        record = workload.records.get(job.job_id)
        if record is None or record.wait_seconds is None or record.jct_seconds is None:
            return None
        submitted, took = job.submit_time_seconds, max(record.jct_seconds, record.wait_seconds)
        ends.append(submitted + took)
        changes += [
            (submitted, 0, 1),
            (submitted + record.wait_seconds, record.gpus, -1),
            (submitted + took, -record.gpus, 0),
        ]
    return _of_changes(changes, gpus, ends)


def _of_changes(changes: list[tuple[float, int, int]], gpus: int, ends: Sequence[float]) -> Load:
    changes.sort()
    return Load(
        gpus=gpus,
        seconds=[seconds for seconds, _, _ in changes],
        used=list(accumulate(change for _, change, _ in changes)),
        waiting=list(accumulate(change for _, _, change in changes)),
        ends=sorted(ends),
    )
