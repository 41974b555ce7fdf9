"""Processes of all jobs, and what becomes of the jobs by them: started, at their end, cancelled."""

from __future__ import annotations

import contextlib
import errno
import math
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import structlog

from cluster_agent.backends.local.job_processes import JobProcesses, LocalMeasurement
from cluster_agent.backends.local.job_table import JobState, JobTable, LocalJobRecord
from cluster_agent.backends.local.job_views import misstated
from cluster_agent.backends.local.machine_shares import MachineShares
from cluster_agent.errors import StateDamaged
from elastic_runtime.errors import ElasticError
from elastic_runtime.protocol.plan import JobPhase
from foundation.text import plain_line
from policy_net.domain import SUSPENDED, Allocation, Resources

_log = structlog.get_logger()
_NEVER = frozenset({errno.ENOENT, errno.ENOTDIR, errno.EACCES, errno.ELOOP, errno.ENAMETOOLONG})
"""The job's folder is gone, or may not be used: to wait does not help."""
_STARTS = 3
"""A launcher that ends so often in turn before its job has trained anything fails the job."""

_REFUSAL = "elastic_runtime.errors.BadInput: "
"""In the failure of a job that its coordinator did not let begin: more servers than its model has blocks, more workers
than its batch has samples."""

_LIMIT_SECONDS = 30.0
"""For the last checkpoint of a job whose time is over; sbatch's own pause before SIGKILL."""
_REFRESH_SECONDS = 2.0
"""However many watch: to ask a job's coordinator costs some milliseconds."""


class TrainingTimes:
    """Seconds with workers of each job, resizes included; they never go back. `now` gives Unix seconds.

    When a job began and ended to hold workers is on disk as it happens, so that a killed agent goes on counting; what a
    full disk did not take is written with the next change.
    """

    def __init__(self, table: JobTable, now: Callable[[], float]) -> None:
        self._table = table
        self._now = now
        # A sum and a beginning are one value, which is replaced whole: users' threads read it.
        self._unwritten: dict[str, tuple[float, float]] = {}
        self._seen_training: set[str] = set()

    def note(self, name: str, *, trains: bool, last_sign: Callable[[], float] | None = None) -> None:
        """Note that a job has workers now, or has none; nothing is written while that stays so.

        `last_sign` gives the Unix seconds of its last sign of life, for an end that this process did not see.
        """
        if trains:
            self._seen_training.add(name)
        record = self._table.get(name)
        if record is None:
            return
        total, since = self._counted(record)
        if trains == bool(since) and name not in self._unwritten:
            return
        now = self._now()
        if trains and not since:
            total, since = total or record.run_seconds, now  # a record of before has these alone
        elif since and not trains:
            ended = now if last_sign is None or name in self._seen_training else min(last_sign(), now)
            total, since = total + max(0.0, ended - since), 0.0
            self._seen_training.discard(name)
        self._unwritten[name] = total, since
        with contextlib.suppress(OSError, KeyError):  # a full disk; or it was deleted
            self._table.change(name, trained_seconds=total, training_since_unix_seconds=since)
            self._unwritten.pop(name, None)

    def seconds(self, record: LocalJobRecord, now_unix_seconds: float) -> float:
        """For how long a job has trained until a moment, which is no earlier than the last note."""
        total, since = self._counted(record)
        return total + (max(0.0, now_unix_seconds - since) if since else 0.0)

    def drop(self, name: str) -> None:
        """A job is deleted."""
        self._unwritten.pop(name, None)
        self._seen_training.discard(name)

    def _counted(self, record: LocalJobRecord) -> tuple[float, float]:
        stands = record.trained_seconds, record.training_since_unix_seconds
        return self._unwritten.get(record.name, stands)


