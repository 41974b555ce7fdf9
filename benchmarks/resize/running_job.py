"""A real job on this machine, started, resized and ended; every wait has a deadline, and nothing outlives it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Self

from elastic_runtime.control.client import ControlClient
from elastic_runtime.control.credentials import ClientCredentials
from elastic_runtime.control.messages import JobStatus, RequestOutcome, RequestState, ResizeMode, Size
from elastic_runtime.errors import CoordinatorUnreachable, ElasticError
from elastic_runtime.launcher import parent_death
from elastic_runtime.launcher.job_folder import JobFolder, read_json
from elastic_runtime.protocol.plan import JobPhase

_POLL_SECONDS = 0.1
_END_SECONDS = 20.0
_JOB = "resized"
_SCRIPT = Path(__file__).with_name("train.py")


@dataclass(frozen=True, slots=True)
class JobSetup:
    """What the job is.

    Attributes:
        size_mb: of the model, in 10⁶ bytes.
        global_batch: samples of a step over all workers.
        servers: to begin with.
        workers: all the time.
        coordinator: further arguments of the coordinator.
    """

    size_mb: float
    global_batch: int = 16
    servers: int = 2
    workers: int = 2
    coordinator: tuple[str, ...] = ()


class RunningJob:
    """A job as a context: started on entering, ended on leaving.

    Args:
        setup: what it is.
        folder: for its files.
        deadline_seconds: of every wait.
    """

    def __init__(self, setup: JobSetup, folder: Path, deadline_seconds: float = 180.0) -> None:
        self._setup = setup
        self._folder = folder
        self._deadline_seconds = deadline_seconds
        self._process: subprocess.Popen[bytes] | None = None
        self._client: ControlClient | None = None
        self.steps_folder = folder / "steps"

    def __enter__(self) -> Self:
        self.steps_folder.mkdir(parents=True)
        setup = self._setup
        # Whatever ends this process ends the launcher too, and the kernel ends the job's processes with that.
        command = [sys.executable, "-I", "-S", str(parent_death.__file__), str(os.getpid())]
        command += [sys.executable, "-m", "benchmarks.resize.launch"]
        command += [f"--jobs={self._folder / 'jobs'}", f"--name={_JOB}"]
        command += [f"--ps={setup.servers}", f"--workers={setup.workers}"]
        command += [f"--coordinator={argument}" for argument in setup.coordinator]
        command += [str(_SCRIPT), f"--size-mb={setup.size_mb}", f"--global-batch={setup.global_batch}"]
        command += [f"--steps={self.steps_folder}"]
        root = str(Path(__file__).parents[2])
        paths = [root, *filter(None, [os.environ.get("PYTHONPATH", "")])]
        with (self._folder / "launcher.log").open("wb") as log:
            self._process = subprocess.Popen(
                command, stdout=log, stderr=log, env={**os.environ, "PYTHONPATH": os.pathsep.join(paths)}
            )
        try:
            self._client = self._connect()
            self.wait("the job to train", lambda status: status.phase is JobPhase.RUNNING)
        except BaseException:
            self._end()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._end()

    def status(self) -> JobStatus:
        """How the job is doing; asks again while its coordinator does not answer.

        Raises:
            ElasticError: the job has failed.
        """
        deadline = time.monotonic() + self._deadline_seconds
        while True:
            self._check()
            try:
                status = self._connected().status()
            except CoordinatorUnreachable:
                if time.monotonic() >= deadline:
                    raise
                time.sleep(_POLL_SECONDS)
                continue
            if status.phase is JobPhase.FAILED:
                raise ElasticError(f"the job failed: {status.failure}; {self._last_words()}")
            return status

    def wait(self, what: str, ready: Callable[[JobStatus], bool]) -> JobStatus:
        """Wait until something holds of the status.

        Raises:
            ElasticError: not in time, or the job has failed.
        """
        deadline = time.monotonic() + self._deadline_seconds
        while True:
            status = self.status()
            if ready(status):
                return status
            if time.monotonic() >= deadline:
                raise ElasticError(
                    f"waited {self._deadline_seconds:g} s for {what}: the job is {status.phase.value} at step "
                    f"{status.step}; {self._last_words()}"
                )
            time.sleep(_POLL_SECONDS)

    def resize(self, request_id: str, servers: int, mode: ResizeMode) -> RequestState:
        """Resize, and wait until it is done.

        Raises:
            ElasticError: it was refused or given up, or not done in time.
        """
        self._connected().resize(request_id, Size(servers, self._setup.workers), mode=mode)
        self.wait(f"{request_id} to be done", lambda status: _row(status.requests, request_id).ended)
        row = self.request(request_id)
        if row.state is not RequestOutcome.DONE:
            raise ElasticError(f"{request_id} was given up: {row.detail}")
        return row

    def request(self, request_id: str) -> RequestState:
        """A request as the coordinator remembers it."""
        return _row(self.status().requests, request_id)

    def _connect(self) -> ControlClient:
        folder = JobFolder(self._folder / "jobs" / _JOB)
        deadline = time.monotonic() + self._deadline_seconds
        while True:
            self._check()
            address = (read_json(folder.address_file) or {}).get("address")
            if isinstance(address, str):
                return ControlClient(address, _JOB, ClientCredentials(folder.token()))
            if time.monotonic() >= deadline:
                raise ElasticError(f"no coordinator came up in {self._deadline_seconds:g} s; {self._last_words()}")
            time.sleep(_POLL_SECONDS)

    def _connected(self) -> ControlClient:
        if self._client is None:
            raise RuntimeError("the job is used outside of its context")
        return self._client

    def _check(self) -> None:
        if self._process is None or self._process.poll() is not None:
            raise ElasticError(f"the launcher has ended; {self._last_words()}")

    def _last_words(self) -> str:
        lines = (self._folder / "launcher.log").read_text(encoding="utf-8", errors="replace").splitlines()
        return f"it said last: {lines[-1]}" if lines else "it said nothing"

    def _end(self) -> None:
        """Two signals end a job at once; the kernel ends its processes with the launcher, however that ends."""
        if self._client is not None:
            self._client.close()
        process = self._process
        if process is None or process.poll() is not None:
            return
        process.send_signal(signal.SIGTERM)
        time.sleep(_POLL_SECONDS)  # two signals at once may be taken for one
        process.send_signal(signal.SIGTERM)
        try:
            process.wait(_END_SECONDS)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait(_END_SECONDS)


def _row(rows: Sequence[RequestState], request_id: str) -> RequestState:
    return next(row for row in rows if row.request_id == request_id)
