"""Capacity of one decision for planners that think in whole splits, and the sizes that jobs asked for.

Sums of resources decide everything in pooled mode, and rule most things out in nodes mode before any placing is tried.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from policy_net.baselines.needs import demands_of, first_grant
from policy_net.domain import SUSPENDED, Allocation, CapacityMode, ClusterState, Decision, Job, Node, Resources
from policy_net.placement.capacity import Capacity, open_capacity


class DecisionCapacity:
    """What was granted to the jobs of one decision so far; every change keeps to the cluster's capacity."""

    def __init__(self, state: ClusterState) -> None:
        self._state = state
        self._granted: list[Allocation] = [SUSPENDED] * len(state.jobs)
        total = state.total
        self._free_cpu, self._free_gpu = total.cpu_milli, total.gpu
        self._capacity: Capacity | None = None if state.capacity_mode is CapacityMode.POOLED else open_capacity(state)
        self._refused: dict[tuple[Resources, Resources], list[Allocation]] = {}

    @property
    def free(self) -> tuple[int, int]:
        """CPU in millicores and GPUs that were granted to nobody, by the cluster's sums."""
        return self._free_cpu, self._free_gpu

    def decision(self) -> Decision:
        """What was granted, as a decision."""
        return Decision(
            {job.job_id: granted for job, granted in zip(self._state.jobs, self._granted, strict=True) if granted.tasks}
        )

    def change(self, index: int, size: Allocation) -> bool:
        """Give the index-th job `size` in place of what it was granted, if that fits; says whether it did."""
        job = self._state.jobs[index]
        granted = self._granted[index]
        workers, ps = size.workers - granted.workers, size.ps - granted.ps
        # Plain integers, here and in `settle`: this is where a planner spends its time.
        free_cpu = self._free_cpu - workers * job.worker_demand.cpu_milli - ps * job.ps_demand.cpu_milli
        free_gpu = self._free_gpu - workers * job.worker_demand.gpu - ps * job.ps_demand.gpu
        if free_cpu < 0 or free_gpu < 0:
            return False
        if self._capacity is not None and not self._place(index, size, workers, ps):
            return False
        self._free_cpu, self._free_gpu = free_cpu, free_gpu
        self._granted[index] = size
        return True

    def grow(self, index: int, candidates: Sequence[Allocation]) -> None:
        """Add what the index-th job lacks to the first candidate that contains what it was granted, and fits."""
        granted = self._granted[index]
        self.settle(index, [one for one in candidates if one.workers >= granted.workers and one.ps >= granted.ps])

    def settle(self, index: int, candidates: Sequence[Allocation]) -> None:
        """Grant the index-th job the first candidate that fits in place of its grant, or that comes to the same."""
        job = self._state.jobs[index]
        granted = self._granted[index]
        worker_cpu, worker_gpu = job.worker_demand.cpu_milli, job.worker_demand.gpu
        ps_cpu, ps_gpu = job.ps_demand.cpu_milli, job.ps_demand.gpu
        most_cpu = self._free_cpu + granted.workers * worker_cpu + granted.ps * ps_cpu
        most_gpu = self._free_gpu + granted.workers * worker_gpu + granted.ps * ps_gpu
        for candidate in candidates:
            workers, ps = candidate.workers, candidate.ps
            if workers * worker_cpu + ps * ps_cpu > most_cpu or workers * worker_gpu + ps * ps_gpu > most_gpu:
                continue
            if candidate == granted or self.change(index, candidate):
                return

    def _place(self, index: int, size: Allocation, workers: int, ps: int) -> bool:
        """Whether the nodes have free capacity too; takes it."""
        if workers < 0 or ps < 0:
            return self._exchange(index, size)
        assert self._capacity is not None  # noqa: S101  (only called in nodes mode; narrows the type)
        job = self._state.jobs[index]
        # Capacity only shrinks while tasks are added, so what was refused once is refused for at least as many tasks.
        kind = (job.worker_demand, job.ps_demand)
        if self._refused and any(workers >= no.workers and ps >= no.ps for no in self._refused.get(kind, ())):
            return False
        demands = (job.worker_demand,) * workers + (job.ps_demand,) * ps
        if not self._capacity.fits(*demands):
            self._refused.setdefault(kind, []).append(Allocation(workers, ps))
            return False
        self._capacity.take(*demands)
        return True

    def _exchange(self, index: int, size: Allocation) -> bool:
        """Place everything anew with another split for one job, as tasks cannot be given back one by one."""
        capacity = open_capacity(self._state)
        sizes = [*self._granted[:index], size, *self._granted[index + 1 :]]
        for job, of_job in zip(self._state.jobs, sizes, strict=True):
            demands = (job.worker_demand,) * of_job.workers + (job.ps_demand,) * of_job.ps
            if not capacity.fits(*demands):
                return False
            capacity.take(*demands)
        self._capacity = capacity
        self._refused.clear()
        return True


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
    """Whether the job runs at its size already."""
    return job.current == size and size.tasks > 0


def serve(free_capacity: DecisionCapacity, order: Iterable[int], sizes: list[Allocation]) -> None:
    """Give the jobs their sizes in this order; those that do not fit are passed over."""
    for index in order:
        if sizes[index].tasks:
            free_capacity.change(index, sizes[index])
