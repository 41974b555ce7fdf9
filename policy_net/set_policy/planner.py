"""The planner: greedy grants by the slope of the best step, the base of the `set` policy, complete without learning.

The score of a step is slope × remaining work^−0.25 × exp(what the residual says of it), and where the state says what
a start costs, × what is saved by none (`Grants.urgency`). Grants go to the highest score
until nothing gains or nothing fits; `draws.py` has the same with chance. As a job's slope only rises on the way to a
target, whole steps are granted at once; the result is that of granting task by task inside the 3J + 1 actions.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from policy_net.baselines.hull import FAIRNESS_EXPONENT
from policy_net.baselines.needs import remaining_samples
from policy_net.baselines.room import Room
from policy_net.domain import SUSPENDED, Allocation, ClusterState, Decision, Job
from policy_net.set_policy.steps import Step, StepTable

_SLOWEST = 1e-9
"""Samples/s, against a division by nothing."""
_MOST_STARTS = 8.0
"""A job that ends in no time counts as one that takes this part of a start."""

Tilt = tuple[float, float]
"""What a residual says of a job: its priority, and how much more it is to gain near its best speed; (0, 0) nothing."""


@dataclass(frozen=True, slots=True)
class Weighed:
    """A step that the planner looked at.

    Attributes:
        job: its index in the state.
        held: what the job had been granted before.
        score: the higher, the sooner it was looked at.
        taken: whether there was room for it.
    """

    job: int
    held: Allocation
    target: Allocation
    score: float
    taken: bool


def plan(
    state: ClusterState,
    tables: Sequence[StepTable],
    tilts: Sequence[Tilt] | None = None,
    weighed: list[Weighed] | None = None,
) -> Decision:
    """Allocate to the jobs of `state`; ties go by arrival.

    Args:
        tables: of every job.
        tilts: of every job; None leaves the base alone.
        weighed: is given every step that was looked at, in that order, for people who ask why.
    """
    grants = Grants(state, tables)
    queue: list[tuple[float, int, Step]] = []

    def push(index: int, step: Step | None) -> None:
        if step is not None:
            score = score_of(step, grants.urgency(index, step), None if tilts is None else tilts[index])
            heapq.heappush(queue, (-score, index, step))

    for index in range(len(state.jobs)):
        push(index, grants.first(index))
    while queue:
        score, index, step = heapq.heappop(queue)
        held = grants.held(index)
        push(index, grants.take(index, step))
        if weighed is not None:
            weighed.append(Weighed(index, held, step.target, -score, grants.held(index) == step.target))
    return grants.decision()


def score_of(step: Step, urgency_of_job: float, tilt: Tilt | None) -> float:
    """By how much a step is worth taking now."""
    score = step.slope * urgency_of_job
    if tilt is None:
        return score
    priority, steepness = tilt
    return score * math.exp(priority + steepness * math.log(step.speed_share))


def urgency(job: Job) -> float:
    """The factor of this job's slopes: its remaining samples to the power of −0.25."""
    return float(remaining_samples(job) ** -FAIRNESS_EXPONENT)


