"""Workload of a decision log: the jobs that an agent scheduled, with the work that they really did, and their ends.

So another policy can be asked what it would have made of them, on machines like those, at the log's own speeds
(`--speeds decisions:PATH`). Jobs that had not ended when the log did count with what they said that they would do;
those that said nothing, or were taken away before their end, are left out, and a note says so. The work of a job that
ended and never counted a sample is the time that it ran, at the speed believed of what it had.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path

from foundation.figures import counted
from policy_net.domain import SUSPENDED, Allocation, Job, Resources
from policy_net.errors import BadInput, NothingRecorded
from policy_net.laboratory.logged import LoggedDecision, logged_decisions
from policy_net.laboratory.workloads.workload import JobRecord, Workload, WorkloadJob
from policy_net.throughput.parametric import OnlineFit

_LEAST_EPOCHS = 1e-6
_UNCOUNTED_SHARE = 0.1
"""Of a job's work that its intervals may lack."""


@dataclass(slots=True)
class _Seen:
    """One job, as the log shows it last.

    Attributes:
        since_samples: trained since the last state that shows it; `samples` likewise since the first.
        seconds_by_size: seconds with each allocation.
        finished: whether it was seen to end by itself, and `ended_seconds` when.
        reported: whether the log says what became of it after that.
    """

    job: Job
    since_samples: float = 0.0
    samples: float = 0.0
    seconds_by_size: dict[Allocation, float] = field(default_factory=dict)
    finished: bool = False
    ended_seconds: float | None = None
    present: bool = True
    reported: bool = False

    def add_time(self, allocation: Allocation, seconds: float) -> None:
        if allocation != SUSPENDED and seconds > 0.0:
            self.seconds_by_size[allocation] = self.seconds_by_size.get(allocation, 0.0) + seconds

    def show(self, job: Job) -> None:
        """Take what another state says; of a job that may have nothing any more, its sizes stay what they were."""
        if not job.max_workers:
            sizes = self.job
            job = replace(job, requested=sizes.requested, max_workers=sizes.max_workers, max_ps=sizes.max_ps)
        self.job, self.since_samples, self.present, self.reported = job, 0.0, True, False


@dataclass(frozen=True)
class RecordedJobs:
    """Jobs of a decision log.

    Attributes:
        workload: those whose work is known, in order of submission, with time from zero at the first.
        start_seconds: that zero, in the log's own time, as is `end_seconds`.
        jct_seconds: of those that ended, from submission to end, by their ids in the workload.
        capacities: what nodes had, and for how many seconds.
        slot_seconds: the longest time between two decisions.
        left_out: how many jobs are not in the workload.
        pause_seconds: the mean pause of a job that was started or resized, if any was seen.
    """

    workload: Workload
    start_seconds: float
    jct_seconds: Mapping[str, float]
    capacities: Mapping[tuple[Resources, ...], float]
    speeds: OnlineFit
    slot_seconds: float
    end_seconds: float
    left_out: int
    pause_seconds: float = 0.0

    @cached_property
    def usual_nodes(self) -> tuple[Resources, ...]:
        """What nodes had in the middle of the time in which there were any, by GPUs, then CPU."""
        passed = 0.0
        # A cluster that is let go of while nobody needs it has nothing then, which is not what jobs run on.
        with_capacity = {
            nodes: seconds for nodes, seconds in self.capacities.items() if _size(nodes) > (0, 0)
        } or self.capacities
        ordered = sorted(with_capacity.items(), key=lambda item: _size(item[0]))
        for nodes, seconds in ordered:
            passed += seconds
            if 2 * passed >= sum(with_capacity.values()):
                return nodes
        return ordered[-1][0]


