"""The planner: greedy grants by the slope of the best step, the base of the `set` policy, complete without learning.

The score of a step is slope × remaining work^−b × exp(what the residual says of it), b a quarter or what `steps.py`
says. Of a job that holds tasks, the first step counts as if it were two restarts nearer to its end (see `restarts.py`);
of one that holds none it counts less where others end soon, as it then starts without a restart of anybody. Grants go
to the highest score until nothing gains or nothing fits. As a job's slope only rises on the way to a larger size, whole
steps are granted at once; the result is that of granting task by task inside the 3J + 1 actions.

The same with chance (`drawn_plan`): which job gets its next step is drawn, and every pick recorded with its
probability. Legend: J jobs, M picks, F inputs of a job.
A pick is one of the 3J + 1 actions: the grant that begins the best step of a job, at which the planner would then stay;
a job without a step that gains has none, and void, where no job has one, is never a choice. What a pick finds to fit
nowhere is not admissible any more.
The policy π is the softmax of the scores' logarithms over the temperature. With probability ε a pick is the runner-up,
which loses least; else training draws it from π, and production takes the best score.
Source: DL2 §4.3 (exploration that now and then takes a proposed action). Deviation: the proposal; here no job is ever
lopsided.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, field
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from policy_net.baselines.decision_capacity import DecisionCapacity
from policy_net.baselines.hull import FAIRNESS_EXPONENT, urgency
from policy_net.baselines.needs import LEAST_REMAINING_SHARE, remaining_samples
from policy_net.dl2.action import GRANT_KINDS, Grant
from policy_net.domain import SUSPENDED, Allocation, ClusterState, Decision, Job
from policy_net.set_policy.steps import SplitStep, StepTable

Array = NDArray[np.float64]
Integers = NDArray[np.int64]
Flags = NDArray[np.bool_]
Tilt = tuple[float, float]
"""What a residual says of a job: its priority, and how much more it is to gain near its best speed; (0, 0) nothing."""


@dataclass(frozen=True, slots=True)
class Weighed:
    """A step that the planner looked at.

    Attributes:
        granted: what the job had been granted before.
        score: the higher, the sooner it was looked at.
    """

    job: int
    granted: Allocation
    size: Allocation
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
        tilts: of every job; None leaves the base alone.
        weighed: is given every step that was looked at, in that order, for people who ask why.
        work_exponent: b; `tables` count in the prices that it belongs to.
        grants: what gives the steps and takes them, as `places.py` has it; None for `Grants` by the tables.
    """
    if grants is None:
        grants = Grants(state, tables)
    urgencies = Urgencies(state.jobs, tables, restart_seconds, work_exponent)
    queue: list[tuple[float, int, SplitStep]] = []

    def push(index: int, step: SplitStep | None) -> None:
        if step is not None:
            score = score_of(step, urgencies.of(index, grants.granted(index)), None if tilts is None else tilts[index])
            heapq.heappush(queue, (-score, index, step))

    for index in range(len(state.jobs)):
        push(index, grants.first(index))
    while queue:
        score, index, step = heapq.heappop(queue)
        granted = grants.granted(index)
        push(index, grants.take(index, step))
        if weighed is not None:
            weighed.append(Weighed(index, granted, step.size, -score, grants.granted(index) == step.size))
    return grants.decision()


def score_of(step: SplitStep, urgency_of_job: float, tilt: Tilt | None) -> float:
    """By how much a step is worth taking now."""
    score = step.slope * urgency_of_job
    if tilt is None:
        return score
    priority, steepness = tilt
    return score * math.exp(priority + steepness * math.log(step.speed_share))


class Urgencies:
    """The factors of all jobs' slopes in one decision."""

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

    def of(self, index: int, granted: Allocation) -> float:
        """The factor of the index-th job's next step, once it was granted this much."""
        return self._usual[index] if granted.tasks else self._first[index]


def _nearer(remaining_seconds: float, seconds: float, work_exponent: float) -> float:
    """The factor of urgency of a job that had so many seconds less left."""
    share = max(1.0 - seconds / remaining_seconds, LEAST_REMAINING_SHARE)
    return float(share**-work_exponent)


