"""What is left of a cluster while a decision is being made.

Policies ask `fits` for every job and action, about a million times in a replay, so a yes must be cheap. In `nodes`
mode the answer is exact for the placement that will really be used: yes exactly if `spread` from scratch places every
task taken so far together with the new ones. Two things make that cheap: a bound on volumes, which proves most
answers (all of them, for DL2's demands) without placing anything, and a memory of answers that lasts until something
is taken. A no is final for the decision.
"""

from __future__ import annotations

import math
from typing import Protocol

from policy_net.domain import CapacityMode, ClusterState, Resources
from policy_net.errors import InvalidAllocation
from policy_net.placement.spread import NodeLayout, fill, layout_of, placing_order
from policy_net.placement.volume_bound import VolumeBound


class Capacity(Protocol):
    """Room for tasks during one decision; starts with everything free."""

    def fits(self, *demands: Resources) -> bool:
        """Whether all of these tasks together fit on top of what is taken."""
        ...

    def take(self, *demands: Resources) -> None:
        """Take room for these tasks together.

        Raises:
            InvalidAllocation: they do not fit; nothing is taken.
        """
        ...

    def dominant_share(self, used: Resources) -> float:
        """The largest share of the cluster's CPU or GPU that `used` is."""
        ...


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
    """All nodes' resources in one pool: no fragmentation."""

    def __init__(self, total: Resources) -> None:
        self._total = total
        self._cpu_milli = total.cpu_milli
        self._gpu = total.gpu

    def fits(self, *demands: Resources) -> bool:
        """See `Capacity.fits`."""
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

    def dominant_share(self, used: Resources) -> float:
        """See `Capacity.dominant_share`."""
        return dominant_share(used, self._total)


class NodeCapacity:
    """Room on nodes, under `spread` with GPU workers first."""

    def __init__(self, layout: NodeLayout) -> None:
        self._layout = layout
        self._counts: dict[Resources, int] = {}
        self._bound = VolumeBound(layout, ())
        self._answers: dict[tuple[Resources, ...], bool] = {}
        self._refused: set[tuple[Resources, ...]] = set()

    def fits(self, *demands: Resources) -> bool:
        """See `Capacity.fits`."""
        answer = self._answers.get(demands)
        if answer is None:
            answer = demands not in self._refused and self._work_out(demands)
            self._answers[demands] = answer
            if not answer:
                self._refused.add(demands)
        return answer

    def take(self, *demands: Resources) -> None:
        """See `Capacity.take`."""
        if not self.fits(*demands):
            raise _does_not_fit(demands)
        counts = self._counts
        for demand in demands:
            counts[demand] = counts.get(demand, 0) + 1
            self._bound.add(demand)
        self._answers.clear()

    def dominant_share(self, used: Resources) -> float:
        """See `Capacity.dominant_share`."""
        return dominant_share(used, self._layout.total)

    def _work_out(self, demands: tuple[Resources, ...]) -> bool:
        known = self._bound.classes
        if any(demand not in known for demand in demands):
            self._bound = VolumeBound(self._layout, known + demands)
            for demand, count in self._counts.items():
                self._bound.add(demand, count)
        if self._bound.proves(demands):
            return True
        counts = dict(self._counts)
        for demand in demands:
            counts[demand] = counts.get(demand, 0) + 1
        classes = [(demand, counts[demand]) for demand in sorted(counts, key=placing_order)]
        placed = fill(self._layout, classes)
        return all(len(nodes) == count for nodes, (_, count) in zip(placed, classes, strict=True))


def _does_not_fit(demands: tuple[Resources, ...]) -> InvalidAllocation:
    listed = " and ".join(f"{demand.cpu_milli / 1000:g} CPU + {demand.gpu} GPU" for demand in demands)
    return InvalidAllocation(f"no room left for {listed}: ask fits() before take()")
