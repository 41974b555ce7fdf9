"""Processes that carry a mark in their environment, found and ended by it, also when whoever started them is gone.

Children inherit the mark, also in a session or group of their own. Linux only: elsewhere none is found.
"""

from __future__ import annotations

import contextlib
import os
import signal
from collections.abc import Iterable, Iterator
from pathlib import Path


def marked_processes(variable: str, mark: str, *, prefix: bool = False) -> list[int]:
    """Numbers of all processes of this user that were started with the mark; this process is never among them.

    Args:
        prefix: whether values that only begin with `mark` count too.
    """
    return [number for number in _own_processes() if _has_mark(number, variable, mark, prefix)]


def end_marked(variable: str, mark: str, *, prefix: bool = False) -> int:
    """Kill all processes with a mark, as `marked_processes` finds them; how many there were."""
    ended = 0
    for number in marked_processes(variable, mark, prefix=prefix):
        with contextlib.suppress(ProcessLookupError, PermissionError):
            handle = os.pidfd_open(number)  # from here on the number cannot mean another process
            try:
                if _has_mark(number, variable, mark, prefix):
                    signal.pidfd_send_signal(handle, signal.SIGKILL)
                    ended += 1
            finally:
                os.close(handle)
    return ended


def cpu_seconds(numbers: Iterable[int]) -> float:
    """Processor time that processes, and what they have waited for, have used; of one that has ended, none."""
    ticks = 0
    for number in numbers:
        with contextlib.suppress(OSError, ValueError, IndexError):
            fields = (
                Path(f"/proc/{number}/stat").read_text(encoding="ascii", errors="replace").rpartition(") ")[2].split()
            )
            ticks += sum(int(field) for field in fields[11:15])  # utime, stime, cutime, cstime: proc(5)
    return ticks / os.sysconf("SC_CLK_TCK")


def _own_processes() -> Iterator[int]:
    own, myself = os.getuid(), os.getpid()
    try:
        with os.scandir("/proc") as entries:
            for entry in entries:
                with contextlib.suppress(OSError):
                    if entry.name.isdigit() and entry.stat().st_uid == own and int(entry.name) != myself:
                        yield int(entry.name)
    except OSError:
        return


def _has_mark(number: int, variable: str, mark: str, prefix: bool) -> bool:
    """Whether a process that has not ended carries the mark; what waits for its parent has no environment any more."""
    try:
        variables = Path(f"/proc/{number}/environ").read_bytes().split(b"\0")
    except OSError:
        return False
    wanted = f"{variable}={mark}".encode()
    return any(found.startswith(wanted) if prefix else found == wanted for found in variables)
