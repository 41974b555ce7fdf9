"""Metrics of a simulation: ends and slowdowns of jobs, GPUs held and wasted, and the cluster's load over time.

Job completion time (JCT) is end minus submission, so waiting counts.
Source: bounded slowdown after Feitelson and others, as in the HPC scheduling literature, with a bound of ten minutes.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Collection, Mapping, Sequence
from dataclasses import asdict, dataclass
from itertools import accumulate

import numpy as np
from numpy.typing import NDArray

from policy_net.domain import Progress, SpeedModel
from policy_net.laboratory.simulation.environment import kept_for_the_latest
from policy_net.laboratory.workloads.workload import Workload, WorkloadJob

SLOWDOWN_BOUND_SECONDS = 600.0
"""Shorter jobs count as this long, so that a wait of minutes before a job of seconds is no slowdown of hundreds."""
STARVING_DURATIONS = 10.0
STARVING_SECONDS = 3600.0
"""A job starves if it goes without training for longer than ten times its duration, and for longer than an hour."""
TAIL_SHARE = 0.01
"""The share of longest jobs that can make up most of a mean."""


@dataclass(frozen=True, slots=True)
class JobOutcome:
    """When one job was submitted, first held a usable allocation, and ended; None for what has not happened."""

    job_id: str
    submit_seconds: float
    start_seconds: float | None
    end_seconds: float | None

    @property
    def jct_seconds(self) -> float | None:
        """Completion time, or None while unfinished."""
        return None if self.end_seconds is None else self.end_seconds - self.submit_seconds

    @property
    def wait_seconds(self) -> float | None:
        """From submission to the first start, or None before it."""
        return None if self.start_seconds is None else self.start_seconds - self.submit_seconds


@dataclass(slots=True)
class RunCounters:
    """What adds up over a simulation.

    Attributes:
        unusable_allocations: times a job held tasks, but fewer than it trains with (workers without a PS, say).
        trimmed_tasks: tasks that a decision asked for and no node had capacity for.
        gpu_seconds: GPUs allocated, times the seconds until the job's end, the next decision, or their node's loss.
            Under slot decisions what a job leaves at its end counts until the next slot, in which it idles.
        available_gpu_seconds: GPUs of nodes that were up, over the time from zero to `allocated_until_seconds`.
        resizes: times a job went on with another number of tasks.
        resumes: times a job started again, after a suspension or the loss of a node.
        pause_seconds: time that jobs held their tasks and did not train because of a resize or a resumption, summed.
        lost_training_seconds: training that was lost with nodes, since the jobs' last checkpoints.
    """

    decisions: int = 0
    unusable_allocations: int = 0
    trimmed_tasks: int = 0
    gpu_seconds: float = 0.0
    available_gpu_seconds: float = 0.0
    allocated_until_seconds: float = 0.0
    resizes: int = 0
    resumes: int = 0
    pause_seconds: float = 0.0
    lost_training_seconds: float = 0.0

    def gpu_utilization(self) -> float | None:
        """Share of the available GPU-seconds that were allocated; None without GPUs, or before the first decision."""
        return self.share_of_gpu_time(self.gpu_seconds)

    def share_of_gpu_time(self, gpu_seconds: float) -> float | None:
        """So many GPU-seconds as a share of those that were available; None if none were."""
        return gpu_seconds / self.available_gpu_seconds if self.available_gpu_seconds else None

    def to_json(self) -> dict[str, float]:
        """All counters by name."""
        return asdict(self)


@dataclass(frozen=True, slots=True)
class JctSummary:
    """Completion times of the jobs that completed; None where none did. Waits are those until their first start."""

    completed: int
    avg_jct_seconds: float | None
    p99_jct_seconds: float | None
    max_jct_seconds: float | None
    makespan_seconds: float | None
    avg_wait_seconds: float | None = None


def summarise(outcomes: Sequence[JobOutcome]) -> JctSummary:
    """Summarise the completed jobs; the 99th percentile is linearly interpolated, the makespan counts from time 0."""
    ends = [outcome.end_seconds for outcome in outcomes if outcome.end_seconds is not None]
    if not ends:
        return JctSummary(0, None, None, None, None)
    jcts = np.array([outcome.jct_seconds for outcome in outcomes if outcome.end_seconds is not None])
    waits = [
        outcome.wait_seconds
        for outcome in outcomes
        if outcome.end_seconds is not None and outcome.wait_seconds is not None
    ]
    return JctSummary(
        completed=len(ends),
        avg_jct_seconds=float(jcts.mean()),
        p99_jct_seconds=float(np.percentile(jcts, 99)),
        max_jct_seconds=float(jcts.max()),
        makespan_seconds=max(ends),
        avg_wait_seconds=math.fsum(waits) / len(waits) if waits else None,
    )


@dataclass(frozen=True, slots=True)
class JobResult:
    """One job of a finished replay.

    Attributes:
        workers: how many the user asked for; of GPU jobs, the GPUs.
        alone_seconds: how long it trains undisturbed at the requested size: the recorded duration of a real trace. None
            where it makes no progress at that size.
        longest_gap_seconds: the longest time in the system without training, the wait for the first start included.
    """

    job_id: str
    workers: int
    alone_seconds: float | None
    jct_seconds: float | None
    longest_gap_seconds: float

    @property
    def bounded_slowdown(self) -> float | None:
        """Completion time over the time alone (at least ten minutes), at least 1; None if either is unknown."""
        if self.jct_seconds is None or self.alone_seconds is None:
            return None
        return max(1.0, self.jct_seconds / max(self.alone_seconds, SLOWDOWN_BOUND_SECONDS))

    @property
    def starved(self) -> bool:
        """Whether it waited at a stretch for more than ten times its duration, and more than an hour."""
        alone = self.alone_seconds or 0.0
        return self.longest_gap_seconds > max(STARVING_DURATIONS * alone, STARVING_SECONDS)


@dataclass(frozen=True, slots=True)
class JobSummary:
    """Figures over the jobs of one replay; None where no job has the value. The tail is the 1% that took longest."""

    avg_bounded_slowdown: float | None
    p99_bounded_slowdown: float | None
    starved_jobs: int
    avg_jct_without_tail_seconds: float | None


class TrainingWatch:
    """Training of every job, as progress reports show it; keeps two numbers a job, however many decisions.

    Attributes:
        training_gpu_seconds: GPUs times the seconds in which their job made progress; without what is granted and
            idles.
    """

    def __init__(self, workload: Workload) -> None:
        self.training_gpu_seconds = 0.0
        self._gpus = {spec.job_id: (spec.worker_demand.gpu, spec.ps_demand.gpu) for spec in workload.jobs}
        self._trained_until = {spec.job_id: spec.submit_time_seconds for spec in workload.jobs}
        self._longest_gap = dict.fromkeys(self._trained_until, 0.0)

    def on_progress(self, time_seconds: float, progress: Sequence[Progress]) -> None:
        """Take in what happened after the decision at `time_seconds`."""
        for entry in progress:
            if entry.epochs <= 0:
                continue
            job_id = entry.job_id
            gap = time_seconds - self._trained_until[job_id]
            self._longest_gap[job_id] = max(self._longest_gap[job_id], gap)
            self._trained_until[job_id] = time_seconds + entry.paused_seconds + entry.seconds
            by_worker, by_ps = self._gpus[job_id]
            gpus = entry.allocation.workers * by_worker + entry.allocation.ps * by_ps
            self.training_gpu_seconds += gpus * entry.seconds

    @property
    def longest_gaps(self) -> Mapping[str, float]:
        """By job, the longest time in seconds from its submission to its latest training in which it did not train."""
        return self._longest_gap


def alone_seconds(spec: WorkloadJob, speeds: SpeedModel) -> float | None:
    """How long the job trains undisturbed at the requested size; None if it makes no progress there."""
    speed = speeds.samples_per_second(spec.trains_as, spec.requested.ps, spec.requested.workers)
    return spec.total_epochs * spec.samples_per_epoch / speed if speed > 0 else None


def job_results(
    workload: Workload, speeds: SpeedModel, outcomes: Sequence[JobOutcome], longest_gaps: Mapping[str, float]
) -> tuple[JobResult, ...]:
    """What every job went through, in the workload's order."""
    return tuple(
        JobResult(
            spec.job_id,
            spec.requested.workers,
            alone,
            outcome.jct_seconds,
            longest_gaps[spec.job_id],
        )
        for spec, alone, outcome in zip(workload.jobs, _all_alone(workload, speeds), outcomes, strict=True)
    )


