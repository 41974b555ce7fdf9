"""Process of a job: started tied to the launcher, its output read, ended with everything that it started."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from typing import IO, Protocol

from elastic_runtime.launcher import parent_death
from elastic_runtime.launcher.job_spec import ProcessSpec
from elastic_runtime.launcher.task_output import Stream, TaskLog, TaskOutput
from elastic_runtime.launcher.warm.starter import WarmChild, WarmStarter

_POLL_SECONDS = 0.02
Show = Callable[[str, Stream, bytes], None]


class _Child(Protocol):
    """A child process, and the read ends of what it writes."""

    @property
    def pid(self) -> int: ...
    @property
    def out(self) -> IO[bytes]: ...
    @property
    def errors(self) -> IO[bytes]: ...
    def reap(self) -> int:
        """Wait for its end; its exit code, minus the signal's number if one ended it."""
        ...


class TaskProcess:
    """A running process.

    It has a session of its own: Ctrl-C reaches the launcher alone, and what the process starts can be ended with it.
    To be made in a thread that lives as long as the launcher: the kernel ends the process when that thread ends.

    Args:
        name: the task, or `coordinator`.
        spec: how to start it.
        log_bytes: the size at which its log is begun anew.
        show: gets the task, the stream and each line; must not block.
        warm: forks it, where it can.

    Attributes:
        warm: it was forked.

    Raises:
        OSError: the log cannot be opened, or no process can be made.
    """

    def __init__(
        self, name: str, spec: ProcessSpec, log_bytes: int, show: Show, warm: WarmStarter | None = None
    ) -> None:
        self.name = name
        log = TaskLog(spec.log_file, log_bytes)
        try:
            self._child: _Child = (warm.start(spec) if warm is not None else None) or _ColdChild(spec)
        except OSError:
            log.close()
            raise
        self.pid = self._child.pid
        self.warm = isinstance(self._child, WarmChild)
        log.write(f"--- {name} starts as process {self.pid}\n".encode())
        self._output = TaskOutput(
            self._child.out, self._child.errors, log, lambda stream, line: show(name, stream, line)
        )
        self._exit_code: int | None = None
        self._last_words: str | None = None

    def poll(self) -> int | None:
        """Exit code, minus the signal's number if one ended it; None while it runs.

        The first look that finds it ended also ends whatever it left behind in its session.
        """
        if self._exit_code is None:
            # Looked at before it is reaped: as long as it is a zombie, nobody else can have its number.
            if os.waitid(os.P_PID, self.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is None:
                return None
            self._signal_group(signal.SIGKILL)
            self._exit_code = self._child.reap()
        return self._exit_code

    def last_words(self) -> str:
        """The last line that the ended process wrote, on stderr if it wrote any there."""
        if self._last_words is None:
            self._last_words = self._output.finish()
        return self._last_words

    def terminate(self) -> None:
        """Ask the process itself to end in good order."""
        if self._exit_code is None:
            with suppress(ProcessLookupError):
                os.kill(self.pid, signal.SIGTERM)

    def kill(self) -> None:
        """End it, and everything that it started, at once."""
        if self._exit_code is None:
            self._signal_group(signal.SIGKILL)

    def wait(self, seconds: float, clock: Callable[[], float] = time.monotonic) -> bool:
        """Wait for the end; False if it did not come in time."""
        deadline = clock() + seconds
        while self.poll() is None:
            if clock() >= deadline:
                return False
            time.sleep(_POLL_SECONDS)
        return True

    def _signal_group(self, number: signal.Signals) -> None:
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(self.pid, number)


class _ColdChild:
    """A process that runs its program from the beginning."""

    def __init__(self, spec: ProcessSpec) -> None:
        tied = [sys.executable, "-I", "-S", str(parent_death.__file__), str(os.getpid()), *spec.command]
        self._process = subprocess.Popen(  # noqa: S603  (the user's own script, or ours)
            tied,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            bufsize=0,
            env=dict(spec.environment),
            cwd=spec.working_folder,
            start_new_session=True,
            pass_fds=spec.descriptors,
        )
        self.pid = self._process.pid
        assert self._process.stdout is not None  # noqa: S101  (asked for above)
        assert self._process.stderr is not None  # noqa: S101
        self.out, self.errors = self._process.stdout, self._process.stderr

    def reap(self) -> int:
        return self._process.wait()
