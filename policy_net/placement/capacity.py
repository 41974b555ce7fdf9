"""Capacity of a cluster while a decision is being made: what is left of it, and whether tasks fit.

Policies ask `fits` about a million times in a replay, so a yes must be cheap. In `nodes` mode the answer is exact for
the placement that will really be used: yes exactly if `spread` from scratch places every task taken so far together
with the new ones. A bound on volumes proves most answers without placing anything, and says for how many more tasks the
answer holds. A no is final for the decision.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Mapping, Sequence

from policy_net.domain import CapacityMode, ClusterState, Resources
from policy_net.errors import InvalidAllocation
from policy_net.placement.layout import NodeLayout, VolumeBound, layout_of, placing_order
from policy_net.placement.spread import fill


def open_capacity(state: ClusterState) -> Capacity:
    """The whole capacity of a cluster, in the state's capacity mode."""
    layout = layout_of(state.nodes)
    if state.capacity_mode is CapacityMode.POOLED:
        return PooledCapacity(layout.total)
    return NodeCapacity(layout)


def dominant_share(used: Resources, total: Resources) -> float:
    """The larger of the CPU and the GPU share; infinite if something is used that the cluster does not have."""
    shares = [0.0]
    for part, whole in ((used.cpu_milli, total.cpu_milli), (used.gpu, total.gpu)):
        if part:
            shares.append(part / whole if whole else math.inf)
    return max(shares)


class PooledCapacity:
    """Capacity for tasks during one decision, all nodes' resources in one pool: no fragmentation."""

    def __init__(self, total: Resources) -> None:
        self._total = total
        self._cpu_milli = total.cpu_milli
        self._gpu = total.gpu

    def fits(self, *demands: Resources) -> bool:
        """Whether all of these tasks together fit on top of what is taken."""
        cpu_milli, gpu = self._cpu_milli, self._gpu
        for demand in demands:
            cpu_milli -= demand.cpu_milli
            gpu -= demand.gpu
        return cpu_milli >= 0 and gpu >= 0

    def take(self, *demands: Resources) -> None:
        """See `Capacity.take`."""
        if not self.fits(*demands):
            raise _does_not_fit(demands)
        for demand in demands:
            self._cpu_milli -= demand.cpu_milli
            self._gpu -= demand.gpu

    def take_rounds(self, demands: Sequence[Resources], most: int) -> int:
        """Take all of these tasks, again and again, as often as they fit for certain, up to `most` times; how often.

        Fewer than `most` does not say that another round, or a part of it, would not fit: ask `fits`.
        """
        cpu_milli = sum(demand.cpu_milli for demand in demands)
        gpu = sum(demand.gpu for demand in demands)
        rounds = min(most, self._cpu_milli // cpu_milli if cpu_milli else most, self._gpu // gpu if gpu else most)
        self._cpu_milli -= rounds * cpu_milli
        self._gpu -= rounds * gpu
        return rounds

    def dominant_share(self, used: Resources) -> float:
        """The largest share of the cluster's CPU or GPU that `used` is."""
        return dominant_share(used, self._total)


class _Answer:
    """Whether some demands fit together: up to how many tasks taken that holds, and how often they were taken."""

    __slots__ = ("demands", "uncounted", "up_to")

    def __init__(self, demands: tuple[Resources, ...]) -> None:
        self.demands = demands
        self.up_to = UNKNOWN
        self.uncounted = 0


UNKNOWN = -1
NEVER = sys.maxsize
"""`up_to` of a no. A no holds whatever is taken later."""


class NodeCapacity:
    """The same on nodes, under `spread` with GPU workers first."""

    def __init__(self, layout: NodeLayout) -> None:
        self._layout = layout
        self._taken = 0
        self._counts: dict[Resources, int] = {}
        self._bound = VolumeBound(layout, ())
        self._answers: dict[tuple[Resources, ...], _Answer] = {}
        self._latest = _Answer(())

    def fits(self, *demands: Resources) -> bool:
        """See `PooledCapacity.fits`."""
        # Jobs that ask one after another mostly ask for the same; comparing the same objects is cheaper than a hash.
        answer: _Answer | None = self._latest
        if self._latest.demands != demands:
            answer = self._answers.get(demands)
        if answer is None:
            answer = self._answers[demands] = _Answer(demands)
        if answer.up_to < self._taken:
            answer.up_to = self._work_out(demands)
        self._latest = answer
        return answer.up_to != NEVER

    def take(self, *demands: Resources) -> None:
        """See `PooledCapacity.take`."""
        if self._latest.demands != demands or self._latest.up_to < self._taken:
            self.fits(*demands)
        answer = self._latest
        if answer.up_to == NEVER:
            raise _does_not_fit(demands)
        self._taken += len(demands)
        answer.uncounted += 1

    def take_rounds(self, demands: Sequence[Resources], most: int) -> int:
        """See `PooledCapacity.take_rounds`."""
        per_round: dict[Resources, int] = {}
        for demand in demands:
            per_round[demand] = per_round.get(demand, 0) + 1
        self._count_taken()
        self._know(tuple(per_round))
        rounds = min(most, self._bound.rounds(per_round))
        if rounds:
            for demand, count in per_round.items():
                self._counts[demand] = self._counts.get(demand, 0) + rounds * count
                self._bound.add(demand, rounds * count)
            self._taken += rounds * len(demands)
        return rounds

    def dominant_share(self, used: Resources) -> float:
        """See `PooledCapacity.dominant_share`."""
        return dominant_share(used, self._layout.total)

    def _work_out(self, demands: tuple[Resources, ...]) -> int:
        """Up to how many tasks taken these demands surely fit; `NEVER` if they do not fit now."""
        self._count_taken()
        self._know(demands)
        spare = self._bound.spare(demands)
        if spare >= 0:
            return min(self._taken + spare, NEVER - 1)
        counts = dict(self._counts)
        for demand in demands:
            counts[demand] = counts.get(demand, 0) + 1
        if not _sum_of(counts).fits_in(self._layout.total):
            return NEVER
        classes = [(demand, counts[demand]) for demand in sorted(counts, key=placing_order)]
        placed = fill(self._layout, classes)
        everything = all(len(nodes) == count for nodes, (_, count) in zip(placed, classes, strict=True))
        return self._taken if everything else NEVER

    def _count_taken(self) -> None:
        for answer in self._answers.values():
            if answer.uncounted:
                for demand in answer.demands:
                    self._counts[demand] = self._counts.get(demand, 0) + answer.uncounted
                    self._bound.add(demand, answer.uncounted)
                answer.uncounted = 0

    def _know(self, demands: tuple[Resources, ...]) -> None:
        """Bound the volumes of these classes too; new ones can block nodes in new ways: every yes is asked again."""
        known = self._bound.classes
        if all(demand in known for demand in demands):
            return
        self._bound = VolumeBound(self._layout, self._bound.classes + demands)
        for demand, count in self._counts.items():
            self._bound.add(demand, count)
        for answer in self._answers.values():
            if answer.up_to != NEVER:
                answer.up_to = UNKNOWN


Capacity = PooledCapacity | NodeCapacity


def _sum_of(counts: Mapping[Resources, int]) -> Resources:
    return Resources(
        sum(demand.cpu_milli * count for demand, count in counts.items()),
        sum(demand.gpu * count for demand, count in counts.items()),
    )


def _does_not_fit(demands: tuple[Resources, ...]) -> InvalidAllocation:
    listed = " and ".join(f"{demand.cpu_milli / 1000:g} CPU + {demand.gpu} GPU" for demand in demands)
    return InvalidAllocation(f"no capacity left for {listed}: ask fits() before take()")
