"""How far an update's step is lengthened or shortened for the number of samples that its gradient was computed from.

A gradient from half as many samples says half as much. Where updates are averaged, their weights say so; where each
one is a step of its own, the *step* has to: Adam divides by the gradient's size and would cancel any factor on it. An
update takes as much of the usual step as it has of the usual number of samples, up to a limit.

What is usual is the median over the active clusters, each by its own running mean, so that neither the cluster that
pushes fastest nor one that lies about its samples sets it; and whatever a cluster claims, its step is at most `largest`
times the usual one.
Source: McMahan et al. 2017, "Communication-Efficient Learning of Deep Networks from Decentralized Data" (weights by
samples). Deviation: on the learning rate of single updates, relative to the fleet, and limited.
"""

from __future__ import annotations

import statistics
from collections.abc import Iterable


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
