"""Gate: the verdict on replays, before any cluster is touched.

A candidate, the incumbent and a heuristic are replayed on the same workloads: those of a fixed set, and those made from
what clusters told of their own work. Both have to pass, either can fail it. The figure is the log of the candidate's
mean completion time over that of the better of the two others on the same workload, averaged per cluster. A gate stops
what is clearly worse; what is a little worse is for the clusters to find out, and what nothing is known of is asked.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
from scipy import stats

from global_learner.rollout.verdicts.confidence import ConfidenceInterval
from global_learner.rollout.verdicts.verdict import StageOutcome, Verdict

LEAST_CLUSTERS = 3
"""Fewest clusters of which one can be left out, and two remain to agree."""


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


@dataclass(frozen=True, slots=True)
class OwnWork:
    """Replays of clusters' sketches: results by cluster, and why a cluster's does not count."""

    runs: Mapping[str, Replayed] = field(default_factory=dict)
    dropped: Mapping[str, str] = field(default_factory=dict)


def judge_gate(fixed: Mapping[str, Sequence[Replayed]], own: OwnWork, margin: float) -> Verdict:
    """The gate's verdict on the fixed set and the clusters' own work together; `margin` is a share."""
    on_fixed = judge_replays(fixed, margin)
    reported = len(own.runs) + len(own.dropped)
    if not reported:
        return on_fixed
    reasons = [*on_fixed.reasons, *(f"{cluster}'s own work is left out: {why}" for cluster, why in own.dropped.items())]
    if len(own.runs) < LEAST_CLUSTERS:
        reasons.append(
            f"the clusters' own work is not used: {len(own.runs)} of {reported} sketches can be, "
            f"and {LEAST_CLUSTERS} are needed"
        )
        return Verdict(on_fixed.outcome, on_fixed.loss, reasons=tuple(reasons))
    on_own = judge_own_work(own.runs, margin)
    reasons += on_own.reasons
    outcomes = {on_fixed.outcome, on_own.outcome}
    decides = max(on_fixed, on_own, key=lambda verdict: verdict.loss.estimate)
    for outcome in (StageOutcome.FAIL, StageOutcome.INCONCLUSIVE):
        if outcome in outcomes:
            return Verdict(outcome, decides.loss, reasons=tuple(reasons))
    return Verdict(StageOutcome.PASS, decides.loss, reasons=tuple(reasons))


def judge_own_work(runs: Mapping[str, Replayed], margin: float) -> Verdict:
    """The verdict on the clusters' own work: the same whichever cluster is left out, or none.

    So no cluster can turn a pass into a fail, or a fail into a pass. `runs` are of `LEAST_CLUSTERS` or more.
    """
    logs = {cluster: run.log_ratio for cluster, run in runs.items()}
    total = math.fsum(logs.values())
    without = {cluster: (total - value) / (len(logs) - 1) for cluster, value in logs.items()}
    loss = ConfidenceInterval(
        *(math.expm1(min(each, 700.0)) for each in (total / len(logs), min(without.values()), max(without.values())))
    )
    shown = f"the own work of {len(logs)} clusters takes {loss.estimate:+.1%}, {loss.lower:+.1%} to {loss.upper:+.1%}"
    worse = {mean > math.log1p(margin) for mean in without.values()}
    if len(worse) == 1:
        outcome = StageOutcome.FAIL if worse.pop() else StageOutcome.PASS
        return Verdict(outcome, loss, reasons=(f"{shown} whichever is left out",))
    hinges = max(logs, key=lambda cluster: abs(logs[cluster] - total / len(logs)))
    return Verdict(
        StageOutcome.INCONCLUSIVE, loss, reasons=(f"{shown} as one is left out: it hangs on one, maybe {hinges}",)
    )


def judge_replays(replays: Mapping[str, Sequence[Replayed]], margin: float, confidence: float = 0.95) -> Verdict:
    """The gate's verdict on the fixed set; tested once, so its interval is Student's.

    Args:
        replays: by workload.
        margin: largest loss that may pass, as a share.
        confidence: of each of the two bounds.
    """
    means = {cluster: float(np.mean([run.log_ratio for run in runs])) for cluster, runs in replays.items() if runs}
    if len(means) < LEAST_CLUSTERS:
        few = f"workloads of {len(means)} clusters; the gate needs those of {LEAST_CLUSTERS}"
        return Verdict(StageOutcome.INCONCLUSIVE, reasons=(few,))
    together = _interval(list(means.values()), confidence)
    each_left_out = [
        _interval([mean for other, mean in means.items() if other != cluster], confidence) for cluster in means
    ]
    lower = math.expm1(min(interval.lower for interval in each_left_out))
    least = math.expm1(min(interval.estimate for interval in each_left_out))
    most = math.expm1(max(interval.estimate for interval in each_left_out))
    loss = ConfidenceInterval(
        *(math.expm1(min(value, 700.0)) for value in (together.estimate, together.lower, together.upper))
    )
    if lower > 0.0 or least > margin:
        reason = f"replays take {loss.estimate:.1%} longer, and at least {least:.1%} whichever cluster is left out"
        return Verdict(StageOutcome.FAIL, loss, reasons=(reason,))
    if most <= margin:
        known = f"at most {most:.1%} longer" if most >= 0.0 else f"at least {-most:.1%} less time"
        reason = f"replays take {known}, whichever cluster is left out"
        return Verdict(StageOutcome.PASS, loss, reasons=(reason,))
    return Verdict(StageOutcome.INCONCLUSIVE, loss, reasons=(f"without one cluster, replays take {most:.1%} longer",))


def _interval(values: Sequence[float], confidence: float) -> ConfidenceInterval:
    count, mean = len(values), float(np.mean(values))
    if count < 2:
        return ConfidenceInterval(mean, -math.inf, math.inf)
    half = float(stats.t.ppf(confidence, count - 1)) * float(np.std(values, ddof=1)) / math.sqrt(count)
    return ConfidenceInterval(mean, mean - half, mean + half)
