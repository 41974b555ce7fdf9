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

from global_learner.rollout.verdicts.evidence import Score

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


@dataclass(frozen=True, slots=True)
class Interval:
    """What is known of a mean loss: its estimate, and a bound on either side, each of which holds by itself."""

    estimate: float
    lower: float
    upper: float


UNKNOWN = Interval(0.0, -math.inf, math.inf)


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


def interval_of(clusters: Mapping[str, Summed], alpha: float, without: str | None = None) -> Interval:
    """The mean loss over clusters, each of the two bounds wrong at any time with a probability of `alpha`.

    Args:
        without: a cluster that is left out.
    """
    taken = [sums for name, sums in clusters.items() if name != without and sums.pairs]
    pairs = sum(sums.pairs for sums in taken)
    degrees = pairs - len(taken)
    if pairs < LEAST_PAIRS or degrees <= 2:
        return UNKNOWN
    weights = sum(sums.weights for sums in taken)
    estimate = sum(sums.weighted_scores for sums in taken) / weights
    fleet = sum(max(sums.pairs - 1, 0) * sums.variance for sums in taken) / degrees
    variance = sum(sums.squared_weights * _shrunk(sums, fleet) for sums in taken) * degrees / (degrees - 2)
    variance *= _long_run(taken)
    radius = boundary(variance, TUNED_PAIRS * variance / pairs, alpha) / weights
    return Interval(estimate, estimate - radius, estimate + radius)


def boundary(variance: float, tuned_variance: float, alpha: float) -> float:
    """The line that a sum of fair scores crosses at any time with a probability of at most `alpha`.

    Args:
        variance: of the sum until now.
        tuned_variance: of the sum where the line is to be lowest.
    """
    mixed = _TIGHTEST * tuned_variance
    together = variance + mixed
    return math.sqrt(2.0 * together * math.log1p(math.sqrt(together / mixed) / (2.0 * alpha)))


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


def _long_run(taken: Sequence[Summed]) -> float:
    """By how much the variance of a sum exceeds that of as many values that know nothing of each other.

    Of all clusters together, as one has too few values to tell. Never below 1: neighbours that are opposites by
    accident make nothing surer.
    """
    pairs = sum(sums.pairs for sums in taken)
    alike = sum(sums.pairs * sums.likeness for sums in taken) / pairs
    return max(1.0, (1.0 + alike) / (1.0 - alike))


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


def _shrunk(sums: Summed, fleet: float) -> float:
    """A cluster's variance, drawn to the fleet's while its own scores are few."""
    own = max(sums.pairs - 1, 0)
    return (PRIOR_PAIRS * fleet + own * sums.variance) / (PRIOR_PAIRS + own)
