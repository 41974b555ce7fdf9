"""Fair staleness: how far the head moved on since a gradient's base, without letting one cluster count for the fleet.

Staleness is counted in steps of the head, and every applied update is one. A cluster that pushes in a closed loop would
make everybody else's updates too stale, by steps that are none of the fleet's. So of each cluster at most
`MOST_STEPS_A_CLUSTER` steps since the base count. Where nobody makes more steps than that while another one computes a
gradient, this is the plain staleness, number for number.

Where updates wait for a cohort (`buffered`, `robust`), what waits moves nothing, and so makes nobody late: a cohort of
the active clusters counts as one step of each, and a flood closes none by itself.
Deviation from Zhang et al. 2016 (see `step_size`): theirs counts every step alike.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping
from itertools import takewhile
from typing import Any

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