def read_recorded(path: Path) -> RecordedJobs:
    """The jobs of a decision log, or of an agent's state directory, and what became of them.

    Raises:
        BadInput: it cannot be read.
        NothingRecorded: it shows no job whose work is known.
    """
    seen: dict[tuple[str, float], _Seen] = {}
    there: dict[str, _Seen] = {}
    capacities: dict[tuple[Resources, ...], float] = {}
    speeds = OnlineFit()
    pauses: list[float] = []
    before: LoggedDecision | None = None
    episodes = _Episodes()
    for logged in map(episodes.placed, logged_decisions(path)):
        pauses += [entry.paused_seconds for entry in logged.observed if entry.paused_seconds > 0.0]
        speeds.observe(logged.observed)
        speeds.introduce(logged.state.jobs)
        if before is not None:
            until = _end_of(before, logged) if episodes.just_began else logged.state.time_seconds
            _take_interval(before, logged, until, there, capacities)
        there = {}
        for known in seen.values():
            known.present = False
        for job in logged.state.jobs:
            # A job that was made again under its name is another one.
            key = (job.job_id, job.submit_time_seconds)
            if key in seen:
                seen[key].show(job)
            else:
                seen[key] = _Seen(job)
                seen[key].add_time(job.current, job.run_seconds)
            there[job.job_id] = seen[key]
        before = logged
    if before is None:
        raise BadInput(f"{path}: holds no decision")
    found = [(known, epochs) for known in seen.values() if (epochs := _epochs(known, speeds)) is not None]
    if not found:
        raise NothingRecorded(f"{path}: shows no job whose work is known; wait until one has ended")
    found.sort(key=lambda item: item[0].job.submit_time_seconds)
    start = found[0][0].job.submit_time_seconds
    names = _names([known.job.job_id for known, _ in found])
    jobs = [_spec(name, known.job, epochs, start) for name, (known, epochs) in zip(names, found, strict=True)]
    state = before.state
    capacities.setdefault(tuple(node.capacity for node in state.nodes), 0.0)
    left_out = len(seen) - len(found)
    ended = {
        name: max(0.0, known.ended_seconds - known.job.submit_time_seconds)
        for name, (known, _) in zip(names, found, strict=True)
        if known.ended_seconds is not None
    }
    workload = Workload(
        path.resolve().name,
        tuple(jobs),
        _notes(len(jobs), left_out, before, episodes.count),
        suggested_nodes=len(state.nodes),
        slotted=False,
        records={
            job.job_id: JobRecord(job.requested.workers * job.worker_demand.gpu, jct_seconds=ended.get(job.job_id))
            for job in jobs
        },
    )
    pause_seconds = sum(pauses) / len(pauses) if pauses else 0.0
    return RecordedJobs(
        *(workload, start, ended, capacities, speeds, state.slot_seconds, state.time_seconds, left_out, pause_seconds)
    )


@dataclass
class _Episodes:
    """Episodes of a simulated cluster, whose clock begins anew with each, on one clock.

    After each comes as much time without jobs as it took, so that what takes longer does not run into the next.
    `just_began`: the decision that was placed last is an episode's first, but not the log's.
    """

    count: int = 1
    just_began: bool = False
    _shift_seconds: float = 0.0
    _began_seconds: float | None = None
    _before: LoggedDecision | None = None

    def placed(self, logged: LoggedDecision) -> LoggedDecision:
        """The decision with its times on the one clock."""
        before, slot = self._before, logged.state.slot_seconds
        time = logged.state.time_seconds + self._shift_seconds
        self.just_began = before is not None and time < before.state.time_seconds - slot
        if before is not None and self.just_began:
            ended = _end_of(before, logged)
            took = ended - (before.state.time_seconds if self._began_seconds is None else self._began_seconds)
            self._shift_seconds = ended + took - logged.state.time_seconds
            self.count += 1
        shifted = _later(logged, self._shift_seconds)
        if self.just_began or self._began_seconds is None:
            self._began_seconds = shifted.state.time_seconds
        self._before = shifted
        return shifted


def _end_of(before: LoggedDecision, logged: LoggedDecision) -> float:
    """When an episode ended: its last interval took as long as the job that was seen longest in it."""
    took = [entry.paused_seconds + entry.seconds for entry in logged.observed]
    return before.state.time_seconds + (max(took) if any(took) else before.state.slot_seconds)


def _later(logged: LoggedDecision, seconds: float) -> LoggedDecision:
    if not seconds:
        return logged
    state = logged.state
    jobs = tuple(replace(job, submit_time_seconds=job.submit_time_seconds + seconds) for job in state.jobs)
    return replace(logged, state=replace(state, time_seconds=state.time_seconds + seconds, jobs=jobs))


