"""Local backend: this machine as a cluster, whose jobs are real processes that outlive the agent.

What a job has trained is what its coordinator counted, never what it declares. A decision is carried out while the
interval runs; the interval of a job begins once it holds what was decided.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import structlog

from cluster_agent.backend_settings import BackendSettings, LocalBackendSettings, default_socket
from cluster_agent.backends.base import AgentParts, BackendStatus
from cluster_agent.backends.local.changes import Change, Changes, demand
from cluster_agent.backends.local.elastic_job import ElasticJob, Launchers, Measured
from cluster_agent.backends.local.job_service import JobDesk, JobServer
from cluster_agent.backends.local.job_table import JobRecord, JobState, JobTable
from cluster_agent.backends.local.machine import this_node
from cluster_agent.errors import BackendUnavailable, BadConfig
from elastic_runtime.protocol.plan import Phase
from policy_net.domain import (
    SUSPENDED,
    Allocation,
    CapacityMode,
    ClusterState,
    Decision,
    Job,
    Node,
    Progress,
    Resources,
    Trigger,
)
from policy_net.errors import InvalidAllocation

_log = structlog.get_logger()
_LOOK_SECONDS = 0.1
"""Between two looks at what is under way; at what only trains five times as long."""
_GUESSED_SAMPLES_PER_EPOCH = 10_000.0
"""Until the first sample of a job, and of all jobs of its type, was counted."""
_FAILED_STARTS = 3


def resolve_paths(settings: LocalBackendSettings, folder: Path) -> LocalBackendSettings:
    """The settings with the socket's path taken from the folder; see `BackendModule`."""
    return settings if settings.socket is None else settings.model_copy(update={"socket": folder / settings.socket})


def open_backend(settings: BackendSettings, parts: AgentParts) -> LocalBackend:
    """This machine, with the jobs that were submitted before; see `BackendModule`."""
    if not isinstance(settings, LocalBackendSettings):
        raise BadConfig(f"setting backend.kind = {settings.kind}: is not this machine")
    node = this_node(settings)
    try:
        table = JobTable(parts.state_dir / "submitted")
    except OSError as error:
        raise BadConfig(
            f"setting state_dir: {parts.state_dir / 'submitted'} cannot be used ({error.strerror})"
        ) from error
    return LocalBackend(settings, parts, table, node, time.time)


@dataclass(slots=True)
class _Interval:
    """One job between two decisions.

    Attributes:
        job: as it was observed.
        allocation: that it holds in the part that is measured.
        since_seconds: from when on; None: not yet.
        samples: that had been counted by then, and `stall_seconds` likewise.
    """

    job: Job
    allocation: Allocation
    since_seconds: float | None = None
    samples: float = 0.0
    stall_seconds: float = 0.0


