"""Verdict on a candidate: pass, fail, wait or inconclusive, from what all clusters' pairs of blocks say together.

The candidate fails if the fleet's mean loss is above nought, if two clusters or more are each worse off, or if the
guard, starvation or slow decisions show more with it: each by a test that holds at any time, the errors of all
together at most `false_alarm`. It passes if the fleet's mean loss is below the margin, and every cluster of the stage
has brought its pairs.

One cluster alone decides nothing, whether it lies, is broken, or is unlike the others. The fleet's tests have to say
the same with any one cluster left out; and from four clusters on one that contradicts the others holds nothing up. A
cluster that is worse off by itself is held: it goes back to the incumbent, and the rollout goes on without it; the
second one ends it. Where fewer than two are left to say anything, an operator is asked at once: what one of two
canaries suffers from is not tried on the other until its time is over.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum

import numpy as np
from numpy.typing import NDArray
from scipy.special import betainc, betaln

from global_learner.rollout.verdicts.confidence import (
    UNKNOWN,
    ConfidenceInterval,
    Summed,
    bound_without_any,
    interval_of,
    rests_on,
    summed,
)
from global_learner.rollout.verdicts.evidence import LEAST_TO_ENDURE, Pair, Score, scores_of

FLEET_SHARE, CLUSTERS_SHARE, SIGNS_SHARE = 0.5, 0.2, 0.3
"""How the probability of a false alarm is shared out: the fleet's loss, two clusters' losses, the three sign tests."""
LEAST_OWN_PAIRS = 6
"""Of one cluster, before it may be said to be worse off by itself."""


# Sequential sign test: whether the candidate has more of something bad than the incumbent, in pair after pair.
#
# For what is rare or capricious (a guard that steps in, a job that starves, a slow decision) means and variances say
# little. In a pair it is only asked which version had more. If neither is worse, that is a coin's throw, exactly: the
# order of every pair is one. So the test holds at any time and with any distribution, and needs no history.
# Source: Robbins' mixture with a Beta(½, ½) weight over the chances above one half; Ville (1939): a fair gambler's
# fortune exceeds 1/α with a probability of at most α.

_SHAPE = 0.5
_LOG_2 = math.log(2.0)


@dataclass(frozen=True, slots=True)
class Signs:
    """Pairs in which the candidate had clearly more of something, or clearly less."""

    more: int = 0
    less: int = 0

    def __add__(self, other: Signs) -> Signs:
        return Signs(self.more + other.more, self.less + other.less)


NO_SIGNS = Signs()


def log_evidence(signs: Signs) -> float:
    """The log of a gambler's fortune who bets on the candidate being worse; above log 1/α it is."""
    return float(_log_evidence(np.array(float(signs.more)), np.array(float(signs.less))))


def without_any(by_cluster: Mapping[str, Signs]) -> float:
    """The evidence that is left whichever cluster is left out: none alone makes a version fail, or keeps it from it.

    As with the mean loss (`confidence.bound_without_any`) one more may be left out from four clusters on, for half of
    the fortune.
    """
    count = len(by_cluster)
    if count < 2:
        return -math.inf
    more, less = (np.array([float(getattr(own, name)) for own in by_cluster.values()]) for name in ("more", "less"))
    without = _log_evidence(more.sum() - more, less.sum() - less)
    least = math.inf
    for left_out in np.argsort(without):
        left = float(without[left_out])
        if left >= least:
            break  # nor is there less behind it
        if count >= LEAST_TO_ENDURE:
            others, fewer = np.delete(more, left_out), np.delete(less, left_out)
            left = max(left, float(_log_evidence(others.sum() - others, fewer.sum() - fewer).max()) - _LOG_2)
        least = min(least, left)
    return least


def _log_evidence(more: NDArray[np.float64], less: NDArray[np.float64]) -> NDArray[np.float64]:
    heads, tails = more + _SHAPE, less + _SHAPE
    above_half = betainc(tails, heads, 0.5)  # the posterior weight of chances above one half
    with np.errstate(divide="ignore"):
        found = (more + less + 1.0) * _LOG_2 + betaln(heads, tails) - betaln(_SHAPE, _SHAPE) + np.log(above_half)
    return np.asarray(found, dtype=np.float64)


def loss_signs(scores: Iterable[Score], tolerance: float) -> Signs:
    """Losses, whatever their size: a version that is much worse in most pairs is known by that before its mean is.

    Args:
        tolerance: the share by which the two have to differ to count.
    """
    return _signs((score.loss, tolerance) for score in scores)


