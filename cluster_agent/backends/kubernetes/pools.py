"""Pools: nodes that are all that some jobs can use, and what those jobs may have of them together; pure.

A policy sees one cluster. So a plan is held to its pools after it was made: in each, the jobs that can use no other
nodes get no more than its nodes have; workers and parameter servers each have their own. Growth is taken back, from
whoever would grow most; what others could have had of the rest stays unused until a plan sees it. All is in sums:
whether a task finds a node is asked when it is about to get one (`sizing.py`, `training/free_capacity.py`). One job by
itself is counted node by node, before the plan.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

from policy_net.domain import SUSPENDED, Allocation, ClusterState, Decision, Job, Node, Resources

Reach = Mapping[str, frozenset[str]]
"""By job, the nodes that it can use, of those that cannot use all."""

_MOST_POOLS: Final = 64
_NOTHING = Resources(0)


@dataclass(frozen=True, slots=True)
class NodePool:
    """Some nodes, and the jobs that can use no others."""

    capacity: Resources
    jobs: frozenset[str]


def seats(node_capacities: Iterable[Resources], demand: Resources) -> int:
    """How many workers fit on some nodes by themselves."""
    return sum(_times(capacity, demand) for capacity in node_capacities)


def _times(capacity: Resources, demand: Resources) -> int:
    times = [
        max(0, has) // requests
        for has, requests in ((capacity.cpu_milli, demand.cpu_milli), (capacity.gpu, demand.gpu))
        if requests > 0
    ]
    return min(times, default=0)


def pools_of(nodes: Iterable[Node], reach: Reach) -> list[NodePool]:
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
        NodePool(
            sum((capacity[node] for node in each if node in capacity), _NOTHING),
            frozenset(job_id for job_id, nodes_of in reach.items() if nodes_of <= each),
        )
        for each in sets
    ]


class PoolUse:
    """What jobs have of their pools, as sizes change; `sizes` are workers of each job."""

    def __init__(self, pools: Sequence[NodePool], jobs: Mapping[str, Job], sizes: Mapping[str, int]) -> None:
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
        """Whether a job's pools have capacity for so many more workers of it."""
        demand = self._jobs[job_id].worker_demand * more
        return all(
            _fits(self._used[number] + demand, self._pools[number].capacity, demand)
            for number in self._of.get(job_id, ())
        )

    def is_crowded(self, job_id: str) -> bool:
        """Whether fewer workers of a job leave more of what its pools have too little of."""
        demand = self._jobs[job_id].worker_demand
        return not all(
            _fits(self._used[number], self._pools[number].capacity, demand) for number in self._of.get(job_id, ())
        )


def _fits(used: Resources, capacity: Resources, demand: Resources) -> bool:
    """Whether there is enough of what is asked for; of what is not, there may be too little already."""
    cpu = demand.cpu_milli <= 0 or used.cpu_milli <= capacity.cpu_milli
    return cpu and (demand.gpu <= 0 or used.gpu <= capacity.gpu)


def limited_to_nodes(job: Job, offers: Mapping[str, Resources], reach: Reach, ps_reach: Reach) -> Job:
    """A job that can have no more tasks of a role than fit on their nodes by themselves (`offers`), or than it has."""
    workers = _most(job.max_workers, job.current.workers, job.worker_demand, offers, reach.get(job.job_id))
    ps = _most(job.max_ps, job.current.ps, job.ps_demand, offers, ps_reach.get(job.job_id))
    if (workers, ps) == (job.max_workers, job.max_ps):
        return job
    least, least_ps = min(job.min_workers, job.max_workers), min(job.min_ps, job.max_ps)
    if job.current == SUSPENDED and (workers < least or ps < least_ps):
        workers = ps = 0  # less than its least of one role is nothing of any
    requested = Allocation(min(job.requested.workers, workers), min(job.requested.ps, ps))
    least, least_ps = min(least, workers), min(least_ps, ps)
    return replace(job, max_workers=workers, max_ps=ps, min_workers=least, min_ps=least_ps, requested=requested)


def _most(
    most: int, current: int, demand: Resources, offers: Mapping[str, Resources], nodes: frozenset[str] | None
) -> int:
    return most if nodes is None else min(most, max(current, seats((offers[node] for node in nodes), demand)))


def within_pools(state: ClusterState, decision: Decision, reach: Reach, ps_reach: Reach | None = None) -> Decision:
    """A decision without the growth for which only nodes have capacity that the workers, or servers, cannot use."""
    if not reach and not ps_reach:
        return decision
    jobs = {job.job_id: job for job in state.jobs}
    sizes = {job_id: decision.of(job_id).workers for job_id in jobs}
    # Parameter servers are counted as the workers of a job that begins with theirs, or not at all.
    others = {}
    for job in [job for job in state.jobs if job.max_ps]:
        name = others[job.job_id] = f"{job.job_id} ps"  # no job's: names have no spaces
        jobs[name], sizes[name] = _servers_of(job, name), decision.of(job.job_id).ps
    there = {**reach, **{others[job_id]: nodes for job_id, nodes in (ps_reach or {}).items() if job_id in others}}
    both = others | {name: job_id for job_id, name in others.items()}
    taken_back = shrink_growth(PoolUse(pools_of(state.nodes, there), jobs, sizes), jobs, sizes, both)
    if not taken_back:
        return decision
    allocation = dict(decision.allocation)
    for job in state.jobs:
        if {job.job_id, others.get(job.job_id)} & taken_back:
            ps = sizes[others[job.job_id]] if job.job_id in others else decision.of(job.job_id).ps
            allocation[job.job_id] = Allocation(sizes[job.job_id], ps)
    return replace(decision, allocation=allocation)


def _servers_of(job: Job, name: str) -> Job:
    return replace(
        job,
        job_id=name,
        worker_demand=job.ps_demand,
        current=Allocation(job.current.ps, 0),
        min_workers=job.min_ps,
        max_workers=job.max_ps,
    )


def shrink_growth(
    use: PoolUse, jobs: Mapping[str, Job], sizes: dict[str, int], others: Mapping[str, str] | None = None
) -> frozenset[str]:
    """Take growth back from jobs of crowded pools, one worker at a time, until none grows there or all fits.

    Args:
        jobs: whose sizes may change.
        sizes: of all; are changed.
        others: by name, those without which one does not begin.

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
        other = (others or {}).get(job_id)
        if not sizes[job_id] and other is not None and sizes[other]:
            use.move(other, -sizes[other])
            sizes[other] = 0
            found.add(other)
        if _growth(job, sizes):
            heapq.heappush(heap, (-_growth(job, sizes), number, job_id))
    return frozenset(found)


def _growth(job: Job, sizes: Mapping[str, int]) -> int:
    return max(0, sizes[job.job_id] - job.current.workers)
