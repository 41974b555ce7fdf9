"""Local backend: this machine as a cluster, whose jobs are real processes that outlive the agent.

What a job has trained is what its coordinator counted, never what it declares. A decision is carried out while its
interval runs; what is measured of a job begins once it holds what was decided.
"""

from __future__ import annotations

import contextlib
import os
import secrets
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import median_high

import structlog

from cluster_agent.backend_settings import BackendSettings, LocalBackendSettings
from cluster_agent.backends.base import AgentParts, Backend, BackendStatus
from cluster_agent.backends.local.changes import ChangeLimits, Changes, Intervals, LocalChange, check_decision
from cluster_agent.backends.local.job_processes import ElasticJob, JobProcesses, LocalMeasurement, ScriptJob
from cluster_agent.backends.local.job_server import JobServer, SharedAnswers
from cluster_agent.backends.local.job_service import JobDesk
from cluster_agent.backends.local.job_table import SUBMITTED, JobState, JobTable, LocalJobRecord
from cluster_agent.backends.local.job_views import (
    GUESSED_SAMPLES_PER_EPOCH,
    UsualEpoch,
    samples_per_epoch,
    total_epochs,
    user_facts,
)
from cluster_agent.backends.local.launchers import Launchers
from cluster_agent.backends.local.machine_shares import (
    CoreMap,
    CpuQuota,
    GpuLedger,
    MachineShares,
    gpus_here,
    job_cores,
    this_node,
)
from cluster_agent.backends.local.notifications import Notifications
from cluster_agent.backends.local.pace import LocalPace
from cluster_agent.backends.local.running_jobs import RunningJobs
from cluster_agent.errors import BackendUnavailable, BadAgentConfig, JobRefused, StateDamaged
from cluster_agent.job_messages import default_socket
from elastic_runtime.launcher.job_folder import AGENT_MARK, launcher_lock, remove_folder
from elastic_runtime.launcher.warm.launcher_starter import LauncherStarter
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

_log = structlog.get_logger()

_POLL_SECONDS = 0.1
"""Between two looks at what is under way, and at whether a user wants something."""


_LEAST_REMAINING_EPOCHS = 1e-3
"""A job that has not ended has something left, whatever it said that it would do."""


def resolve_paths(settings: LocalBackendSettings, folder: Path) -> LocalBackendSettings:
    """The settings with the socket's path taken from the folder; see `BackendModule`."""
    return settings if settings.socket is None else settings.model_copy(update={"socket": folder / settings.socket})


def open_backend(settings: BackendSettings, parts: AgentParts) -> LocalBackend:
    """This machine, with the jobs that were submitted before; see `BackendModule`."""
    if not isinstance(settings, LocalBackendSettings):
        raise BadAgentConfig(f"setting backend.kind = {settings.kind}: is not this machine")
    found = gpus_here(os.environ)
    node = this_node(settings, len(found))
    try:
        table = JobTable(parts.state_dir / SUBMITTED)
    except OSError as error:
        raise BadAgentConfig(
            f"setting state_dir: {parts.state_dir / SUBMITTED} cannot be used ({error.strerror})"
        ) from error
    folder = parts.state_dir / "jobs"
    launchers = Launchers(folder, LauncherStarter(os.environ, parts.state_dir, AGENT_MARK, _report_cold_starts))
    for name, line in table.damaged.items():
        if launchers.running(name) is not None:  # it holds a part of the machine that nobody can tell
            raise StateDamaged(f"{line}; its processes run, so that nothing else can be given away safely")
    running = [record.name for record in table if record.state is JobState.RUNNING]
    suspended = [
        record.name
        for record in table
        # What it has given back may still be used.
        if record.state is JobState.SUSPENDED and launchers.running(record.name) is not None
    ]
    shares = MachineShares(
        CoreMap(job_cores(node), launchers.processes, None if settings.cgroup is None else CpuQuota(settings.cgroup)),
        GpuLedger(folder, found[: node.capacity.gpu], running, suspended),
    )

    def open_job(record: LocalJobRecord) -> JobProcesses:
        if record.file.elastic and record.file.kind.uses_ps:
            return ElasticJob(folder, record, os.environ, launchers)
        return ScriptJob(folder, record, os.environ, launchers, settings.grace_seconds)

    return LocalBackend(settings, parts, LocalMachine(table, node, open_job, shares, launchers), time.time)