def guard_signs(pairs: Iterable[Pair], tolerance: float) -> Signs:
    """Shares of decisions that the guard changed.

    Args:
        tolerance: a share by which two blocks must differ to count.
    """
    return _signs((pair.candidate.guard_share - pair.incumbent.guard_share, tolerance) for pair in pairs)


def starvation_signs(pairs: Iterable[Pair]) -> Signs:
    """Jobs that went without training for too long; one more is more."""
    return _signs((float(pair.candidate.starved_jobs - pair.incumbent.starved_jobs), 0.5) for pair in pairs)


def latency_signs(pairs: Iterable[Pair], tolerance_seconds: float) -> Signs:
    """99th percentiles of the time that a decision takes.

    Args:
        tolerance_seconds: by which two blocks must differ to count.
    """
    return _signs(
        (pair.candidate.latency_p99_seconds - pair.incumbent.latency_p99_seconds, tolerance_seconds) for pair in pairs
    )


def _signs(differences: Iterable[tuple[float, float]]) -> Signs:
    more = less = 0
    for difference, tolerance in differences:
        more += difference > tolerance
        less += difference < -tolerance
    return Signs(more, less)


class StageOutcome(StrEnum):
    """Outcome of a stage."""

    PASS = "pass"  # noqa: S105  (no password)
    FAIL = "fail"
    WAIT = "wait"
    """Not enough is known yet."""
    INCONCLUSIVE = "inconclusive"
    """Not enough is known, and no more will be: the stage's time is over, or too few clusters are left. An operator is
    asked."""


@dataclass(frozen=True, slots=True)
class Rule:
    """Bounds and error rates of a verdict.

    Attributes:
        margin: largest mean loss that may pass, as a share.
        false_alarm: probability that a candidate that is no worse ever fails.
        false_pass: probability that one that is worse than the margin passes.
        held_loss: least loss of one cluster for which it is held, as a share.
        alarm_loss: loss of one pair, measured and foreseen, for which its cluster is held at once, as a share.
        guard_tolerance: share of decisions by which blocks must differ to count as more interventions.
        latency_tolerance_seconds: the same of a decision's time.
        least_pairs: of every cluster of the stage, before it may pass.
    """

    margin: float = 0.03
    false_alarm: float = 0.05
    false_pass: float = 0.05
    held_loss: float = 0.02
    alarm_loss: float = 0.5
    guard_tolerance: float = 0.005
    latency_tolerance_seconds: float = 0.1
    least_pairs: int = 2


@dataclass(frozen=True, slots=True)
class ClusterEvidence:
    """Sums of one cluster's pairs.

    Attributes:
        worse: pairs with a loss, or a gain, above `held_loss`.
        alarms: pairs in which the candidate did far worse, measured and foreseen: no chance.
    """

    loss: Summed
    worse: Signs = NO_SIGNS
    guard: Signs = NO_SIGNS
    starvation: Signs = NO_SIGNS
    latency: Signs = NO_SIGNS
    alarms: int = 0


@dataclass(frozen=True, slots=True)
class Verdict:
    """Outcome for a candidate, and why.

    Attributes:
        loss: the fleet's mean loss with its bounds, as shares, without the held; above 0 the candidate is worse.
        decides: the same with bounds that hold whichever cluster is left out: a lower one above 0 is a fail, an upper
            one below the margin a pass.
        held: clusters that are worse off by themselves.
        rests_on: the one cluster without which it would be known otherwise on which side of nought `loss` lies; empty
            without one.
        reasons: for people, one line each.
    """

    outcome: StageOutcome
    loss: ConfidenceInterval = UNKNOWN
    decides: ConfidenceInterval = field(default=UNKNOWN, kw_only=True)
    held: tuple[str, ...] = ()
    reasons: tuple[str, ...] = field(default=())
    rests_on: str = field(default="", kw_only=True)


def evidence_of(pairs: Sequence[Pair], rule: Rule) -> ClusterEvidence:
    """Sums of a cluster's pairs."""
    scores = scores_of(pairs)
    return ClusterEvidence(
        summed(scores),
        loss_signs(scores, rule.held_loss),
        guard_signs(pairs, rule.guard_tolerance),
        starvation_signs(pairs),
        latency_signs(pairs, rule.latency_tolerance_seconds),
        alarms_of(scores, rule.alarm_loss),
    )


def alarms_of(scores: Sequence[Score], alarm_loss: float) -> int:
    """Number of pairs with a loss of at least `alarm_loss`, measured and foreseen."""
    return sum(each.foreseen is not None and min(each.foreseen, each.loss) >= alarm_loss for each in scores)


