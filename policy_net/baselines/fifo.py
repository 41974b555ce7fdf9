"""First come, first served: jobs wait for the size that they asked for, and keep it to their end.

With `fifo`, the job at the head of the queue holds up all others until it fits; with `fifo-backfill`, later jobs that
fit start. With `fifo-easy`, the head has a reservation: the earliest time at which, by what is estimated of the running
jobs, it fits. A later job starts if it fits, and either ends by then, or takes nothing that the head needs
then. Non-preemptive, not elastic; only `fifo-easy` needs durations and speeds.
Source: DL2 §6.1 (FIFO among the schedulers in use); the default of Slurm, YARN and Kubernetes queues. Lifka (JSSPP
1995), Mu'alem and Feitelson (IEEE TPDS 2001): EASY backfilling, of which kind Slurm's is.
Deviation: with `fifo-backfill` there is no reservation, so large jobs may wait long. Users state no limit of their
jobs' time here: a job is estimated to take its declared work at the speed of the size that it asked for. Where nobody
knows that speed (a live cluster) it is fitted online. A waiting job whose work nobody declared passes only if it takes
nothing that the head needs.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from policy_net.baselines.decision_capacity import DecisionCapacity, RequestedSizes, is_running
from policy_net.baselines.needs import remaining_seconds
from policy_net.domain import (
    SUSPENDED,
    Allocation,
    ClusterState,
    Decision,
    Job,
    PolicyContext,
    Progress,
    Resources,
    SpeedModel,
    Trigger,
)
from policy_net.throughput.parametric import OnlineFit


class FifoPolicy:
    """Requested sizes in order of arrival; with `backfill`, later jobs pass those that do not fit."""

    decides_at_once = True

    def __init__(self, name: str, *, backfill: bool = False) -> None:
        self.name = name
        self.backfill = backfill
        self._sizes = RequestedSizes()

    def decide(self, state: ClusterState, trigger: Trigger) -> Decision:  # noqa: ARG002  (the same at every trigger)
        """Keep what runs, then start waiting jobs by arrival."""
        sizes = self._sizes.of(state)
        free_capacity = DecisionCapacity(state)
        running = [is_running(job, size) for job, size in zip(state.jobs, sizes, strict=True)]
        # Nodes may have been lost: then those that arrived last go back into the queue.
        for index, runs in enumerate(running):
            if runs:
                free_capacity.change(index, sizes[index])
        for index, size in enumerate(sizes):
            if running[index] or not size.tasks:
                continue
            if not free_capacity.change(index, size) and not self.backfill:
                break
        return free_capacity.decision()

    def observe(self, progress: Sequence[Progress]) -> None:
        """Nothing to learn: sizes are fixed."""


def build_fifo(context: PolicyContext) -> FifoPolicy:  # noqa: ARG001  (needs neither seed nor speeds)
    """Build the policy registered as `fifo`."""
    return FifoPolicy("fifo")


def build_fifo_backfill(context: PolicyContext) -> FifoPolicy:  # noqa: ARG001  (needs neither seed nor speeds)
    """Build the policy registered as `fifo-backfill`."""
    return FifoPolicy("fifo-backfill", backfill=True)


@dataclass(frozen=True, slots=True)
class Reservation:
    """When the head of the queue is expected to start, and what is expected to be granted then, the head included."""

    seconds: float
    free_capacity: DecisionCapacity


class EasyPolicy:
    """Requested sizes in order of arrival, with one reservation."""

    name = "fifo-easy"
    decides_at_once = True

    def __init__(self, speeds: SpeedModel | None = None) -> None:
        """Plan with the users' time at the requested size, as `speeds` say it; with None it is fitted online."""
        self.given_speeds = speeds
        self._beliefs = OnlineFit()
        self._speeds: SpeedModel = self._beliefs if speeds is None else speeds
        self._sizes = RequestedSizes()

    def decide(self, state: ClusterState, trigger: Trigger) -> Decision:  # noqa: ARG002  (the same at every trigger)
        """Keep what runs, start waiting jobs by arrival up to the head, then those that do not delay it."""
        self._beliefs.introduce(state.jobs)
        sizes = self._sizes.of(state)
        free_capacity = DecisionCapacity(state)
        runs = [is_running(job, size) for job, size in zip(state.jobs, sizes, strict=True)]
        # Nodes may have been lost: then those that arrived last go back into the queue.
        running = [index for index, keeps in enumerate(runs) if keeps and free_capacity.change(index, sizes[index])]
        head: Reservation | None = None
        for index, size in enumerate(sizes):
            if runs[index] or not size.tasks:
                continue
            if head is not None:
                self._pass(state, sizes, index, free_capacity, head)
            elif free_capacity.change(index, size):
                running.append(index)
            else:
                head = self._reserve(state, sizes, running, index)
        return free_capacity.decision()

    def _reserve(
        self, state: ClusterState, sizes: Sequence[Allocation], running: Sequence[int], head: int
    ) -> Reservation:
        """The earliest end of a running job after which the head fits."""
        ends = sorted((self.estimate_seconds(state, index, sizes[index], started=True), index) for index in running)
        for count, (end, _) in enumerate(ends, start=1):
            if count < len(ends) and ends[count][0] == end:
                continue  # they end together
            then = DecisionCapacity(state)
            if all(then.change(index, sizes[index]) for index in (head, *(index for _, index in ends[count:]))):
                return Reservation(end, then)
        # Not reached while sizes are cut to what the empty cluster holds.
        return Reservation(math.inf, DecisionCapacity(state))

    def _pass(
        self,
        state: ClusterState,
        sizes: Sequence[Allocation],
        index: int,
        free_capacity: DecisionCapacity,
        head: Reservation,
    ) -> None:
        size, job = sizes[index], state.jobs[index]
        free_cpu, free_gpu = free_capacity.free
        if not _total(job, size).fits_in(Resources(free_cpu, free_gpu)):
            return
        stays = self.estimate_seconds(state, index, size, started=False) > head.seconds
        if stays and not head.free_capacity.change(index, size):
            return
        if not free_capacity.change(index, size) and stays:
            head.free_capacity.change(index, SUSPENDED)

    def estimate_seconds(self, state: ClusterState, index: int, size: Allocation, *, started: bool) -> float:
        """How long the index-th job is expected to take from now on at its size; infinite where nobody can say."""
        job = state.jobs[index]
        if not started and not job.work_known:
            return math.inf
        return remaining_seconds(job, self._speeds.grid(job.job_type), size)

    def observe(self, progress: Sequence[Progress]) -> None:
        """Sharpen the beliefs, which count where speeds are not known."""
        self._beliefs.observe(progress)


def _total(job: Job, size: Allocation) -> Resources:
    return job.worker_demand * size.workers + job.ps_demand * size.ps


def build_easy(context: PolicyContext) -> EasyPolicy:
    """Build the policy registered as `fifo-easy`; in a simulation users know how long their jobs take as requested."""
    return EasyPolicy(context.true_speeds)