def _waiting(remaining: Sequence[float | None], restart_seconds: float) -> float:
    """Factor by which a job that holds nothing is less urgent.

    A start now pays only until the job could start for nothing, at the end of another job.

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


class Granting(Protocol):
    """One decision in the making: what the next step of each job is, and whether it fits into the free capacity."""

    def first(self, index: int) -> SplitStep | None:
        """The first step of the index-th job, with no limit but its caps; None if nothing gains."""
        ...

    def granted(self, index: int) -> Allocation:
        """What the index-th job has been granted."""
        ...

    def take(self, index: int, step: SplitStep) -> SplitStep | None:
        """Grant a step if it fits, and say what the job's next one is; None if nothing gains any more, or fits.

        A step that does not fit changes nothing, and gives way to the best that may.
        """
        ...

    def decision(self) -> Decision:
        """Sizes that were granted to all jobs."""
        ...


class Grants:
    """`Granting` by the cluster's free capacity, wherever tasks lie."""

    def __init__(self, state: ClusterState, tables: Sequence[StepTable]) -> None:
        """Args: `tables` are of every job."""
        self._jobs = state.jobs
        self._tables = tables
        self._free_capacity = DecisionCapacity(state)
        self._granted: list[Allocation] = [SUSPENDED] * len(state.jobs)
        self._refused: dict[int, list[Allocation]] = {}

    def first(self, index: int) -> SplitStep | None:
        """See `Granting`."""
        return self._tables[index].step(SUSPENDED)

    def granted(self, index: int) -> Allocation:
        """See `Granting`."""
        return self._granted[index]

    def take(self, index: int, step: SplitStep) -> SplitStep | None:
        """See `Granting`."""
        if self._free_capacity.change(index, step.size):
            self._granted[index] = step.size
            if index in self._refused:
                return self._limited(index)
            return self._tables[index].step(step.size)
        # What was refused stays so, with everything that contains it: free capacity only shrinks.
        self._refused.setdefault(index, []).append(step.size)
        return self._limited(index)

    def decision(self) -> Decision:
        """See `Granting`."""
        return self._free_capacity.decision()

    def _limited(self, index: int) -> SplitStep | None:
        """The best of what still fits, by the cluster's sums; whether nodes have it free is seen when it is tried."""
        job, granted = self._jobs[index], self._granted[index]
        if not self._least_fits(job, granted):
            return None
        free_cpu, free_gpu = self._free_capacity.free
        table = self._tables[index]
        fits = table.fitting(job, granted, free_cpu, free_gpu, self._refused[index])
        return table.limited_step(granted, fits)

    def _least_fits(self, job: Job, granted: Allocation) -> bool:
        """Whether the sums leave capacity for anything at all; cheap, as at the end of a plan it mostly is not."""
        free = self._free_capacity.free
        for workers, ps in _least_grants(job, granted):
            cpu = workers * job.worker_demand.cpu_milli + ps * job.ps_demand.cpu_milli
            gpu = workers * job.worker_demand.gpu + ps * job.ps_demand.gpu
            if cpu <= free[0] and gpu <= free[1]:
                return True
        return False


def _least_grants(job: Job, granted: Allocation) -> tuple[tuple[int, int], ...]:
    """The smallest (workers, PSs) that could help a job from here."""
    if not granted.tasks:
        return ((max(job.min_workers, 1), job.min_ps),)
    return ((1, 0), (0, 1)) if job.kind.uses_ps else ((1, 0),)


