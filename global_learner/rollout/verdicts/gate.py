"""Gate: the verdict on replays, before any cluster is touched.

A candidate, the incumbent and a heuristic are replayed on the same workloads: those of a fixed set, and those made from
what clusters told of their own work. Both have to pass, either can fail it. The figure is the log of the candidate's
mean completion time over that of the better of the two others on the same workload, averaged per cluster. A gate stops
what is clearly worse; what is a little worse is for the clusters to find out, and what nothing is known of is asked.
Each fixed replay counts as a cluster: it has machines, a load and jobs of its own, and leaving one out asks whether the
verdict hangs on a single workload.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from scipy import stats

from global_learner.rollout.verdicts.confidence import ConfidenceInterval
from global_learner.rollout.verdicts.verdict import StageOutcome, Verdict

LEAST_CLUSTERS = 3
"""Fewest clusters of which one can be left out, and two remain to agree."""
CONTENDERS = ("drf", "optimus")
"""Heuristics that the gate compares with; `oracle` knows what nobody can."""
STANDSTILL_RATIO = 10.0
"""Slowdown that counts for a candidate that lets jobs wait for ever where others do not."""
_CONFIDENCE = 0.95
"""Of each of the two bounds."""


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


Replays = Mapping[str, Sequence[Replayed]]
"""By whose workload it is."""


@dataclass(frozen=True, slots=True)
class FrozenSketch:
    """A cluster's sketch as a rollout's gate began with it.

    Attributes:
        sketch: `WorkloadSketch.to_json`.
        jct_seconds: mean by policy; None: jobs wait for ever.
        dropped: why it does not count; empty: it does.
    """

    cluster: str
    seed: int
    sketch: Mapping[str, Any]
    jct_seconds: Mapping[str, float | None] = field(default_factory=dict)
    dropped: str = ""


@dataclass(frozen=True, slots=True)
class GateReplayed:
    """Replays that the gate judges."""

    fixed: Replays
    own: OwnWork


def version_name(version: int) -> str:
    """Name under which a version's replays are stored."""
    return f"v{version}"


def replayed_on(sketch: FrozenSketch, candidate: int, incumbents: Collection[int]) -> Replayed | str | None:
    """Result of a sketch's replays; None while some are missing; a text: why it does not count."""
    if sketch.dropped:
        return sketch.dropped
    names = {version_name(version) for version in incumbents}
    if not {version_name(candidate), *names, *CONTENDERS} <= sketch.jct_seconds.keys():
        return None
    incumbent, heuristic = (_best(sketch.jct_seconds, group) for group in (names, CONTENDERS))
    others = min(incumbent, heuristic)
    if math.isinf(others):
        return "neither an incumbent nor a heuristic gets its jobs done"
    own = sketch.jct_seconds[version_name(candidate)]
    return Replayed(STANDSTILL_RATIO * others if own is None else own, incumbent, heuristic)


def own_work(sketches: Sequence[FrozenSketch], candidate: int, incumbents: Collection[int]) -> OwnWork | None:
    """Results of all sketches; None while some are missing."""
    runs, dropped = {}, {}
    for sketch in sketches:
        found = replayed_on(sketch, candidate, incumbents)
        if found is None:
            return None
        if isinstance(found, str):
            dropped[sketch.cluster] = found
        else:
            runs[sketch.cluster] = found
    return OwnWork(runs, dropped)


def _best(jct_seconds: Mapping[str, float | None], names: Collection[str]) -> float:
    return min((value for name in names if (value := jct_seconds[name]) is not None), default=math.inf)


def replays_of(
    scores: Mapping[int, Mapping[str, Any]], candidate: int, incumbents: Collection[int]
) -> Replays | str | None:
    """Replays of a candidate, incumbents and heuristics; None while some are missing; a text: why there will be none.

    Where clusters go back to several versions, the best of them counts on each workload.

    Args:
        scores: of versions, all on the same set, as `scores` keeps them.
    """
    for version, score in sorted(scores.items()):
        if score["state"] == "failed":
            return f"the replays of v{version} failed: {score.get('reason', '')}"
    if not {candidate, *incumbents} <= scores.keys():
        return None
    times = {
        version: {row["replay"]: float(row["avg_jct_seconds"]) for row in score["replays"]}
        for version, score in scores.items()
    }
    return {
        row["replay"]: [
            Replayed(
                times[candidate][row["replay"]],
                min(times[version][row["replay"]] for version in incumbents or (candidate,)),
                min(float(row["baseline_jct_seconds"][name]) for name in CONTENDERS),
            )
        ]
        for row in scores[candidate]["replays"]
    }


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


def judge_replays(replays: Mapping[str, Sequence[Replayed]], margin: float) -> Verdict:
    """The gate's verdict on the fixed set; tested once, so its interval is Student's.

    Args:
        replays: by workload.
        margin: largest loss that may pass, as a share.
    """
    means = {cluster: float(np.mean([run.log_ratio for run in runs])) for cluster, runs in replays.items() if runs}
    if len(means) < LEAST_CLUSTERS:
        few = f"workloads of {len(means)} clusters; the gate needs those of {LEAST_CLUSTERS}"
        return Verdict(StageOutcome.INCONCLUSIVE, reasons=(few,))
    together = _interval(list(means.values()))
    each_left_out = [_interval([mean for other, mean in means.items() if other != cluster]) for cluster in means]
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


def _interval(values: Sequence[float]) -> ConfidenceInterval:
    count, mean = len(values), float(np.mean(values))
    if count < 2:
        return ConfidenceInterval(mean, -math.inf, math.inf)
    half = float(stats.t.ppf(_CONFIDENCE, count - 1)) * float(np.std(values, ddof=1)) / math.sqrt(count)
    return ConfidenceInterval(mean, mean - half, mean + half)
