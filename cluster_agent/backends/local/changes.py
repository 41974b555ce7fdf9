"""Changes of running jobs to the sizes that were decided: what is given back first, then what it is given to.

A task's resources are free once its job's coordinator has acknowledged that it is gone, and not before: nothing is ever
given away twice. GPUs are used until its process has ended, which is waited for. A change that is not through in time
is given up and told; the others go on.

What is measured of a job in an interval begins once it holds what was decided; until then, and while it pauses for a
resize, it counts as paused.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import structlog

from cluster_agent.backends.local.job_processes import LocalMeasurement
from cluster_agent.backends.local.job_table import JobState, LocalJobRecord
from cluster_agent.backends.local.job_views import samples_per_epoch, steps_per_epoch
from cluster_agent.backends.local.running_jobs import RunningJobs
from elastic_runtime.control.messages import RequestOutcome
from elastic_runtime.protocol.plan import JobPhase
from policy_net.domain import MOST_SAMPLES_PER_WORKER_SECOND, SUSPENDED, Allocation, Decision, Job, Progress, Resources
from policy_net.errors import InvalidAllocation

_log = structlog.get_logger()


def demand(job: Job, allocation: Allocation) -> Resources:
    """What an allocation takes."""
    return job.worker_demand * allocation.workers + job.ps_demand * allocation.ps


def peak(job: Job, before: Allocation, after: Allocation) -> Resources:
    """Most that a job may take between two sizes: newcomers start before leavers have gone.

    All of its tasks share its cores; a GPU is one task's alone.
    """
    either, both = (demand(job, before), demand(job, after)), demand(job, before.most(after))
    return Resources(max(each.cpu_milli for each in either), both.gpu)


def check_decision(decision: Decision, jobs: Mapping[str, Job], total: Resources) -> None:
    """Refuse what was not asked about, or does not fit.

    Raises:
        InvalidAllocation: nothing has changed.
    """
    unknown = [name for name in decision.allocation if name not in jobs]
    if unknown:
        raise InvalidAllocation(f"{unknown[0]}: no job of that name was observed")
    taken = Resources(0)
    for name, job in jobs.items():
        desired = decision.of(name)
        if desired != SUSPENDED and (desired.workers > job.max_workers or desired.ps > job.max_ps):
            raise InvalidAllocation(f"{name}: {desired} is more than its {job.max_workers} workers, {job.max_ps} PSs")
        taken += demand(job, desired)
    if not taken.fits_in(total):
        raise InvalidAllocation(f"{taken} does not fit this machine's {total}")


@dataclass(frozen=True, slots=True)
class ChangeLimits:
    """Seconds after which a change is given up: of a running job, and of one that starts or goes on."""

    resize_seconds: float
    start_seconds: float


@dataclass(slots=True)
class LocalChange:
    """One job on its way from one size to another.

    Attributes:
        request_id: under which its coordinator is asked.
        requested: the size that it was asked for and does not have yet, which may be one on the way to `after`.
        lacking_seconds: since when it waits for what tasks of other jobs still use; None: it does not.
        leftover: size that it may still have of an earlier change; nothing once that is through.
        given_up: why `after` will not hold, in a line.
    """

    job: Job
    before: Allocation
    after: Allocation
    request_id: str
    requested: Allocation | None = None
    requested_seconds: float = 0.0
    lacking_seconds: float | None = None
    leftover: Allocation = SUSPENDED
    took: bool = False
    given_up: str = ""

    @property
    def over(self) -> bool:
        """Nothing more is waited for."""
        return self.took or bool(self.given_up)

    @property
    def takes(self) -> Resources:
        """What has to be kept for the job now."""
        return peak(self.job, self.most, self.before if self.requested is None else self.requested)

    @property
    def most(self) -> Allocation:
        """The most that it may have now, before anything more is asked for."""
        return self.before.most(self.leftover)

    @property
    def kept(self) -> Allocation:
        """What it has now and is to keep: where newcomers do not fit beside those who go, these go first."""
        return Allocation(min(self.before.workers, self.after.workers), min(self.before.ps, self.after.ps))


class Changes:
    """The changes of one decision, also of jobs that keep what they have; all jobs take at most `capacity`."""

    def __init__(
        self,
        changes: Mapping[str, LocalChange],
        jobs: RunningJobs,
        capacity: Resources,
        limits: ChangeLimits,
        clock: Callable[[], float],
    ) -> None:
        self._changes = changes
        self._jobs = jobs
        self._capacity = capacity
        self._limits = limits
        self._clock = clock

    @property
    def pending(self) -> bool:
        """Whether any is not over."""
        return any(not change.over for change in self._changes.values())

    def advance(self) -> list[LocalChange]:
        """Look how far each is, and ask for whatever there is capacity for; those that are over now."""
        pending = [change for change in self._changes.values() if not change.over]
        for change in pending:
            self._poll(change)
        # What each still has is known before anything is given to any.
        free = [change for change in pending if change.requested is None and not change.over]
        under_way = {change.job.job_id for change in free if self._poll_leftover(change)}
        for change in free:
            desired = self._next(change)
            if desired is None:
                continue
            # Whoever is just being suspended cannot be resumed yet.
            if change.before == SUSPENDED and desired.workers and change.job.job_id in under_way:
                continue
            # A coordinator that is being started can be asked for nothing yet.
            if desired != change.before and self._jobs.is_out_of_reach(change.job.job_id):
                continue
            if desired != change.before and self._lacks(change, desired):
                continue
            self._ask(change, desired)
        return [change for change in pending if change.over]

    def _next(self, change: LocalChange) -> Allocation | None:
        """The size to ask for now; None: it waits for the others to give something back."""
        for desired in (change.after, change.kept):
            if desired == change.before != change.after:
                continue  # nothing to give back first
            most = peak(change.job, change.most, desired)
            if most == change.takes:
                return desired  # it takes no more than it has
            others = [other.takes for other in self._changes.values() if other is not change]
            if sum(others, most).fits_in(self._capacity) and desired.workers:
                return desired
        return None

    def _lacks(self, change: LocalChange, desired: Allocation) -> bool:
        """Whether tasks that are gone for their coordinators still use what this needs; not for ever."""
        line = self._jobs.lacks(change.job.job_id, peak(change.job, change.most, desired))
        if not line:
            change.lacking_seconds = None
            return False
        now = self._clock()
        change.lacking_seconds = now if change.lacking_seconds is None else change.lacking_seconds
        if now - change.lacking_seconds > self._limits.resize_seconds:
            change.given_up = f"{line} after {self._limits.resize_seconds:g} s"
            _log.warning("resize-refused", job=change.job.job_id, request=change.request_id, line=change.given_up)
        return True

    def _ask(self, change: LocalChange, desired: Allocation) -> None:
        change.requested, change.requested_seconds = desired, self._clock()
        if desired == change.before:
            change.took = desired == SUSPENDED == change.leftover
            return
        on_the_way = "" if desired == change.after else "-first"
        name = change.job.job_id
        change.given_up = self._jobs.ask(
            name, change.request_id + on_the_way, desired, peak(change.job, change.most, desired)
        )
        if change.given_up:
            _log.warning("resize-refused", job=name, request=change.request_id, line=change.given_up)

    def _poll_leftover(self, change: LocalChange) -> bool:
        """See what a job still has of an earlier change; whether one is under way."""
        measured = self._jobs.measure(change.job.job_id)
        under_way = measured.current == measured.desired != measured.running
        change.leftover = measured.running.most(measured.desired) if under_way else SUSPENDED
        return under_way

    def _poll(self, change: LocalChange) -> None:
        if change.requested is None:
            return
        measured = self._jobs.measure(change.job.job_id)
        if measured.is_ending:
            change.given_up = "it is at its end"
            return
        if change.requested == SUSPENDED:
            has_it = measured.phase is JobPhase.SUSPENDED and measured.running == SUSPENDED
        else:
            has_it = measured.fresh and measured.phase is JobPhase.RUNNING and measured.running == change.requested
        if has_it:
            change.before, change.took = change.requested, change.requested == change.after
            change.requested, change.leftover = None, SUSPENDED
            self._jobs.shares.settle(change.job.job_id, demand(change.job, change.before))
            return
        row = next((row for row in measured.requests if row.request_id.startswith(change.request_id)), None)
        if row is not None and row.state is RequestOutcome.ABORTED:
            change.given_up = row.detail
        limit = self._limits.start_seconds if change.before == SUSPENDED else self._limits.resize_seconds
        if self._clock() - change.requested_seconds > limit:
            change.given_up = f"not through after {limit:g} s"
        if change.given_up:
            _log.warning("resize-given-up", job=change.job.job_id, wanted=str(change.after), line=change.given_up)


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
        if measured.phase is JobPhase.RUNNING and measured.running == job.current:
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
        if not change.took and (measured.phase is not JobPhase.RUNNING or measured.running != interval.allocation):
            interval.waits = True  # nothing trains: to measure it would be to learn that this size is slow
            return
        self._start(interval, measured)

    def poll(self) -> None:
        """Begin with those that were given up before they trained, and do now."""
        for name, interval in self._intervals.items():
            if interval.waits:
                measured = self._jobs.measure(name)
                if measured.phase is JobPhase.RUNNING and measured.running == interval.allocation:
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
            starting = change.requested is not None and change.requested.workers > 0 and not change.over
            size = change.requested if starting and change.requested is not None else interval.allocation
            return Progress(
                job.job_id,
                job.job_type,
                size,
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
        paused = max(0.0, whole - seconds)
        if not believed or (record is not None and record.file.fixed):
            # Nobody counts what it trains: no speed is to be learned from that, nor that it stands still all the time.
            paused = paused if record is not None and record.file.requeue and not finished else whole
            seconds = samples = 0.0
        return Progress(
            job.job_id,
            job.job_type,
            interval.allocation,
            seconds,
            samples,
            samples / job.samples_per_epoch,
            job.remaining_epochs,
            finished,
            paused,
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
