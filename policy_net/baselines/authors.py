"""Four schedulers as the code that the DL2 authors published has them, for comparison with its figures.

- `drf-authors`: one bundle at a time to the job with the least dominant share, ties by arrival.
- `srtf-authors`: as many bundles as its caps allow to one job after the other, by the *share* of its epochs that is
  left, whatever their number: a short job that has just begun comes after a long one that is under way.
- `tetris-authors`: node by node in a fixed order, not by load, a bundle to the job with the highest score. The score
  adds how well a bundle's demand lines up with what the node has left, and demand × the share of the epochs that is
  *left*, both scaled to the same mean. The second term should favour the job that is nearly done and does the reverse,
  so jobs starve close to their end.
- `optimus-authors`: every job first gets a worker, then a parameter server; then the task that saves most remaining
  time under the *true* speeds goes to its job, a server if both roles save the same, until none saves time. A job whose
  best task is one beyond its cap gets nothing more, even where the other role would help.

A bundle has to fit on one node, and every grant is tried on one node only: the least loaded, load being CPU cores and
GPUs added up in the authors' units (a GPU is worth four cores), ties by position. The first one that does not fit there
ends the whole decision (Tetris: the node's turn), and nothing is moved again. So what is granted depends on the order
of the grants, and a cluster may be called full that is not. That helps DRF: more workers often train more slowly.
`drf`, `srtf`, `tetris` and `optimus` are what their papers define.
Source: the authors' simulator, as published with DL2 (§6.1: nodes of 8 CPU and 8 GPU units). Own code, same behaviour.
Deviation: there, jobs that tie in everything, and the first tasks of Optimus, come in no defined order; here by
arrival. Beyond 16 tasks of a role, or 64 workers without servers, there are no speeds here, so no task is best there,
and the other role grows on.
"""

from __future__ import annotations

import heapq
from collections.abc import Sequence

import numpy as np

from policy_net.baselines.needs import remaining_samples
from policy_net.domain import (
    SUSPENDED,
    Allocation,
    CapacityMode,
    ClusterState,
    Decision,
    Job,
    PolicyContext,
    Progress,
    Resources,
    Share,
    SpeedModel,
    Trigger,
    speed_at,
)
from policy_net.policy import true_speeds_for

UNITS_PER_GPU = 4
MILLI = 1000
BUNDLE = Allocation(workers=1, ps=1)
ONE_WORKER = Allocation(workers=1)
ONE_SERVER = Allocation(ps=1)
NEVER = 1e30
"""Seconds to the end in an allocation that does not train: finite, so that two of them compare equal."""


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


class DrfAuthorsPolicy:
    """Bundles by dominant share until one does not fit."""

    name = "drf-authors"

    def decide(self, state: ClusterState, trigger: Trigger) -> Decision:  # noqa: ARG002  (the same at every trigger)
        """Grant bundle by bundle."""
        nodes, total = AuthorsNodes(state), state.total
        queue = [(0.0, index) for index, job in enumerate(state.jobs) if most_bundles(job)]
        while queue:
            _, index = queue[0]
            job = state.jobs[index]
            if not nodes.grant(index, bundle_of(job)):
                break
            held = nodes.held[index]
            if held.workers < most_bundles(job):
                heapq.heapreplace(queue, (_dominant_share(job, held, total), index))
            else:
                heapq.heappop(queue)
        return nodes.decision()

    def observe(self, progress: Sequence[Progress]) -> None:
        """Nothing to learn: shares do not depend on speeds."""


class SrtfAuthorsPolicy:
    """Job after job to its caps, the least share of its epochs left first, until a bundle does not fit."""

    name = "srtf-authors"

    def decide(self, state: ClusterState, trigger: Trigger) -> Decision:  # noqa: ARG002  (the same at every trigger)
        """Grant job by job."""
        nodes = AuthorsNodes(state)
        for index in sorted(range(len(state.jobs)), key=lambda index: share_left(state.jobs[index])):
            job = state.jobs[index]
            if not all(nodes.grant(index, bundle_of(job)) for _ in range(most_bundles(job))):
                break
        return nodes.decision()

    def observe(self, progress: Sequence[Progress]) -> None:
        """Nothing to learn: the order does not depend on speeds."""


def share_left(job: Job) -> float:
    """The share of its epochs that a job still has to train, of those declared or guessed."""
    return job.remaining_epochs / job.total_epochs if job.total_epochs > 0 else 1.0


def _dominant_share(job: Job, held: Allocation, total: Resources) -> float:
    used = job.worker_demand * held.workers + job.ps_demand * held.ps
    return max(used.cpu_milli / total.cpu_milli if total.cpu_milli else 0.0, used.gpu / total.gpu if total.gpu else 0.0)


