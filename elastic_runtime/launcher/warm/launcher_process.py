"""Process of a launcher server, as its agent sees it: it imports, is ready, forks launchers, ends with its channel."""

from __future__ import annotations

import math
import os
import select
import signal
import socket
import subprocess
import sys
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from io import FileIO
from pathlib import Path
from typing import Any

from elastic_runtime.launcher.warm import wire
from elastic_runtime.launcher.warm.launcher_server import ROOM_VARIABLE
from elastic_runtime.launcher.warm.script_imports import Import
from foundation.files import open_ordinary

ROOM_BYTES = 4096
"""For the variable by which launchers are found, with its name."""
_PROGRAM = Path(__file__).with_name("fork_server.py")
_LONGEST_COMMAND_BYTES = 1024


class ServerGone(Exception):
    """It ended, does not answer, or cannot be used; the line says which."""


class LauncherProcess:
    """One launcher server.

    Args:
        channel: to it.
        deadline_seconds: until when it is to be ready, of the clock that `hear` is told.
        answer_seconds: how long it is waited for when it is asked for something.
        process: where it is a child of this one.

    Attributes:
        ready: whether it can fork.
    """

    def __init__(
        self,
        channel: socket.socket,
        deadline_seconds: float,
        answer_seconds: float,
        process: subprocess.Popen[bytes] | None = None,
    ) -> None:
        self.ready = False
        self._channel = channel
        self._deadline_seconds = deadline_seconds
        self._answer_seconds = answer_seconds
        self._process = process
        channel.settimeout(answer_seconds)

    @classmethod
    def begun(
        cls, environment: Mapping[str, str], log_file: Path, deadline_seconds: float, answer_seconds: float
    ) -> LauncherProcess:
        """Start one that imports the usual.

        Raises:
            OSError: no process can be started.
        """
        ours, its = socket.socketpair()
        try:
            flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC
            with its, FileIO(open_ordinary(log_file, flags), "wb") as log:
                process = subprocess.Popen(  # noqa: S603  (our own program)
                    [sys.executable, str(_PROGRAM), str(its.fileno()), " " * _LONGEST_COMMAND_BYTES],
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=log,
                    env={**environment, ROOM_VARIABLE: "-" * ROOM_BYTES},
                    start_new_session=True,
                    pass_fds=(its.fileno(),),
                )
        except OSError:
            ours.close()
            raise
        return cls(ours, deadline_seconds, answer_seconds, process)

    @property
    def pid(self) -> int | None:
        """Its process number, where it is a child of this process."""
        return None if self._process is None else self._process.pid

    def with_imports(self, imports: Iterable[Import], now_seconds: float, seconds: float) -> LauncherProcess:
        """Have it fork a server that imports more, and ends with it at the latest.

        Args:
            now_seconds: of the clock that `hear` is told.
            seconds: it may take; then it ends.

        Raises:
            ServerGone: it does not answer.
        """
        ours, its = socket.socketpair()
        with its:
            try:
                request = {
                    "imports": sorted([found.name, list(found.parts)] for found in imports),
                    "seconds": math.ceil(seconds),
                }
                wire.send(self._channel, request, (its.fileno(),))
            except OSError as error:
                ours.close()
                raise ServerGone(_silent(error)) from error
        return LauncherProcess(ours, now_seconds + seconds, self._answer_seconds)

    def hear(self, now_seconds: float) -> None:
        """Learn whether it is ready, without waiting for it.

        Raises:
            ServerGone: it never will be, or is not any more.
        """
        news = select.poll()
        news.register(self._channel, select.POLLIN)
        if news.poll(0):
            try:
                message: dict[str, Any] = wire.receive(self._channel)[0]
            except (OSError, EOFError, ValueError) as error:
                raise ServerGone("the process that was to fork them ended") from error
            if "obstacle" in message:
                raise ServerGone(str(message["obstacle"]))
            self.ready = True
        elif not self.ready and now_seconds >= self._deadline_seconds:
            raise ServerGone("not everything was imported in time")

    def fork(self, request: Mapping[str, Any], descriptors: Sequence[int]) -> int | None:
        """Have it fork a launcher, and give that one leave to begin; its process number, or None: it cannot begin.

        Raises:
            ServerGone: it does not answer. No launcher has begun.
        """
        ours, its = socket.socketpair()
        try:
            with ours, its:
                ours.settimeout(self._answer_seconds)
                wire.send(self._channel, request, (its.fileno(), *descriptors))
                its.close()
                answer: dict[str, Any] = wire.receive(ours)[0]
                if "pid" not in answer:
                    return None
                wire.send(ours, {"go": True})
                return int(answer["pid"])
        except (OSError, EOFError, ValueError) as error:
            raise ServerGone(_silent(error)) from error

    def close(self) -> None:
        """End it; launchers stay."""
        self._channel.close()
        if self._process is not None:
            with suppress(ProcessLookupError):
                os.kill(self._process.pid, signal.SIGKILL)  # it has nothing to lose
            with suppress(subprocess.TimeoutExpired):  # it ends when the kernel lets it; others have waited enough
                self._process.wait(self._answer_seconds)


def _silent(error: Exception) -> str:
    return f"the process that was to fork them does not answer ({str(error) or 'it ended'})"
