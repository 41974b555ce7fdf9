"""Fork server that a launcher was born with, until the launcher takes it."""

from __future__ import annotations

import os
import signal
import socket
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass

_POLL_SECONDS = 0.005
_END_SECONDS = 10.0


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


@dataclass(frozen=True, slots=True)
class Inherited:
    """A fork server with nothing of a script imported yet.

    Attributes:
        environment: that it began with.
    """

    process: ForkedProcess
    channel: socket.socket
    environment: Mapping[str, str]


_offered: list[Inherited] = []


def offer(inherited: Inherited) -> None:
    """Have one for whoever asks first in this process."""
    _offered.append(inherited)


def drop() -> None:
    """End the one that is there, if any: nobody will ask."""
    for left in _offered:
        left.channel.close()
        with suppress(ProcessLookupError):
            os.kill(left.process.pid, signal.SIGKILL)
        left.process.wait(_END_SECONDS)
    _offered.clear()


def take() -> Inherited | None:
    """The one that is there, once; None if there is none."""
    return _offered.pop() if _offered else None
