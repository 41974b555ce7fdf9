"""A batch of jobs while the policy gives to it: the actions, what is given and may still be given, and the features.

Legend: J jobs a batch, L type columns, F = J·(L + 5) features, A = 3J + 1 actions.
Action 3·i + k gives job i of the batch one worker (k = 0), one parameter server (k = 1) or one of each (k = 2); the
last action is void: stop giving to this batch. Caps and capacity only ever shrink while grants are made, so the mask is
updated, never built again: after a grant, the caps of one job and the few distinct demands are looked at.
Source: DL2 §4.1 (features x type, d slots run, e remaining epochs, r dominant share, w workers, u parameter servers),
§7 (of an all-reduce job, parameter servers and bundles are masked and the input u stays zero).
Deviation: d and e go through log1p and all columns are scaled to about [0, 1], since real jobs span five orders of
magnitude in length; the paper feeds raw figures. And jobs with minimum sizes, which the paper does not have: a grant
brings a job to its minimum at once in the roles that it gives; grant by grant, most of them would end up with tasks
that do nothing. And where the spec says so, a batch leaves the jobs of later ones their part of the cluster: the
network sees no other batch than its own, and the first one would take what all the others need.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
from numpy.typing import NDArray

from policy_net.dl2.action import GRANT_KINDS, Grant, void_index
from policy_net.domain import MAX_TASKS_PER_ROLE, Allocation, ClusterState, Job, JobKind, Resources
from policy_net.exchange.spec import SCALARS_PER_JOB, PolicySpec
from policy_net.placement.capacity import Capacity, open_capacity
from policy_net.placement.layout import layout_of

SLOTS_RUN_SCALE = float(1.0 / np.log1p(100.0))
"""A hundred slots of running map to 1."""

REMAINING_EPOCHS_SCALE = float(1.0 / np.log1p(30_000.0))
"""The longest of DL2's jobs (28,800 epochs) maps to about 1."""

TASK_SCALE = 1.0 / MAX_TASKS_PER_ROLE
"""More workers, which an all-reduce job may have, look to the network like the usual 16."""

_ZERO = Resources(0, 0)


class BatchEncoder:
    """Turns up to J jobs into the network's input; what a grant changes are three columns, named here.

    The scalars of column i start at `scalar_offset(i)` in the order d, e, r, w, u.
    """

    def __init__(self, spec: PolicySpec) -> None:
        self.spec = spec
        self.row_width = spec.type_columns + SCALARS_PER_JOB
        self._column_of_type = {job_type: column for column, job_type in enumerate(spec.job_types)}

    def scalar_offset(self, column: int) -> int:
        """Where the five scalars of the job in this column begin."""
        return column * self.row_width + self.spec.type_columns

    def encode(self, jobs: Sequence[Job], state: ClusterState) -> NDArray[np.float32]:
        """The input before anything is granted, float32, shape (F,): r, w and u are zero; absent jobs are all zero."""
        features_F = np.zeros(self.spec.feature_count, dtype=np.float32)
        for column, job in enumerate(jobs):
            start = column * self.row_width
            features_F[start + self._column_of_type.get(job.job_type, 0)] = 1.0
            scalars = self.scalar_offset(column)
            features_F[scalars] = SLOTS_RUN_SCALE * np.log1p(job.run_seconds / state.slot_seconds)
            features_F[scalars + 1] = REMAINING_EPOCHS_SCALE * np.log1p(job.remaining_epochs)
        return features_F