class Grants:
    """One decision in the making."""

    def __init__(self, state: ClusterState, tables: Sequence[StepTable]) -> None:
        """Args: `tables` are of every job."""
        self._jobs = state.jobs
        self._tables = tables
        self._room = Room(state)
        self._start_seconds = state.start_seconds
        self._urgencies = [urgency(job) for job in state.jobs]
        self._held: list[Allocation] = [SUSPENDED] * len(state.jobs)
        self._refused: dict[int, list[Allocation]] = {}

    def first(self, index: int) -> Step | None:
        """The first step of the index-th job, with no limit but its caps; None if nothing gains."""
        return self._offered(index, self._tables[index].step(SUSPENDED), None)

    def held(self, index: int) -> Allocation:
        """What the index-th job has been granted."""
        return self._held[index]

    def urgency(self, index: int, step: Step) -> float:
        """The factor of the slope of a job's next step.

        A job that runs on has to hold its tasks for the R seconds that it still trains; one that is suspended and
        started again later, for R + c. So what keeps a job from a start counts (R + c)/R times, and what makes one
        necessary, as another size of an all-reduce job does, R/(R + c) times; such a job is only made larger at all if
        that ends it sooner. Nearly done jobs are let run to their
        end, long ones still give way to short ones, and jobs of which none runs keep their order.
        Source: index policies for set-up costs (Van Oyen, Pichpitlamken and Teneketzis 1992), whose hysteresis this
        has. Deviation: a factor of this planner's own score.
        """
        own, job = self._urgencies[index], self._jobs[index]
        if self._start_seconds <= 0.0 or not job.current.workers:
            return own
        held = self._held[index]
        if held.workers and (job.kind.uses_ps or held.workers > job.current.workers):
            return own  # it runs on in any case; or it would be started anew already
        least = self._start_seconds / _MOST_STARTS
        factor = 1.0 + self._start_seconds / max(self._remaining_seconds(index, step.target), least)
        if self._starts_anew(job, step.target):
            return own / factor if held.workers else own  # its first step counts as that of any other job
        return own * factor

    def take(self, index: int, step: Step) -> Step | None:
        """Grant a step if it fits, and say what the job's next one is; None if nothing gains any more, or fits.

        A step that does not fit changes nothing, and gives way to the best that may.
        """
        if self._room.change(index, step.target):
            self._held[index] = step.target
            if index in self._refused:
                return self._limited(index)
            return self._offered(index, self._tables[index].step(step.target), None)
        # What was refused stays so, with everything that contains it: room only shrinks.
        self._refused.setdefault(index, []).append(step.target)
        return self._limited(index)

    def decision(self) -> Decision:
        """What all jobs hold."""
        return self._room.decision()

    def _limited(self, index: int) -> Step | None:
        """The best of what still fits, by the cluster's sums; whether nodes have room is seen when it is tried."""
        job, held = self._jobs[index], self._held[index]
        if not self._least_fits(job, held):
            return None
        free_cpu, free_gpu = self._room.free
        table = self._tables[index]
        fits = table.fitting(job, held, free_cpu, free_gpu, self._refused[index])
        return self._offered(index, table.limited_step(held, fits), fits)

    def _offered(self, index: int, step: Step | None, fits: NDArray[np.bool_] | None) -> Step | None:
        """A step; where it costs a running job a start that it does not bring in again, the best one without."""
        job = self._jobs[index]
        if step is None or self._start_seconds <= 0.0 or not job.current.workers:
            return step
        if not self._starts_anew(job, step.target) or self._held[index].workers > job.current.workers:
            return step
        saved = self._remaining_seconds(index, job.current) - self._remaining_seconds(index, step.target)
        if saved > self._start_seconds:
            return step
        return self._tables[index].step_within(self._held[index], job.current, fits)

    @staticmethod
    def _starts_anew(job: Job, target: Allocation) -> bool:
        """Whether a job that runs would have to be started to get there: it only grows, so less is on its way."""
        return not job.kind.uses_ps and target.workers > job.current.workers

    def _remaining_seconds(self, index: int, split: Allocation) -> float:
        return float(remaining_samples(self._jobs[index])) / max(self._tables[index].speed(split), _SLOWEST)

    def _least_fits(self, job: Job, held: Allocation) -> bool:
        """Whether the sums leave room for anything at all; cheap, as at the end of a plan it mostly is not."""
        free = self._room.free
        for workers, ps in _least_grants(job, held):
            cpu = workers * job.worker_demand.cpu_milli + ps * job.ps_demand.cpu_milli
            gpu = workers * job.worker_demand.gpu + ps * job.ps_demand.gpu
            if cpu <= free[0] and gpu <= free[1]:
                return True
        return False


def _least_grants(job: Job, held: Allocation) -> tuple[tuple[int, int], ...]:
    """The smallest (workers, PSs) that could help a job from here."""
    if not held.tasks:
        return ((max(job.min_workers, 1), job.min_ps),)
    return ((1, 0), (0, 1)) if job.kind.uses_ps else ((1, 0),)
