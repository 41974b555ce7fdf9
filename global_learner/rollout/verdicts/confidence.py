"""Confidence sequences: intervals for a mean loss that hold at every moment at once, however often one looks.

A test that is made for one look at the end and is looked at every hour cries wolf: with enough looks, always. These
intervals may be looked at after each pair, and the rollout may end the moment they say enough.

They are asymptotic, as intervals of the central limit theorem are: right where scores are not too few. Two things make
up for few: no interval is given below `LEAST_PAIRS`, and the variance counts more, the fewer there are. Scores of one
cluster follow each other, and where neighbours are alike their sum varies more than that of strangers.
Source: Waudby-Smith, Arbour, Sinha, Kennedy and Ramdas, "Time-uniform central limit theory and asymptotic confidence
sequences", Annals of Statistics 52 (2024), the one-sided sequence with a plug-in variance; Robbins (1970) for the
mixture behind it; Andrews and Monahan (1992) for the long-run variance by a first-order autoregression, Kendall (1954)
for its bias. Deviation: weights of scores, which follow from earlier scores of the same cluster.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from global_learner.rollout.verdicts.evidence import LEAST_TO_ENDURE, Score

LEAST_PAIRS = 6
"""In all, below which no interval is given."""
TUNED_PAIRS = 60.0
"""Where the interval is tightest: about the pairs that a small loss takes to be seen."""
_TIGHTEST = 0.13
"""The mixture's variance as a share of the variance at which the boundary is lowest, for an alpha of some percent."""
USUAL_DEVIATION = 0.2
"""Of a score, as is believed of a cluster before it has shown its own."""
PRIOR_PAIRS = 4.0
"""As many pairs' worth as that belief counts for, and as the fleet's variance does beside a cluster's own."""
LARGEST_SCORE = 1.0
"""A pair counts for no more than the usual number of jobs, in either direction: one mad block, or one cluster that
lies, cannot outweigh the fleet."""
LARGEST_DEVIATIONS = 3.0
"""Nor for more than so many deviations of the scores before it."""
USUAL_DIFFERENCE = 0.02
"""Of two versions in a block, as a share of the usual jobs, at which a score has its usual weight."""
LARGEST_WEIGHT = 4.0
"""How much more than a usual one a score may weigh, for either reason."""
LARGEST_LIKENESS = 0.9
"""Of neighbours; beyond, a hundred values would say less than five."""
_LEAST_VARIANCE = 1e-8
LARGEST_SHARE = 0.5
"""Of all weights, that one cluster has at most: never more than all others together."""


@dataclass(frozen=True, slots=True)
class ConfidenceInterval:
    """What is known of a mean loss: its estimate, and a bound on either side, each of which holds by itself."""

    estimate: float
    lower: float
    upper: float


UNKNOWN = ConfidenceInterval(0.0, -math.inf, math.inf)


@dataclass(frozen=True, slots=True)
class Summed:
    """Scores of one cluster, added up as their weights have it.

    Attributes:
        variance: of one score.
        likeness: of neighbouring scores.
    """

    pairs: int
    weights: float
    weighted_scores: float
    squared_weights: float
    variance: float
    likeness: float = 0.0


def summed(scores: Sequence[Score]) -> Summed:
    """Add up a cluster's scores.

    What a score may say at most, and what it weighs, follows from the scores before it, and from how much the versions
    were foreseen to differ in it: where they would do the same, nothing can be learned of which is better.
    """
    values = np.empty(len(scores))
    weights = np.empty(len(scores))
    before = _Spread()
    for number, score in enumerate(scores):
        deviation = before.deviation
        most = min(LARGEST_DEVIATIONS * deviation, LARGEST_SCORE)
        values[number] = min(max(score.loss, -most), most)
        before.add(float(values[number]))
        weights[number] = USUAL_DEVIATION / deviation * _emphasis(score.foreseen)
    squared = float((weights**2).sum())
    if len(values) < 2:
        sums = float(weights.sum()), float((weights * values).sum())
        return Summed(len(values), *sums, squared, USUAL_DEVIATION**2)
    mean = float((weights * values).sum() / weights.sum())
    errors = weights * (values - mean)
    # Where versions differ more, scores may well vary more: of the two variances the larger one.
    weighted = float(errors @ errors) / squared * len(values) / (len(values) - 1)
    variance = max(float(values.var(ddof=1)), weighted, _LEAST_VARIANCE)
    return Summed(
        len(values), float(weights.sum()), float((weights * values).sum()), squared, variance, likeness(errors)
    )