class JobBatch:
    """Up to J jobs, their allocations so far, the mask and the features.

    Attributes:
        mask_A: bool, shape (3J+1,); True where an action is admissible. As long as no job of the decision can
            train, only grants that make one train are, if any fits (a bundle; for an all-reduce job a worker; without
            bundles one half and then the other): void, or single grants until nothing fits, would idle the cluster.
        features_F: float32, shape (F,), true to the grants made so far.
        workers, ps: how many each job has been given, in the order of the jobs.
        used: what they have been given together.
    """

    def __init__(
        self,
        jobs: Sequence[Job],
        state: ClusterState,
        capacity: Capacity,
        encoder: BatchEncoder,
        *,
        something_runs: bool = False,
        allowed: Resources | None = None,
    ) -> None:
        """Start a batch.

        Args:
            something_runs: whether an earlier batch of the decision holds a job that can train.
            allowed: what its jobs may have together; None if there is no such bound.
        """
        self._jobs = jobs
        self._capacity = capacity
        self._encoder = encoder
        jobs_per_batch = encoder.spec.jobs_per_batch
        self.bundles = encoder.spec.bundles
        self.void = void_index(jobs_per_batch)
        self.features_F = encoder.encode(jobs, state)
        self.workers = [0] * len(jobs)
        self.ps = [0] * len(jobs)
        self._used = [_ZERO] * len(jobs)
        self.used = _ZERO
        self._allowed = allowed
        self.mask_A: NDArray[np.bool_] = np.zeros(self.void + 1, dtype=np.bool_)
        self.mask_A[self.void] = True
        self.something_runs = something_runs
        self._columns_of_demands: dict[tuple[Resources, ...], list[int]] = {}
        for column in range(len(jobs)):
            self._open(column)
        self._close_what_does_not_fit()
        self._held_back = None if something_runs else self._hold_back()

    @property
    def only_void(self) -> bool:
        """Whether nothing can be given any more."""
        return not self._columns_of_demands or not self.mask_A[: self.void].any()

    def grant(self, index: int) -> tuple[int, NDArray[np.float32]]:
        """Give what an admissible action (not void) gives.

        Returns:
            The first of the changed features and the changes: of r, w and u of one job.
        """
        column, kind = divmod(index, GRANT_KINDS)
        grant = Grant(kind)
        job = self._jobs[column]
        each_workers, each_ps = self._tasks(column)
        workers, ps = grant.workers * each_workers, grant.ps * each_ps
        demands = (job.worker_demand,) * workers + (job.ps_demand,) * ps
        self._capacity.take(*demands)
        self._used[column] = sum(demands, self._used[column])
        self.used = sum(demands, self.used)
        self.workers[column] += workers
        self.ps[column] += ps
        if self._held_back is not None:
            self.mask_A[:] = self._held_back
            self._held_back = None
        if workers + ps == grant.workers + grant.ps:
            self._close_what_caps_forbid(column)
        else:
            self._open_anew(column)
        self._close_what_does_not_fit()
        self.something_runs = self.something_runs or job.can_train(Allocation(self.workers[column], self.ps[column]))
        if not (self.bundles or self.something_runs):
            self._held_back = self._hold_back()
        return self._change_features(column, workers, ps)

    def allocation(self) -> dict[str, Allocation]:
        """What each job of the batch has been given."""
        return {job.job_id: Allocation(self.workers[column], self.ps[column]) for column, job in enumerate(self._jobs)}

    def _change_features(self, column: int, workers: int, ps: int) -> tuple[int, NDArray[np.float32]]:
        first = self._encoder.scalar_offset(column) + 2
        share = self._capacity.dominant_share(self._used[column])
        shown = min(self.workers[column], MAX_TASKS_PER_ROLE) - min(self.workers[column] - workers, MAX_TASKS_PER_ROLE)
        deltas = np.array((share - self.features_F[first], shown * TASK_SCALE, ps * TASK_SCALE), dtype=np.float32)
        self.features_F[first : first + 3] += deltas
        return first, deltas

    def _tasks(self, column: int) -> tuple[int, int]:
        """How many workers and parameter servers a grant gives now: one, or what the job lacks to its minimum."""
        job = self._jobs[column]
        workers, ps = job.min_workers - self.workers[column], job.min_ps - self.ps[column]
        return workers if workers > 1 else 1, ps if ps > 1 else 1

    def _open(self, column: int) -> None:
        """Admit what a job's caps allow, and remember what each of it takes."""
        job, first = self._jobs[column], GRANT_KINDS * column
        workers, ps = self._tasks(column)
        columns = self._columns_of_demands
        worker_fits = self.workers[column] + workers <= job.max_workers
        worker_tasks = (job.worker_demand,) * workers
        if worker_fits:
            self.mask_A[first] = True
            columns.setdefault(worker_tasks, []).append(first)
        if job.kind is JobKind.ALLREDUCE or self.ps[column] + ps > job.max_ps:
            return
        ps_tasks = (job.ps_demand,) * ps
        self.mask_A[first + 1] = True
        columns.setdefault(ps_tasks, []).append(first + 1)
        if worker_fits and self.bundles:
            self.mask_A[first + 2] = True
            columns.setdefault(worker_tasks + ps_tasks, []).append(first + 2)

    def _open_anew(self, column: int) -> None:
        """Once at its minimum, a job takes one task at a time; what did not fit before fits even less on top."""
        indices = range(GRANT_KINDS * column, GRANT_KINDS * (column + 1))
        refused = [index for index in indices if not self.mask_A[index]]
        for columns in self._columns_of_demands.values():
            columns[:] = [index for index in columns if index not in indices]
        self.mask_A[indices] = False
        self._open(column)
        self.mask_A[refused] = False

    def _close_what_caps_forbid(self, column: int) -> None:
        job, first = self._jobs[column], GRANT_KINDS * column
        no_worker = self.workers[column] >= job.max_workers
        no_ps = self.ps[column] >= job.max_ps
        if no_worker:
            self.mask_A[first] = self.mask_A[first + 2] = False
        if no_ps:
            self.mask_A[first + 1] = self.mask_A[first + 2] = False

    def _hold_back(self) -> NDArray[np.bool_] | None:
        """Leave only what makes a job train for the first grant; returns the mask afterwards, None if nothing does."""
        if self.bundles:
            starting = [
                GRANT_KINDS * column + (Grant.WORKER if job.kind is JobKind.ALLREDUCE else Grant.BUNDLE)
                for column, job in enumerate(self._jobs)
            ]
        else:
            starting = self._halves()
        if not self.mask_A[starting].any():
            return None
        afterwards = self.mask_A.copy()
        self.mask_A[:] = False
        self.mask_A[starting] = afterwards[starting]
        return afterwards

    def _halves(self) -> list[int]:
        """Single grants of what a job lacks to train, all of which fits: of the job that has one half, if one does."""
        begun = [column for column in range(len(self._jobs)) if self.workers[column] or self.ps[column]]
        halves: list[int] = []
        for column in begun or range(len(self._jobs)):
            job = self._jobs[column]
            workers, ps = max(job.min_workers, 1) - self.workers[column], job.min_ps - self.ps[column]
            if self._fits(*(job.worker_demand,) * max(workers, 0), *(job.ps_demand,) * max(ps, 0)):
                halves += [GRANT_KINDS * column + Grant.WORKER] if workers > 0 else []
                halves += [GRANT_KINDS * column + Grant.PS] if ps > 0 else []
        return halves

    def _fits(self, *demands: Resources) -> bool:
        if self._allowed is not None and not sum(demands, self.used).fits_in(self._allowed):
            return False
        return self._capacity.fits(*demands)

    def _close_what_does_not_fit(self) -> None:
        closed = [demands for demands in self._columns_of_demands if not self._fits(*demands)]
        for demands in closed:
            self.mask_A[self._columns_of_demands.pop(demands)] = False