def judge(evidence: Mapping[str, ClusterEvidence], of_stage: Sequence[str], rule: Rule, *, time_over: bool) -> Verdict:
    """The verdict so far.

    Args:
        evidence: of every cluster that ever alternated in this rollout, held ones among them.
        of_stage: clusters that alternate now and are there; each has to bring its pairs before the stage passes.
        time_over: whether the stage's time is over.
    """
    losses = {cluster: own.loss for cluster, own in evidence.items()}
    worse_off = _worse_off(evidence, rule)
    others = {cluster: own for cluster, own in losses.items() if cluster not in worse_off}
    loss = interval_of(others, FLEET_SHARE * rule.false_alarm)
    lower = bound_without_any(others, FLEET_SHARE * rule.false_alarm, rule.false_alarm, upper=False)
    upper = bound_without_any(others, rule.false_pass, rule.false_pass, upper=True)
    decides = ConfidenceInterval(loss.estimate, lower, upper)
    faults = [*_fleet_faults(lower), *_sign_faults(evidence, rule)]
    if len(worse_off) > 1:
        faults.append(f"worse off by themselves: {', '.join(worse_off)}")
    alone = rests_on(others, FLEET_SHARE * rule.false_alarm)

    def verdict(outcome: StageOutcome, *reasons: str) -> Verdict:
        return Verdict(outcome, loss, worse_off, reasons, decides=decides, rests_on=alone)

    if faults:
        return verdict(StageOutcome.FAIL, *faults)
    missing = [
        cluster
        for cluster in of_stage
        if cluster not in worse_off and (cluster not in evidence or evidence[cluster].loss.pairs < rule.least_pairs)
    ]
    left = {*others, *of_stage} - {*worse_off}
    if worse_off and len(left) < 2:
        reason = f"{worse_off[0]} is worse off by itself, and too few are left to say that others are not"
        return verdict(StageOutcome.INCONCLUSIVE, reason)
    if upper < rule.margin and not missing:
        most = f"{_at_most(upper)} in the system, whichever cluster is left out"
        reason = f"{most}; less than {rule.margin:.1%} more passes"
        return verdict(StageOutcome.PASS, reason)
    lacks = [f"{cluster}: fewer than {rule.least_pairs} pairs of blocks" for cluster in missing]
    if upper >= rule.margin:
        known = "nothing is known yet" if math.isinf(upper) else f"{_at_most(upper)} in the system are shown"
        lacks.insert(0, f"{known}; less than {rule.margin:.1%} more passes")
    outcome = StageOutcome.INCONCLUSIVE if time_over else StageOutcome.WAIT
    return verdict(outcome, *lacks)


def _fleet_faults(lower: float) -> list[str]:
    if lower <= 0.0:
        return []
    return [f"at least {lower:.2%} more jobs in the system, whichever cluster is left out"]


def _at_most(loss: float) -> str:
    """An upper bound of a mean loss in an operator's words: below 0, so many jobs fewer or still fewer."""
    return f"at most {loss:.2%} more jobs" if loss >= 0.0 else f"at least {-loss:.2%} fewer jobs"


def _worse_off(evidence: Mapping[str, ClusterEvidence], rule: Rule) -> tuple[str, ...]:
    """Clusters that are worse off by themselves, by the mean of their pairs or by their number.

    Two by chance are as improbable as the rule wants it: of n clusters there are n·(n − 1)/2 pairs, and their coins
    have nothing to do with each other. From four clusters on, one of the n − 1 others is held by chance no more often
    than a version may be stopped, beside one that says falsely that it is worse off.
    """
    count = max(len(evidence), 2)
    alpha = math.sqrt(CLUSTERS_SHARE * rule.false_alarm / (count * (count - 1) / 2.0)) / 2.0
    if count >= LEAST_TO_ENDURE:
        alpha = min(alpha, rule.false_alarm / (2.0 * (count - 1)))
    return tuple(
        cluster
        for cluster, own in sorted(evidence.items())
        if own.alarms
        or log_evidence(own.worse) >= -math.log(alpha)
        or (own.loss.pairs >= LEAST_OWN_PAIRS and interval_of({cluster: own.loss}, alpha).lower > rule.held_loss)
    )


def _sign_faults(evidence: Mapping[str, ClusterEvidence], rule: Rule) -> list[str]:
    enough = -math.log(SIGNS_SHARE * rule.false_alarm / 3.0)
    tests = {
        "the guard steps in more often": {cluster: own.guard for cluster, own in evidence.items()},
        "more jobs starve": {cluster: own.starvation for cluster, own in evidence.items()},
        "decisions take longer": {cluster: own.latency for cluster, own in evidence.items()},
    }
    return [f"{what}, whichever cluster is left out" for what, signs in tests.items() if without_any(signs) >= enough]