def interval_of(clusters: Mapping[str, Summed], alpha: float) -> ConfidenceInterval:
    """The mean loss over clusters, each of the two bounds wrong at any time with a probability of `alpha`."""
    estimate, radius = _estimates(_columns(clusters).sum(axis=1), alpha)
    return (
        ConfidenceInterval(float(estimate), float(estimate - radius), float(estimate + radius))
        if radius < math.inf
        else UNKNOWN
    )


def bound_without_any(clusters: Mapping[str, Summed], alpha: float, alpha_of_fewer: float, *, upper: bool) -> float:
    """The bound that holds whichever cluster is left out; with fewer than two clusters there is none.

    Without a cluster that blames a version falsely, one that praises it falsely would still be there, and hold up
    whatever the others show. So from four clusters on the bound may also leave out one more, whichever it likes. One
    that lies either way is then always out; where nobody lies both ends lose one, as in a trimmed mean.

    Args:
        alpha_of_fewer: the level of a bound that leaves out two. As it is at choice which, all of them together are
            wrong more often than one; how often was measured (docs/results/rollout.md), and is no theorem.
    """
    columns = _columns(clusters)
    count = columns.shape[1]
    if count < 2:
        return math.inf if upper else -math.inf
    if upper:
        columns[_SCORES] *= -1.0
    total = columns.sum(axis=1)
    estimates, radii = _estimates(total[:, None] - columns, alpha)
    without = estimates - radii
    least = math.inf
    for left_out in np.argsort(without):
        bound = float(without[left_out])
        if bound >= least:
            break  # nor do those behind it lower anything
        if count >= LEAST_TO_ENDURE:
            rest = np.delete(columns, left_out, axis=1)
            estimates, radii = _estimates(rest.sum(axis=1)[:, None] - rest, alpha_of_fewer)
            bound = max(bound, float((estimates - radii).max()))
        least = min(least, bound)
    return -least if upper else least


def rests_on(clusters: Mapping[str, Summed], alpha: float) -> str:
    """The cluster without which it would be known otherwise on which side of nought the mean loss lies; or empty.

    Of several the one that moves the loss most.
    """
    columns = _columns(clusters)
    names = [name for name, sums in clusters.items() if sums.pairs]
    estimate, radius = _estimates(columns.sum(axis=1), alpha)
    if not names or math.isinf(radius):
        return ""
    estimates, radii = _estimates(columns.sum(axis=1)[:, None] - columns, alpha)
    differs = _signs(estimates, radii) != _signs(estimate, radius)
    if not differs.any():
        return ""
    return names[int(np.argmax(np.where(differs, np.abs(estimates - estimate), -1.0)))]


def likeness(values: NDArray[np.float64]) -> float:
    """How much neighbours are alike, from −1 to 1: the autocorrelation, less what few values take off it."""
    count = len(values)
    if count < 4:
        return 0.0
    centred = values - values.mean()
    square = float(centred @ centred)
    if square <= 0.0:
        return 0.0
    found = float(centred[1:] @ centred[:-1]) / square
    return min(found + (1.0 + 4.0 * found) / count, LARGEST_LIKENESS)


_PAIRS, _CLUSTERS, _WEIGHTS, _SCORES, _SQUARES, _OF_FLEET, _OF_OWN, _LIKENESS = range(8)
"""Rows of `_columns`."""


def _columns(clusters: Mapping[str, Summed]) -> NDArray[np.float64]:
    """A column for each cluster that brought pairs, of what is added up over clusters.

    A sum's variance has two parts: what draws each cluster's own variance to the fleet's while its scores are few, a
    multiple of the fleet's variance, and the rest.
    """
    taken = [sums for sums in clusters.values() if sums.pairs]
    columns = np.empty((8, len(taken)))
    shares = _weight_shares([sums.weights for sums in taken])
    for at, (sums, share) in enumerate(zip(taken, shares, strict=True)):
        own = max(sums.pairs - 1, 0)
        squared = share * share * sums.squared_weights / (PRIOR_PAIRS + own)
        columns[:, at] = (
            sums.pairs,
            1.0,
            share * sums.weights,
            share * sums.weighted_scores,
            own * sums.variance,
            squared * PRIOR_PAIRS,
            squared * own * sums.variance,
            sums.pairs * sums.likeness,
        )
    return columns