class LocalBackend:
    """This machine; a `Backend`.

    Args:
        settings: of the backend.
        parts: of the agent.
        table: the jobs that were submitted.
        node: what they may have.
        unix_clock: the time of day in seconds.
    """

    def __init__(
        self,
        settings: LocalBackendSettings,
        parts: AgentParts,
        table: JobTable,
        node: Node,
        unix_clock: Callable[[], float],
    ) -> None:
        self.table = table
        self._settings = settings
        self._parts = parts
        self._node = node
        # A clock that is set back must not make an interval negative.
        self._offset_seconds = unix_clock() - parts.clock()
        self._launchers = Launchers()
        self._processes: dict[str, ElasticJob] = {}
        self._measured: dict[str, Measured] = {}
        self._failed_starts: dict[str, int] = {}
        self._observed: tuple[ClusterState, Trigger] | None = None
        self._decided_seconds = -settings.debounce_seconds
        self._known: frozenset[tuple[str, bool, bool]] = frozenset()
        self._server: JobServer | None = None

    @property
    def finished(self) -> bool:
        """Never: somebody may submit a job."""
        return False

    @property
    def time_seconds(self) -> float:
        """Unix seconds, which never go back."""
        return self._offset_seconds + self._parts.clock()

    @property
    def baseline_policy(self) -> str:
        """None: real jobs are not run twice."""
        return ""

    @property
    def job_types(self) -> Sequence[str]:
        """All types that were submitted."""
        return list(dict.fromkeys(record.file.model_type for record in self.table))

    def start(self) -> None:
        """Begin to answer users.

        Raises:
            BadConfig: nobody can listen on the socket.
        """
        desk = JobDesk(self.table, self._node.capacity, self.facts, lambda: self.time_seconds)
        self._server = JobServer(self._settings.socket or default_socket(os.environ), desk)

    def facts(self, record: JobRecord) -> dict[str, object]:
        """A job as users see it; may be called from any thread."""
        measured = self._measured.get(record.name, Measured())
        running = record.state is JobState.RUNNING
        until = record.ended_unix_seconds or self.time_seconds
        total, known = self._declared_epochs(record, measured)
        per_epoch = measured.samples_per_epoch or record.samples_per_epoch
        samples = max(measured.samples, record.samples)
        progress = min(1.0, samples / per_epoch / total) if known and per_epoch else None
        if record.state is JobState.DONE:
            progress = 1.0
        note = record.failure or ("to be cancelled" if record.cancelling and not record.state.ended else "")
        return {
            "name": record.name,
            "modelType": record.file.model_type,
            "state": "held" if record.held and not running and not record.state.ended else record.state.value,
            "workers": measured.held.workers if running else 0,
            "ps": measured.held.ps if running else 0,
            "progress": progress,
            "waitedSeconds": (record.started_unix_seconds or until) - record.submitted_unix_seconds,
            "runSeconds": record.run_seconds,
            "ageSeconds": until - record.submitted_unix_seconds,
            "samples": samples,
            "ended": record.state.ended,
            "held": record.held,
            "logs": str(self._process(record).log_folder),
            "note": note or (f"phase {measured.phase.value}" if running and measured.phase is not None else ""),
        }

    def observe(self) -> tuple[ClusterState, Trigger] | None:
        """See `Backend.observe`; waits as long as there is nothing to decide about."""
        while self._observed is None:
            if self._parts.wait(0.0):
                return None
            self._look_at_ends()
            if self._jobs_to_schedule():
                trigger = self._trigger()
                self._observed = (self._state(), trigger)
            elif self._parts.wait(_LOOK_SECONDS):
                return None
        return self._observed

    def apply(self, decision: Decision) -> list[Progress]:
        """See `Backend.apply`; the changes are under way while the interval runs."""
        if self._observed is None:
            raise BackendUnavailable("nothing was observed that this decision could be about")
        state, _ = self._observed
        jobs = {job.job_id: job for job in state.jobs}
        self._check(decision, jobs, state.total)
        self._observed = None
        self._decided_seconds = self._parts.clock()
        stamp = f"{int(state.time_seconds * 1000):x}"
        changes = {
            name: Change(job, job.current, decision.of(name), f"decision-{stamp}-{name}") for name, job in jobs.items()
        }
        intervals = {name: _Interval(job, job.current) for name, job in jobs.items()}
        running = Changes(
            changes,
            self._processes,
            state.total,
            self._settings.resize_seconds,
            self._settings.start_seconds,
            self._parts.clock,
        )
        self._wait_until_due(running, changes, intervals)
        return [self._progress(intervals[name], changes[name]) for name in jobs]

    def status(self) -> BackendStatus:
        """How the jobs stand now."""
        records = list(self.table)
        done = [record for record in records if record.state is JobState.DONE]
        times = [record.ended_unix_seconds - record.submitted_unix_seconds for record in done]
        running = sum(record.state is JobState.RUNNING for record in records)
        ended = sum(record.state.ended for record in records)
        return BackendStatus(
            time_seconds=self.time_seconds,
            jobs_running=running,
            jobs_waiting=len(records) - ended - running,
            jobs_done=len(done),
            jobs_total=len(records),
            avg_jct_seconds=sum(times) / len(times) if times else 0.0,
        )

    def close(self) -> None:
        """Answer no more; the jobs' launchers look after them."""
        if self._server is not None:
            self._server.close()

    def _wait_until_due(self, running: Changes, changes: dict[str, Change], intervals: dict[str, _Interval]) -> None:
        looked = 0
        while True:
            for change in running.advance():
                self._on_change_over(change, intervals[change.job.job_id])
            looked += 1
            if not running.pending or looked % 5 == 0:
                self._look_at_ends()
            if self._due() or self._parts.wait(_LOOK_SECONDS if running.pending else 5 * _LOOK_SECONDS):
                return

    def _on_change_over(self, change: Change, interval: _Interval) -> None:
        name = change.job.job_id
        measured = self._processes[name].measure()
        self._measured[name] = measured
        if change.took:
            interval.allocation = change.after
            state = JobState.RUNNING
            record = self.table.get(name)
            if change.after == SUSPENDED:
                state = JobState.QUEUED if change.before == SUSPENDED and not measured.samples else JobState.SUSPENDED
            if record is not None and not record.state.ended and record.state is not state:
                started = record.started_unix_seconds or (self.time_seconds if state is JobState.RUNNING else 0.0)
                self.table.change(name, state=state, started_unix_seconds=started)
        interval.since_seconds = self._parts.clock()
        interval.samples, interval.stall_seconds = measured.samples, measured.stall_seconds

    def _progress(self, interval: _Interval, change: Change) -> Progress:
        job, now = interval.job, self._parts.clock()
        whole = max(0.0, now - self._decided_seconds)
        record = self.table.get(job.job_id)
        finished = record is None or record.state is JobState.DONE
        if interval.since_seconds is None or not interval.allocation.workers:
            paused = whole if change.after.workers and not interval.allocation.workers else 0.0
            allocation = change.after if paused else interval.allocation
            return Progress(job.job_id, job.job_type, allocation, 0.0, 0.0, 0.0, job.remaining_epochs, finished, paused)
        measured = self._processes[job.job_id].measure()
        self._measured[job.job_id] = measured
        stalled = max(0.0, measured.stall_seconds - interval.stall_seconds)
        until = now
        if record is not None and record.state.ended:
            until = min(now, record.ended_unix_seconds - self._offset_seconds)
        seconds = max(0.0, until - interval.since_seconds - stalled)
        samples = max(0.0, measured.samples - interval.samples)
        self._remember(job, measured, seconds)
        return Progress(
            job.job_id,
            job.job_type,
            interval.allocation,
            seconds,
            samples,
            samples / job.samples_per_epoch,
            job.remaining_epochs,
            finished,
            max(0.0, until - self._decided_seconds - seconds),
        )

    def _remember(self, job: Job, measured: Measured, seconds: float) -> None:
        record = self.table.get(job.job_id)
        if record is None:
            return
        self.table.change(
            job.job_id,
            run_seconds=record.run_seconds + seconds,
            samples=max(record.samples, measured.samples),
            samples_per_epoch=measured.samples_per_epoch or record.samples_per_epoch,
            total_epochs=measured.total_epochs or record.total_epochs,
        )

    def _due(self) -> bool:
        """Whether the next decision is to be taken: something has happened, or the slot is over."""
        waited = self._parts.clock() - self._decided_seconds
        if waited >= self._settings.slot_seconds:
            return True
        return waited >= self._settings.debounce_seconds and self._present() != self._known

    def _present(self) -> frozenset[tuple[str, bool, bool]]:
        return frozenset(
            (record.name, record.held, record.cancelling) for record in self.table if not record.state.ended
        )

    def _trigger(self) -> Trigger:
        present = self._present()
        gone = {name for name, *_ in self._known} - {name for name, *_ in present}
        come = present - self._known
        self._known = present
        if come:
            return Trigger.ARRIVAL
        return Trigger.COMPLETION if gone else Trigger.SLOT

    def _jobs_to_schedule(self) -> list[JobRecord]:
        return [record for record in self.table if not record.state.ended and not record.cancelling]

    def _process(self, record: JobRecord) -> ElasticJob:
        found = self._processes.get(record.name)
        if found is None:
            folder = self._parts.state_dir / "jobs"
            found = self._processes[record.name] = ElasticJob(folder, record, os.environ, self._launchers)
        return found

    def _look_at_ends(self) -> None:
        """Note jobs that have ended since; one whose launcher died is started again with the next decision."""
        self._launchers.reap()
        for record in self.table:
            if record.state.ended:
                continue
            process = self._process(record)
            launcher = process.launcher
            if record.cancelling:
                self._cancel(record, process, launcher)
            elif launcher is None and record.state in (JobState.RUNNING, JobState.SUSPENDED):
                measured = process.measure()
                self._measured[record.name] = measured
                if measured.phase in (Phase.FINISHED, Phase.FAILED):
                    self._end(record, measured)

    def _end(self, record: JobRecord, measured: Measured) -> None:
        done = measured.phase is Phase.FINISHED
        self.table.change(
            record.name,
            state=JobState.DONE if done else JobState.FAILED,
            ended_unix_seconds=self.time_seconds,
            samples=max(record.samples, measured.samples),
            failure="" if done else measured.failure or "it failed without a reason; see its logs",
        )
        _log.info("job-ended", job=record.name, done=done, failure=measured.failure)

    def _cancel(self, record: JobRecord, process: ElasticJob, launcher: int | None) -> None:
        if launcher is not None:
            process.terminate(launcher)
            return
        self.table.change(record.name, state=JobState.CANCELLED, ended_unix_seconds=self.time_seconds)
        _log.info("job-cancelled", job=record.name)

    def _state(self) -> ClusterState:
        return ClusterState(
            self.time_seconds,
            (self._node,),
            tuple(self._job(record) for record in self._jobs_to_schedule() if not record.held or self._holds(record)),
            self._settings.slot_seconds,
            CapacityMode.POOLED,
        )

    def _holds(self, record: JobRecord) -> bool:
        return record.state is JobState.RUNNING

    def _job(self, record: JobRecord) -> Job:
        process = self._process(record)
        running = process.launcher is not None
        measured = process.measure() if running else Measured()
        self._measured[record.name] = measured
        file = record.file
        per_epoch = measured.samples_per_epoch or record.samples_per_epoch or self._usual_epoch(file.model_type)
        total, known = self._declared_epochs(record, measured)
        done = max(measured.samples, record.samples) / per_epoch
        if not known:
            total = max(2 * done, 1.0)
        return Job(
            job_id=record.name,
            job_type=file.model_type,
            submit_time_seconds=record.submitted_unix_seconds,
            worker_demand=file.worker.demand,
            ps_demand=file.ps.demand,
            samples_per_epoch=per_epoch,
            total_epochs=total,
            remaining_epochs=max(total - done, 1e-3),
            requested=file.requested,
            max_workers=0 if record.held else file.worker.max,
            max_ps=0 if record.held else file.ps.max,
            run_seconds=record.run_seconds,
            current=measured.current if running else SUSPENDED,
            kind=file.kind,
            min_workers=file.worker.min,
            min_ps=file.ps.min,
            work_known=known,
        )

    def _declared_epochs(self, record: JobRecord, measured: Measured) -> tuple[float, bool]:
        """What the whole job is, in epochs: as its script said once it had started, else as its file says."""
        started = measured.total_epochs or record.total_epochs
        if started:
            return started, True
        work = record.file.work
        return (work.epochs, True) if work is not None and work.epochs is not None else (1.0, False)

    def _usual_epoch(self, model_type: str) -> float:
        known = [r.samples_per_epoch for r in self.table if r.file.model_type == model_type and r.samples_per_epoch]
        return sorted(known)[len(known) // 2] if known else _GUESSED_SAMPLES_PER_EPOCH

    @staticmethod
    def _check(decision: Decision, jobs: Mapping[str, Job], total: Resources) -> None:
        """Refuse what was not asked about, or does not fit.

        Raises:
            InvalidAllocation: nothing has changed.
        """
        unknown = [name for name in decision.allocation if name not in jobs]
        if unknown:
            raise InvalidAllocation(f"{unknown[0]}: no job of that name was observed")
        taken = Resources(0)
        for name, job in jobs.items():
            wanted = decision.of(name)
            if wanted != SUSPENDED and (wanted.workers > job.max_workers or wanted.ps > job.max_ps):
                raise InvalidAllocation(
                    f"{name}: {wanted} is more than its {job.max_workers} workers, {job.max_ps} PSs"
                )
            taken += demand(job, wanted)
        if not taken.fits_in(total):
            raise InvalidAllocation(f"{taken} does not fit this machine's {total}")
