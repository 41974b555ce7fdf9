"""Process of a launcher server, as its agent sees it: it imports, is ready, forks launchers, ends with its channel."""

from __future__ import annotations

import os
import select
import signal
import socket
import subprocess
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from elastic_runtime.launcher.warm import wire
from elastic_runtime.launcher.warm.launcher_server import ROOM_VARIABLE
from elastic_runtime.launcher.warm.script_imports import Import

ROOM_BYTES = 4096
"""For the variable by which launchers are found, with its name."""
_PROGRAM = Path(__file__).with_name("launcher_server.py")
_LONGEST_COMMAND_BYTES = 1024
_WORD_SECONDS = 10.0


class ServerGone(Exception):
    """It ended, does not answer, or cannot be used; the line says which."""


class LauncherProcess:
    """One launcher server.

    Args:
        environment: that it starts with.
        imports: what it is to import beside the usual.
        log_file: what it writes goes there.
        deadline_seconds: until when it is to be ready, of the clock that `hear` is told.

    Attributes:
        ready: whether it can fork.

    Raises:
        OSError: no process can be started.
    """

    def __init__(
        self, environment: Mapping[str, str], imports: frozenset[Import], log_file: Path, deadline_seconds: float
    ) -> None:
        self.ready = False
        self.imports = imports
        self._log_file = log_file
        self._deadline_seconds = deadline_seconds
        ours, its = socket.socketpair()
        try:
            with its, log_file.open("wb") as log:
                self._process = subprocess.Popen(  # noqa: S603  (our own program)
                    [sys.executable, str(_PROGRAM), str(its.fileno()), " " * _LONGEST_COMMAND_BYTES],
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=log,
                    env={**environment, ROOM_VARIABLE: "-" * ROOM_BYTES},
                    start_new_session=True,
                    pass_fds=(its.fileno(),),
                )
            ours.settimeout(_WORD_SECONDS)
            wire.send(ours, {"imports": sorted([found.name, list(found.parts)] for found in imports)})
        except OSError:
            ours.close()
            raise
        self._channel = ours

    @property
    def pid(self) -> int:
        """Its process number."""
        return self._process.pid

    def hear(self, now_seconds: float) -> None:
        """Learn whether it is ready, without waiting for it.

        Raises:
            ServerGone: it never will be, or is not any more.
        """
        if select.select([self._channel], [], [], 0.0)[0]:
            try:
                message: dict[str, Any] = wire.receive(self._channel)[0]
            except (OSError, EOFError, ValueError) as error:
                raise ServerGone(f"the process that was to fork them ended (see {self._log_file})") from error
            if "obstacle" in message:
                raise ServerGone(str(message["obstacle"]))
            self.ready = True
        elif not self.ready and now_seconds >= self._deadline_seconds:
            raise ServerGone(f"not everything was imported in time (see {self._log_file})")

    def fork(self, request: Mapping[str, Any], descriptors: Sequence[int], answer_seconds: float) -> int:
        """Have it fork a launcher, and give that one leave to begin; its process number.

        Raises:
            ServerGone: it does not answer. No launcher was begun.
        """
        ours, its = socket.socketpair()
        try:
            with ours, its:
                ours.settimeout(answer_seconds)
                self._channel.settimeout(answer_seconds)
                wire.send(self._channel, request, (its.fileno(), *descriptors))
                its.close()
                answer: dict[str, Any] = wire.receive(ours)[0]
                wire.send(ours, {"go": True})
                return int(answer["pid"])
        except (OSError, EOFError, ValueError) as error:
            raise ServerGone(f"the process that was to fork them does not answer ({error or 'it ended'})") from error

    def close(self) -> None:
        """End it; launchers stay."""
        self._channel.close()
        with suppress(ProcessLookupError):
            os.kill(self._process.pid, signal.SIGKILL)  # it has nothing to lose
        self._process.wait()
