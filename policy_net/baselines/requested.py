"""Jobs at the size that they asked for: that much or nothing, as clusters without elasticity give it.

Shared by schedulers that choose *which* jobs run and not *how large* they are. What they add is an order.
"""

from __future__ import annotations

from collections.abc import Iterable

from policy_net.baselines.decision_capacity import DecisionCapacity
from policy_net.baselines.needs import demands_of, first_grant
from policy_net.domain import SUSPENDED, Allocation, CapacityMode, ClusterState, Job, Node
from policy_net.placement.capacity import open_capacity


class RequestedSizes:
    """What every job asked for, within its caps, and cut to what the cluster could hold if it were empty.

    A request that can never be met would block a first-come queue for ever and let its own job starve under any other
    order, so it is cut: workers one by one, servers in proportion, down to the least with which the job trains. A job
    for which even that is too much gets size 0/0.
    """

    def __init__(self) -> None:
        self._nodes: tuple[Node, ...] = ()
        self._mode = CapacityMode.NODES
        self._known: dict[tuple[object, ...], Allocation] = {}

    def of(self, state: ClusterState) -> list[Allocation]:
        """One size per job of the state, in its order."""
        if state.nodes != self._nodes or state.capacity_mode is not self._mode:
            self._nodes, self._mode = state.nodes, state.capacity_mode
            self._known.clear()
        return [self._size(state, job) for job in state.jobs]

    def _size(self, state: ClusterState, job: Job) -> Allocation:
        key = (job.requested, job.worker_demand, job.ps_demand, job.max_workers, job.max_ps, job.smallest)
        known = self._known.get(key)
        if known is None:
            known = self._known[key] = _cut(state, job)
        return known


def _cut(state: ClusterState, job: Job) -> Allocation:
    """The largest size up to the requested one that the empty cluster holds."""
    least = first_grant(job)
    if least is None:
        return SUSPENDED
    workers = min(max(job.requested.workers, least.workers), job.max_workers)
    ps = min(max(job.requested.ps, least.ps), job.max_ps)
    for count in range(workers, least.workers - 1, -1):
        size = Allocation(count, max(ps * count // workers, least.ps))
        if open_capacity(state).fits(*demands_of(job, size)):
            return size
    return least if open_capacity(state).fits(*demands_of(job, least)) else SUSPENDED


def is_running(job: Job, size: Allocation) -> bool:
    """Whether the job holds its size already."""
    return job.current == size and size.tasks > 0


def serve(free_capacity: DecisionCapacity, order: Iterable[int], sizes: list[Allocation]) -> None:
    """Give the jobs their sizes in this order; those that do not fit are passed over."""
    for index in order:
        if sizes[index].tasks:
            free_capacity.change(index, sizes[index])