def _weight_shares(weights: Sequence[float]) -> list[float]:
    """What of each cluster's weight counts: all of it, but of one that outweighs all others together."""
    total = sum(weights)
    if len(weights) < 3:  # two weigh what they brought: each has to say the same by itself
        return [1.0] * len(weights)
    return [
        min(1.0, (total - own) * LARGEST_SHARE / (1.0 - LARGEST_SHARE) / own) if own > 0.0 else 1.0 for own in weights
    ]


def _estimates(sums: NDArray[np.float64], alpha: float) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Estimates of mean losses, and how far their bounds are from them: infinitely where too little is known.

    Args:
        sums: of columns, along the last axis one set of clusters after the other.
    """
    pairs, degrees = np.rint(sums[_PAIRS]), np.rint(sums[_PAIRS] - sums[_CLUSTERS])
    known = (pairs >= LEAST_PAIRS) & (degrees > 2) & (sums[_WEIGHTS] > 0.0)
    pairs, degrees = np.where(known, pairs, LEAST_PAIRS), np.where(known, degrees, 3.0)
    weights = np.where(known, sums[_WEIGHTS], 1.0)
    fleet = sums[_SQUARES] / degrees
    variance = (sums[_OF_FLEET] * fleet + sums[_OF_OWN]) * degrees / (degrees - 2.0)
    # What neighbours have in common is of all clusters together, as one has too few pairs to tell. Never below what
    # strangers would have: neighbours that are opposites by accident make nothing surer.
    alike = np.minimum(sums[_LIKENESS] / pairs, LARGEST_LIKENESS)
    variance = np.maximum(variance * np.maximum((1.0 + alike) / (1.0 - alike), 1.0), np.finfo(float).tiny)
    radii = boundaries(variance, TUNED_PAIRS * variance / pairs, alpha) / weights
    return np.where(known, sums[_SCORES] / weights, 0.0), np.where(known, radii, math.inf)


def _signs(estimates: NDArray[np.float64], radii: NDArray[np.float64]) -> NDArray[np.float64]:
    """On which side of nought means are known to be; 0 where that is not known."""
    return np.where(np.abs(estimates) > radii, np.sign(estimates), 0.0)


def boundaries(variance: NDArray[np.float64], tuned_variance: NDArray[np.float64], alpha: float) -> NDArray[np.float64]:
    """The lines that sums of fair scores cross at any time with a probability of at most `alpha`, one a cluster.

    Args:
        variance: of each sum until now.
        tuned_variance: of each sum where its line is to be lowest.
    """
    mixed = _TIGHTEST * tuned_variance
    together = variance + mixed
    found: NDArray[np.float64] = np.sqrt(2.0 * together * np.log1p(np.sqrt(together / mixed) / (2.0 * alpha)))
    return found


class _Spread:
    """Deviation of a score, as those before it and what is usual have it; added up after Welford."""

    def __init__(self) -> None:
        self._count, self._mean, self._squares = 0, 0.0, 0.0

    @property
    def deviation(self) -> float:
        variance = (PRIOR_PAIRS * USUAL_DEVIATION**2 + self._squares) / (PRIOR_PAIRS + max(self._count - 1, 0))
        return max(math.sqrt(variance), USUAL_DEVIATION / LARGEST_WEIGHT)

    def add(self, value: float) -> None:
        self._count += 1
        off = value - self._mean
        self._mean += off / self._count
        self._squares += off * (value - self._mean)


def _emphasis(foreseen: float | None) -> float:
    """How much more a score weighs in which the versions were foreseen to differ by so much."""
    if foreseen is None:
        return 1.0
    return min((USUAL_DIFFERENCE + abs(foreseen)) / (2.0 * USUAL_DIFFERENCE), LARGEST_WEIGHT)