class RunningJobs:
    """The processes of each job, by its name; `open_job` makes the handle to them and starts nothing.

    Attributes:
        losses: how many launchers died, which is something to decide about.
        waits: why jobs could not be started when that was tried last, in a line each.
        lacking: what there is too little of yet for what jobs are to have by the last decision, in a line each.
    """

    def __init__(
        self,
        table: JobTable,
        open_job: Callable[[LocalJobRecord], JobProcesses],
        now: Callable[[], float],
        shares: MachineShares,
    ) -> None:
        self.shares = shares
        self.training = TrainingTimes(table, now)
        self.losses = 0
        self.waits: dict[str, str] = {}
        self.lacking: dict[str, str] = {}
        self._unstarted: dict[str, LocalJobRecord] = {}
        self.table = table
        self._open_job = open_job
        self._now = now
        self._processes: dict[str, JobProcesses] = {}
        self._measured: dict[str, LocalMeasurement] = {}
        self._polled_at: set[str] = set()
        self._refreshed_seconds = 0.0
        self._futile_starts: dict[str, int] = {}
        self._trained_before: dict[str, float] = {}
        self._starting_since: dict[str, float] = {}
        self._told_to_end: dict[str, float] = {}
        for record in table:
            if record.state is JobState.RUNNING:  # an agent before this one started it
                shares.grow(record.name, record.file.takes(record.granted))

    def __getitem__(self, name: str) -> JobProcesses:
        found = self._processes.get(name)
        if found is None:
            record = self.table.get(name)
            if record is None:
                raise KeyError(name)
            found = self._processes[name] = self._open_job(record)
        return found

    def measure(self, name: str) -> LocalMeasurement:
        """How a job is doing now; nothing is asked of one without processes."""
        record = self.table.get(name)
        if record is None or record.state is JobState.QUEUED:
            return LocalMeasurement()
        process = self[name]
        try:
            measured = process.measure()
        except (ElasticError, OSError) as error:  # of this job's folder, which is no matter of the others
            measured = LocalMeasurement(damage=plain_line(str(error)))
        if measured.damage and measured.damage != self.latest(name).damage:
            _log.warning("job-folder-damaged", job=name, line=measured.damage)
        damage = measured.damage
        if measured.phase is None and record.state is JobState.RUNNING:
            # Its launcher is about to begin: what it was given is its own already.
            measured = LocalMeasurement(JobPhase.STARTING, desired=record.granted, damage=damage)
        elif record.state is JobState.RUNNING and not measured.fresh and process.launcher is not None:
            # What its launcher wrote down last may be older than what it was given since.
            measured = replace(measured, desired=measured.desired.most(record.granted))
        seen_seconds = self._now() if measured.fresh else self.latest(name).seen_unix_seconds
        measured = replace(measured, seen_unix_seconds=seen_seconds)
        self._measured[name] = measured
        if measured.fresh:
            self.training.note(name, trains=measured.running.workers > 0)
        elif process.launcher is None:  # else it is of an earlier moment
            trains, logs = measured.running.workers > 0, process.log_folder
            self.training.note(name, trains=trains, last_sign=lambda: _newest_seconds(logs.parent, logs))
        if measured.phase is JobPhase.STARTING and record.state is JobState.RUNNING:
            self._starting_since.setdefault(name, self._now())
        else:
            self._starting_since.pop(name, None)
        return measured

    def starting_seconds(self, name: str) -> float | None:
        """For how long a job has been starting, as far as was seen here; None: it does not."""
        since = self._starting_since.get(name)
        return None if since is None else self._now() - since

    def is_out_of_reach(self, name: str) -> bool:
        """Whether a job's launcher is at work, and there is no coordinator yet that could be asked for anything."""
        latest = self.latest(name)
        return latest.phase is JobPhase.STARTING and not latest.fresh and self[name].launcher is not None

    def latest(self, name: str) -> LocalMeasurement:
        """What was measured last; may be asked from any thread."""
        return self._measured.get(name, LocalMeasurement())

    def shown(self, name: str) -> LocalMeasurement:
        """What was measured last, for a user: what users look at is soon measured again; from any thread."""
        self._polled_at.add(name)
        return self.latest(name)

    def lacks(self, name: str, most: Resources) -> str:
        """What there is too little of for a job that may take so much, in a line: tasks that go still use it."""
        line = self.shares.lacks(name, most)
        if line:
            self.lacking[name] = line
        return line

    def ask(self, name: str, request_id: str, after: Allocation, most: Resources) -> str:
        """Ask a job's processes for another size, or start some; why that cannot be, empty if it was asked for.

        That it runs is remembered before it does: an agent that is killed in between finds it missing, and never finds
        one that it does not know of. On the way it may take `most`.
        """
        record, process = self.table.get(name), self[name]
        if record is None or record.state.ended:
            return "it has ended"
        if self.latest(name).is_ending:
            return "it is at its end"  # which is about to be noted: it must not be started again
        before = self._unstarted.pop(name, record)
        self._wait_no_more(name)
        try:
            refused = self.shares.grow(name, most)
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
                return process.request(request_id, after, resume=self.latest(name).phase is JobPhase.SUSPENDED)
            if after.workers:
                process.start(after)
                self.shares.bind(name)
        except OSError as error:
            return self._on_not_started(before, process, error)
        return ""

    def _on_not_started(self, before: LocalJobRecord, process: JobProcesses, error: OSError) -> str:
        """It stays what it was, and is tried again with the next decision, unless that would come to the same."""
        where = "" if error.filename is None else f"{error.filename}: "
        line = plain_line(f"it cannot be started ({where}{error.strerror or error})")
        if process.launcher is not None or before.state is JobState.RUNNING:
            return line
        self._unstarted[before.name] = before
        self.waits[before.name] = line
        with contextlib.suppress(OSError):  # a full disk: the next look tries again
            own = error.filename is not None and str(error.filename) == str(before.file.workdir)
            if error.errno == errno.E2BIG or (own and error.errno in _NEVER):
                self._end(before, LocalMeasurement(failure=line))
            self._take_back(before.name)
        return line

    def _wait_no_more(self, name: str) -> None:
        self.waits.pop(name, None)
        self.lacking.pop(name, None)

    def why_it_waits(self, name: str) -> str:
        """Why a job has not got what it was given, in a line; empty if nobody knows of a reason. From any thread."""
        return self.lacking.get(name) or self.waits.get(name, "")

    def _take_back(self, name: str) -> None:
        before = self._unstarted[name]
        record = self.table.get(name)
        if record is not None and not record.state.ended:
            self.table.change(name, state=before.state, started_unix_seconds=before.started_unix_seconds)
        self.shares.release(name)
        del self._unstarted[name]

    def on_suspended(self, name: str) -> None:
        """A job has given back what it had."""
        record = self.table.get(name)
        if self[name].launcher is None:
            self.shares.release(name)
        self.training.note(name, trains=False)
        if record is not None and record.state is JobState.RUNNING:
            self.table.change(name, state=JobState.SUSPENDED, suspended_unix_seconds=self._now())

    def poll(self) -> None:
        """Note which jobs have ended since, and measure what users look at or what has just begun.

        A job whose launcher died goes on with the next decision.
        """
        polled_at = self._viewed_since()
        for unended in self.table.unended:
            process = self[unended.name]
            record = self._limited(self._released(unended), process)
            if record.cancelling:
                self._cancel(record, process)
            elif record.state is not JobState.QUEUED and process.launcher is None:
                measured = self.measure(record.name)
                if _is_too_large(record, measured):
                    self._begin_smaller(record, process, measured.failure.partition(_REFUSAL)[2])
                elif measured.is_ending:
                    self._end(record, measured)
                elif record.state is JobState.RUNNING and measured.phase is JobPhase.SUSPENDED:
                    process.clear()
                    self.on_suspended(record.name)  # its launcher has ended with it, and said so
                elif record.name in self._unstarted:
                    self._take_back(record.name)
                elif record.state is JobState.RUNNING:
                    process.clear()
                    self.shares.release(record.name)
                    self._on_launcher_lost(record, measured)
                elif record.state is JobState.SUSPENDED:
                    self.shares.release(record.name)
            elif record.state is JobState.RUNNING and (
                record.name in polled_at or not self.latest(record.name).is_steady
            ):
                # Decisions may be far apart, and a script that runs is in none of them.
                self.measure(record.name)

    def _released(self, record: LocalJobRecord) -> LocalJobRecord:
        """The job, which may begin once those before it have ended, and never where one of them has failed."""
        if record.cancelling or not record.depends:
            return record
        for name, any_end in record.file.dependencies.items():
            try:
                before = self.table.get(name)
            except StateDamaged as error:  # somebody may put its content back
                self.waits[record.name] = str(error)
                return record
            if before is None:
                return self._give_up(record, f"never began: {name}, on which it depends, is gone")
            if not before.state.ended:
                return record
            if before.state is not JobState.DONE and not any_end:
                return self._give_up(record, f"never began: {name}, on which it depends, {before.state.ended_words}")
        self._wait_no_more(record.name)
        return self.table.change(record.name, released=True)

    def _limited(self, record: LocalJobRecord, process: JobProcesses) -> LocalJobRecord:
        """The job, which is ended where its time is over; not one that has just ended by itself."""
        limit, ends_by, now = record.file.limit_seconds, record.file.ends_by, self._now()
        over = limit is not None and self.training.seconds(record, now) >= limit
        over = over or (ends_by is not None and now >= ends_by)
        if not over or record.cancelling or (record.state is JobState.RUNNING and process.launcher is None):
            return record
        return self._give_up(record, f"its time limit, {record.file.time_limit}, is over")

    def _give_up(self, record: LocalJobRecord, line: str) -> LocalJobRecord:
        _log.info("job-given-up", job=record.name, line=line)
        return self.table.change(record.name, cancelling=True, failure=line)

    def _viewed_since(self) -> set[str]:
        """The jobs that users have looked at since this was asked last; none where that is not long ago."""
        if self._now() - self._refreshed_seconds < _REFRESH_SECONDS:
            return set()
        found, self._polled_at = self._polled_at, set()
        self._refreshed_seconds = self._now()
        return found

    def _on_launcher_lost(self, record: LocalJobRecord, measured: LocalMeasurement) -> None:
        """It was killed, or could not begin; what it trained until its last checkpoint is kept."""
        trained = self.training.seconds(self.table.get(record.name) or record, self._now())
        ran = trained - self._trained_before.get(record.name, 0.0) >= record.file.checkpoint_seconds
        gets_on = measured.samples > record.samples or (record.file.requeue and ran)
        futile = 1 if gets_on else self._futile_starts.get(record.name, 0) + 1
        self._trained_before[record.name] = trained
        if futile >= _STARTS:
            why = measured.failure or measured.damage or "its launcher ended before it had trained; see its logs"
            self._end(record, replace(measured, failure=why))
        else:
            self.table.change(record.name, state=JobState.SUSPENDED, suspended_unix_seconds=self._now())
            self._futile_starts[record.name] = futile  # counted once it is written down: a full disk is no start
        self.losses += 1
        _log.warning("launcher-lost", job=record.name, starts=futile)

    def _begin_smaller(self, record: LocalJobRecord, process: JobProcesses, why: str) -> None:
        """What a policy chose is no fault of the job's: it begins anew with its least, and keeps to that."""
        process.begin_anew()  # killed before this is written down, it is a job whose launcher was lost
        self.shares.release(record.name)
        self.table.change(record.name, state=JobState.QUEUED, too_large=why, granted_workers=0, granted_ps=0)
        self._measured.pop(record.name, None)
        self._starting_since.pop(record.name, None)
        self.losses += 1
        _log.warning("job-too-large", job=record.name, line=why)

    def _end(self, record: LocalJobRecord, measured: LocalMeasurement) -> None:
        """It has ended as was measured last: it is done only if it has finished."""
        done = measured.phase is JobPhase.FINISHED
        wrong = misstated(record, measured, done=True) if done else ""
        self._forget(record.name)
        self.table.change(
            record.name,
            state=JobState.DONE if done else JobState.FAILED,
            ended_unix_seconds=self._now(),
            samples=max(record.samples, measured.samples),
            failure="" if done else measured.failure or "it failed without a reason; see its logs",
            misstated=wrong,
        )
        _log.info("job-ended", job=record.name, done=done, failure=measured.failure)
        if wrong:
            _log.warning("job-work-misstated", job=record.name, line=wrong)

    def _cancel(self, record: LocalJobRecord, process: JobProcesses) -> None:
        if process.launcher is not None:
            # Told twice, it ends without a checkpoint: what its user gives up has none to wait for.
            if not record.failure or self._now() - self._told_to_end.get(record.name, -math.inf) >= _LIMIT_SECONDS:
                self._told_to_end[record.name] = self._now()
                process.terminate()
            return
        self._forget(record.name)
        state = JobState.FAILED if record.failure else JobState.CANCELLED
        self.table.change(record.name, state=state, ended_unix_seconds=self._now())
        if record.failure:
            _log.info("job-ended", job=record.name, done=False, failure=record.failure)
        else:
            _log.info("job-cancelled", job=record.name)

    def _forget(self, name: str) -> None:
        """Nothing of a job runs any more, or is to; before its end is written down, so that a crash leaves no share."""
        self.training.note(name, trains=False)
        self[name].clear()
        self.shares.release(name)
        self._wait_no_more(name)
        self._futile_starts.pop(name, None)
        self._trained_before.pop(name, None)
        self._starting_since.pop(name, None)
        self._told_to_end.pop(name, None)
        self._processes.pop(name, None)
        at_hand = {record.name for record in self.table}
        for known in (self._measured, self._processes):
            for old in known.keys() - at_hand:
                known.pop(old, None)  # whoever deletes a job may have been faster

    def drop(self, name: str) -> None:
        """A job that has ended is deleted: another one may have its name; may be called from any thread."""
        self.training.drop(name)
        for known in (self._measured, self._processes):
            known.pop(name, None)


def _is_too_large(record: LocalJobRecord, measured: LocalMeasurement) -> bool:
    """Whether a job was refused its beginning, and was given more than it needs."""
    failed = measured.phase is JobPhase.FAILED and _REFUSAL in measured.failure
    first = not max(measured.samples, record.samples) and not record.too_large
    return failed and first and record.granted not in (SUSPENDED, record.file.least)


def _newest_seconds(*folders: Path) -> float:
    """Unix seconds at which a file in one of them was written last; 0 where there is none."""
    newest = 0.0
    for folder in folders:
        with contextlib.suppress(OSError):  # it is removed meanwhile
            newest = max([newest, *(path.stat().st_mtime for path in folder.iterdir() if path.is_file())])
    return newest
