"""Greedy grants by the slope of the best step: the base of the `set` policy, complete without anything learned.

The score of a step is slope × remaining work^−0.25 × exp(what the residual says of it). Grants go to the highest score
until nothing gains or nothing fits. As a job's slope only rises on the way to a target, whole steps are granted at
once; the result is that of granting task by task inside the 3J + 1 actions.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Sequence

from policy_net.baselines.hull import FAIRNESS_EXPONENT
from policy_net.baselines.remaining import remaining_samples
from policy_net.baselines.room import Room
from policy_net.domain import SUSPENDED, Allocation, ClusterState, Decision, Job
from policy_net.set_policy.steps import Step, StepTable

Tilt = tuple[float, float]
"""What a residual says of a job: its priority, and how much more it is to gain near its best speed; (0, 0) nothing."""


def plan(state: ClusterState, tables: Sequence[StepTable], tilts: Sequence[Tilt] | None = None) -> Decision:
    """Allocate to the jobs of `state`; ties go by arrival.

    Args:
        tables: of every job.
        tilts: of every job; None leaves the base alone.
    """
    return _Plan(state, tables, tilts).run()


class _Plan:
    """One decision in the making."""

    def __init__(self, state: ClusterState, tables: Sequence[StepTable], tilts: Sequence[Tilt] | None) -> None:
        self._jobs = state.jobs
        self._tables = tables
        self._tilts = tilts
        self._room = Room(state)
        self._held: list[Allocation] = [SUSPENDED] * len(state.jobs)
        self._urgencies = [urgency(job) for job in state.jobs]
        self._refused: dict[int, list[Allocation]] = {}
        self._queue: list[tuple[float, int, Step]] = []

    def run(self) -> Decision:
        for index, table in enumerate(self._tables):
            self._push(index, table.step(SUSPENDED))
        heapq.heapify(self._queue)
        while self._queue:
            _, index, step = heapq.heappop(self._queue)
            if self._room.change(index, step.target):
                self._held[index] = step.target
                if index in self._refused:
                    self._push_limited(index)
                else:
                    self._push(index, self._tables[index].step(step.target))
                continue
            # What was refused stays so, with everything that contains it: room only shrinks.
            self._refused.setdefault(index, []).append(step.target)
            self._push_limited(index)
        return self._room.decision()

    def _push(self, index: int, step: Step | None) -> None:
        if step is not None:
            heapq.heappush(self._queue, (-self._score(index, step), index, step))

    def _push_limited(self, index: int) -> None:
        """The best of what still fits, by the cluster's sums; whether nodes have room is seen when it is tried."""
        job, held = self._jobs[index], self._held[index]
        if not self._least_fits(job, held):
            return
        free_cpu, free_gpu = self._room.free
        table = self._tables[index]
        fits = table.fitting(job, held, free_cpu, free_gpu, self._refused[index])
        self._push(index, table.limited_step(held, fits))

    def _least_fits(self, job: Job, held: Allocation) -> bool:
        """Whether the sums leave room for anything at all; cheap, as at the end of a plan it mostly is not."""
        free = self._room.free
        for workers, ps in _least_grants(job, held):
            cpu = workers * job.worker_demand.cpu_milli + ps * job.ps_demand.cpu_milli
            gpu = workers * job.worker_demand.gpu + ps * job.ps_demand.gpu
            if cpu <= free[0] and gpu <= free[1]:
                return True
        return False

    def _score(self, index: int, step: Step) -> float:
        score = step.slope * self._urgencies[index]
        if self._tilts is None:
            return score
        priority, steepness = self._tilts[index]
        return score * math.exp(priority + steepness * math.log(step.speed_share))


def urgency(job: Job) -> float:
    """The factor of this job's slopes: its remaining samples to the power of −0.25."""
    return float(remaining_samples(job) ** -FAIRNESS_EXPONENT)


def _least_grants(job: Job, held: Allocation) -> tuple[tuple[int, int], ...]:
    """The smallest (workers, PSs) that could help a job from here."""
    if not held.tasks:
        return ((max(job.min_workers, 1), job.min_ps),)
    return ((1, 0), (0, 1)) if job.kind.uses_ps else ((1, 0),)
