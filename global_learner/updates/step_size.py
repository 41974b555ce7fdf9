"""Step size of one update: the learning rate at the head's step, for the update's staleness and its samples.

**Staleness.** The *learning rate* is scaled, not the gradient: Adam divides by the gradient's own size and would cancel
that. With N clusters at equal pace every gradient is N−1 steps old when it arrives; that much is the price of
asynchrony, is what the learning rate was chosen for, and costs nothing here. Only the excess over it shortens the step:
an update that is another round of the fleet late (excess = N) takes half a step, two rounds a third.
Source: Zhang et al. 2016, "Staleness-aware async-SGD" (rate divided by staleness).
Deviation: theirs divides by the absolute staleness, which would shrink every step of a large fleet.

**Samples.** A gradient from half as many samples says half as much. Where updates are averaged, their weights say so;
where each one is a step of its own, the *step* has to. An update takes as much of the usual step as it has of the usual
number of samples, up to a limit. What is usual is the median over the active clusters, each by its own running mean, so
that neither the cluster that pushes fastest nor one that lies about its samples sets it; and whatever a cluster claims,
its step is at most `largest` times the usual one.
Source: McMahan et al. 2017, "Communication-Efficient Learning of Deep Networks from Decentralized Data" (weights by
samples). Deviation: on the learning rate of single updates, relative to the fleet, and limited.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterable

from global_learner.aggregation.settings import AggregationSettings, OptimizerSettings
from global_learner.storage.update_records import UpdateKind


class StepSize:
    """Adam's rate for updates that are about to be applied; logged with them, so that a replay asks nobody."""

    def __init__(self, optimizer: OptimizerSettings, aggregation: AggregationSettings) -> None:
        self._optimizer = optimizer
        self._largest_weight = aggregation.largest_sample_weight

    def learning_rate(
        self, kind: UpdateKind, moves: int, scale: float, samples: int, usual: Callable[[], float]
    ) -> float:
        """The rate of one update.

        Args:
            kind: what it does. Samples count only where it is a step of its own: a cohort weighs its updates itself.
            moves: how often the head was moved before it, in these units.
            scale: what its staleness leaves, see `staleness_scale`.
            samples: 1 or more, as the cluster says.
            usual: tells the usual number of samples, see `usual_samples`; asked where they count.
        """
        rate = self._optimizer.rate_at(moves) * scale
        if kind is not UpdateKind.STEP:
            return rate
        return rate * sample_weight(samples, usual(), self._largest_weight)


def excess_staleness(staleness: int, active_clusters: int) -> int:
    """Head steps beyond what the other active clusters explain; 0 if there are none."""
    return max(0, staleness - (max(active_clusters, 1) - 1))


def staleness_scale(staleness: int, active_clusters: int) -> float:
    """Factor on the learning rate, in (0, 1]: 1 / (1 + excess / active)."""
    active = max(active_clusters, 1)
    return 1.0 / (1.0 + excess_staleness(staleness, active) / active)


def usual_samples(of_clusters: Iterable[float]) -> float:
    """The median of what clusters usually send, the lower of the two in the middle; 0 where there is none."""
    means = list(of_clusters)
    return statistics.median_low(means) if means else 0.0


def sample_weight(samples: int, usual: float, largest: float) -> float:
    """Factor on the learning rate: samples over the usual number, at most `largest`; 1 where either of these is 0."""
    if largest == 0.0 or usual <= 0.0:
        return 1.0
    return min(largest, samples / usual)
