"""Processes of all jobs, and what becomes of the jobs by them: started, at their end, cancelled."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Mapping
from statistics import median

import structlog

from cluster_agent.backends.local.job_table import JobRecord, JobState, JobTable
from cluster_agent.backends.local.measured import JobProcesses, Measured
from cluster_agent.backends.local.shares.machine_shares import Shares
from elastic_runtime.protocol.plan import Phase
from policy_net.domain import Allocation, Resources

_log = structlog.get_logger()
_KEPT_STARTS = 15
_STARTS = 3
"""A launcher that ends so often in turn before its job has trained anything fails the job."""


class RunningJobs(Mapping[str, JobProcesses]):
    """The processes of each job, by its name.

    Args:
        table: of the jobs.
        open_job: the handle to a job's processes; nothing is started by it.
        now: Unix seconds.
        shares: what each job holds of the machine.

    Attributes:
        losses: how many launchers died, which is something to decide about.
    """

    def __init__(
        self,
        table: JobTable,
        open_job: Callable[[JobRecord], JobProcesses],
        now: Callable[[], float],
        shares: Shares,
    ) -> None:
        self._shares = shares
        self.losses = 0
        self.table = table
        self._open_job = open_job
        self._now = now
        self._processes: dict[str, JobProcesses] = {}
        self._measured: dict[str, Measured] = {}
        self._futile_starts: dict[str, int] = {}
        self._starting_since: dict[str, float] = {}
        self._start_seconds: deque[float] = deque(maxlen=_KEPT_STARTS)
        for record in table:
            if record.state is JobState.RUNNING:  # an agent before this one started it
                shares.grow(record.name, record.file.takes(record.granted))

    def __getitem__(self, name: str) -> JobProcesses:
        """The processes of a job."""
        found = self._processes.get(name)
        if found is None:
            record = self.table.get(name)
            if record is None:
                raise KeyError(name)
            found = self._processes[name] = self._open_job(record)
        return found

    def __iter__(self) -> Iterator[str]:
        """Names of all jobs."""
        return iter([record.name for record in self.table])

    def __len__(self) -> int:
        """How many jobs there are."""
        return sum(1 for _ in self.table)

    @property
    def start_seconds(self) -> float:
        """From a job's start, or its resumption, until it trains: the median of the newest; 0 until there was one."""
        return median(self._start_seconds) if self._start_seconds else 0.0

    def measure(self, name: str) -> Measured:
        """How a job is doing now; nothing is asked of one without processes."""
        process, record = self[name], self.table.get(name)
        if record is None or record.state is JobState.QUEUED:
            return Measured()
        measured = process.measure()
        if measured.phase is None and record.state is JobState.RUNNING:
            # Its launcher is about to begin: what it was given is its own already.
            measured = Measured(Phase.STARTING, target=record.granted)
        self._measured[name] = measured
        if name in self._starting_since and measured.phase is Phase.RUNNING and measured.held.workers:
            self._start_seconds.append(max(0.0, self._now() - self._starting_since.pop(name)))
        return measured

    def latest(self, name: str) -> Measured:
        """What was measured last; may be asked from any thread."""
        return self._measured.get(name, Measured())

    def ask(self, name: str, request_id: str, after: Allocation, most: Resources) -> str:
        """Ask a job's processes for another size, or start some; why that cannot be, empty if it was asked for.

        That it runs is remembered before it does: an agent that is killed in between finds it missing, and never finds
        one that it does not know of.

        Args:
            name: of the job.
            request_id: under which it may be asked again.
            after: what it is to have.
            most: what it may take on the way.
        """
        record, process = self.table.get(name), self[name]
        if record is None or record.state.ended:
            return "it has ended"
        if self.latest(name).is_ending:
            return "it is at its end"  # which is about to be noted: it must not be started again
        try:
            refused = self._shares.grow(name, most)
            if refused:
                return refused
            if after.workers:
                started = record.started_unix_seconds or self._now()
                self.table.change(
                    name,
                    state=JobState.RUNNING,
                    started_unix_seconds=started,
                    granted_workers=after.workers,
                    granted_ps=after.ps,
                )
            if process.launcher is not None:
                return process.request(request_id, after, resume=self.latest(name).phase is Phase.SUSPENDED)
            if after.workers:
                process.start(after)
                self._starting_since[name] = self._now()
                self._shares.bind(name)
        except OSError as error:
            return f"it cannot be started ({error.strerror or error})"
        return ""

    def on_settled(self, name: str, takes: Resources) -> None:
        """A job holds what it was told to."""
        self._shares.settle(name, takes)

    def on_suspended(self, name: str) -> None:
        """A job has given back what it had."""
        self._starting_since.pop(name, None)
        record = self.table.get(name)
        if self[name].launcher is None:
            self._shares.release(name)
        if record is not None and record.state is JobState.RUNNING:
            self.table.change(name, state=JobState.SUSPENDED)

    def look(self) -> None:
        """Note which jobs have ended since; one whose launcher died goes on with the next decision."""
        for record in self.table.unended:
            process = self[record.name]
            if record.cancelling:
                self._cancel(record, process)
            elif record.state is not JobState.QUEUED and process.launcher is None:
                measured = self.measure(record.name)
                if measured.is_ending:
                    self._end(record, measured.phase is Phase.FINISHED, measured.failure, measured.samples)
                elif record.state is JobState.RUNNING and measured.phase is Phase.SUSPENDED:
                    process.clear()
                    self.on_suspended(record.name)  # its launcher has ended with it, and said so
                elif record.state is JobState.RUNNING:
                    process.clear()
                    self._starting_since.pop(record.name, None)
                    self._shares.release(record.name)
                    self._on_launcher_lost(record, measured)

    def _on_launcher_lost(self, record: JobRecord, measured: Measured) -> None:
        """It was killed, or could not begin; what it trained until its last checkpoint is kept."""
        futile = self._futile_starts.get(record.name, 0) + 1 if measured.samples <= record.samples else 1
        self._futile_starts[record.name] = futile
        self.losses += 1
        _log.warning("launcher-lost", job=record.name, starts=futile)
        if futile >= _STARTS:
            why = measured.failure or "its launcher ended before it had trained; see its logs"
            self._end(record, done=False, failure=why, samples=measured.samples)
        else:
            self.table.change(record.name, state=JobState.SUSPENDED)

    def _end(self, record: JobRecord, done: bool, failure: str, samples: float) -> None:
        self._forget(record.name)
        self.table.change(
            record.name,
            state=JobState.DONE if done else JobState.FAILED,
            ended_unix_seconds=self._now(),
            samples=max(record.samples, samples),
            failure="" if done else failure or "it failed without a reason; see its logs",
        )
        _log.info("job-ended", job=record.name, done=done, failure=failure)

    def _cancel(self, record: JobRecord, process: JobProcesses) -> None:
        if process.launcher is not None:
            process.terminate()
            return
        self._forget(record.name)
        self.table.change(record.name, state=JobState.CANCELLED, ended_unix_seconds=self._now())
        _log.info("job-cancelled", job=record.name)

    def _forget(self, name: str) -> None:
        """Nothing of a job runs any more, or is to."""
        self[name].clear()
        self._shares.release(name)
        self._futile_starts.pop(name, None)
        self._starting_since.pop(name, None)
        self._processes.pop(name, None)
        at_hand = {record.name for record in self.table}
        for known in (self._measured, self._processes):
            for old in known.keys() - at_hand:
                del known[old]
