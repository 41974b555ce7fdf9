"""Process of a job: started tied to the launcher, its output read, ended with everything that it started.

One thread a process reads both pipes, into the log line by line; the process never waits for a terminal, only for this
thread and the disk.
"""

from __future__ import annotations

import os
import selectors
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from io import FileIO
from pathlib import Path
from typing import IO

from elastic_runtime.launcher import parent_death
from elastic_runtime.launcher.job_spec import ProcessSpec
from elastic_runtime.launcher.warm.starter import WarmChild, WarmStarter
from foundation.files import PRIVATE, open_ordinary
from foundation.python310 import StrEnum
from foundation.text import plain_line

_POLL_SECONDS = 0.02
_PIECE_BYTES = 65536
_LONGEST_LINE_BYTES = 65536
"""A longer one is written in pieces: a progress bar may never end its line."""
_READ_SECONDS = 0.2


class Stream(StrEnum):
    """Where a line was written."""

    OUT = "stdout"
    ERROR = "stderr"


Show = Callable[[str, Stream, bytes], None]


class TaskLog:
    """A task's log file, bounded: at its limit it becomes TASK.log.1 and a new one begins.

    A disk that takes no bytes costs the lines, never the task that writes them.

    Args:
        path: JOBS/NAME/logs/TASK.log; a link in the place of the last three is not followed.
    """

    def __init__(self, path: Path, limit_bytes: int) -> None:
        self._path = path
        self._limit_bytes = limit_bytes
        self._stream = self._opened()
        self._size_bytes = self._stream.tell()
        self.lost_bytes = 0

    def write(self, data: bytes) -> None:
        """Append a line, or a piece of one."""
        try:
            if self._size_bytes and self._size_bytes + len(data) > self._limit_bytes:
                self._begin_anew()
            written = self._stream.write(data) or 0
        except (OSError, ValueError):  # a full disk, or a new file that could not be opened
            written = 0
        self._size_bytes += written
        self.lost_bytes += len(data) - written

    def close(self) -> None:
        """Nothing more will come."""
        self._stream.close()

    def _begin_anew(self) -> None:
        self._stream.close()
        self._path.replace(self._path.with_name(self._path.name + ".1"))
        self._stream = self._opened()
        self._size_bytes = 0

    def _opened(self) -> FileIO:
        """For its owner alone to read; the script may have put something else there, or in a folder's place."""
        below = self._path.parents[2] if len(self._path.parents) > 2 else None
        flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND
        return FileIO(open_ordinary(self._path, flags, PRIVATE, below=below), "ab")


class TaskOutput:
    """Reader of a task's pipes to their end; they are its own.

    Args:
        show: gets every whole line (without its end) from the reading thread; must not block.
    """

    def __init__(self, out: IO[bytes], errors: IO[bytes], log: TaskLog, show: Callable[[Stream, bytes], None]) -> None:
        self._log = log
        self._show = show
        self._pipes = {out.fileno(): (Stream.OUT, out), errors.fileno(): (Stream.ERROR, errors)}
        self._pending = {Stream.OUT: b"", Stream.ERROR: b""}
        self._last_error = b""
        self._last_line = b""
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._read, name="task-output", daemon=True)
        self._thread.start()

    def finish(self, wait_seconds: float = 10.0) -> str:
        """Read the rest of an ended task's output, and close everything.

        Something that the task started and left behind may hold the pipes open for ever: they are read until nothing is
        there. If it writes for ever too, this waits no longer than `wait_seconds`.

        Returns:
            the last line on stderr, else the last one at all; empty if it wrote nothing.
        """
        self._over.set()
        self._thread.join(wait_seconds)
        words = self._last_error or self._last_line
        return plain_line(words.decode("utf-8", "replace"))

    def _read(self) -> None:
        with selectors.DefaultSelector() as selector:
            for number in self._pipes:
                selector.register(number, selectors.EVENT_READ)
            while selector.get_map():
                # Looked at first: what a task wrote before its end is there to be read from then on.
                over = self._over.is_set()
                ready = selector.select(_READ_SECONDS)
                if not ready and over:
                    break
                for key, _ in ready:
                    if not self._take(key.fd):
                        selector.unregister(key.fd)
        for stream in Stream:
            if self._pending[stream]:
                self._line(stream, self._pending[stream])
        for _, pipe in self._pipes.values():
            with suppress(OSError):
                pipe.close()
        self._log.close()

    def _take(self, number: int) -> bool:
        stream, _ = self._pipes[number]
        try:
            data = os.read(number, _PIECE_BYTES)
        except OSError:
            return False
        *lines, rest = (self._pending[stream] + data).split(b"\n")
        for line in lines:
            self._line(stream, line)
        if len(rest) > _LONGEST_LINE_BYTES:
            self._line(stream, rest)
            rest = b""
        self._pending[stream] = rest
        return bool(data)

    def _line(self, stream: Stream, line: bytes) -> None:
        self._log.write(line + b"\n")
        # What a progress bar drew over says nothing any more.
        shown = line.rstrip(b"\r").rpartition(b"\r")[2]
        if shown.strip():
            self._last_line = shown
            if stream is Stream.ERROR:
                self._last_error = shown
        self._show(stream, shown)


class TaskProcess:
    """A running process.

    It has a session of its own: Ctrl-C reaches the launcher alone, and what the process starts can be ended with it.
    To be made in a thread that lives as long as the launcher: the kernel ends the process when that thread ends.

    Args:
        show: gets the task, the stream and each line; must not block.
        warm: forks it, where it can; as an attribute: it was forked.

    Raises:
        OSError: the log cannot be opened, or no process can be made.
    """

    def __init__(
        self, name: str, spec: ProcessSpec, log_bytes: int, show: Show, warm: WarmStarter | None = None
    ) -> None:
        self.name = name
        log = TaskLog(spec.log_file, log_bytes)
        try:
            self._child = (warm.start(spec) if warm is not None else None) or _ColdChild(spec)
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
    """A process that runs its program from the beginning, otherwise like a `WarmChild`."""

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
