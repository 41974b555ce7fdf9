"""Imitation of logged decisions by a `set` policy: maximum likelihood of the planner's way to what was given.

A log says what every job was given, not in which order. So the planner's sequence of grants is followed as long as some
step brings its job nearer to what the log gave it; the picks at which right and wrong steps compete are what is learned
from. At every pick each right step should come before all wrong ones, in any order of their own. So the likelihood of a
right step is that of a softmax over it and the wrong ones, of the planner's tilted scores; this composite likelihood is
climbed. The softmax's temperature is fitted along with the residual, and then forgotten: a planner takes the best. No
tilt can change that the planner's steps lead over the believed best splits, that it never stops while a step gains and
fits, and that it cannot give what it believes to be of no use.

Legend: J jobs of a decision, R jobs of all decisions, C candidates of all picks, P picks, F inputs, O outputs.
Source: the partial likelihood of rankings of Plackett (1975). Deviation: sets of right and wrong steps, no full order.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from policy_net.baselines.hull import urgency
from policy_net.domain import SUSPENDED, Allocation
from policy_net.exchange.spec import SetSpec, Weights
from policy_net.laboratory.logged import LoggedDecision
from policy_net.set_policy.planner import Grants
from policy_net.set_policy.residual import Residual, job_inputs, uncertainty_of
from policy_net.set_policy.steps import StepTable, StepTables
from policy_net.throughput.gaussian_process import GaussianProcessBeliefs

Array = NDArray[np.float64]

RIDGE = 1e-3
"""Weight of the squared parameters against the mean log-likelihood: what the log does not show stays small."""
LARGEST_LOG_SHARPNESS = 3.0
"""Bounds the fitted temperature to between a twentieth and twenty nats."""


@dataclass(frozen=True, slots=True)
class LogView:
    """What the policy would have seen at a logged decision, with the beliefs that it would have had by then."""

    decision: LoggedDecision
    tables: Sequence[StepTable]
    inputs_JF: Array


def log_views(decisions: Iterable[LoggedDecision], beliefs: GaussianProcessBeliefs) -> Iterator[LogView]:
    """Follow a log with these beliefs; every decision counts, also one without jobs."""
    tables = StepTables(beliefs)
    for decision in decisions:
        beliefs.observe(decision.observed)
        jobs = decision.state.jobs
        beliefs.introduce(jobs)
        of_jobs = [tables.of(job) for job in jobs]
        uncertainties = [uncertainty_of(beliefs, job, table) for job, table in zip(jobs, of_jobs, strict=True)]
        inputs_JF = job_inputs(decision.state, of_jobs, uncertainties)
        yield LogView(decision, of_jobs, inputs_JF)


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

    def add(self, view: LogView) -> None:
        """The picks of one decision."""
        jobs = view.decision.state.jobs
        desired = [view.decision.of(job.job_id) for job in jobs]
        urgencies = [urgency(job) for job in jobs]
        grants = Grants(view.decision.state, view.tables)
        steps = {index: step for index in range(len(jobs)) if (step := grants.first(index)) is not None}
        while steps:
            right = {
                index
                for index, step in steps.items()
                if nearness(step.size, desired[index]) > nearness(grants.granted(index), desired[index])
            }
            if not right:
                break
            scores = {index: math.log(step.slope * urgencies[index]) for index, step in steps.items()}
            if len(right) < len(steps):
                for index, step in steps.items():
                    log_share = math.log(step.speed_share)
                    self._candidates.append((self._rows + index, self._picks, scores[index], log_share, index in right))
                self._picks += 1
            best = max(right, key=scores.__getitem__)
            following = grants.take(best, steps.pop(best))
            if following is not None:
                steps[best] = following
        self._inputs.append(view.inputs_JF)
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


def nearest_on_steps(table: StepTable, desired: Allocation) -> Allocation:
    """Of the allocations on the planner's own steps, the nearest to a logged one, whatever capacity there is."""
    best, reached, step = SUSPENDED, SUSPENDED, table.step(SUSPENDED)
    while step is not None:
        reached = step.size
        if nearness(reached, desired) > nearness(best, desired):
            best = reached
        step = table.step(reached)
    return best


