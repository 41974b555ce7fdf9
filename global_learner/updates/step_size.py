"""Step size of one update: the learning rate at the head's step, for the update's staleness and its samples.

**Staleness.** The *learning rate* is scaled, not the gradient: Adam divides by the gradient's own size and would cancel
that. With N clusters at equal pace every gradient is N−1 steps old when it arrives; that much is the price of
asynchrony, is what the learning rate was chosen for, and costs nothing here. Only the excess over it shortens the step:
an update that is another round of the fleet late (excess = N) takes half a step, two rounds a third.

Source: Zhang et al. 2016, "Staleness-aware async-SGD" (rate divided by staleness).
Deviation: theirs divides by the absolute staleness, which would shrink every step of a large fleet.

**Fair staleness.** Staleness is counted in steps of the head, and every applied update is one. A cluster that pushes in
a closed loop would make everybody else's updates too stale, by steps that are none of the fleet's. So of each cluster
at most `MOST_STEPS_A_CLUSTER` steps since the base count. Where nobody makes more steps than that while another one
computes a gradient, this is the plain staleness, number for number. Where updates wait for a cohort (`buffered`,
`robust`), what waits moves nothing, and so makes nobody late: a cohort of the active clusters counts as one step of
each, and a flood closes none by itself. Deviation from Zhang et al.: theirs counts every step alike.

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
from collections import deque
from collections.abc import Iterable, Mapping
from itertools import takewhile
from typing import Any


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


MOST_STEPS_A_CLUSTER = 8
"""An honest cluster may be eight times as fast as another one before it is held to be too fast; and with four active
clusters, whatever one of them does, the others' steps stay above a third of their length."""


def most_staleness(moves: int, active_clusters: int) -> int:
    """The largest fair staleness of an update since whose base the head moved so often.

    Where every update moves it this is no limit; where a cohort does, all active clusters contributed to one, and an
    update that follows its own cluster's reply at once has the others' parts behind it: one step less.
    """
    return max(moves, moves * active_clusters - 1)


class LatestSteps:
    """The latest steps of every cluster; part of the ledger.

    Args:
        since: steps up to this one are not known, and count as if each were another cluster's; None before the first.
        steps: what is known, in the order of the clusters' latest steps.
    """

    def __init__(self, since: int | None = None, steps: Mapping[str, Iterable[int]] | None = None) -> None:
        self._since = since
        # In this order a count stops at the first cluster that made none.
        self._steps = {name: deque(of_one, maxlen=MOST_STEPS_A_CLUSTER) for name, of_one in (steps or {}).items()}

    def record(self, cluster: str, step: int) -> None:
        """Note a step that a cluster's update made; later than all before."""
        of_one = self._steps.pop(cluster, None) or deque(maxlen=MOST_STEPS_A_CLUSTER)
        of_one.append(step)
        self._steps[cluster] = of_one
        if self._since is None:
            self._since = step - 1

    def fair_staleness(self, base_step: int, head_step: int) -> int:
        """Steps of the head since the base, at most so many of each cluster."""
        plain = head_step - base_step
        if plain <= MOST_STEPS_A_CLUSTER or self._since is None:
            return plain
        known = max(base_step, self._since)
        moved = list(takewhile(lambda of_one: of_one[-1] > known, reversed(self._steps.values())))
        if not any(len(of_one) == MOST_STEPS_A_CLUSTER and of_one[0] > known for of_one in moved):
            return plain  # every step is known by itself
        return known - base_step + sum(step > known for of_one in moved for step in of_one)

    def to_json(self) -> dict[str, Any]:
        """Everything, for a snapshot."""
        return {"since": self._since, "steps": {name: list(of_one) for name, of_one in self._steps.items()}}