@dataclass(frozen=True, slots=True)
class LocalMachine:
    """What a backend stands on: the table of jobs, the node that they share, and the way to their processes."""

    table: JobTable
    node: Node
    open_job: Callable[[LocalJobRecord], JobProcesses]
    shares: MachineShares
    launchers: Launchers | None = None


class LocalBackend(Backend):
    """This machine. `unix_clock` gives the time of day in seconds."""

    def __init__(
        self,
        settings: LocalBackendSettings,
        parts: AgentParts,
        machine: LocalMachine,
        unix_clock: Callable[[], float],
    ) -> None:
        self.table = machine.table
        self._launchers = machine.launchers
        self._settings = settings
        self.parts = parts
        self._node = machine.node
        # A clock that is set back must not make an interval negative.
        self._offset_seconds = unix_clock() - parts.clock()
        self.jobs = RunningJobs(machine.table, machine.open_job, lambda: self.time_seconds, machine.shares)
        self._observed: tuple[ClusterState, Trigger] | None = None
        self._pace = LocalPace(self.jobs, settings.slot_seconds, settings.debounce_seconds, parts.clock)
        self._notifications = Notifications(machine.table, parts.state_dir / "jobs", os.environ)
        self._server: JobServer | None = None

    @property
    def finished(self) -> bool:
        """Whether all jobs have ended, if that is to be the end; else somebody may always submit another one."""
        ended = self._settings.until_done and not self.table.unended and any(True for _ in self.table)
        return ended and self._notifications.is_over

    @property
    def time_seconds(self) -> float:
        """Unix seconds, which never go back."""
        return self._offset_seconds + self.parts.clock()

    @property
    def job_types(self) -> Sequence[str]:
        """All types that were submitted."""
        return list(dict.fromkeys(record.file.model_type for record in self.table))

    def start(self) -> None:
        """Begin to answer users.

        Raises:
            BadConfig: nobody can listen on the socket.
        """
        pace = (self._settings.slot_seconds, self._settings.debounce_seconds)
        desk = JobDesk(
            self.table,
            self._node.capacity,
            self.facts,
            lambda: self.time_seconds,
            self.parts.state_dir,
            pace,
            self.remove,
            self.jobs.why_it_waits,
            self.seen,
        )
        shared = SharedAnswers(lambda: self.table.changes, self.parts.clock)
        socket = self._settings.socket or default_socket(os.environ)
        self._server = JobServer(socket, desk.answers, shared=shared)
        _log.info("jobs-are-taken", socket=str(socket))
        self._be_ready_to_launch()

    def facts(self, record: LocalJobRecord) -> dict[str, object]:
        """A job as users see it; may be called from any thread."""
        name, now = record.name, self.time_seconds
        trained = self.jobs.training.seconds(record, now)
        facts = user_facts(record, self.jobs.shown(name), now, self.jobs.why_it_waits(name), trained)
        folder = self.jobs[record.name].log_folder
        return {**facts, "logs": str(folder), "log": str(folder.parents[1] / f"{record.name}.launcher.log")}

    def seen(self) -> ClusterState:
        """The machine as it was measured last, without what jobs have that stay; may be called from any thread."""
        observation = Observation(self.jobs, self._node)
        return observation.state(self.time_seconds, self._settings.slot_seconds, self.jobs.latest)

    def remove(self, name: str) -> None:
        """Remove a job that has ended: its record, logs and checkpoints; may be called from any thread.

        Raises:
            JobRefused: its launcher has not ended yet.
            OSError: something cannot be removed; the job stays.
        """
        if self.jobs[name].launcher is not None:
            raise JobRefused(f"{name} is still ending; delete it in some seconds")
        folder = self.parts.state_dir / "jobs"
        if os.path.lexists(folder / name):
            # Under another name nobody finds it half removed. Its record goes last: without it a folder that is left
            # would be gone on with by the next job of this name.
            doomed = folder / f".deleted-{name}-{secrets.token_hex(4)}"
            (folder / name).rename(doomed)
            remove_folder(doomed)
        (folder / f"{name}.launcher.log").unlink(missing_ok=True)
        launcher_lock(folder, name).unlink(missing_ok=True)
        self.jobs.drop(name)
        self.table.remove(name)

    def observe(self) -> tuple[ClusterState, Trigger] | None:
        """See `Backend.observe`; waits as long as there is nothing to decide about."""
        with _reported_full_disks():
            return self._observe()

    def _observe(self) -> tuple[ClusterState, Trigger] | None:
        while self._observed is None:
            if self.parts.wait(0.0):
                return None
            # Jobs that ended since the last interval are in no interval unless the next one begins with them.
            if self._is_time_to_poll:
                self._poll()
            observation = Observation(self.jobs, self._node)
            if observation.is_to_decide:
                trigger = self._pace.trigger()
                self._observed = (observation.state(self.time_seconds, self._settings.slot_seconds), trigger)
            elif self.finished or self._wait_for_news():
                return None
        return self._observed

    def apply(self, decision: Decision) -> list[Progress]:
        """See `Backend.apply`; the changes are under way while the interval runs."""
        if self._observed is None:
            raise BackendUnavailable("nothing was observed that this decision could be about")
        state, _ = self._observed
        jobs = {job.job_id: job for job in state.jobs}
        check_decision(decision, jobs, state.total)
        self._observed = None
        self._pace.on_decided()
        self.jobs.lacking.clear()
        stamp = f"{int(state.time_seconds * 1000):x}"
        changes = {
            name: LocalChange(job, job.current, self._desired(job, decision), f"decision-{stamp}-{name}")
            for name, job in jobs.items()
        }
        intervals = Intervals(self.jobs, self.parts.clock, self._offset_seconds)
        for job in state.jobs:
            intervals.begin(job)
        running = Changes(
            changes,
            self.jobs,
            state.total,
            ChangeLimits(self._settings.resize_seconds, self._settings.start_seconds),
            self.parts.clock,
        )
        with _reported_full_disks():
            self._wait_until_due(running, intervals)
            progress = [intervals.progress(changes[name]) for name in jobs]
        self._pace.on_own_changes()
        return progress

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
        self._notifications.close()
        if self._server is not None:
            self._server.close()
        if self._launchers is not None:
            self._launchers.close()

    @property
    def _is_time_to_poll(self) -> bool:
        """Also where a launcher has ended: others wait for what its job had."""
        ended = self._launchers is not None and self._launchers.have_any_ended()
        return ended or self._pace.is_time_to_poll

    def _poll(self) -> None:
        self._pace.poll()
        self._notifications.poll()
        self._be_ready_to_launch()

    def _be_ready_to_launch(self) -> None:
        if self._launchers is not None:
            self._launchers.poll(needed=bool(self.table.unended))

    def _desired(self, job: Job, decision: Decision) -> Allocation:
        """Desired size of a job; one that is starting keeps its size, unless held: else its starts are paid in vain.

        So does a script that is started again and writes its own checkpoints, until it can have written one.
        """
        desired = decision.of(job.job_id)
        record = self.table.get(job.job_id)
        if desired != SUSPENDED or record is None or record.held:
            return desired
        since = record.training_since_unix_seconds
        if record.file.requeue and since and self.time_seconds - since < record.file.checkpoint_seconds:
            return job.current
        starting = self.jobs.starting_seconds(job.job_id)
        return desired if starting is None or starting >= self._settings.start_seconds else job.current

    def _wait_until_due(self, running: Changes, intervals: Intervals) -> None:
        while True:
            if running.pending:
                for change in running.advance():
                    intervals.on_change_over(change)
            due = self._pace.is_due
            if due or self._is_time_to_poll:
                self._poll()  # what has ended by now is told with this interval
                intervals.poll()
            if due or self.parts.wait(_POLL_SECONDS):
                return

    def _wait_for_news(self) -> bool:
        """Wait until it is time to look; True when the agent is to stop."""
        while not self.parts.wait(_POLL_SECONDS):
            if self._is_time_to_poll:
                self._poll()
                return False
        return True


