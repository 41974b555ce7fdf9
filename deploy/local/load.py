"""Load of the demo's clusters over simulated time: GPUs in use and jobs that wait, from the replays' timelines."""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate

from policy_net.laboratory.simulation.environment import Environment
from policy_net.laboratory.workloads.workload import Workload

MOMENTS = 121
"""Points of a curve: more than a page can show apart."""

NEARLY_ALL = 0.95
"""Share of the jobs with whose end a curve ends."""

Timeline = Mapping[str, Sequence[tuple[float, int, int]]]
"""Job to (seconds, workers, PSs) at every change of its tasks; the last entry is its end."""


@dataclass(frozen=True, slots=True)
class Load:
    """One cluster's load under one policy.

    Attributes:
        gpus: of all nodes.
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


def load_of(workload: Workload, environment: Environment, timeline: Timeline) -> Load:
    """What a replay held over time: a job waits from its submission to its end whenever it holds nothing."""
    changes: list[tuple[float, int, int]] = []
    for job in workload.jobs:
        # A decision at the start of a slot is noted with the slot's beginning, also for a job that came in it.
        held = [(job.submit_time_seconds, 0, 0)]
        held += [(max(at, job.submit_time_seconds), workers, ps) for at, workers, ps in timeline[job.job_id]]
        gpus = [workers * job.worker_demand.gpu + ps * job.ps_demand.gpu for _, workers, ps in held]
        waits = [int(not workers and not ps) for _, workers, ps in held]
        waits[-1] = 0
        for index, (seconds, _, _) in enumerate(held):
            before = (gpus[index - 1], waits[index - 1]) if index else (0, 0)
            changes.append((seconds, gpus[index] - before[0], waits[index] - before[1]))
    changes.sort()
    return Load(
        gpus=environment.nodes * environment.gpus_per_node,
        seconds=[seconds for seconds, _, _ in changes],
        used=list(accumulate(change for _, change, _ in changes)),
        waiting=list(accumulate(change for _, _, change in changes)),
        ends=sorted(held[-1][0] for held in timeline.values()),
    )


def moments(policies: Sequence[Sequence[Load]]) -> list[float]:
    """Moments evenly apart, from zero until nearly all jobs have ended under every policy.

    Args:
        policies: of each the loads of all clusters; the last few jobs may run alone for days, which says little.
    """
    end = max(_nearly_done(loads) for loads in policies)
    return [end * index / (MOMENTS - 1) for index in range(MOMENTS)]


def _nearly_done(loads: Sequence[Load]) -> float:
    ends = sorted(seconds for load in loads for seconds in load.ends)
    return ends[math.ceil(NEARLY_ALL * len(ends)) - 1]


def summed(loads: Sequence[Load], at: Sequence[float]) -> list[tuple[float, int, int]]:
    """Clusters together: (seconds, GPUs in use, jobs that wait) at these moments."""
    found = [(seconds, [load.at(seconds) for load in loads]) for seconds in at]
    return [(seconds, sum(used for used, _ in every), sum(waits for _, waits in every)) for seconds, every in found]
