"""Elastic job as its agent handles it: a launcher of its own, found again by its lock, and requests to its coordinator.

Nothing is remembered here: whoever opens the job's folder next finds the launcher by the lock that it holds, and every
request has an id under which it may be sent again.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import structlog

from cluster_agent.backends.local.job_table import JobRecord
from cluster_agent.backends.local.measured import Measured
from elastic_runtime.control.messages import JobStatus, RequestOutcome, Size
from elastic_runtime.errors import ElasticError
from elastic_runtime.launcher.job_folder import JobFolder, holder_of
from elastic_runtime.launcher.job_status import client_of, read_state
from elastic_runtime.protocol.plan import Phase
from policy_net.domain import SUSPENDED, Allocation

_log = structlog.get_logger()
_CALL_SECONDS = 2.0


class Launchers:
    """Launchers that this process started; they outlive it, and those that end before it are let go of."""

    def __init__(self) -> None:
        self._children: dict[str, subprocess.Popen[bytes]] = {}

    def spawn(self, job: str, command: list[str], folder: Path, environment: Mapping[str, str], log_file: Path) -> int:
        """Start one in a session of its own, so that no signal to this process's terminal or group reaches it.

        Raises:
            OSError: it could not be started.
        """
        with log_file.open("ab") as log:
            process = subprocess.Popen(  # noqa: S603  (the command is ours, the script the user's)
                command,
                cwd=folder,
                env=dict(environment),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        self._children[job] = process
        return process.pid

    def running(self, job: str) -> int | None:
        """The process number of a job's launcher, if this process started it and it has not ended."""
        process = self._children.get(job)
        return process.pid if process is not None and process.poll() is None else None

    def reap(self) -> None:
        """Let go of those that have ended; none stays a zombie."""
        self._children = {job: process for job, process in self._children.items() if process.poll() is None}


class ElasticJob:
    """One job's processes.

    Args:
        jobs: the folder of all jobs' folders.
        record: of the job.
        environment: what its processes inherit; the job's own `env` is added.
        launchers: that this process starts.
    """

    def __init__(
        self,
        jobs: Path,
        record: JobRecord,
        environment: Mapping[str, str],
        launchers: Launchers,
    ) -> None:
        self.name = record.name
        self._file = record.file
        self._jobs = jobs
        self._folder = JobFolder(jobs / record.name)
        self._environment = {**environment, **record.file.env}
        self._launchers = launchers

    @property
    def log_folder(self) -> Path:
        """What its tasks wrote."""
        return self._folder.log_folder

    @property
    def launcher(self) -> int | None:
        """Process number of the launcher that looks after it now, or is about to: it imports for a second first."""
        holder = holder_of(self._folder.path) if self._folder.record_file.exists() else None
        return holder or self._launchers.running(self.name)

    def start(self, allocation: Allocation) -> None:
        """Start it, or go on with it from its last checkpoint, under a launcher that outlives this process.

        Raises:
            OSError: it could not be started.
        """
        size = [f"--ps={allocation.ps}", f"--workers={allocation.workers}", f"--folder={self._jobs}"]
        program = [sys.executable, "-m", "elastic_runtime.cli"]
        if self._folder.record_file.exists():
            command = [*program, "resume", self.name, *size]
        else:
            shutil.rmtree(self._folder.path, ignore_errors=True)  # a launcher died before it had written what it is
            command = [
                *program,
                *size,
                f"--name={self.name}",
                f"--min-ps={self._file.ps.min}",
                f"--min-workers={self._file.worker.min}",
                f"--checkpoint-seconds={self._file.checkpoint_seconds}",
                f"--worker-threads={max(1, self._file.worker.cpu // 1000)}",
                str(self._file.script),
                *self._file.args,
            ]
        self._jobs.mkdir(mode=0o700, parents=True, exist_ok=True)
        log_file = self._jobs / f"{self.name}.launcher.log"
        number = self._launchers.spawn(
            self.name, command, self._file.workdir or Path.cwd(), self._environment, log_file
        )
        _log.info("job-started", job=self.name, workers=allocation.workers, ps=allocation.ps, process=number)

    def measure(self) -> Measured:
        """How it is doing: as its coordinator says, or as its launcher wrote down last."""
        if not self._folder.record_file.exists():
            return Measured()
        try:
            with client_of(self._folder, _CALL_SECONDS) as client:
                return _measured(client.status())
        except ElasticError:
            return self._resting()

    def request(self, request_id: str, allocation: Allocation, *, resume: bool) -> str:
        """Ask for another size, or for none; what is refused is told in a line, empty: it was taken.

        Args:
            request_id: under which it may be sent again.
            allocation: 0/0 suspends.
            resume: whether the job is suspended.
        """
        size = Size(allocation.ps, allocation.workers)
        try:
            with client_of(self._folder, _CALL_SECONDS) as client:
                outcome, detail = client.resume(request_id, size) if resume else client.resize(request_id, size)
        except ElasticError as error:
            return str(error)
        return detail or "given up" if outcome is RequestOutcome.ABORTED else ""

    def terminate(self) -> None:
        """See `JobProcesses`."""
        launcher = self.launcher
        if launcher is not None:
            with contextlib.suppress(ProcessLookupError):
                os.kill(launcher, signal.SIGTERM)

    def _resting(self) -> Measured:
        state = read_state(self._folder)
        try:
            phase = Phase(str(state.get("phase")))
        except ValueError:  # nobody has written anything yet: it has what it was started with
            started = self._folder.record()
            asked = Allocation(int(started["workers"]), int(started["servers"])) if self.launcher else SUSPENDED
            return Measured(Phase.STARTING, SUSPENDED, asked)
        return Measured(
            phase,
            _allocation(state.get("size", {})) if self.launcher else SUSPENDED,
            _allocation(state.get("target", {})) if self.launcher else SUSPENDED,
            float(state.get("samples", 0)),
            float(state.get("epoch", 0)),
            float(state.get("total_epochs", 0)),
            float(state.get("stall_seconds", 0)),
            str(state.get("failure", "")),
        )


def _allocation(size: Mapping[str, int]) -> Allocation:
    return Allocation(int(size.get("workers", 0)), int(size.get("ps", 0)))


def _measured(status: JobStatus) -> Measured:
    return Measured(
        status.phase,
        Allocation(status.size.workers, status.size.servers),
        Allocation(status.target.workers, status.target.servers),
        float(status.samples),
        status.epoch,
        status.total_epochs,
        status.stall_seconds,
        status.failure,
        status.requests,
        fresh=True,
    )
