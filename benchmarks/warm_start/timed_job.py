"""Job under `elastic-run`, resized and timed; nothing of it outlives this process."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
import uuid
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Self

from elastic_runtime.control.client import ControlClient
from elastic_runtime.control.messages import JobStatus, RequestOutcome, RequestState, Size
from elastic_runtime.errors import ElasticError
from elastic_runtime.launcher import parent_death
from elastic_runtime.launcher.job_folder import JobFolder
from elastic_runtime.launcher.job_status import client_of
from elastic_runtime.protocol.plan import Phase

_LOOK_SECONDS = 0.02
_END_SECONDS = 60.0
_ROOT = Path(__file__).parents[2]


@dataclass(frozen=True, slots=True)
class Resized:
    """One resize, in seconds.

    Attributes:
        seconds: from the request until the coordinator says that it is done.
        start_seconds: until the new processes were up, of them; with a process's own imports.
        ready_seconds: from then on until these were ready to take part: data, model, a first batch.
    """

    seconds: float
    start_seconds: float
    ready_seconds: float


class TimedJob:
    """A job as a context: it trains on entering, and is ended on leaving.

    Args:
        folder: of the jobs.
        name: of this one.
        script: what it trains.
        arguments: of the script.
        cold: whether its tasks start cold.
        deadline_seconds: of every wait.
    """

    def __init__(
        self,
        folder: Path,
        name: str,
        script: Path,
        arguments: Sequence[str],
        cold: bool,
        deadline_seconds: float = 180.0,
    ) -> None:
        self._folder, self._name, self._deadline_seconds = folder, name, deadline_seconds
        self._options = [f"--folder={folder}", f"--name={name}", "--quiet", *(["--cold"] if cold else [])]
        self._program = [str(script), *arguments]
        self._process: subprocess.Popen[bytes] | None = None
        self._client: ControlClient | None = None
        self.first_start_seconds = 0.0
        """From the command until it trained."""

    def __enter__(self) -> Self:
        command = [sys.executable, "-I", "-S", str(parent_death.__file__), str(os.getpid())]
        command += [sys.executable, "-m", "elastic_runtime.cli", "--ps=1", "--workers=1", "--worker-threads=1"]
        began = time.monotonic()
        self._folder.mkdir(parents=True, exist_ok=True)
        with (self._folder / f"{self._name}.launcher.log").open("wb") as log:
            self._process = subprocess.Popen(
                [*command, *self._options, *self._program], cwd=_ROOT, stdout=log, stderr=log
            )
        try:
            self._wait("it to train", lambda status: status.phase is Phase.RUNNING and status.step > 0)
        except BaseException:
            self._end()
            raise
        self.first_start_seconds = time.monotonic() - began
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._end()

    def resize(self, servers: int, workers: int) -> Resized:
        """Ask for a size, and wait until the job has it.

        Raises:
            ElasticError: it was given up, or not done in time.
        """
        name = uuid.uuid4().hex
        began = time.monotonic()
        assert self._client is not None  # noqa: S101  (made on entering)
        self._client.resize(name, Size(servers, workers))
        status = self._wait("the resize", lambda status: _row(status, name).ended)
        seconds = time.monotonic() - began
        row = _row(status, name)
        if row.state is not RequestOutcome.DONE:
            raise ElasticError(f"the resize of {self._name} was given up: {row.detail}")
        return Resized(seconds, row.start_seconds, row.registration_seconds)

    def memory_mb(self) -> float:
        """What all its processes take, each page that several share counted once, in 10⁶ bytes."""
        assert self._process is not None  # noqa: S101
        total = 0
        for pid in _descendants(self._process.pid):
            with suppress(OSError):
                for line in Path(f"/proc/{pid}/smaps_rollup").read_text(encoding="ascii").splitlines():
                    if line.startswith("Pss:"):
                        total += int(line.split()[1])
        return total * 1024 / 1e6

    def _wait(self, what: str, holds: Callable[[JobStatus], bool]) -> JobStatus:
        deadline = time.monotonic() + self._deadline_seconds
        while time.monotonic() < deadline:
            assert self._process is not None  # noqa: S101
            if self._process.poll() is not None:
                raise ElasticError(f"{self._name} ended; see {self._folder / self._name}.launcher.log")
            with suppress(ElasticError):
                if self._client is None:
                    self._client = client_of(JobFolder(self._folder / self._name), self._deadline_seconds)
                status = self._client.status()
                if holds(status):
                    return status
            time.sleep(_LOOK_SECONDS)
        raise ElasticError(f"{self._name}: waited {self._deadline_seconds:g} s for {what}")

    def _end(self) -> None:
        if self._client is not None:
            self._client.close()
        process = self._process
        if process is None:
            return
        process.send_signal(signal.SIGKILL)  # the kernel ends all others with it
        process.wait(_END_SECONDS)


def _row(status: JobStatus, name: str) -> RequestState:
    return next(row for row in status.requests if row.request_id == name)


def _descendants(pid: int) -> Iterator[int]:
    yield pid
    with suppress(OSError):
        for task in Path(f"/proc/{pid}/task").iterdir():
            for child in (task / "children").read_text(encoding="ascii").split():
                yield from _descendants(int(child))
