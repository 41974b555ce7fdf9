"""Sizing: which changes of size a decision comes to, and whether there is capacity now for one that grows; pure.

Capacity is what kube-scheduler would count at this moment, node by node: pods that left and are not gone yet still have
theirs, and pods that a job asked for and that are on no node yet have been promised theirs. So a job that is to have
the capacity of another waits until it is free, and none is given twice, whoever asked for it and when.
"""

from __future__ import annotations

import heapq
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from cluster_agent.backends.kubernetes.observation import Observed, ObservedTarget
from cluster_agent.backends.kubernetes.pools import NodePool, PoolUse, Reach, pools_of, shrink_growth
from cluster_agent.kubernetes.capacity import NodeFacts, PodFacts, free_amounts, times
from cluster_agent.kubernetes.targets import TargetFacts
from policy_net.domain import ClusterState, Decision, Job, Resources
from policy_net.placement.capacity import dominant_share


@dataclass(frozen=True, slots=True)
class SizeChange:
    """A job that is to have another size."""

    member: ObservedTarget
    before: int
    after: int

    @property
    def grows(self) -> bool:
        """Whether it takes capacity."""
        return self.after > self.before

    @property
    def words(self) -> str:
        """For people."""
        if not self.before:
            return f"start with {self.after}"
        return f"{self.after} workers rather than {self.before}"


def changes_of(about: Observed, sizes: Mapping[str, int]) -> list[SizeChange]:
    """What is to change: what frees capacity first, then jobs that have nothing yet, then those that grow.

    A job that runs is never stopped: with nothing it would lose its pods.
    """
    found = [
        SizeChange(member, member.facts.workers, sizes[job_id])
        for job_id, member in about.members.items()
        if sizes.get(job_id, 0) not in (0, member.facts.workers)
    ]
    return sorted(found, key=lambda each: (each.grows, each.before > 0))


class UnpromisedCapacity:
    """What is free now, less what is promised.

    Args:
        pods: all that have not ended, whoever's.
        holders: all jobs that are looked after, also those of which only advice is given, with the workers that each
            may have: what it asks for, or more where that is not known for certain.
    """

    def __init__(
        self, nodes: Iterable[NodeFacts], pods: Iterable[PodFacts], holders: Iterable[tuple[TargetFacts, int]]
    ) -> None:
        nodes, pods = list(nodes), list(pods)
        self._nodes = {node.name: node for node in nodes}
        self._free = free_amounts(nodes, pods)
        here = Counter(pod.owner for pod in pods if pod.node and not pod.is_terminating)
        there_is = Counter(pod.owner for pod in pods if pod.node)
        self._full_for: set[tuple[frozenset[tuple[str, int]], str]] = set()
        self._is_coming = False
        for facts, workers in holders:
            uid = facts.uid
            self.take(facts, workers - here[uid], partly=True)
            self._is_coming = self._is_coming or there_is[uid] > workers or there_is[uid] > here[uid]

    @property
    def is_coming(self) -> bool:
        """Whether pods of these jobs are about to leave."""
        return self._is_coming

    def take(self, facts: TargetFacts, workers: int, *, partly: bool = False) -> int:
        """Take capacity for so many more workers of a job; partly, where there is too little, or not at all then.

        Returns:
            How many fit.
        """
        if workers <= 0 or facts.requests is None:
            return 0
        places = self._places(facts, workers)
        if len(places) == workers or partly:
            for node in places:
                for name, amount in facts.requests.items():
                    if name in self._free[node]:
                        self._free[node][name] -= amount
        return len(places)

    def _places(self, facts: TargetFacts, workers: int) -> list[str]:
        """A node for each worker, as far as there are any."""
        found: list[str] = []
        requests = facts.requests or {}
        # Free capacity only becomes less: what no node had for some pods, none has for others like them.
        alike = (frozenset(requests.items()), facts.choice.key)
        if alike in self._full_for:
            return found
        for node, free in self._free.items():
            fitting = times(requests, free)
            if fitting and facts.choice.allows(self._nodes[node]):
                found += [node] * min(workers - len(found), fitting)
                if len(found) == workers:
                    break
        if not found:
            self._full_for.add(alike)
        return found


def fitting_size(free_capacity: UnpromisedCapacity, change: SizeChange, *, is_last: bool) -> int:
    """The size that a job can have now of the one that it is to have; what it takes is taken. 0: it has to wait.

    At last, when no more capacity is coming or nobody waits any longer, less than all is better than nothing.
    """
    facts = change.member.facts
    if not change.grows:
        return change.after
    found = free_capacity.take(facts, change.after - change.before)
    if found == change.after - change.before:
        return change.after
    least = max(change.before + 1, change.member.target.least)
    if not is_last or change.before + found < least:
        return 0
    free_capacity.take(facts, found)
    return change.before + found


# Fitting of a decision to what may be done: some jobs keep their size, none that runs goes below its least, and
# namespaces have their shares; what that leaves of the cluster is what the others get.
#
# Pure, and in sums over the cluster: whether a task finds a node is asked when it is about to get one (`sizing.py`).

_NOTHING = Resources(0)


def fitted(
    state: ClusterState,
    decision: Decision,
    fixed: Mapping[str, int],
    min_shares: Mapping[str, float],
    reach: Reach | None = None,
) -> dict[str, int]:
    """Workers of every job of the state.

    Args:
        fixed: jobs that keep their size, and that size.
        min_shares: by namespace, which is what a job's id begins with.
        reach: the nodes that a job can use, of those that cannot use all.

    Returns:
        Sizes that fit together unless what the jobs have does not; then nothing grows.
    """
    fitting = _Fitting(state, decision, fixed, reach or {})
    fitting.give_back(decision)
    for namespace in sorted(min_shares):
        fitting.give_share(namespace, min_shares)
    return fitting.sizes


