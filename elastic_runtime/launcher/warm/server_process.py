"""Process of a fork server, as its owner sees it: it imports, is ready, forks, and ends with its channel."""

from __future__ import annotations

import math
import os
import select
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from io import FileIO
from pathlib import Path
from typing import Any

from elastic_runtime.launcher.script_source import Import
from elastic_runtime.launcher.warm import wire

_PROGRAM = Path(__file__).with_name("fork_server.py")
_POLL_SECONDS = 0.005
_END_SECONDS = 10.0
_ENDED = "the process that was to fork them ended"


class ServerGone(Exception):
    """It ended, does not answer, or cannot be used; the line says which."""


class ServerUnfit(ServerGone):
    """Its imports cannot be forked, and could not be the next time."""


class ForkedProcess:
    """A child that was forked here, used as one of `subprocess`."""

    def __init__(self, pid: int) -> None:
        self.pid = pid
        self._exit_code: int | None = None

    def poll(self) -> int | None:
        """Its exit code, minus the signal's number if one ended it; None while it runs."""
        if self._exit_code is None:
            found, status = os.waitpid(self.pid, os.WNOHANG)
            if found:
                self._exit_code = os.waitstatus_to_exitcode(status)
        return self._exit_code

    def wait(self, timeout: float, clock: Callable[[], float] = time.monotonic) -> int:
        """Wait for its end.

        Raises:
            TimeoutError: it does not come.
        """
        deadline = clock() + timeout
        while (code := self.poll()) is None:
            if clock() >= deadline:
                raise TimeoutError(f"process {self.pid} does not end")
            time.sleep(_POLL_SECONDS)
        return code


class ForkServerProcess:
    """One fork server: of launchers, or of a launcher's tasks.

    Args:
        deadline_seconds: until when it is to be ready, by the clock of `hear`.
        answer_seconds: how long it is waited for when it is asked for something.
    """

    def __init__(
        self,
        channel: socket.socket,
        deadline_seconds: float,
        answer_seconds: float,
        process: subprocess.Popen[bytes] | ForkedProcess | None = None,
    ) -> None:
        self.ready = False
        self._channel = channel
        self._deadline_seconds = deadline_seconds
        self._answer_seconds = answer_seconds
        self._process = process
        channel.settimeout(answer_seconds)

    @classmethod
    def begun(
        cls,
        words: Sequence[str],
        environment: Mapping[str, str],
        log: FileIO,
        deadline_seconds: float,
        answer_seconds: float,
        *,
        through: Sequence[str] = (),
        folder: Path | None = None,
    ) -> ForkServerProcess:
        """Start one.

        Args:
            words: of its command line, behind the channel's; see `fork_server`.
            through: a command that becomes the one behind it.

        Raises:
            OSError: no process can be started.
        """
        ours, its = socket.socketpair()
        try:
            with its, log:
                process = subprocess.Popen(  # noqa: S603  (our own program)
                    [*through, sys.executable, str(_PROGRAM), str(its.fileno()), *words],
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=log,
                    env=dict(environment),
                    cwd=folder,
                    start_new_session=True,
                    pass_fds=(its.fileno(),),
                )
        except OSError:
            ours.close()
            raise
        return cls(ours, deadline_seconds, answer_seconds, process)

    @property
    def pid(self) -> int | None:
        """Its process number, if it is a child of this process."""
        return None if self._process is None else self._process.pid

    def prepare(self, request: Mapping[str, Any], descriptors: tuple[int, ...], deadline_seconds: float) -> None:
        """Have it import more; it is not ready before it has.

        Raises:
            ServerGone: it does not answer.
        """
        self._deadline_seconds = deadline_seconds
        try:
            wire.send(self._channel, request, descriptors)
        except OSError as error:
            raise ServerGone(_silent(error)) from error

    def with_imports(self, imports: Iterable[Import], now_seconds: float, seconds: float) -> ForkServerProcess:
        """Have it fork a server that imports more within some seconds, and ends with it at the latest.

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
        return ForkServerProcess(ours, now_seconds + seconds, self._answer_seconds)

    def wake_when_it_speaks(self, wake: Callable[[], None]) -> None:
        """Call `wake`, in another thread, when it says something or is closed."""
        ear = self._channel.dup()

        def wait() -> None:
            with ear:
                _poll(ear, None)
            wake()

        threading.Thread(target=wait, name="warm-start", daemon=True).start()

    def hear(self, now_seconds: float) -> None:
        """Look whether it is ready, without waiting.

        Raises:
            ServerGone: it never will be, or is not any more.
        """
        if self._process is not None and self._process.poll() is not None:
            raise ServerGone(_ENDED)  # perhaps before a child that serves in its place has
        if _poll(self._channel, 0):
            try:
                message: dict[str, Any] = wire.receive(self._channel)[0]
            except (OSError, EOFError, ValueError) as error:
                raise ServerGone(_ENDED) from error
            if "obstacle" in message:
                raise ServerUnfit(str(message["obstacle"]))
            self.ready = True
        elif not self.ready and now_seconds >= self._deadline_seconds:
            raise ServerGone("not everything was imported in time")

    def fork(self, request: Mapping[str, Any], descriptors: Sequence[int]) -> dict[str, Any]:
        """Have it fork, and give the fork leave to begin.

        Returns:
            `pid`: the fork's process number; or `refused`: why there is none.

        Raises:
            ServerGone: it does not answer. Nothing has begun.
        """
        ours, its = socket.socketpair()
        try:
            with ours, its:
                ours.settimeout(self._answer_seconds)
                wire.send(self._channel, request, (its.fileno(), *descriptors))
                its.close()
                answer: dict[str, Any] = wire.receive(ours)[0]
                if "pid" in answer:
                    wire.send(ours, {"go": True})
                return answer
        except (OSError, EOFError, ValueError) as error:
            raise ServerGone(_silent(error)) from error

    def close(self) -> None:
        """End it; its forks stay."""
        with suppress(OSError):
            self._channel.shutdown(socket.SHUT_RDWR)  # who waits until it speaks need not
        self._channel.close()
        if self._process is not None:
            with suppress(ProcessLookupError):
                os.killpg(self._process.pid, signal.SIGKILL)  # it has nothing to lose
            with suppress(TimeoutError, subprocess.TimeoutExpired):  # it ends when the kernel lets it
                self._process.wait(self._answer_seconds)


def _poll(channel: socket.socket, milliseconds: int | None) -> bool:
    news = select.poll()
    news.register(channel, select.POLLIN)
    return bool(news.poll(milliseconds))


def _silent(error: Exception) -> str:
    return f"the process that was to fork them does not answer ({str(error) or 'it ended'})"


@dataclass(frozen=True, slots=True)
class Inherited:
    """Fork server that a launcher was born with, with nothing of a script imported."""

    process: ForkedProcess
    channel: socket.socket
    environment: Mapping[str, str]


_offered: list[Inherited] = []


def offer_inherited(inherited: Inherited) -> None:
    """Keep a fork server for the one who takes it in this process."""
    _offered.append(inherited)


def drop_inherited() -> None:
    """End the fork server that was inherited, if nobody has taken it."""
    for left in _offered:
        left.channel.close()
        with suppress(ProcessLookupError):
            os.kill(left.process.pid, signal.SIGKILL)
        left.process.wait(_END_SECONDS)
    _offered.clear()


def take_inherited() -> Inherited | None:
    """The fork server that was inherited, once; None if there is none."""
    return _offered.pop() if _offered else None
