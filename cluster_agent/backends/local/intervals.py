"""Intervals between two decisions: what each job trained in one, measured with what it held by then.

What is measured of a job begins once it holds what was decided; until then, and while it pauses for a resize, it counts
as paused.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import structlog

from cluster_agent.backends.local.changes import LocalChange
from cluster_agent.backends.local.job_table import JobState, LocalJobRecord
from cluster_agent.backends.local.job_views import samples_per_epoch, steps_per_epoch
from cluster_agent.backends.local.measured import LocalMeasurement
from cluster_agent.backends.local.running_jobs import RunningJobs
from elastic_runtime.protocol.plan import JobPhase
from policy_net.domain import MOST_SAMPLES_PER_WORKER_SECOND, SUSPENDED, Allocation, Job, Progress

_log = structlog.get_logger()
_GPU_SECONDS_PER_CPU_SECOND = 100.0
_TICK_SECONDS = 0.01
"""The system counts processor time in these."""


@dataclass(slots=True)
class _Interval:
    """One job between two decisions.

    Attributes:
        allocation: that it holds in the measured part, which begins at `since_seconds` (None: not yet).
        samples, stall_seconds, cpu_seconds: by then; `cpu_seconds` is None where nobody needs to know.
        waits: whether it is measured as soon as it trains, without another size.
    """

    job: Job
    allocation: Allocation
    since_seconds: float | None = None
    samples: float = 0.0
    stall_seconds: float = 0.0
    cpu_seconds: float | None = None
    waits: bool = False


class Intervals:
    """All jobs between two decisions, from now on; `offset_seconds` leads from the clock to Unix seconds."""

    def __init__(self, jobs: RunningJobs, clock: Callable[[], float], offset_seconds: float) -> None:
        self._jobs = jobs
        self._clock = clock
        self._offset_seconds = offset_seconds
        self._decided_seconds = clock()
        self._intervals: dict[str, _Interval] = {}

    def begin(self, job: Job) -> None:
        """What a job has is measured until it has something else."""
        interval = _Interval(job, job.current)
        measured = self._jobs.latest(job.job_id)
        if measured.phase is JobPhase.RUNNING and measured.held == job.current:
            interval.since_seconds = self._decided_seconds
            interval.samples, interval.stall_seconds = measured.samples, measured.stall_seconds
            interval.cpu_seconds = self._jobs[job.job_id].cpu_seconds()
        self._intervals[job.job_id] = interval

    def on_change_over(self, change: LocalChange) -> None:
        """The change took hold, or was given up: what the job has from now on is measured."""
        name = change.job.job_id
        interval = self._intervals[name]
        if change.took:
            interval.allocation = change.after
            if change.after == SUSPENDED:
                self._jobs.on_suspended(name)
        measured = self._jobs.measure(name)
        if interval.since_seconds is not None and not change.took:
            return  # it goes on with what it has
        if not change.took and (measured.phase is not JobPhase.RUNNING or measured.held != interval.allocation):
            interval.waits = True  # nothing trains: to measure it would be to learn that this size is slow
            return
        self._start(interval, measured)

    def poll(self) -> None:
        """Begin with those that were given up before they trained, and do now."""
        for name, interval in self._intervals.items():
            if interval.waits:
                measured = self._jobs.measure(name)
                if measured.phase is JobPhase.RUNNING and measured.held == interval.allocation:
                    self._start(interval, measured)

    def _start(self, interval: _Interval, measured: LocalMeasurement) -> None:
        interval.waits = False
        interval.since_seconds = self._clock()
        interval.samples, interval.stall_seconds = measured.samples, measured.stall_seconds
        interval.cpu_seconds = self._jobs[interval.job.job_id].cpu_seconds()

    def progress(self, change: LocalChange) -> Progress:
        """What a job did; to be asked once, as the job's own sums grow by it."""
        interval = self._intervals[change.job.job_id]
        job, now = interval.job, self._clock()
        record = self._jobs.table.get(job.job_id)
        if record is not None and record.submitted_unix_seconds != job.submit_time_seconds:
            record = None  # it was deleted, and another one has its name
        if record is not None and record.state.ended:
            now = min(now, record.ended_unix_seconds - self._offset_seconds)
        whole = max(0.0, now - self._decided_seconds)
        finished = record is None or record.state is JobState.DONE
        if interval.since_seconds is None or not interval.allocation.workers:
            starting = change.asked is not None and change.asked.workers > 0 and not change.over
            held = change.asked if starting and change.asked is not None else interval.allocation
            return Progress(
                job.job_id,
                job.job_type,
                held,
                0.0,
                0.0,
                0.0,
                job.remaining_epochs,
                finished,
                whole if starting else 0.0,
            )
        measured = LocalMeasurement() if record is None else self._jobs.measure(job.job_id)
        stalled = max(0.0, measured.stall_seconds - interval.stall_seconds)
        seconds = max(0.0, now - interval.since_seconds - stalled)
        samples = max(0.0, measured.samples - interval.samples)
        believed = record is None or self._is_believed(interval, record, samples, seconds)
        if record is not None and believed:
            self._jobs.table.change(
                job.job_id,
                run_seconds=record.run_seconds + seconds,
                samples=max(record.samples, measured.samples),
                samples_per_epoch=samples_per_epoch(record, measured),
                steps_per_epoch=steps_per_epoch(record, measured),
                total_epochs=measured.total_epochs or record.total_epochs,
            )
        if not believed or (record is not None and record.file.fixed):
            seconds = samples = 0.0  # nobody counts what it trains: no speed is to be learned from that
        return Progress(
            job.job_id,
            job.job_type,
            interval.allocation,
            seconds,
            samples,
            samples / job.samples_per_epoch,
            job.remaining_epochs,
            finished,
            max(0.0, whole - seconds),
        )

    def _is_believed(self, interval: _Interval, record: LocalJobRecord, samples: float, seconds: float) -> bool:
        """Whether a job's processes can have trained what its script alone says, by the processor time that they used.

        No device trains without a processor that feeds it, but a GPU needs it for a small part of the time.
        """
        before, workers = interval.cpu_seconds, interval.allocation.workers
        now = None if before is None else self._jobs[record.name].cpu_seconds()
        worked = seconds * workers
        if before is not None and now is not None and now >= before:  # else a process has ended meanwhile
            worked = min(worked, (now - before) * (_GPU_SECONDS_PER_CPU_SECOND if record.file.worker.gpu else 1))
        most = MOST_SAMPLES_PER_WORKER_SECOND * max(worked, _TICK_SECONDS)
        if samples > most:
            _log.warning(
                "progress-impossible",
                job=record.name,
                samples=samples,
                seconds=seconds,
                cpu_seconds=None if before is None or now is None else round(now - before, 2),
                meaning="its processes cannot have trained so much; nothing is learned of its speed",
            )
        return samples <= most
