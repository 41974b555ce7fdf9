"""The planner's way to logged allocations: at every pick, which steps bring their job nearer to what the log gave it.

A log says what every job was given, not in which order. So the planner's sequence of grants is followed as long as some
step is right; the picks at which right and wrong steps compete are what an imitation learns from.
Legend: J jobs of a decision, R jobs of all decisions, C candidates of all picks, F inputs.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from policy_net.domain import SUSPENDED, Allocation
from policy_net.exchange.set_spec import SET_INPUTS
from policy_net.laboratory.training.agreement import overlap
from policy_net.laboratory.training.logged import LoggedDecision
from policy_net.set_policy.features import job_inputs, uncertainty_of
from policy_net.set_policy.grants import Grants, urgency
from policy_net.set_policy.steps import Step, StepTable, StepTables
from policy_net.throughput.gaussian_process import GaussianProcessBeliefs

Array = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Sight:
    """What the policy would have seen at a logged decision, with the beliefs that it would have had by then."""

    decision: LoggedDecision
    tables: Sequence[StepTable]
    inputs_JF: Array


def sights(decisions: Iterable[LoggedDecision], beliefs: GaussianProcessBeliefs) -> Iterator[Sight]:
    """Live through a log with these beliefs; every decision is seen, also one without jobs."""
    tables = StepTables(beliefs)
    for decision in decisions:
        beliefs.observe(decision.observed)
        jobs = decision.state.jobs
        beliefs.introduce(jobs)
        of_jobs = [tables.of(job) for job in jobs]
        uncertainties = [uncertainty_of(beliefs, job, table) for job, table in zip(jobs, of_jobs, strict=True)]
        inputs_JF = job_inputs(decision.state, of_jobs, uncertainties) if jobs else np.empty((0, SET_INPUTS))
        yield Sight(decision, of_jobs, inputs_JF)


@dataclass(frozen=True, slots=True)
class Picks:
    """All picks at which some steps were right and some were not.

    Attributes:
        inputs_RF: of every job of every decision.
        row_C: which of these a candidate is about.
        pick_C: to which pick a candidate belongs; rising.
        log_score_C, log_share_C: of the candidate's step, without a tilt.
        right_C: whether it brings its job nearer to what the log gave it.
    """

    inputs_RF: Array
    row_C: NDArray[np.int64]
    pick_C: NDArray[np.int64]
    log_score_C: Array
    log_share_C: Array
    right_C: NDArray[np.bool_]

    @property
    def count(self) -> int:
        """How many picks."""
        return int(self.pick_C[-1]) + 1 if len(self.pick_C) else 0


class PickCollector:
    """Follows the planner towards logged allocations, and keeps the picks."""

    def __init__(self) -> None:
        self._inputs: list[Array] = []
        self._rows = 0
        self._picks = 0
        self._candidates: list[tuple[int, int, float, float, bool]] = []

    def add(self, sight: Sight) -> None:
        """The picks of one decision."""
        jobs = sight.decision.state.jobs
        wanted = [sight.decision.of(job.job_id) for job in jobs]
        urgencies = [urgency(job) for job in jobs]
        grants = Grants(sight.decision.state, sight.tables)
        steps = {index: step for index in range(len(jobs)) if (step := grants.first(index)) is not None}
        while steps:
            right = {
                index
                for index, step in steps.items()
                if nearness(step.target, wanted[index]) > nearness(grants.held(index), wanted[index])
            }
            if not right:
                break
            scores = {index: _log_score(step, urgencies[index]) for index, step in steps.items()}
            if len(right) < len(steps):
                for index, step in steps.items():
                    log_share = math.log(step.speed_share)
                    self._candidates.append((self._rows + index, self._picks, scores[index], log_share, index in right))
                self._picks += 1
            best = max(right, key=scores.__getitem__)
            following = grants.take(best, steps.pop(best))
            if following is not None:
                steps[best] = following
        self._inputs.append(sight.inputs_JF)
        self._rows += len(jobs)

    def picks(self) -> Picks:
        """All of them."""
        rows, picks, scores, shares, right = zip(*self._candidates, strict=True) if self._candidates else ((),) * 5
        return Picks(
            np.concatenate(self._inputs) if self._inputs else np.empty((0, 0)),
            np.array(rows, dtype=np.int64),
            np.array(picks, dtype=np.int64),
            np.array(scores, dtype=np.float64),
            np.array(shares, dtype=np.float64),
            np.array(right, dtype=np.bool_),
        )


def _log_score(step: Step, urgency_of_job: float) -> float:
    return math.log(step.slope * urgency_of_job)


def nearest_on_steps(table: StepTable, wanted: Allocation) -> Allocation:
    """Of the allocations on the planner's own steps, the one nearest to a logged one, whatever room there is."""
    best, held, step = SUSPENDED, SUSPENDED, table.step(SUSPENDED)
    while step is not None:
        held = step.target
        if nearness(held, wanted) > nearness(best, wanted):
            best = held
        step = table.step(held)
    return best


def nearness(held: Allocation, wanted: Allocation) -> float:
    """The share of tasks that two allocations have in common, 0 to 1; 1 if they are equal."""
    return overlap([held], [wanted])