def batches_of(state: ClusterState, encoder: BatchEncoder) -> Iterator[JobBatch]:
    """Batches of a state's jobs in their order, each of which is given to before the next one is asked for."""
    capacity, size = open_capacity(state), encoder.spec.jobs_per_batch
    left = total = layout_of(state.nodes).total
    most_later = sum((_needed(job, job.max_workers, job.max_ps) for job in state.jobs), _ZERO)
    something_runs = False
    for first in range(0, len(state.jobs), size):
        jobs = state.jobs[first : first + size]
        allowed = None
        if encoder.spec.reserves:
            most_later -= sum((_needed(job, job.max_workers, job.max_ps) for job in jobs), _ZERO)
            later_share = (len(state.jobs) - first - len(jobs)) / len(state.jobs)
            allowed = _allowed(jobs, left, total, later_share, most_later)
        batch = JobBatch(jobs, state, capacity, encoder, something_runs=something_runs, allowed=allowed)
        yield batch
        something_runs = batch.something_runs
        left -= batch.used


def _needed(job: Job, workers: int, ps: int) -> Resources:
    return job.worker_demand * workers + job.ps_demand * ps


def _allowed(
    jobs: Sequence[Job], left: Resources, total: Resources, later_share: float, most_later: Resources
) -> Resources:
    """What is left but for the part of later jobs that they can use, and never less than each job needs to train."""
    least = [_needed(job, max(job.min_workers, 1), job.min_ps) for job in jobs]
    return Resources(
        max(
            left.cpu_milli - min(int(total.cpu_milli * later_share), most_later.cpu_milli),
            *(need.cpu_milli for need in least),
        ),
        max(left.gpu - min(int(total.gpu * later_share), most_later.gpu), *(need.gpu for need in least)),
    )