class Observation:
    """What there is to decide about now, on the machine `node` with all that jobs may have."""

    def __init__(self, jobs: RunningJobs, node: Node) -> None:
        self._jobs = jobs
        unended = jobs.table.unended
        stay = [record.file.takes(record.granted) for record in unended if record.stays]
        self._node = replace(node, capacity=node.capacity - sum(stay, Resources(0)))
        self._records = [record for record in unended if _is_scheduled(record)]

    @property
    def is_to_decide(self) -> bool:
        """Whether there is a job, and something to share."""
        return bool(self._records) and self._node.capacity.cpu_milli > 0

    def state(
        self, time_seconds: float, slot_seconds: float, measure: Callable[[str], LocalMeasurement] | None = None
    ) -> ClusterState:
        """The machine as a policy sees it; measures every job, unless told how to."""
        usual, unknown, measure = self._usual_epochs(), UsualEpoch(), measure or self._jobs.measure
        jobs = [
            scheduled_job(record, measure(record.name), usual.get(record.file.model_type, unknown))
            for record in self._records
        ]
        return ClusterState(time_seconds, (self._node,), tuple(jobs), slot_seconds, CapacityMode.POOLED)

    def _usual_epochs(self) -> dict[str, UsualEpoch]:
        """What an epoch has, by type: the median of its jobs."""
        known: dict[str, list[LocalJobRecord]] = {}
        for record in self._jobs.table:
            if record.samples_per_epoch:
                known.setdefault(record.file.model_type, []).append(record)
        return {
            model_type: UsualEpoch(
                median_high(record.samples_per_epoch for record in records),
                median_high([record.steps_per_epoch for record in records if record.steps_per_epoch] or [0.0]),
            )
            for model_type, records in known.items()
        }