def _take_interval(
    before: LoggedDecision,
    logged: LoggedDecision,
    ended: float,
    there: dict[str, _Seen],
    capacities: dict[tuple[Resources, ...], float],
) -> None:
    """What jobs did between two decisions, and what nodes there were, until `ended`."""
    began = before.state.time_seconds
    seconds = max(0.0, ended - began)
    nodes = tuple(node.capacity for node in before.state.nodes)
    capacities[nodes] = capacities.get(nodes, 0.0) + seconds
    of_state = {job.job_id: job for job in before.state.jobs}
    for entry in logged.observed:
        known, job = there.get(entry.job_id), of_state.get(entry.job_id)
        if known is None or job is None:
            continue
        known.since_samples += entry.samples
        known.samples += entry.samples
        known.reported = True
        known.add_time(entry.allocation, seconds)
        if entry.finished:
            known.finished = True
            until = began + entry.paused_seconds + entry.seconds if entry.seconds > 0.0 else ended
            # Of a job that may have nothing any more the end was seen before this interval.
            known.ended_seconds = min(until, ended) if job.max_workers else began


def _epochs(known: _Seen, speeds: OnlineFit) -> float | None:
    """All the work of a job; None where nobody knows it."""
    job = known.job
    if not job.max_workers:
        return None  # it never might have anything
    done = max(0.0, job.total_epochs - job.remaining_epochs) + known.since_samples / job.samples_per_epoch
    if not job.work_known and not known.samples and known.finished and known.seconds_by_size:
        ran = sum(
            seconds * speeds.samples_per_second(job.job_type, size.ps, size.workers)
            for size, seconds in known.seconds_by_size.items()
        )
        return max(ran / job.samples_per_epoch, _LEAST_EPOCHS)
    if known.finished:
        # What a job trains while it is being resized is in no interval: what it said stands where that explains it.
        declared = job.work_known and abs(job.total_epochs - done) <= _UNCOUNTED_SHARE * job.total_epochs
        return job.total_epochs if declared else max(done, _LEAST_EPOCHS)
    return job.total_epochs if (known.present or not known.reported) and job.work_known else None


def _names(job_ids: list[str]) -> list[str]:
    """Ids that are each used once: further jobs of one id have a number."""
    times: dict[str, int] = {}
    names = []
    for job_id in job_ids:
        times[job_id] = times.get(job_id, 0) + 1
        names.append(job_id if times[job_id] == 1 else f"{job_id} ({times[job_id]})")
    return names


def _notes(jobs: int, left_out: int, last: LoggedDecision, episodes: int) -> tuple[str, ...]:
    nodes = [node.capacity for node in last.state.nodes]
    notes = [f"{jobs} jobs of a decision log, with the work that they did, time from the first"]
    if nodes:
        largest = max(nodes, key=lambda node: (node.gpu, node.cpu_milli))
        notes.append(
            f"decided on {counted(len(nodes), 'node')} of {largest.cpu_milli / 1000:g} CPU and {largest.gpu} GPU, every"
            f" {last.state.slot_seconds:g} s: say so with --cpus-per-node {max(1, math.ceil(largest.cpu_milli / 1000))}"
            f" --gpus-per-node {largest.gpu} --slot-seconds {max(1.0, last.state.slot_seconds):g}"
        )
    if episodes > 1:
        notes.append(
            f"{episodes} episodes of a simulated cluster, one after the other, each followed by as much time without"
            " jobs"
        )
    if left_out:
        notes.append(f"{left_out} jobs left out: they were taken away, or had not ended and said nothing of their work")
    return tuple(notes)


def _size(nodes: tuple[Resources, ...]) -> tuple[int, int]:
    return sum(node.gpu for node in nodes), sum(node.cpu_milli for node in nodes)


def _spec(name: str, job: Job, epochs: float, start: float) -> WorkloadJob:
    return WorkloadJob(
        job_id=name,
        job_type=job.job_type,
        submit_time_seconds=job.submit_time_seconds - start,
        total_epochs=epochs,
        samples_per_epoch=job.samples_per_epoch,
        worker_demand=job.worker_demand,
        ps_demand=job.ps_demand,
        requested=job.requested,
        max_workers=job.max_workers,
        max_ps=job.max_ps,
        declared_epochs=job.total_epochs if job.work_known else None,
        kind=job.kind,
        min_workers=job.min_workers,
        min_ps=job.min_ps,
        work_known=job.work_known,
    )