class TetrisAuthorsPolicy:
    """Packs one node after the other, by alignment and longest remaining work."""

    name = "tetris-authors"

    def decide(self, state: ClusterState, trigger: Trigger) -> Decision:  # noqa: ARG002  (the same at every trigger)
        """Fill node by node."""
        nodes = AuthorsNodes(state)
        bundles = [bundle_of(job) for job in state.jobs]
        demands = np.array(
            [
                load_units(job.worker_demand * bundle.workers + job.ps_demand * bundle.ps)
                for job, bundle in zip(state.jobs, bundles, strict=True)
            ]
        ).reshape(-1, 2)
        work = demands.sum(axis=1) * np.array([share_left(job) for job in state.jobs])
        most = [most_bundles(job) for job in state.jobs]
        # Added to the scores: no job that has reached its caps is the best.
        handicap = np.array([0.0 if count > 0 else -np.inf for count in most])
        growing = sum(count > 0 for count in most)
        if not growing or not work.any():
            return nodes.decision()
        mean_work = work.mean()
        for position in range(len(state.nodes)):
            while True:
                cpu, gpu = nodes.free_units(position)
                # Not by a matrix product: rounded row by row, jobs that tie in everything might not tie.
                alignment = demands[:, 0] * cpu + demands[:, 1] * gpu
                whole = np.add.reduce(alignment)  # of terms none of which is negative
                if not whole:
                    break
                # Capped jobs count in the two means, as there.
                scores = alignment + whole / len(work) / mean_work * work
                best = int((scores + handicap).argmax())  # the first of several
                if not nodes.grant_on(position, best, bundles[best]):
                    break
                if nodes.held[best].workers >= most[best]:
                    handicap[best] = -np.inf
                    growing -= 1
                    if not growing:
                        return nodes.decision()
        return nodes.decision()

    def observe(self, progress: Sequence[Progress]) -> None:
        """Nothing to learn: scores do not depend on speeds."""


class OptimusAuthorsPolicy:
    """Task by task to the largest saving under given speeds, on the authors' nodes."""

    name = "optimus-authors"

    def __init__(self, speeds: SpeedModel) -> None:
        self.speeds = speeds

    def decide(self, state: ClusterState, trigger: Trigger) -> Decision:  # noqa: ARG002  (the same at every trigger)
        """Grant task by task."""
        nodes = AuthorsNodes(state)
        queue: list[tuple[float, int, Allocation]] = []
        for index, job in enumerate(state.jobs):
            self._enqueue(queue, index, job, Allocation())
        while queue:
            negative_saving, index, task = heapq.heappop(queue)
            if negative_saving >= 0:
                break
            job, held = state.jobs[index], nodes.held[index]
            if held.workers + task.workers > job.max_workers or held.ps + task.ps > job.max_ps:
                continue
            if not nodes.grant(index, task):
                break
            self._enqueue(queue, index, job, nodes.held[index])
        return nodes.decision()

    def _enqueue(self, queue: list[tuple[float, int, Allocation]], index: int, job: Job, held: Allocation) -> None:
        saving, task = self._best(job, held)
        heapq.heappush(queue, (-saving, index, task))

    def _best(self, job: Job, held: Allocation) -> tuple[float, Allocation]:
        """The next task of a job, and the seconds that it saves; without end as long as the job cannot train."""
        if held.workers == 0:
            return float("inf"), ONE_WORKER
        if held.ps == 0 and job.kind.uses_ps:
            return float("inf"), ONE_SERVER
        grid = self.speeds.grid(job.job_type)
        now = _seconds(job, speed_at(grid, held.ps, held.workers))
        by_worker = by_ps = 0.0
        if held.workers < job.kind.most_workers:
            by_worker = now - _seconds(job, speed_at(grid, held.ps, held.workers + 1))
        if held.ps < job.kind.most_ps:
            by_ps = now - _seconds(job, speed_at(grid, held.ps + 1, held.workers))
        return (by_ps, ONE_SERVER) if by_ps >= by_worker and job.kind.uses_ps else (by_worker, ONE_WORKER)

    def observe(self, progress: Sequence[Progress]) -> None:
        """Nothing to learn: the speeds are known."""


def _seconds(job: Job, speed: float) -> float:
    return remaining_samples(job) / speed if speed > 0 else NEVER


def build_optimus_authors(context: PolicyContext) -> OptimusAuthorsPolicy:
    """Build the policy registered as `optimus-authors`. Raises BadInput without true speeds."""
    return OptimusAuthorsPolicy(true_speeds_for("optimus-authors", context))
