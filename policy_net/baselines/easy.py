"""EASY backfilling: first come, first served, and later jobs pass where the head of the queue is not delayed by it.

The head, the first job that does not fit, has a reservation: the earliest time at which, by what is estimated of the
running jobs, there is room for it. A later job may start at once if it fits, and either ends by then, or takes nothing
that the head needs then. Requested sizes; non-preemptive, not elastic.
Source: Lifka (JSSPP 1995); Mu'alem and Feitelson (IEEE TPDS 2001), EASY. Slurm's backfill is of this kind.
Deviation: users state no limit of their jobs' time here. A job is estimated to take its declared work at the speed of
the size that it asked for: what its user would write as its limit. Where nobody knows that speed (a live cluster) it
is fitted online. A waiting job whose work nobody declared passes only if it takes nothing that the head needs.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from policy_net.baselines.decision_capacity import DecisionCapacity
from policy_net.baselines.needs import remaining_seconds
from policy_net.baselines.requested import RequestedSizes, is_running
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


@dataclass(frozen=True, slots=True)
class Reservation:
    """When the head of the queue is expected to start, and what is expected to be held then, the head included."""

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
        running = [is_running(job, size) for job, size in zip(state.jobs, sizes, strict=True)]
        # Nodes may have been lost: then those that arrived last go back into the queue.
        held = [index for index, runs in enumerate(running) if runs and free_capacity.change(index, sizes[index])]
        head: Reservation | None = None
        for index, size in enumerate(sizes):
            if running[index] or not size.tasks:
                continue
            if head is not None:
                self._pass(state, sizes, index, free_capacity, head)
            elif free_capacity.change(index, size):
                held.append(index)
            else:
                head = self._reserve(state, sizes, held, index)
        return free_capacity.decision()

    def _reserve(self, state: ClusterState, sizes: Sequence[Allocation], held: Sequence[int], head: int) -> Reservation:
        """The earliest end of a running job after which there is room for the head."""
        ends = sorted((self.estimate_seconds(state, index, sizes[index], started=True), index) for index in held)
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
        """Start the job now if it fits and the head's reservation stands."""
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
