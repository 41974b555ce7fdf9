"""The monitor for exceptional decisions of a policy that learned: surprise against the cluster's recent past.

A decision's gain is the log of the slot utility that is believed of its sizes, over that of fair sharing's sizes in the
same state. A policy that learned gains, or loses a little; weights that are damaged and finite lose much. It surprises
if it is below the lowest gain of the recent past by a margin: weights that are bad in busy hours are bad every day.
The least that the past can excuse is bounded, or a policy that gets worse step by step would be followed all the way.

Source: DL2 §7, which leaves exceptions to future work. Margins were chosen by `python -m
benchmarks.exceptional_decisions --choose`, whose held-out clusters say how often they are wrong.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from policy_net.baselines.drf import DrfPolicy
from policy_net.baselines.hull import FAIRNESS_EXPONENT, urgency
from policy_net.domain import ClusterState, Decision, Job, Trigger, speed_at
from policy_net.throughput.parametric import OnlineFit

BLOCK, BLOCKS = 100, 10
"""The recent past is a thousand decisions: the lowest gain of each of ten hundreds."""
USUAL_LOSS = 0.1
"""A gain of −0.1 surprises nobody, whatever the past was."""
UNKNOWN_WORK_SECONDS = 86_400.0
"""Of a job alone at its best: the second guess of work that nobody declared. The first is a job's own, from its age."""
_LEAST = 1e-6
"""Of the larger utility: where a decision or fair sharing lets nothing train, the logarithm stays finite."""


@dataclass(frozen=True, slots=True)
class Margin:
    """How far below the recent past a gain may lie, and the gain below which no past excuses one."""

    below_past: float
    lowest: float


MARGINS: Mapping[str, Margin] = {"set": Margin(0.2, -0.45), "dl2": Margin(0.5, -1.5)}
"""By kind of policy: `set` plans, and hardly ever believes in less than fair sharing; a network of `dl2` does."""


@dataclass(frozen=True, slots=True)
class RecentPast:
    """What a surprise is measured against.

    Attributes:
        lows: lowest gain of each block of decisions, oldest first; the last one is not yet full.
        counted: decisions in the last block.
    """

    lows: tuple[float, ...] = (0.0,)
    counted: int = 0

    def limit(self, kind: str) -> float:
        """The gain below which a decision of this kind of policy surprises."""
        margin = MARGINS[kind]
        return max(min(*self.lows, -USUAL_LOSS) - margin.below_past, margin.lowest)

    def with_gain(self, gain: float) -> RecentPast:
        """The past, one decision later."""
        lows = (*self.lows[:-1], min(self.lows[-1], gain))
        if self.counted + 1 < BLOCK:
            return RecentPast(lows, self.counted + 1)
        return RecentPast((*lows[-BLOCKS:], 0.0))

    def to_json(self) -> dict[str, Any]:
        """For a file."""
        return {"lows": list(self.lows), "counted": self.counted}

    @classmethod
    def from_json(cls, content: Any) -> RecentPast:
        """The inverse; None is the past of an agent that has none. Other keys, such as `work` of before, are ignored.

        Raises:
            KeyError, TypeError, ValueError: it is something else.
        """
        if content is None:
            return cls()
        lows, counted = tuple(float(low) for low in content["lows"]), int(content["counted"])
        if not (lows and all(map(math.isfinite, lows)) and 0 <= counted < BLOCK):
            raise ValueError(f"no past of gains: {content}")
        return cls(lows, counted)


def gain(decision: Decision, other: Decision, state: ClusterState, speeds: OnlineFit) -> float:
    """Log of the believed slot utility of a decision over another's: the sum over jobs of (speed / work left)^0.25.

    Where nobody said how much a job has to do, two guesses are made of all such jobs, and the better gain counts.
    """
    own, others = [0.0, 0.0], [0.0, 0.0]
    for job in state.jobs:
        grid, weight = speeds.grid(job.job_type), urgency(job)
        weights = weight, weight if job.work_known else _weight_of_unknown_work(job, grid)
        for utilities, each in ((own, decision), (others, other)):
            granted = each.of(job.job_id)
            if job.can_train(granted):
                utility = speed_at(grid, granted.ps, granted.workers) ** FAIRNESS_EXPONENT
                utilities[0] += weights[0] * utility
                utilities[1] += weights[1] * utility
    return max(_log_ratio(*pair) for pair in zip(own, others, strict=True))


def _weight_of_unknown_work(job: Job, grid: NDArray[np.float64]) -> float:
    best = float(grid[: job.max_ps + 1, : job.max_workers + 1].max())
    return (best * UNKNOWN_WORK_SECONDS) ** -FAIRNESS_EXPONENT if best > 0.0 else 0.0


def _log_ratio(own: float, other: float) -> float:
    most = max(own, other)
    return math.log(max(own / most, _LEAST) / max(other / most, _LEAST)) if most > 0.0 else 0.0


class DecisionMonitor:
    """The monitor of one agent; `speeds` are what it believes of speeds, whoever decides."""

    def __init__(self, speeds: OnlineFit, past: RecentPast | None = None) -> None:
        self.past = RecentPast() if past is None else past
        self._speeds = speeds
        self._fair = DrfPolicy()
        self._known: tuple[ClusterState, Decision, RecentPast] | None = None

    def surprise(self, decision: Decision, state: ClusterState, kind: str, *, acts: bool = True) -> str:
        """Why a decision is exceptional, in a line; empty if it is not, or the policy's `kind` has no margin.

        Args:
            acts: whether the decision is to be carried out, and so belongs to the past; a challenger's does not.
        """
        if kind not in MARGINS or not state.jobs:
            return ""
        if self._known is None or self._known[0] is not state:
            self._speeds.introduce(state.jobs)
            self._known = state, self._fair.decide(state, Trigger.SLOT), self.past
        _, fair, before = self._known
        own, limit = gain(decision, fair, state, self._speeds), before.limit(kind)
        if own < limit:
            least = f"{math.expm1(limit):+.0%} would be the least by the recent past"
            return f"believed utility {math.expm1(own):+.0%} against fair sharing's sizes; {least}"
        if acts:
            self.past = self.past.with_gain(own)
        return ""