def tasks_in_common(ours: Sequence[Allocation], theirs: Sequence[Allocation]) -> tuple[int, int]:
    """Tasks that both give to the same job in the same role, and those that either gives."""
    both = either = 0
    for mine, other in zip(ours, theirs, strict=True):
        both += min(mine.workers, other.workers) + min(mine.ps, other.ps)
        either += max(mine.workers, other.workers) + max(mine.ps, other.ps)
    return both, either


def nearness(granted: Allocation, desired: Allocation) -> float:
    """The share of tasks that two allocations have in common, 0 to 1; 1 if they are equal."""
    both, either = tasks_in_common([granted], [desired])
    return both / either if either else 1.0


def fit_residual(
    spec: SetSpec,
    start: Weights,
    picks: Picks,
    *,
    most_iterations: int,
    on_iteration: Callable[[float], None] | None = None,
) -> tuple[Weights, float]:
    """Climb the mean log-likelihood of the picks (per pick, in nats) by L-BFGS; the weights, and what they reach."""
    if not picks.count:
        return start, 0.0
    from scipy.optimize import minimize  # noqa: PLC0415  (slow to load, and few programs fit)

    likelihood = PickLikelihood(spec, picks, RIDGE)
    first = np.append(start.astype(np.float64), 0.0)
    found = minimize(
        likelihood.loss,
        first,
        jac=True,
        method="L-BFGS-B",
        bounds=[(None, None)] * len(start) + [(-LARGEST_LOG_SHARPNESS, LARGEST_LOG_SHARPNESS)],
        options={"maxiter": most_iterations},
        callback=None if on_iteration is None else lambda _: on_iteration(likelihood.latest),
    )
    weights: Weights = found.x[:-1].astype(np.float32)
    likelihood.loss(np.append(weights.astype(np.float64), found.x[-1]))
    return weights, likelihood.latest


class PickLikelihood:
    """Mean log-likelihood per pick, and its gradient in the residual's parameters and the temperature's logarithm."""

    def __init__(self, spec: SetSpec, picks: Picks, ridge: float) -> None:
        self._spec = spec
        self._picks = picks
        self._ridge = ridge
        self._starts = np.flatnonzero(np.diff(picks.pick_C, prepend=-1))
        self._rights_P = np.add.reduceat(picks.right_C.astype(np.float64), self._starts)
        self._rows = len(picks.inputs_RF)
        self.latest = 0.0

    def loss(self, point: Array) -> tuple[float, Array]:
        """What is to become small, and its gradient.

        Args:
            point: the residual's parameters and the logarithm of the sharpness, shape (parameter_count + 1,).
        """
        picks = self._picks
        parameters, sharpness = point[:-1], float(np.exp(point[-1]))
        residual = Residual(self._spec, parameters.astype(np.float32))
        tilt_RO = residual.outputs(picks.inputs_RF)
        tilted_C = picks.log_score_C + tilt_RO[picks.row_C, 0] + tilt_RO[picks.row_C, 1] * picks.log_share_C
        logit_C = sharpness * tilted_C
        logit_C -= np.maximum.reduceat(logit_C, self._starts)[picks.pick_C]
        weight_C = np.exp(logit_C)
        wrong_P = np.add.reduceat(np.where(picks.right_C, 0.0, weight_C), self._starts)
        # Of every right step, how probable it is to come before all wrong ones; all right steps of a pick weigh one.
        share_C = picks.right_C / self._rights_P[picks.pick_C] / picks.count
        both_C = weight_C + wrong_P[picks.pick_C]
        self.latest = float(share_C @ (logit_C - np.log(both_C)))
        behind_P = np.add.reduceat(share_C / both_C, self._starts)
        slope_C = np.where(picks.right_C, share_C * wrong_P[picks.pick_C] / both_C, -weight_C * behind_P[picks.pick_C])
        into_C = sharpness * slope_C
        slope_RO: Array = np.stack(
            (
                np.bincount(picks.row_C, into_C, self._rows),
                np.bincount(picks.row_C, into_C * picks.log_share_C, self._rows),
            ),
            axis=1,
        ).astype(np.float64)
        gradient = residual.gradient(picks.inputs_RF, slope_RO) - 2 * self._ridge * parameters
        total = self.latest - self._ridge * float(parameters @ parameters)
        return -total, -np.append(gradient, sharpness * float(slope_C @ tilted_C))