@dataclass(frozen=True, slots=True)
class SetSamples:
    """The picks of one decision, as they were made: what a learner needs, and small enough to keep a thousand of.

    A pick changes the step of one job only, so the steps before the first pick and the one change of every pick say it
    all; `log_gains` spreads them out again.

    Attributes:
        first_J2: log score without tilt, and log share of the best speed, of every job's first step; −inf where a job
            has none.
        next_M2: the same of the picked job's next step.
        actions_M: the picks as actions of 3J + 1: what the step gives, and to which job.
        behaviour_M: with which probability, masks and exploration included.
        believed_J2: believed speeds in samples/s of every job: alone at its best, and under the plan without chance.
        chosen_M: whether it was a choice, made with chance: of several steps, none of them for certain.
    """

    inputs_JF: Array
    first_J2: Array
    next_M2: Array
    actions_M: Integers
    behaviour_M: Array
    jobs_M: Integers
    chosen_M: Flags
    believed_J2: Array

    def __len__(self) -> int:
        return int(self.chosen_M.sum())

    @property
    def form(self) -> Hashable:
        """See `Samples.form`."""
        return ("set", self.inputs_JF.shape[1])

    @property
    def finite(self) -> bool:
        """See `Samples.finite`."""
        return bool(np.isfinite(self.inputs_JF).all() and np.isfinite(self.behaviour_M).all())

    def log_gains(self) -> tuple[Array, Array]:
        """Log score without tilt, and log share of the best speed, of every job's step at every pick; shape (M, J).

        The score is −inf, and the share 0, where a job has no step.
        """
        picks, jobs = len(self.jobs_M), len(self.inputs_JF)
        latest = np.full((picks, jobs), -1)
        # The pick that a job's step stems from is the job's last one before.
        latest[np.arange(1, picks), self.jobs_M[:-1]] = np.arange(picks - 1)
        latest = np.maximum.accumulate(latest, axis=0)
        gains_MJ2 = np.where((latest < 0)[..., None], self.first_J2, self.next_M2[latest])
        score_MJ = gains_MJ2[..., 0]
        return score_MJ, np.where(np.isfinite(score_MJ), gains_MJ2[..., 1], 0.0)


@dataclass(frozen=True, slots=True)
class Chance:
    """How much of it there is.

    Attributes:
        temperature: of the softmax, in nats of a score.
        greedy: take the best score instead of drawing.
        exploration: ε, the probability of the runner-up instead.
    """

    temperature: float
    greedy: bool
    exploration: float


def drawn_plan(
    state: ClusterState,
    tables: Sequence[StepTable],
    tilts: Sequence[Tilt],
    inputs_JF: Array,
    chance: Chance,
    generator: np.random.Generator,
    restart_seconds: float = 0.0,
    work_exponent: float = FAIRNESS_EXPONENT,
    open_grants: Callable[[], Granting] | None = None,
) -> tuple[Decision, SetSamples]:
    """Allocate to the jobs of `state`, and keep every pick; greedy and without exploration it is `plan`.

    Args:
        open_grants: begins the decision anew; None for `Grants` by the tables.
    """
    chances = chance.exploration > 0.0 or not chance.greedy
    grants = Grants(state, tables) if open_grants is None else open_grants()
    urgencies = Urgencies(state.jobs, tables, restart_seconds, work_exponent)
    field_of_steps = _Steps(tilts)
    for index in range(len(state.jobs)):
        field_of_steps.put(index, grants.first(index), urgencies.of(index, SUSPENDED))
    record = _Record(inputs_JF, np.column_stack((field_of_steps.log_score_J, field_of_steps.log_share_J)))
    while field_of_steps.count:
        index, probability = _pick(field_of_steps, chance, generator)
        step = field_of_steps.steps[index]
        assert step is not None  # noqa: S101  (only jobs with a step have a probability)
        chosen = probability < 1.0
        action = GRANT_KINDS * index + _grant(grants.granted(index), step.size)
        following_step = grants.take(index, step)
        field_of_steps.put(index, following_step, urgencies.of(index, grants.granted(index)))
        following = (float(field_of_steps.log_score_J[index]), float(field_of_steps.log_share_J[index]))
        record.add(index, action, probability, chosen, following)
    decision = grants.decision()
    planned = decision
    if chances:
        again = None if open_grants is None else open_grants()
        planned = plan(state, tables, tilts, restart_seconds=restart_seconds, work_exponent=work_exponent, grants=again)
    return decision, record.samples(_believed(state, tables, planned))


