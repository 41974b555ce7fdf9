"""Fair sharing: every job gets one bundle in turn until nothing more fits, or with `drf-peak` makes it faster.

A bundle is a worker and a parameter server, or a worker alone where a job trains by all-reduce. A job's first grant is
the least with which it trains; one that starts with several workers is passed over until the others have as many.
Preemptive, elastic; needs no durations. `drf-peak` needs speeds, which it fits online from the jobs' progress.
Source: DRF (Ghodsi et al., NSDI 2011) as DL2 §6.1 uses it for its default scheduler and its warm start; the peak of a
job's speed as the end of its growth as in Optimus (EuroSys 2018) §4.1.
Deviation: progressive filling goes round by round in arrival order rather than to the job with the least dominant
share. With equal demands the two are the same; where demands differ, equal numbers of bundles are what the simulated
references of DL2's workloads were computed with, and what an operator can predict. A job whose bundle does not fit is
passed over and the others go on (DL2's own code stops the whole round there).
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from policy_net.baselines.needs import Demands, demands_of
from policy_net.domain import Allocation, ClusterState, Decision, Job, JobKind, Progress, Trigger, speed_at
from policy_net.placement.capacity import open_capacity
from policy_net.throughput.parametric import OnlineFit

Entry = tuple[int, int, Demands]
"""The index of a job that takes part, the last round in which it does, and what its bundle needs."""


class DrfPolicy:
    """Round-robin of bundles by arrival, elastic up to each job's caps."""

    name = "drf"

    def decide(self, state: ClusterState, trigger: Trigger) -> Decision:  # noqa: ARG002  (the same at every trigger)
        """Allocate one bundle a round to every job that still takes one."""
        return Decision(share_in_rounds(state, [most_workers(job) for job in state.jobs]))

    def observe(self, progress: Sequence[Progress]) -> None:
        """Nothing to learn: shares do not depend on speeds."""


def most_workers(job: Job) -> int:
    """How many workers a job may come to have by whole bundles within its caps; 0 if not even its first grant."""
    if job.kind is JobKind.ALLREDUCE:
        most = job.max_workers
    else:
        if job.min_ps > job.max_ps:
            return 0
        most = min(job.max_workers, max(job.min_workers, 1) + job.max_ps - job.min_ps)
    return most if most >= job.min_workers else 0


def share_in_rounds(state: ClusterState, most: Sequence[int]) -> dict[str, Allocation]:
    """Give first grants and bundles in rounds, as long as they fit: after round n, a job has n workers.

    A job that starts with more takes that in the first round, and its next when the others have as many.

    Args:
        most: for every job, up to how many workers it takes; 0 for nothing at all.
    """
    capacity = open_capacity(state)
    fits, take = capacity.fits, capacity.take
    workers = [0] * len(state.jobs)
    taking, starting = _first_round(state, most)
    joining: dict[int, list[Entry]] = {}
    round_number = 0
    while taking or joining:
        round_number += 1
        if round_number in joining:
            taking = sorted(taking + joining.pop(round_number))
        # Whole rounds at once, up to where somebody stops or joins: in a quiet cluster that is all of them.
        until = min([*(last_round for _, last_round, _ in taking), *(join - 1 for join in joining)])
        whole = capacity.take_rounds(
            [demand for _, _, demands in taking for demand in demands], until - round_number + 1
        )
        if taking and whole > 0:
            round_number += whole - 1
            for index, _, _ in taking:
                workers[index] = round_number
            taking = [entry for entry in taking if entry[1] > round_number]
            continue
        still_taking = []
        for entry in taking:
            index, last_round, demands = entry
            # Capacity only shrinks, so a job that did not fit once is out for the rest of this decision.
            if not fits(*demands):
                continue
            take(*demands)
            workers[index] = round_number
            if round_number < last_round:
                still_taking.append(entry)
        taking = still_taking
        if round_number == 1:
            for entry in starting:
                index = entry[0]
                if workers[index]:
                    workers[index] = max(state.jobs[index].min_workers, 1)
                    if workers[index] < entry[1]:
                        joining.setdefault(workers[index] + 1, []).append(entry)
    return {
        job.job_id: Allocation(
            count, 0 if job.kind is JobKind.ALLREDUCE else count - max(job.min_workers, 1) + job.min_ps
        )
        for job, count in zip(state.jobs, workers, strict=True)
        if count
    }


def _first_round(state: ClusterState, most: Sequence[int]) -> tuple[list[Entry], list[Entry]]:
    """Who takes part in the first round, and the later rounds of those that start with several workers."""
    taking: list[Entry] = []
    starting: list[Entry] = []
    for index, job in enumerate(state.jobs):
        if not most[index]:
            continue
        alone = job.kind is JobKind.ALLREDUCE
        bundle = (job.worker_demand,) if alone else (job.worker_demand, job.ps_demand)
        if job.min_workers <= 1 and (alone or job.min_ps == 1):
            taking.append((index, most[index], bundle))
        else:
            taking.append((index, 0, demands_of(job, job.smallest)))
            starting.append((index, most[index], bundle))
    return taking, starting


PeakKey = tuple[str, int, int, int, int]


class DrfPeakPolicy:
    """Round-robin of bundles by arrival, elastic up to each job's believed peak."""

    name = "drf-peak"

    def __init__(self) -> None:
        self.beliefs = OnlineFit()
        self._peaks: dict[PeakKey, tuple[NDArray[np.float64], int]] = {}

    def decide(self, state: ClusterState, trigger: Trigger) -> Decision:  # noqa: ARG002  (the same at every trigger)
        """Allocate one bundle a round to every job that believes to become faster by it."""
        self.beliefs.introduce(state.jobs)
        return Decision(share_in_rounds(state, [self._peak_of(job) for job in state.jobs]))

    def observe(self, progress: Sequence[Progress]) -> None:
        """Sharpen the beliefs."""
        self.beliefs.observe(progress)

    def _peak_of(self, job: Job) -> int:
        """The number of workers at which the job is believed to be fastest, along its bundles; 0 if it cannot train."""
        grid = self.beliefs.grid(job.job_type)
        key = (job.job_type, job.max_workers, job.max_ps, job.min_workers, job.min_ps)
        known = self._peaks.get(key)
        if known is None or known[0] is not grid:
            known = self._peaks[key] = (grid, bundle_peak(grid, job))
        return known[1]


def bundle_peak(grid: NDArray[np.float64], job: Job) -> int:
    """The workers of the fastest allocation on the way from the first grant by bundles; ties: the fewest."""
    first, most = max(job.min_workers, 1), most_workers(job)
    if not most:
        return 0
    by_bundle = int(job.kind.uses_ps)
    speeds = [speed_at(grid, by_bundle * more + job.min_ps, first + more) for more in range(most - first + 1)]
    return first + int(np.argmax(speeds))
