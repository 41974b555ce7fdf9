"""How far one update may move the head: the learning rate at this step, for its staleness and its samples."""

from __future__ import annotations

import statistics
from collections.abc import Iterable

from global_learner.aggregation.settings import AggregationSettings, OptimizerSettings
from global_learner.storage.update_log import Kind
from global_learner.updates.head import Head
from global_learner.updates.ingest import Judgement
from policy_net.exchange.messages import GradientUpdate


def learning_rate(
    optimizer: OptimizerSettings,
    aggregation: AggregationSettings,
    head: Head,
    judgement: Judgement,
    update: GradientUpdate,
    kind: Kind,
) -> float:
    """Adam's rate for an update that is about to be applied; logged with it, so that a replay asks nobody.

    Samples count only where the update is a step of its own: a cohort weighs its updates itself.
    """
    rate = optimizer.rate_at(head.step) * judgement.scale
    if kind is not Kind.STEP:
        return rate
    return rate * sample_weight(update.samples, head.ledger.usual_samples(), aggregation.largest_sample_weight)


# DOC of global_learner.updates.step_size:
# How far an update's step is shortened because the head moved on while the gradient was computed.
#
# The *learning rate* is scaled, not the gradient: Adam divides by the gradient's own size and would cancel that.
# With N clusters at equal pace every gradient is N−1 steps old when it arrives; that much is the price of asynchrony, is
# what the learning rate was chosen for, and costs nothing here. Only the excess over it shortens the step: an update that
# is another round of the fleet late (excess = N) takes half a step, two rounds a third.
# Source: Zhang et al. 2016, "Staleness-aware async-SGD" (rate divided by staleness).
# Deviation: theirs divides by the absolute staleness, which would shrink every step of a large fleet.
#


def excess_staleness(staleness: int, active_clusters: int) -> int:
    """Head steps beyond what the other active clusters explain; 0 if there are none."""
    return max(0, staleness - (max(active_clusters, 1) - 1))


def staleness_scale(staleness: int, active_clusters: int) -> float:
    """Factor on the learning rate, in (0, 1]: 1 / (1 + excess / active)."""
    active = max(active_clusters, 1)
    return 1.0 / (1.0 + excess_staleness(staleness, active) / active)


# DOC of global_learner.updates.step_size:
# How far an update's step is lengthened or shortened for the number of samples that its gradient was computed from.
#
# A gradient from half as many samples says half as much. Where updates are averaged, their weights say so; where each
# one is a step of its own, the *step* has to: Adam divides by the gradient's size and would cancel any factor on it. An
# update takes as much of the usual step as it has of the usual number of samples, up to a limit.
#
# What is usual is the median over the active clusters, each by its own running mean, so that neither the cluster that
# pushes fastest nor one that lies about its samples sets it; and whatever a cluster claims, its step is at most `largest`
# times the usual one.
# Source: McMahan et al. 2017, "Communication-Efficient Learning of Deep Networks from Decentralized Data" (weights by
# samples). Deviation: on the learning rate of single updates, relative to the fleet, and limited.
#


def usual_samples(of_clusters: Iterable[float]) -> float:
    """The median of what clusters usually send, the lower of the two in the middle; 0 where there is none."""
    means = list(of_clusters)
    return statistics.median_low(means) if means else 0.0


def sample_weight(samples: int, usual: float, largest: float) -> float:
    """Factor on the learning rate: samples over the usual number, at most `largest`; 1 where `largest` is 0.

    Args:
        samples: 1 or more, as the cluster says.
        usual: what is usual in the fleet; 0 if nothing is known.
        largest: limit of the factor; 0 weighs all updates alike.
    """
    if largest == 0.0 or usual <= 0.0:
        return 1.0
    return min(largest, samples / usual)
