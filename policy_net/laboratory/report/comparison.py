"""Comparison of several policies on one workload, job by job against the policy of today."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from policy_net.domain import MAX_TASKS_PER_ROLE
from policy_net.laboratory.report.spread import JctSpread
from policy_net.laboratory.simulation.environment import Environment
from policy_net.laboratory.simulation.metrics import JobResult, Load, load_of, longest_jobs, mean_jct_seconds
from policy_net.laboratory.simulation.replay import ReplayResult
from policy_net.laboratory.workloads.workload import FigureOrigin, Workload
from policy_net.policy import DEFAULT_POLICY

QUEUES = ("fifo-easy", "fifo")
"""Policies of today, of which the first that was replayed is compared with the others. Slurm and its like backfill; a
plain queue would make every other policy look better than it is."""
AS_REQUESTED = ("fifo", "fifo-backfill", "fifo-easy", "las")
"""Policies whose jobs take longer than alone only because they wait."""
WAITS_LITTLE = 0.05
"""Share of the jobs' time; with less of it spent on waiting, a better order can save next to nothing."""
NOTICEABLE_SECONDS = 60.0
"""A job is earlier or later only by more than this: decisions are a minute apart anyway."""
SIZE_CLASSES = ((1, 1), (2, 4), (5, None))
"""Requested GPUs, from and to: alone, within a usual machine, and beyond."""


@dataclass(frozen=True, slots=True)
class JobPair:
    """One job under two policies; times from submission to end."""

    job: JobResult
    before_seconds: float
    after_seconds: float

    @property
    def delay_seconds(self) -> float:
        """By how much it is done later; negative if earlier."""
        return self.after_seconds - self.before_seconds


@dataclass(frozen=True)
class PairedJobs:
    """Jobs under the policy of today and under another one; at least one job."""

    name: str
    pairs: tuple[JobPair, ...]

    @property
    def before_seconds(self) -> float:
        """Average completion time today."""
        return math.fsum(pair.before_seconds for pair in self.pairs) / len(self.pairs)

    @property
    def after_seconds(self) -> float:
        """Average completion time under the other policy."""
        return math.fsum(pair.after_seconds for pair in self.pairs) / len(self.pairs)

    @property
    def later_share(self) -> float:
        """Share of the jobs that end noticeably later."""
        return sum(pair.delay_seconds > NOTICEABLE_SECONDS for pair in self.pairs) / len(self.pairs)

    @property
    def earlier_share(self) -> float:
        """Share of the jobs that end noticeably earlier."""
        return sum(pair.delay_seconds < -NOTICEABLE_SECONDS for pair in self.pairs) / len(self.pairs)

    @property
    def worst(self) -> JobPair:
        """The job that loses most time, or gains least; the first of equals."""
        return max(self.pairs, key=lambda pair: pair.delay_seconds)


@dataclass(frozen=True, slots=True)
class Recorded:
    """Recorded waits and completion times: how many jobs have one, and their averages, None where none has."""

    wait_jobs: int
    jct_jobs: int
    avg_wait_seconds: float | None
    avg_jct_seconds: float | None
    p99_jct_seconds: float | None