class _Fitting:
    def __init__(self, state: ClusterState, decision: Decision, fixed: Mapping[str, int], reach: Reach) -> None:
        self._total = state.total
        self._jobs = {job.job_id: job for job in state.jobs}
        self._free = {job_id: job for job_id, job in self._jobs.items() if job_id not in fixed and job.max_workers}
        self.sizes = {
            job_id: _desired(job, decision.of(job_id).workers) if job_id in self._free else fixed.get(job_id, 0)
            for job_id, job in self._jobs.items()
        }
        pools = pools_of(state.nodes, reach)
        # Pools first: what is taken back there others may have, of whom less is taken then.
        for crowded in (pools, [NodePool(self._total, frozenset(self._jobs))]):
            shrink_growth(PoolUse(crowded, self._jobs, self.sizes), self._free, self.sizes)
        self._pools = PoolUse(pools, self._jobs, self.sizes)
        self._used = self._sum(self.sizes)
        self._used_in: defaultdict[str, Resources] = defaultdict(lambda: _NOTHING)
        for job_id, job in self._jobs.items():
            self._used_in[namespace_of(job_id)] += job.worker_demand * self.sizes[job_id]

    def give_back(self, decision: Decision) -> None:
        """Leave running jobs what was to be taken from them for others who may not have it now."""
        decided = self._sum({job_id: decision.of(job_id).workers for job_id in self._jobs})
        for job_id, job in self._free.items():
            if (decided + job.worker_demand).fits_in(self._total):
                continue  # it was to be smaller for its own sake: there was capacity for more
            while self.sizes[job_id] < min(job.current.workers, job.max_workers) and self._fits(job, 1):
                self._move(job_id, 1)

    def give_share(self, namespace: str, min_shares: Mapping[str, float]) -> None:
        """Grow a namespace's jobs to its share, from what is unused and then from who has more than a share."""
        growing, donors = [], []
        for number, job_id in enumerate(self._free):
            if namespace_of(job_id) == namespace:
                growing.append((self.sizes[job_id], number, job_id))
            else:
                donors.append((-self._growth(job_id), -self.sizes[job_id], number, job_id))
        heapq.heapify(growing)
        heapq.heapify(donors)
        while growing and self._share(namespace) < min_shares[namespace]:
            _, number, job_id = heapq.heappop(growing)
            job = self._free[job_id]
            step = self._step_up(job)
            if self.sizes[job_id] + step <= job.max_workers and self._free_capacity_for(job, step, donors, min_shares):
                self._move(job_id, step)
                heapq.heappush(growing, (self.sizes[job_id], number, job_id))

    def _free_capacity_for(
        self, job: Job, step: int, donors: list[tuple[int, int, int, str]], min_shares: Mapping[str, float]
    ) -> bool:
        """Take from donors until a step fits; where that cannot be, nothing is taken."""
        given: list[tuple[str, int, int]] = []
        while donors and not self._fits(job, step):
            _, _, number, job_id = heapq.heappop(donors)
            down = self._step_down(self._free[job_id])
            # Whoever cannot give now cannot later: sizes and shares of others only fall meanwhile.
            if self._can_give(job_id, down, min_shares):
                self._move(job_id, -down)
                given.append((job_id, down, number))
                heapq.heappush(donors, (-self._growth(job_id), -self.sizes[job_id], number, job_id))
        if self._fits(job, step):
            return True
        for job_id, down, number in given:
            self._move(job_id, down)
            heapq.heappush(donors, (-self._growth(job_id), -self.sizes[job_id], number, job_id))
        return False

    def _can_give(self, job_id: str, down: int, min_shares: Mapping[str, float]) -> bool:
        job, namespace = self._free[job_id], namespace_of(job_id)
        left = self._share(namespace, job.worker_demand * down)
        return self.sizes[job_id] > _floor(job) and left >= min_shares.get(namespace, 0.0)

    def _share(self, namespace: str, less: Resources = _NOTHING) -> float:
        return dominant_share(self._used_in[namespace] - less, self._total)

    def _growth(self, job_id: str) -> int:
        return max(0, self.sizes[job_id] - self._jobs[job_id].current.workers)

    def _step_up(self, job: Job) -> int:
        return 1 if self.sizes[job.job_id] else max(1, job.min_workers)

    def _step_down(self, job: Job) -> int:
        """One worker, or all of a job that does not run yet and has only its least."""
        size = self.sizes[job.job_id]
        return size if not job.current.workers and size <= job.min_workers else 1

    def _fits(self, job: Job, more: int) -> bool:
        in_pools = self._pools.fits(job.job_id, more)
        return in_pools and (self._used + job.worker_demand * more).fits_in(self._total)

    def _move(self, job_id: str, workers: int) -> None:
        more = self._jobs[job_id].worker_demand * workers
        self.sizes[job_id] += workers
        self._pools.move(job_id, workers)
        self._used = self._used + more
        self._used_in[namespace_of(job_id)] += more

    def _sum(self, sizes: Mapping[str, int]) -> Resources:
        return sum((self._jobs[job_id].worker_demand * size for job_id, size in sizes.items()), _NOTHING)


def namespace_of(job_id: str) -> str:
    """What the id of a target's job begins with."""
    return job_id.partition("/")[0]


def _floor(job: Job) -> int:
    """A job that runs is never stopped, nor made smaller than it trains with; one that is smaller already stays so."""
    return min(job.current.workers, job.min_workers, job.max_workers)


def _desired(job: Job, workers: int) -> int:
    if workers < job.min_workers:
        return _floor(job)
    return min(workers, job.max_workers)