@kept_for_the_latest
def _all_alone(workload: Workload, speeds: SpeedModel) -> Sequence[float | None]:
    return [alone_seconds(spec, speeds) for spec in workload.jobs]


def longest_jobs(results: Sequence[JobResult]) -> frozenset[str]:
    """The ids of the share of completed jobs with the longest completion times, rounded up to whole jobs."""
    done = [(result.jct_seconds, result.job_id) for result in results if result.jct_seconds is not None]
    return frozenset(job_id for _, job_id in sorted(done, reverse=True)[: math.ceil(TAIL_SHARE * len(done))])


def mean_jct_seconds(results: Sequence[JobResult], without: Collection[str] = ()) -> float | None:
    """The mean completion time of the completed jobs but those named; None if no job is left."""
    jcts = [result.jct_seconds for result in results if result.jct_seconds is not None and result.job_id not in without]
    return math.fsum(jcts) / len(jcts) if jcts else None


def summarise_jobs(results: Sequence[JobResult]) -> JobSummary:
    """Summarise over the jobs that have the value; the percentile is linearly interpolated."""
    slowdowns = [result.bounded_slowdown for result in results if result.bounded_slowdown is not None]
    return JobSummary(
        avg_bounded_slowdown=math.fsum(slowdowns) / len(slowdowns) if slowdowns else None,
        p99_bounded_slowdown=float(np.percentile(slowdowns, 99)) if slowdowns else None,
        starved_jobs=sum(result.starved for result in results),
        avg_jct_without_tail_seconds=mean_jct_seconds(results, longest_jobs(results)),
    )


