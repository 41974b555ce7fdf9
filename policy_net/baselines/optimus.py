"""Optimus: the next task goes where it saves most remaining time, one task at a time.

Every job starts with the least with which it trains, in arrival order; then the job whose remaining time shrinks most
by one more worker, or one more parameter server, gets it, until no task saves time or fits. On beliefs, types of which
little is known are probed first (`probing.py`). With `optimus-sr`, first grants go by believed remaining time, and a
task goes where it saves the largest *share* of a job's remaining time. In real clusters a few jobs are longer than all
others together: in seconds they would take every spare GPU, for the longest time.
Source: Optimus (Peng et al., EuroSys 2018) §4.1; `optimus` fits speeds online as in §3.2. `optimus-sr` is our own.
Deviation: the gain is per task, not per unit of dominant resource, and jobs are not placed here; `optimus-true-table`
knows the simulator's speeds, as in the code that accompanies DL2. A task that brings nothing by itself ends a role's
growth even where two tasks together would pay: that is the published greedy, and its weakness. `optimus-fitted` plans
on speeds fitted beforehand, to points that the user brings, of all types at once, and not to a few sample runs of every
new job.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from policy_net.baselines.needs import demands_of, first_grant, remaining_samples, remaining_seconds
from policy_net.domain import (
    Allocation,
    ClusterState,
    Decision,
    Job,
    PolicyContext,
    Progress,
    Resources,
    SpeedModel,
    Trigger,
)
from policy_net.errors import BadInput
from policy_net.placement.capacity import open_capacity
from policy_net.policy import true_speeds_for
from policy_net.throughput.beliefs import Beliefs
from policy_net.throughput.parametric import OnlineFit
from policy_net.throughput.probing import choose_probes

Array = NDArray[np.float64]
Rows = list[list[float]]


class OptimusPolicy:
    """Greedy on marginal gain over any speed model; feeds the progress it is shown to `beliefs`, if it has any."""

    def __init__(self, name: str, speeds: SpeedModel, beliefs: Beliefs | None = None) -> None:
        self.name = name
        self.speeds = speeds
        self.beliefs = beliefs
        self._known_savings: dict[str, tuple[Array, Rows, Rows]] = {}

    def decide(self, state: ClusterState, trigger: Trigger) -> Decision:  # noqa: ARG002  (the same at every trigger)
        """A first grant each by arrival, then task by task to the largest saving (ties by arrival)."""
        if self.beliefs is not None:
            self.beliefs.introduce(state.jobs)
        capacity = open_capacity(state)
        probes = {} if self.beliefs is None else choose_probes(state, self.beliefs)
        allocation: dict[str, Allocation] = {}
        growths: dict[int, _Growth] = {}
        for index in self.admission_order(state):
            job = state.jobs[index]
            probe = probes.get(index)
            if probe is not None:
                demands = demands_of(job, probe)
                if capacity.fits(*demands):
                    capacity.take(*demands)
                    allocation[job.job_id] = probe
                    continue
            first = first_grant(job)
            if first is not None and capacity.fits(*(demands := demands_of(job, first))):
                capacity.take(*demands)
                growths[index] = _Growth(job, first, self.weigh(job), *self._savings_of(job.job_type))
        queue = [(-saving, index) for index, growth in growths.items() if (saving := growth.best_saving()) > 0]
        heapq.heapify(queue)
        while queue:
            _, index = heapq.heappop(queue)
            growth = growths[index]
            demand = growth.next_demand
            if capacity.fits(demand):
                capacity.take(demand)
                growth.grow()
            else:
                growth.stop_role()
            saving = growth.best_saving()
            if saving > 0:
                heapq.heappush(queue, (-saving, index))
        for growth in growths.values():
            allocation[growth.job.job_id] = Allocation(growth.workers, growth.ps)
        return Decision(allocation)

    def observe(self, progress: Sequence[Progress]) -> None:
        """Sharpen the beliefs, if this policy plans on beliefs."""
        if self.beliefs is not None:
            self.beliefs.observe(progress)

    def admission_order(self, state: ClusterState) -> Sequence[int]:
        """In which order jobs get their first grants: by arrival."""
        return range(len(state.jobs))

    def weigh(self, job: Job) -> float:
        """By how much a saving per sample counts: by the samples that are left to train."""
        return remaining_samples(job)

    def savings(self, grid: Array) -> tuple[Array, Array]:
        """Seconds per sample that one more worker, and one more server, saves.

        Shapes: the grid [ps, workers] less one column, and less one row.
        """
        times = seconds_per_sample(grid)
        return _difference(times[:, :-1], times[:, 1:]), _difference(times[:-1], times[1:])

    def _savings_of(self, job_type: str) -> tuple[Rows, Rows]:
        """`savings` as lists, by [ps][workers]; kept until the type's speeds change."""
        grid = self.speeds.grid(job_type)
        known = self._known_savings.get(job_type)
        if known is None or known[0] is not grid:
            by_worker, by_ps = self.savings(grid)
            known = self._known_savings[job_type] = (grid, by_worker.tolist(), by_ps.tolist())
        return known[1], known[2]