@dataclass(frozen=True)
class Comparison:
    """One workload in one environment under several policies.

    Attributes:
        results: at least one, in the order of the report, with timelines.
        nodes_given: whether the user gave the number of machines; else the workload's suggestion was taken.
        locality: whether it costs speed where a job's workers lie apart.
        spread: of the answer under other assumptions, if that was asked for.
        gpu_hour_price: of a GPU, in any currency, if it was given.
        elastic_share: of the jobs, that can be resized; None where the jobs themselves say so.
        unpaced_jct_seconds: average completion time under the proposed policy if it decided at every event, without
            the environment's debounce, if that was asked for.
    """

    workload: Workload
    environment: Environment
    results: tuple[ReplayResult, ...]
    nodes_given: bool = True
    locality: bool = False
    spread: JctSpread | None = None
    gpu_hour_price: float | None = None
    elastic_share: float | None = None
    unpaced_jct_seconds: float | None = None

    @property
    def gpus(self) -> int:
        """GPUs of the cluster, at the beginning."""
        return self.environment.gpus

    @cached_property
    def today(self) -> ReplayResult:
        """The policy with which the others are compared: a queue of `QUEUES` if it is there, else the first."""
        queues = (result for name in QUEUES for result in self.results if result.policy == name)
        return next(queues, self.results[0])

    @cached_property
    def proposed(self) -> ReplayResult:
        """The policy that the report is about: the default policy if it is there, else the last."""
        return next((result for result in self.results if result.policy == DEFAULT_POLICY), self.results[-1])

    @property
    def compares(self) -> bool:
        """Whether there are two policies to compare."""
        return self.proposed is not self.today

    @cached_property
    def figures(self) -> tuple[dict[str, Any], ...]:
        """Every result's figures, as in the command's JSON output."""
        return tuple(result.to_json() for result in self.results)

    def load(self, result: ReplayResult) -> Load:
        """GPUs in use and jobs that wait, over time."""
        return load_of(self.workload, self.gpus, result.timeline)

    def avg_jct_seconds(self, result: ReplayResult) -> float:
        """Average completion time; a replay ends only when all jobs have."""
        average = mean_jct_seconds(result.job_results)
        if average is None:
            raise ValueError(f"policy {result.policy!r} completed no job of {self.workload.name!r}")
        return average

    @cached_property
    def recorded(self) -> Recorded | None:
        """Recorded waits and times of the jobs; None if there are none."""
        return recorded_of(self.workload)

    def simulated_like_recorded(self, result: ReplayResult) -> tuple[float | None, float | None]:
        """Average wait for the first start, and time to the end, of just the jobs of which that is recorded."""
        records = self.workload.records
        waits, jcts = [], []
        for outcome in result.outcomes:
            record = records.get(outcome.job_id)
            if record is not None and record.wait_seconds is not None and outcome.wait_seconds is not None:
                waits.append(outcome.wait_seconds)
            if record is not None and record.jct_seconds is not None and outcome.jct_seconds is not None:
                jcts.append(outcome.jct_seconds)
        return _mean(waits), _mean(jcts)

    def change_against_record(self, result: ReplayResult) -> float | None:
        """Average completion time over the recorded one, less 1, of just the jobs of which that is recorded."""
        recorded = self.recorded
        _, simulated = self.simulated_like_recorded(result)
        if recorded is None or not recorded.avg_jct_seconds or simulated is None:
            return None
        return simulated / recorded.avg_jct_seconds - 1

    @cached_property
    def recorded_peak_gpus(self) -> int:
        """The most GPUs that the recorded jobs held at a time; 0 where the record says no starts and ends."""
        changes: list[tuple[float, int]] = []
        for spec in self.workload.jobs:
            record = self.workload.records.get(spec.job_id)
            if record is not None and record.wait_seconds is not None and record.jct_seconds is not None:
                changes.append((spec.submit_time_seconds + record.wait_seconds, record.gpus))
                changes.append((spec.submit_time_seconds + record.jct_seconds, -record.gpus))
        allocated = most = 0
        for _, change in sorted(changes):  # who ends at a moment lets go before another begins
            allocated += change
            most = max(most, allocated)
        return most

    @cached_property
    def hardly_waits(self) -> bool:
        """Whether jobs of fixed sizes are done today in hardly more than the time that they take alone."""
        known = [
            (job.jct_seconds, job.alone_seconds)
            for job in self.today.job_results
            if job.jct_seconds is not None and job.alone_seconds is not None
        ]
        waited = math.fsum(jct - alone for jct, alone in known)
        fixed = self.compares and self.today.policy in AS_REQUESTED
        return fixed and waited < WAITS_LITTLE * math.fsum(jct for jct, _ in known)

    @cached_property
    def cut_jobs(self) -> tuple[int, int]:
        """Jobs that get fewer GPUs than they asked for, as that was more than there are, or than one job may have."""
        beyond = capped = 0
        for spec in self.workload.jobs:
            record = self.workload.records.get(spec.job_id)
            asked = spec.requested.workers * spec.worker_demand.gpu if record is None else record.gpus
            beyond += bool(self.gpus) and asked > self.gpus
            # What was recorded is cut when it is read, to what such a job may have and whose speed is known.
            most = spec.kind.most_workers if record is None else max(MAX_TASKS_PER_ROLE, spec.requested.workers)
            workers = spec.requested.workers if record is None else record.gpus
            capped += workers > most and not (self.gpus and asked > self.gpus)
        return beyond, capped

    @property
    def machines_assumed(self) -> bool:
        """Whether neither user nor log said how many machines there are, or how large."""
        machines = self.workload.machines
        if machines is None:
            return not self.nodes_given
        return FigureOrigin.ASSUMED in (machines.nodes_by, machines.gpus_by)

    @cached_property
    def all_jobs(self) -> PairedJobs:
        """All jobs, today and under the proposed policy."""
        pairs = [
            JobPair(after, before.jct_seconds, after.jct_seconds)
            for before, after in zip(self.today.job_results, self.proposed.job_results, strict=True)
            if before.jct_seconds is not None and after.jct_seconds is not None
        ]
        return PairedJobs("all jobs", tuple(pairs))

    @cached_property
    def without_tail(self) -> PairedJobs | None:
        """All but the 1% of jobs that take longest under either policy; None if none is left."""
        tail = longest_jobs(self.today.job_results) | longest_jobs(self.proposed.job_results)
        pairs = tuple(pair for pair in self.all_jobs.pairs if pair.job.job_id not in tail)
        return PairedJobs("without the longest 1%", pairs) if pairs else None

    @cached_property
    def size_classes(self) -> tuple[PairedJobs, ...]:
        """The jobs by requested size; classes without any job are left out."""
        classes = []
        for least, most in SIZE_CLASSES:
            pairs = tuple(
                pair
                for pair in self.all_jobs.pairs
                if pair.job.workers >= least and (most is None or pair.job.workers <= most)
            )
            if pairs:
                classes.append(PairedJobs(_class_name(least, most), pairs))
        return tuple(classes)


def recorded_of(workload: Workload) -> Recorded | None:
    """Averages over the jobs of which it is recorded; None if it is of none."""
    records = [workload.records[spec.job_id] for spec in workload.jobs if spec.job_id in workload.records]
    waits = [record.wait_seconds for record in records if record.wait_seconds is not None]
    jcts = [record.jct_seconds for record in records if record.jct_seconds is not None]
    if not waits and not jcts:
        return None
    return Recorded(
        wait_jobs=len(waits),
        jct_jobs=len(jcts),
        avg_wait_seconds=_mean(waits),
        avg_jct_seconds=_mean(jcts),
        p99_jct_seconds=float(np.percentile(jcts, 99)) if jcts else None,
    )


def _mean(values: Sequence[float]) -> float | None:
    return math.fsum(values) / len(values) if values else None


def best_of(comparison: Comparison, results: Sequence[ReplayResult]) -> ReplayResult:
    """The one with the shortest average completion time; the first of equals."""
    return min(results, key=comparison.avg_jct_seconds)


def _class_name(least: int, most: int | None) -> str:
    if most is None:
        return f"{least} GPUs and more"
    return f"{least} GPU" if least == most == 1 else f"{least} to {most} GPUs"