def scheduled_job(record: LocalJobRecord, measured: LocalMeasurement, usual: UsualEpoch) -> Job:
    """What a policy may look at: nothing that a real cluster could not know; `usual` is an epoch of the job's type."""
    file = record.file
    per_epoch = samples_per_epoch(record, measured) or usual.samples or GUESSED_SAMPLES_PER_EPOCH
    done = max(measured.samples, record.samples) / per_epoch
    declared = total_epochs(record, measured, usual)
    total = max(2 * done, 1.0) if declared is None else declared
    # A held job may still have something: it is observed until it was taken away, and can get nothing.
    most = 0 if record.held else 1
    return Job(
        job_id=record.name,
        job_type=file.model_type,
        submit_time_seconds=record.submitted_unix_seconds,
        worker_demand=file.worker.demand,
        ps_demand=file.ps.demand,
        samples_per_epoch=per_epoch,
        total_epochs=total,
        remaining_epochs=max(total - done, _LEAST_REMAINING_EPOCHS),
        requested=SUSPENDED if record.held else _least(file.requested, record.most),
        max_workers=record.most.workers * most,
        max_ps=record.most.ps * most,
        run_seconds=record.run_seconds,
        current=measured.current,
        kind=file.kind,
        min_workers=file.least.workers,
        min_ps=file.least.ps,
        work_known=declared is not None,
    )


def _least(one: Allocation, other: Allocation) -> Allocation:
    return Allocation(min(one.workers, other.workers), min(one.ps, other.ps))


def _is_scheduled(record: LocalJobRecord) -> bool:
    """Whether a decision is about it; about a held one as long as it has something."""
    active = not record.held or record.state is JobState.RUNNING
    return active and not record.cancelling and not record.stays and not record.depends


def _report_cold_starts(line: str) -> None:
    _log.warning("launchers-start-cold", why=line)


@contextlib.contextmanager
def _reported_full_disks() -> Iterator[None]:
    """What cannot be noted of a job is no fault of the agent's: it is tried again, while all jobs go on.

    Raises:
        BackendUnavailable: something could not be written, or read.
    """
    try:
        yield
    except OSError as error:
        where = "the state directory" if error.filename is None else error.filename
        raise BackendUnavailable(f"{where}: cannot be used ({error.strerror or error}); free space") from error
