"""Optimus with the shortest job admitted first, and with gains counted by share.

First grants go by believed remaining time instead of by arrival, and a further task goes where it saves the largest
share of a job's remaining time instead of the most seconds. In real clusters a few jobs are longer than all others
together: in seconds they would take every spare GPU, for the longest time. This is the strongest heuristic there that
looks one task ahead. Needs durations, and speeds, which it fits online. Preemptive, elastic.
Source: our own, on Optimus (Peng et al., EuroSys 2018) §4.1.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from policy_net.baselines.needs import first_grant, remaining_seconds
from policy_net.baselines.optimus import Array, OptimusPolicy, seconds_per_sample
from policy_net.domain import ClusterState, Job
from policy_net.throughput.beliefs import Beliefs
from policy_net.throughput.parametric import OnlineFit


class OptimusSrPolicy(OptimusPolicy):
    """Optimus's greedy in another order and by another measure."""

    def __init__(self, beliefs: Beliefs | None = None) -> None:
        beliefs = OnlineFit() if beliefs is None else beliefs
        super().__init__("optimus-sr", beliefs, beliefs)

    def admission_order(self, state: ClusterState) -> Sequence[int]:
        """By believed time to the end with the first grant (ties by arrival)."""
        seconds = [self._seconds_left(job) for job in state.jobs]
        return sorted(range(len(seconds)), key=seconds.__getitem__)

    def weigh(self, job: Job) -> float:  # noqa: ARG002  (a share is the same for all jobs of a type)
        """A saved share of the remaining time counts the same for every job."""
        return 1.0

    def savings(self, grid: Array) -> tuple[Array, Array]:
        """The share of its remaining time that a job saves by one more worker, and by one more server."""
        times = seconds_per_sample(grid)
        return _saved_share(times[:, :-1], times[:, 1:]), _saved_share(times[:-1], times[1:])

    def _seconds_left(self, job: Job) -> float:
        first = first_grant(job)
        return math.inf if first is None else remaining_seconds(job, self.speeds.grid(job.job_type), first)


def _saved_share(before: Array, after: Array) -> Array:
    """1 − after / before; all of it from a dead cell to a live one, and nothing from one dead cell to another."""
    with np.errstate(invalid="ignore"):
        share = 1 - after / before
    share[np.isinf(before)] = np.isfinite(after[np.isinf(before)])
    return np.asarray(share)
