"""The planner: greedy grants by the slope of the best step, the base of the `set` policy, complete without learning.

The score of a step is slope × remaining work^−b × exp(what the residual says of it), b a quarter or what `prices.py`
says. Of a job that holds tasks, the first step counts as if it were two restarts nearer to its end (see `restarts.py`);
of one that holds none it counts less where others end soon, as it then starts without a restart of anybody. Grants go
to the highest score until nothing gains or nothing fits; `draws.py` has the same with chance. As a job's slope only
rises on the way to a target, whole steps are granted at once; the result is that of granting task by task inside the
3J + 1 actions.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from policy_net.baselines.decision_capacity import DecisionCapacity
from policy_net.baselines.hull import FAIRNESS_EXPONENT
from policy_net.baselines.needs import LEAST_REMAINING_SHARE, remaining_samples
from policy_net.domain import SUSPENDED, Allocation, ClusterState, Decision, Job
from policy_net.set_policy.steps import SplitStep, StepTable

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
    restart_seconds: float = 0.0,
    work_exponent: float = FAIRNESS_EXPONENT,
    grants: Granting | None = None,
) -> Decision:
    """Allocate to the jobs of `state`; ties go by arrival.

    Args:
        tables: of every job.
        tilts: of every job; None leaves the base alone.
        weighed: is given every step that was looked at, in that order, for people who ask why.
        restart_seconds: what it costs to start a job.
        work_exponent: b; `tables` count in the prices that it belongs to.
        grants: what gives the steps and takes them, as `places.py` has it; None for `Grants` by the tables.
    """
    if grants is None:
        grants = Grants(state, tables)
    urgencies = Urgencies(state.jobs, tables, restart_seconds, work_exponent)
    queue: list[tuple[float, int, SplitStep]] = []

    def push(index: int, step: SplitStep | None) -> None:
        if step is not None:
            score = score_of(step, urgencies.of(index, grants.held(index)), None if tilts is None else tilts[index])
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


def score_of(step: SplitStep, urgency_of_job: float, tilt: Tilt | None) -> float:
    """By how much a step is worth taking now."""
    score = step.slope * urgency_of_job
    if tilt is None:
        return score
    priority, steepness = tilt
    return score * math.exp(priority + steepness * math.log(step.speed_share))


class Urgencies:
    """The factors of all jobs' slopes in one decision.

    Args:
        tables: of every job.
        restart_seconds: what it costs to start a job.
        work_exponent: b.
    """

    def __init__(
        self, jobs: Sequence[Job], tables: Sequence[StepTable], restart_seconds: float, work_exponent: float
    ) -> None:
        self._usual = [urgency(job, work_exponent) for job in jobs]
        self._first = self._usual
        if restart_seconds > 0.0:
            remaining = [
                remaining_samples(job) / speed if speed > 0.0 else None
                for job, table in zip(jobs, tables, strict=True)
                for speed in (table.speed(job.current),)
            ]
            waits = _waiting(remaining, restart_seconds)
            self._first = [
                factor * (waits if seconds is None else _nearer(seconds, 2.0 * restart_seconds, work_exponent))
                for factor, seconds in zip(self._usual, remaining, strict=True)
            ]

    def of(self, index: int, held: Allocation) -> float:
        """The factor of the index-th job's next step, once it was granted this much."""
        return self._usual[index] if held.tasks else self._first[index]


def _nearer(remaining_seconds: float, seconds: float, work_exponent: float) -> float:
    """The factor by which a job is more urgent that counts as so much nearer to its end."""
    share = max(1.0 - seconds / remaining_seconds, LEAST_REMAINING_SHARE)
    return float(share**-work_exponent)


def _waiting(remaining: Sequence[float | None], restart_seconds: float) -> float:
    """The factor by which a job that holds nothing is less urgent: what it gains by a start now lasts until it could
    start for nothing, as another job ends that would not have had to give way for it.

    Args:
        remaining: seconds that each job has left to train, None of those that do not.
    """
    ends_per_second, slowest = 0.0, math.inf
    for seconds in remaining:
        if seconds is not None:
            ends_per_second += 1.0 / seconds
            slowest = min(slowest, 1.0 / seconds)
    if slowest == math.inf:
        return 1.0
    return 1.0 / (1.0 + (ends_per_second - slowest) * restart_seconds)


def urgency(job: Job, work_exponent: float = FAIRNESS_EXPONENT) -> float:
    """The factor of this job's slopes: its remaining samples to the power of −b."""
    return float(remaining_samples(job) ** -work_exponent)


class Granting(Protocol):
    """One decision in the making: what the next step of each job is, and whether there is room for it."""

    def first(self, index: int) -> SplitStep | None:
        """The first step of the index-th job, with no limit but its caps; None if nothing gains."""
        ...

    def held(self, index: int) -> Allocation:
        """What the index-th job has been granted."""
        ...

    def take(self, index: int, step: SplitStep) -> SplitStep | None:
        """Grant a step if it fits, and say what the job's next one is; None if nothing gains any more, or fits.

        A step that does not fit changes nothing, and gives way to the best that may.
        """
        ...

    def decision(self) -> Decision:
        """What all jobs hold."""
        ...


class Grants:
    """`Granting` by the cluster's room, wherever tasks lie."""

    def __init__(self, state: ClusterState, tables: Sequence[StepTable]) -> None:
        """Args: `tables` are of every job."""
        self._jobs = state.jobs
        self._tables = tables
        self._free_capacity = DecisionCapacity(state)
        self._held: list[Allocation] = [SUSPENDED] * len(state.jobs)
        self._refused: dict[int, list[Allocation]] = {}

    def first(self, index: int) -> SplitStep | None:
        """See `Granting`."""
        return self._tables[index].step(SUSPENDED)

    def held(self, index: int) -> Allocation:
        """See `Granting`."""
        return self._held[index]

    def take(self, index: int, step: SplitStep) -> SplitStep | None:
        """See `Granting`."""
        if self._free_capacity.change(index, step.target):
            self._held[index] = step.target
            if index in self._refused:
                return self._limited(index)
            return self._tables[index].step(step.target)
        # What was refused stays so, with everything that contains it: room only shrinks.
        self._refused.setdefault(index, []).append(step.target)
        return self._limited(index)

    def decision(self) -> Decision:
        """See `Granting`."""
        return self._free_capacity.decision()

    def _limited(self, index: int) -> SplitStep | None:
        """The best of what still fits, by the cluster's sums; whether nodes have room is seen when it is tried."""
        job, held = self._jobs[index], self._held[index]
        if not self._least_fits(job, held):
            return None
        free_cpu, free_gpu = self._free_capacity.free
        table = self._tables[index]
        fits = table.fitting(job, held, free_cpu, free_gpu, self._refused[index])
        return table.limited_step(held, fits)

    def _least_fits(self, job: Job, held: Allocation) -> bool:
        """Whether the sums leave room for anything at all; cheap, as at the end of a plan it mostly is not."""
        free = self._free_capacity.free
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