def seconds_per_sample(grid: Array) -> Array:
    """The inverse of a grid of speeds; infinite where a job cannot train."""
    with np.errstate(divide="ignore"):
        return np.asarray(1 / grid)


def _difference(before: Array, after: Array) -> Array:
    """What is saved; from one dead cell to another, nothing."""
    with np.errstate(invalid="ignore"):
        saved = before - after
    saved[np.isnan(saved)] = 0
    return saved


class _Growth:
    """One job's way up from its first grant: what it holds and which task it would take next."""

    __slots__ = (
        "_by_ps",
        "_by_worker",
        "_most_ps",
        "_most_workers",
        "_next_is_worker",
        "_weight",
        "job",
        "ps",
        "workers",
    )

    def __init__(self, job: Job, first: Allocation, weight: float, by_worker: Rows, by_ps: Rows) -> None:
        self.job = job
        self.workers, self.ps = first.workers, first.ps
        self._by_worker, self._by_ps = by_worker, by_ps
        # Beyond the speeds of the type there is nothing to gain.
        self._most_workers = min(job.max_workers, len(by_worker[0])) if first.ps < len(by_worker) else 0
        self._most_ps = min(job.max_ps, len(by_ps))
        self._weight = weight
        self._next_is_worker = True

    @property
    def next_demand(self) -> Resources:
        """What the task chosen by the last `best_saving` needs."""
        return self.job.worker_demand if self._next_is_worker else self.job.ps_demand

    def best_saving(self) -> float:
        """Choose the next task; returns its weighted saving, 0 or less if none is worth taking."""
        by_worker = self._by_worker[self.ps][self.workers] if self.workers < self._most_workers else 0.0
        by_ps = self._by_ps[self.ps][self.workers] if self.ps < self._most_ps else 0.0
        self._next_is_worker = by_worker > by_ps
        return max(by_worker, by_ps) * self._weight

    def grow(self) -> None:
        """Take the chosen task."""
        if self._next_is_worker:
            self.workers += 1
        else:
            self.ps += 1

    def stop_role(self) -> None:
        """The chosen task does not fit, and will not in this decision: grow in the other role only."""
        if self._next_is_worker:
            self._most_workers = self.workers
        else:
            self._most_ps = self.ps


def build_optimus(context: PolicyContext) -> OptimusPolicy:  # noqa: ARG001  (plans on its own beliefs, no truth)
    """Build the policy registered as `optimus`."""
    beliefs = OnlineFit()
    return OptimusPolicy("optimus", beliefs, beliefs)


def build_optimus_true_table(context: PolicyContext) -> OptimusPolicy:
    """Build the policy registered as `optimus-true-table`. Raises BadInput without true speeds."""
    return OptimusPolicy("optimus-true-table", true_speeds_for("optimus-true-table", context))


def build_optimus_fitted(context: PolicyContext) -> OptimusPolicy:
    """Build the policy registered as `optimus-fitted`.

    Raises:
        BadInput: the context has no measured speeds.
    """
    if context.measured_speeds is None:
        raise BadInput(
            "policy 'optimus-fitted' plans on speeds measured beforehand: give them with replay's --fit-points FILE,"
            " or use optimus, which learns speeds from progress"
        )
    return OptimusPolicy("optimus-fitted", context.measured_speeds)


class OptimusSrPolicy(OptimusPolicy):
    """Optimus's greedy in another order and by another measure."""

    def __init__(self, beliefs: Beliefs | None = None) -> None:
        beliefs = OnlineFit() if beliefs is None else beliefs
        super().__init__("optimus-sr", beliefs, beliefs)

    def admission_order(self, state: ClusterState) -> Sequence[int]:
        """By believed time to the end with the first grant (ties by arrival)."""
        seconds = [self._seconds_left(job) for job in state.jobs]
        return sorted(range(len(seconds)), key=seconds.__getitem__)

    def weigh(self, job: Job) -> float:  # noqa: ARG002  (a share is the same for all jobs of a type)
        """A saved share of the remaining time counts the same for every job."""
        return 1.0

    def savings(self, grid: Array) -> tuple[Array, Array]:
        """The share of its remaining time that a job saves by one more worker, and by one more server."""
        times = seconds_per_sample(grid)
        return _saved_share(times[:, :-1], times[:, 1:]), _saved_share(times[:-1], times[1:])

    def _seconds_left(self, job: Job) -> float:
        first = first_grant(job)
        return math.inf if first is None else remaining_seconds(job, self.speeds.grid(job.job_type), first)


def _saved_share(before: Array, after: Array) -> Array:
    """1 − after / before; all of it from a dead cell to a live one, and nothing from one dead cell to another."""
    with np.errstate(invalid="ignore"):
        share = 1 - after / before
    share[np.isinf(before)] = np.isfinite(after[np.isinf(before)])
    return np.asarray(share)
