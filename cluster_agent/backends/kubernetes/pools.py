"""Pools: nodes that are all that some jobs can use, and what those jobs may have of them together.

A policy sees one cluster. So a plan is held to its pools after it was made: in each, the jobs that can use no other
nodes get no more than its nodes have. Growth is taken back, from whoever would grow most; what others could have had of
the rest stays unused until a plan sees it. Pure, and in sums: whether a task finds a node is asked when it is about to
get one (`sizing.py`). One job by itself is counted node by node, before the plan.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

from policy_net.domain import Allocation, ClusterState, Decision, Job, Node, Resources

Reach = Mapping[str, frozenset[str]]
"""By job, the nodes that it can use, of those that cannot use all."""

_MOST_POOLS: Final = 64
_NOTHING = Resources(0)


@dataclass(frozen=True, slots=True)
class Pool:
    """Some nodes, and the jobs that can use no others."""

    capacity: Resources
    jobs: frozenset[str]


def seats(node_capacities: Iterable[Resources], demand: Resources) -> int:
    """How many workers fit on some nodes by themselves."""
    return sum(_times(capacity, demand) for capacity in node_capacities)


def _times(capacity: Resources, demand: Resources) -> int:
    times = [
        max(0, has) // asks
        for has, asks in ((capacity.cpu_milli, demand.cpu_milli), (capacity.gpu, demand.gpu))
        if asks > 0
    ]
    return min(times, default=0)


def pools_of(nodes: Iterable[Node], reach: Reach) -> list[Pool]:
    """The nodes of each job that cannot use all, and of those that share some: their union."""
    capacity = {node.node_id: node.capacity for node in nodes}
    sets = sorted(set(reach.values()), key=lambda each: (len(each), sorted(each)))
    # What two jobs have in common may be enough for either, and not for both: then their union says so.
    for first in list(sets):
        for second in list(sets):
            union = first | second
            if len(sets) < _MOST_POOLS and first & second and union not in sets and union != set(capacity):
                sets.append(union)
    return [
        Pool(
            sum((capacity[node] for node in each if node in capacity), _NOTHING),
            frozenset(job_id for job_id, nodes_of in reach.items() if nodes_of <= each),
        )
        for each in sets
    ]


class PoolUse:
    """What jobs have of their pools, as sizes change.

    Args:
        sizes: workers of each job.
    """

    def __init__(self, pools: Sequence[Pool], jobs: Mapping[str, Job], sizes: Mapping[str, int]) -> None:
        self._pools, self._jobs = pools, jobs
        self._used = [_NOTHING] * len(pools)
        self._of: dict[str, list[int]] = {}
        for number, pool in enumerate(pools):
            for job_id in pool.jobs:
                self._of.setdefault(job_id, []).append(number)
        for job_id, size in sizes.items():
            self.move(job_id, size)

    def move(self, job_id: str, workers: int) -> None:
        """Note that a job has so many more workers."""
        more = self._jobs[job_id].worker_demand * workers
        for number in self._of.get(job_id, ()):
            self._used[number] += more

    def fits(self, job_id: str, more: int) -> bool:
        """Whether a job's pools have room for so many more workers of it."""
        demand = self._jobs[job_id].worker_demand * more
        return all(
            _has_room(self._used[number] + demand, self._pools[number].capacity, demand)
            for number in self._of.get(job_id, ())
        )

    def is_crowded(self, job_id: str) -> bool:
        """Whether less of a job is less of what there is too little of."""
        demand = self._jobs[job_id].worker_demand
        return not all(
            _has_room(self._used[number], self._pools[number].capacity, demand) for number in self._of.get(job_id, ())
        )


def _has_room(used: Resources, capacity: Resources, demand: Resources) -> bool:
    """Whether there is enough of what is asked for; of what is not, there may be too little already."""
    cpu = demand.cpu_milli <= 0 or used.cpu_milli <= capacity.cpu_milli
    return cpu and (demand.gpu <= 0 or used.gpu <= capacity.gpu)


def within_pools(state: ClusterState, decision: Decision, reach: Reach) -> Decision:
    """A decision without the growth for which only nodes have room that the jobs cannot use."""
    jobs = {job.job_id: job for job in state.jobs}
    sizes = {job_id: decision.of(job_id).workers for job_id in jobs}
    taken_back = shrink_growth(PoolUse(pools_of(state.nodes, reach), jobs, sizes), jobs, sizes)
    if not taken_back:
        return decision
    allocation = dict(decision.allocation)
    for job_id in taken_back:
        allocation[job_id] = Allocation(sizes[job_id], decision.of(job_id).ps)
    return replace(decision, allocation=allocation)


def shrink_growth(use: PoolUse, jobs: Mapping[str, Job], sizes: dict[str, int]) -> frozenset[str]:
    """Take growth back from jobs of crowded pools, one worker at a time, until none grows there or all fits.

    Args:
        jobs: whose sizes may change.
        sizes: of all; are changed.

    Returns:
        The jobs from which something was taken.
    """
    found = set()
    # Pools only become emptier: whoever is in none that is crowded has what it is to have.
    heap = [(-_growth(job, sizes), -number, job_id) for number, (job_id, job) in enumerate(jobs.items())]
    heap = [each for each in heap if each[0] < 0 and use.is_crowded(each[2])]
    heapq.heapify(heap)
    while heap:
        _, number, job_id = heapq.heappop(heap)
        job = jobs[job_id]
        if not use.is_crowded(job_id):
            continue
        # What has not begun begins with its least, or not at all.
        step = sizes[job_id] if not job.current.workers and sizes[job_id] <= job.min_workers else 1
        sizes[job_id] -= step
        use.move(job_id, -step)
        found.add(job_id)
        if _growth(job, sizes):
            heapq.heappush(heap, (-_growth(job, sizes), number, job_id))
    return frozenset(found)


def _growth(job: Job, sizes: Mapping[str, int]) -> int:
    return max(0, sizes[job.job_id] - job.current.workers)
