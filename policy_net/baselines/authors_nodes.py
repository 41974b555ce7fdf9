"""Nodes as the code that the DL2 authors published fills them: task by task, as they are granted, never moved again.

Every grant is tried on one node only: the least loaded, load being CPU cores and GPUs added up in the authors' units (a
GPU is worth four cores), ties by position. If the grant does not fit there, the whole decision ends. A bundle has to
fit on one node. So what is granted depends on the order of the grants, and a cluster may be called full that is not.
Source: the authors' simulator, as published with DL2 (§6.1: nodes of 8 CPU and 8 GPU units). Own code, same behaviour.
"""

from __future__ import annotations

import heapq

from policy_net.domain import SUSPENDED, Allocation, CapacityMode, ClusterState, Decision, Job, Resources, Share

UNITS_PER_GPU = 4
MILLI = 1000
BUNDLE = Allocation(workers=1, ps=1)
ONE_WORKER = Allocation(workers=1)


def load_units(amount: Resources) -> tuple[float, float]:
    """CPU and GPU in the authors' units."""
    return amount.cpu_milli / MILLI, float(amount.gpu * UNITS_PER_GPU)


def bundle_of(job: Job) -> Allocation:
    """What such a job is granted at a time: a worker and a parameter server, or a worker alone if it needs none."""
    return BUNDLE if job.kind.uses_ps else ONE_WORKER


def most_bundles(job: Job) -> int:
    """So many bundles until the job's caps are reached."""
    return min(job.max_workers, job.max_ps) if job.kind.uses_ps else job.max_workers


class AuthorsNodes:
    """What every job of one decision holds, and on which nodes."""

    def __init__(self, state: ClusterState) -> None:
        self._state = state
        # Plain integers: a decision on a large cluster is some thousand grants.
        self._free_cpu = [node.capacity.cpu_milli for node in state.nodes]
        self._free_gpu = [node.capacity.gpu for node in state.nodes]
        self._by_load = [(0, position) for position in range(len(state.nodes))]
        self._granted: list[list[tuple[int, Allocation]]] = [[] for _ in state.jobs]
        self.held = [SUSPENDED] * len(state.jobs)

    def grant(self, index: int, tasks: Allocation) -> bool:
        """Give the index-th job some tasks, all on the node with the least load; says whether they fit there."""
        if not self._by_load:
            return False
        load, position = self._by_load[0]
        cpu, gpu = self._free_cpu[position], self._free_gpu[position]
        if not self.grant_on(position, index, tasks):
            return False
        load += cpu - self._free_cpu[position] + (gpu - self._free_gpu[position]) * UNITS_PER_GPU * MILLI
        heapq.heapreplace(self._by_load, (load, position))
        return True

    def grant_on(self, position: int, index: int, tasks: Allocation) -> bool:
        """The same on a given node; `grant` and `grant_on` are not to be mixed in one decision."""
        job, (workers, ps) = self._state.jobs[index], (tasks.workers, tasks.ps)
        cpu = self._free_cpu[position] - workers * job.worker_demand.cpu_milli - ps * job.ps_demand.cpu_milli
        gpu = self._free_gpu[position] - workers * job.worker_demand.gpu - ps * job.ps_demand.gpu
        if cpu < 0 or gpu < 0:
            return False
        self._free_cpu[position], self._free_gpu[position] = cpu, gpu
        self._granted[index].append((position, tasks))
        held = self.held[index]
        self.held[index] = Allocation(held.workers + workers, held.ps + ps)
        return True

    def free_units(self, position: int) -> tuple[float, float]:
        """What is left of a node, CPU and GPU in the authors' units."""
        return load_units(Resources(self._free_cpu[position], self._free_gpu[position]))

    def decision(self) -> Decision:
        """What was granted, and where; jobs that cannot train with it get nothing."""
        training = [index for index, job in enumerate(self._state.jobs) if job.can_train(self.held[index])]
        jobs = self._state.jobs
        allocation = {jobs[index].job_id: self.held[index] for index in training}
        if self._state.capacity_mode is CapacityMode.POOLED:
            return Decision(allocation)
        return Decision(allocation, {jobs[index].job_id: self._shares(index) for index in training})

    def _shares(self, index: int) -> tuple[Share, ...]:
        by_node: dict[int, Allocation] = {}
        for position, tasks in self._granted[index]:
            there = by_node.get(position, SUSPENDED)
            by_node[position] = Allocation(there.workers + tasks.workers, there.ps + tasks.ps)
        return tuple(Share(self._state.nodes[position].node_id, tasks) for position, tasks in by_node.items())
