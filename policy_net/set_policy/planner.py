"""Greedy grants by the slope of the best step: the base of the `set` policy, complete without anything learned.

The score of a step is slope × remaining work^−0.25 × exp(what the residual says of it). Grants go to the highest score
until nothing gains or nothing fits; `draws.py` has the same with chance.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Sequence

from policy_net.domain import ClusterState, Decision
from policy_net.set_policy.grants import Grants, urgency
from policy_net.set_policy.steps import Step, StepTable

Tilt = tuple[float, float]
"""What a residual says of a job: its priority, and how much more it is to gain near its best speed; (0, 0) nothing."""


def plan(state: ClusterState, tables: Sequence[StepTable], tilts: Sequence[Tilt] | None = None) -> Decision:
    """Allocate to the jobs of `state`; ties go by arrival.

    Args:
        tables: of every job.
        tilts: of every job; None leaves the base alone.
    """
    grants = Grants(state, tables)
    urgencies = [urgency(job) for job in state.jobs]
    queue: list[tuple[float, int, Step]] = []

    def push(index: int, step: Step | None) -> None:
        if step is not None:
            score = score_of(step, urgencies[index], None if tilts is None else tilts[index])
            heapq.heappush(queue, (-score, index, step))

    for index in range(len(state.jobs)):
        push(index, grants.first(index))
    while queue:
        _, index, step = heapq.heappop(queue)
        push(index, grants.take(index, step))
    return grants.decision()


def score_of(step: Step, urgency_of_job: float, tilt: Tilt | None) -> float:
    """By how much a step is worth taking now."""
    score = step.slope * urgency_of_job
    if tilt is None:
        return score
    priority, steepness = tilt
    return score * math.exp(priority + steepness * math.log(step.speed_share))