NEARLY_ALL = 0.95
"""Share of the jobs with whose end a picture ends: the last few may run alone for days, which says little."""

Timeline = Mapping[str, Sequence[tuple[float, int, int]]]
"""Job to (seconds, workers, PSs) at every change of its tasks; the last entry is its end."""


@dataclass(frozen=True, slots=True)
class Load:
    """One cluster's load under one policy.

    Attributes:
        seconds: moments of changes, rising.
        used, waiting: GPUs in use and jobs that wait from each of them to the next; none before the first.
        ends: when each job ended, rising.
    """

    gpus: int
    seconds: Sequence[float]
    used: Sequence[int]
    waiting: Sequence[int]
    ends: Sequence[float]

    def at(self, seconds: float) -> tuple[int, int]:
        """GPUs in use and jobs that wait at one moment."""
        index = bisect_right(self.seconds, seconds) - 1
        return (0, 0) if index < 0 else (self.used[index], self.waiting[index])

    def idle_while_waiting_gpu_seconds(self) -> float:
        """GPU-seconds that nobody held while at least one job waited."""
        idle = np.maximum(self.gpus - np.array(self.used), 0) * (np.array(self.waiting) > 0)
        return float((idle * np.diff([*self.seconds, self.ends[-1]])).sum())

    def means(
        self, steps: int, begin_seconds: float = 0.0, end_seconds: float | None = None
    ) -> tuple[list[float], list[float]]:
        """GPUs in use and jobs that wait, on average over each of so many equal parts of a time; up to the last end."""
        last = self.ends[-1]
        bounds = np.linspace(begin_seconds, last if end_seconds is None else end_seconds, steps + 1)
        times = [*self.seconds, last]
        return _means(times, self.used, bounds), _means(times, self.waiting, bounds)


def _means(times: Sequence[float], values: Sequence[int], bounds: NDArray[np.float64]) -> list[float]:
    """Of a value from each time to the next, over each part between two bounds; zero before the first time."""
    areas = np.concatenate([[0.0], np.cumsum(np.diff(times) * values)])
    means: list[float] = (np.diff(np.interp(bounds, times, areas)) / np.diff(bounds)).tolist()
    return means


def nearly_done(ends: Sequence[float]) -> float:
    """When nearly all jobs had ended, given the ends of all of them, in any order."""
    return sorted(ends)[math.ceil(NEARLY_ALL * len(ends)) - 1]


def load_of(workload: Workload, gpus: int, timeline: Timeline) -> Load:
    """Load of a replay: a job waits from its submission to its end whenever it holds nothing."""
    changes: list[tuple[float, int, int]] = []
    for job in workload.jobs:
        # A decision at the start of a slot is noted with the slot's beginning, also for a job that came in it.
        sizes = [(job.submit_time_seconds, 0, 0)]
        sizes += [(max(at, job.submit_time_seconds), workers, ps) for at, workers, ps in timeline[job.job_id]]
        used = [workers * job.worker_demand.gpu + ps * job.ps_demand.gpu for _, workers, ps in sizes]
        waits = [int(not workers and not ps) for _, workers, ps in sizes]
        waits[-1] = 0
        for index, (seconds, _, _) in enumerate(sizes):
            before = (used[index - 1], waits[index - 1]) if index else (0, 0)
            changes.append((seconds, used[index] - before[0], waits[index] - before[1]))
    return _of_changes(changes, gpus, [sizes[-1][0] for sizes in timeline.values()])


def recorded_load(workload: Workload, gpus: int) -> Load | None:
    """Load as it was recorded; None unless start and end of each job are. It may go beyond the simulated `gpus`."""
    changes: list[tuple[float, int, int]] = []
    ends: list[float] = []
    for job in workload.jobs:
        record = workload.records.get(job.job_id)
        if record is None or record.wait_seconds is None or record.jct_seconds is None:
            return None
        submitted, took = job.submit_time_seconds, max(record.jct_seconds, record.wait_seconds)
        ends.append(submitted + took)
        changes += [
            (submitted, 0, 1),
            (submitted + record.wait_seconds, record.gpus, -1),
            (submitted + took, -record.gpus, 0),
        ]
    return _of_changes(changes, gpus, ends)


def _of_changes(changes: list[tuple[float, int, int]], gpus: int, ends: Sequence[float]) -> Load:
    changes.sort()
    return Load(
        gpus=gpus,
        seconds=[seconds for seconds, _, _ in changes],
        used=list(accumulate(change for _, change, _ in changes)),
        waiting=list(accumulate(change for _, _, change in changes)),
        ends=sorted(ends),
    )
