"""Sequential sign test: whether the candidate has more of something bad than the incumbent, in pair after pair.

For what is rare or capricious (a guard that steps in, a job that starves, a slow decision) means and variances say
little. In a pair it is only asked which version had more. If neither is worse, that is a coin's throw, exactly: the
order of every pair is one. So the test holds at any time and with any distribution, and needs no history.
Source: Robbins' mixture with a Beta(½, ½) weight over the chances above one half; Ville (1939): a fair gambler's
fortune exceeds 1/α with a probability of at most α.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.special import betainc, betaln

from global_learner.rollout.verdicts.evidence import LEAST_TO_ENDURE, Pair, Score

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