def _believed(state: ClusterState, tables: Sequence[StepTable], planned: Decision) -> Array:
    """Believed speeds in samples/s of every job, alone at its best and under a plan; shape (J, 2)."""
    return np.array(
        [(table.best_speed, table.speed(planned.of(job.job_id))) for job, table in zip(state.jobs, tables, strict=True)]
    ).reshape(-1, 2)


class _Steps:
    def __init__(self, tilts: Sequence[Tilt]) -> None:
        jobs = len(tilts)
        self.steps: list[SplitStep | None] = [None] * jobs
        self.count = 0
        self.log_score_J: Array = np.full(jobs, -np.inf)
        self.log_share_J: Array = np.full(jobs, -np.inf)
        self.score_J: Array = np.zeros(jobs)
        self.logit_J: Array = np.full(jobs, -np.inf)
        self._tilts = tilts

    def put(self, index: int, step: SplitStep | None, urgency: float) -> None:
        """The index-th job's next step is this, and counts with this factor."""
        self.count += (step is not None) - (self.steps[index] is not None)
        self.steps[index] = step
        if step is None:
            self.score_J[index] = 0.0
            self.log_score_J[index] = self.log_share_J[index] = self.logit_J[index] = -np.inf
            return
        tilt = self._tilts[index]
        log_score, log_share = math.log(step.slope * urgency), math.log(step.speed_share)
        # The planner's own formula, so that the best score is the planner's to the last bit.
        self.score_J[index] = score_of(step, urgency, tilt)
        self.log_score_J[index], self.log_share_J[index] = log_score, log_share
        self.logit_J[index] = log_score + tilt[0] + tilt[1] * log_share


def _pick(steps: _Steps, chance: Chance, generator: np.random.Generator) -> tuple[int, float]:
    """Which job gets its step, and how probable that was; numbers are drawn only where there is a choice."""
    best = int(steps.score_J.argmax())
    if steps.count == 1 or (chance.greedy and chance.exploration <= 0.0):
        return best, 1.0
    if chance.greedy:
        probability_J = np.zeros(len(steps.score_J))
        probability_J[best] = 1.0
    else:
        weight_J = np.exp((steps.logit_J - steps.logit_J.max()) / chance.temperature)
        probability_J = weight_J / weight_J.sum()
    if chance.exploration > 0.0:
        others_J = steps.score_J.copy()
        others_J[best] = 0.0
        probability_J *= 1.0 - chance.exploration
        probability_J[int(others_J.argmax())] += chance.exploration
    cumulative_J = probability_J.cumsum()
    index = int(cumulative_J.searchsorted(generator.random() * cumulative_J[-1], side="right"))
    return index, float(probability_J[index])


def _grant(granted: Allocation, size: Allocation) -> Grant:
    if size.ps == granted.ps:
        return Grant.WORKER
    return Grant.PS if size.workers == granted.workers else Grant.BUNDLE


@dataclass(slots=True)
class _Record:
    """Collects the picks of one decision."""

    inputs_JF: Array
    first_J2: Array
    jobs: list[int] = field(default_factory=list)
    actions: list[int] = field(default_factory=list)
    behaviour: list[float] = field(default_factory=list)
    chosen: list[bool] = field(default_factory=list)
    following: list[tuple[float, float]] = field(default_factory=list)

    def add(self, job: int, action: int, probability: float, chosen: bool, following: tuple[float, float]) -> None:
        self.jobs.append(job)
        self.actions.append(action)
        self.behaviour.append(probability)
        self.chosen.append(chosen)
        self.following.append(following)

    def samples(self, believed_J2: Array) -> SetSamples:
        return SetSamples(
            self.inputs_JF,
            self.first_J2,
            np.array(self.following, dtype=np.float64).reshape(-1, 2),
            np.array(self.actions, dtype=np.int64),
            np.array(self.behaviour, dtype=np.float64),
            np.array(self.jobs, dtype=np.int64),
            np.array(self.chosen, dtype=np.bool_),
            believed_J2,
        )
