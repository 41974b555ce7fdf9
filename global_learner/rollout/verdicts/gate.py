"""Gate: the verdict on replays, before any cluster is touched.

A candidate, the incumbent and a heuristic are replayed on the same workloads, those of a fixed set and those that
clusters described of their own. The figure is the log of the candidate's mean completion time over that of the better
of the two others on the same workload, averaged per cluster. A gate stops what is clearly worse; what is a little worse
is for the clusters to find out, and what nothing is known of is asked.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from scipy import stats

from global_learner.rollout.verdicts.confidence import Interval
from global_learner.rollout.verdicts.verdict import Outcome, Verdict

LEAST_CLUSTERS = 3
"""With fewer there is nobody left to agree once one is left out."""


@dataclass(frozen=True, slots=True)
class Replayed:
    """Mean completion times of one workload, in seconds."""

    candidate: float
    incumbent: float
    heuristic: float

    @property
    def log_ratio(self) -> float:
        """Above 0 the candidate is worse than the better of the others."""
        return math.log(self.candidate / min(self.incumbent, self.heuristic))


def judge_replays(replays: Mapping[str, Sequence[Replayed]], margin: float, confidence: float = 0.95) -> Verdict:
    """The gate's verdict; it is looked at once, so its interval is Student's.

    Args:
        replays: by cluster whose workloads they are, the fixed set being one more.
        margin: the largest loss that is let pass, as a share.
        confidence: of each of the two bounds.
    """
    means = {cluster: float(np.mean([run.log_ratio for run in runs])) for cluster, runs in replays.items() if runs}
    if len(means) < LEAST_CLUSTERS:
        few = f"workloads of {len(means)} clusters; the gate needs those of {LEAST_CLUSTERS}"
        return Verdict(Outcome.INCONCLUSIVE, reasons=(few,))
    together = _interval(list(means.values()), confidence)
    each_left_out = [
        _interval([mean for other, mean in means.items() if other != cluster], confidence) for cluster in means
    ]
    lower = math.expm1(min(interval.lower for interval in each_left_out))
    least = math.expm1(min(interval.estimate for interval in each_left_out))
    most = math.expm1(max(interval.estimate for interval in each_left_out))
    loss = Interval(*(math.expm1(min(value, 700.0)) for value in (together.estimate, together.lower, together.upper)))
    if lower > 0.0 or least > margin:
        reason = f"replays take {loss.estimate:.1%} longer, and at least {least:.1%} whichever cluster is left out"
        return Verdict(Outcome.FAIL, loss, reasons=(reason,))
    if most <= margin:
        reason = f"replays take at most {most:.1%} longer, whichever cluster is left out"
        return Verdict(Outcome.PASS, loss, reasons=(reason,))
    return Verdict(Outcome.INCONCLUSIVE, loss, reasons=(f"without one cluster, replays take {most:.1%} longer",))


def _interval(values: Sequence[float], confidence: float) -> Interval:
    count, mean = len(values), float(np.mean(values))
    if count < 2:
        return Interval(mean, -math.inf, math.inf)
    half = float(stats.t.ppf(confidence, count - 1)) * float(np.std(values, ddof=1)) / math.sqrt(count)
    return Interval(mean, mean - half, mean + half)
