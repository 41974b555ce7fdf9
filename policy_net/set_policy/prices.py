"""Prices that the planner counts in: how speed and work weigh, and what a parameter server costs beside a worker.

What a task is worth to a job follows from its speeds; what it costs the others, and how much more a short job's end is
worth than a long one's, follows from how full the cluster is. No planner derives these, so they are numbers of the
policy, learned where its file has them, and what the planner has always counted in where it has not:

- a step's gain is that of speed^e / e, with e = ¼ · exp(p₀ + p₁ · c);
- a job's steps count by its remaining work to the power of −b, with b = ¼ · exp(p₂ + p₃ · c);
- a step's cost is its workers and, for each server, exp(p₄ + p₅ · c).

c is contention, half the log of how many times over the jobs could use the cluster, each at its best: 0 where they
would just fill it. It is taken in steps of an eighth, as each type's steps are to be found anew whenever it changes.
Source: our own; the form with p = 0 is `baselines.hull`'s.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from policy_net.baselines.hull import FAIRNESS_EXPONENT
from policy_net.domain import ClusterState, Job, Resources
from policy_net.exchange.spec import PRICES, SetSpec, Weights, split_weights
from policy_net.placement.capacity import dominant_share
from policy_net.set_policy.steps import USUAL_PRICES, Prices, StepTable

LARGEST_CONTENTION = 1.5
CONTENTION_STEP = 0.125
LARGEST_SHARE = 100.0
LARGEST_LOG_CHANGE = 3.0
"""Exponents lie between 0.012 and 5, and so does the price over a worker's: beyond that scores lose their digits."""


@dataclass(frozen=True, slots=True)
class PriceTerms:
    """The numbers of a policy: of each price the log of its factor, and what contention adds to it."""

    speed: tuple[float, float] = (0.0, 0.0)
    work: tuple[float, float] = (0.0, 0.0)
    ps: tuple[float, float] = (0.0, 0.0)

    @classmethod
    def of(cls, spec: SetSpec, weights: Weights) -> PriceTerms:
        """Those among the weights of a policy; zeros where its spec has none.

        Raises:
            SpecMismatch: the weights are of another length than the spec's.
        """
        found = split_weights(weights, spec).get(PRICES)
        if found is None:
            return cls()
        values = [float(value) for value in found]
        return cls((values[0], values[1]), (values[2], values[3]), (values[4], values[5]))

    @property
    def flat(self) -> tuple[float, ...]:
        """In the order of the weights."""
        return (*self.speed, *self.work, *self.ps)

    @property
    def usual(self) -> bool:
        """Whether prices are the same in every cluster, and what they have always been."""
        return not np.any(self.flat)

    def at(self, contention: float) -> Prices:
        """The prices where the cluster is that full."""
        return Prices(
            FAIRNESS_EXPONENT * _factor(self.speed, contention),
            FAIRNESS_EXPONENT * _factor(self.work, contention),
            _factor(self.ps, contention),
        )

    def of_state(self, state: ClusterState, tables: Sequence[StepTable]) -> Prices:
        """The prices of a decision; `tables` are of every job, and are then to count in them."""
        return USUAL_PRICES if self.usual else self.at(contention_of(state, tables))


def contention_of(state: ClusterState, tables: Sequence[StepTable]) -> float:
    """Half the log of what all jobs could use over what there is, from −1.5 to 1.5, in steps of an eighth."""
    demand, total = 0.0, state.total
    for job, table in zip(state.jobs, tables, strict=True):
        demand += wanted_share(job, table, total)
    contention = math.log(max(demand, 1e-3)) / 2.0
    clipped = min(max(contention, -LARGEST_CONTENTION), LARGEST_CONTENTION)
    return math.floor(clipped / CONTENTION_STEP + 0.5) * CONTENTION_STEP


def wanted_share(job: Job, table: StepTable, total: Resources) -> float:
    """The dominant share of a cluster that a job would use alone, at most 100; 0 of a job that cannot train."""
    if table.best_speed <= 0.0:
        return 0.0
    best = table.best
    # Infinite where the cluster has none of what the job needs, as when all its nodes are away.
    return min(dominant_share(job.worker_demand * best.workers + job.ps_demand * best.ps, total), LARGEST_SHARE)


def _factor(terms: tuple[float, float], contention: float) -> float:
    log_factor = terms[0] + terms[1] * contention
    return math.exp(min(max(log_factor, -LARGEST_LOG_CHANGE), LARGEST_LOG_CHANGE))
