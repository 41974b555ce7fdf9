"""Kinship of processes: whose children orphans become, who ends with its parent, and who carries a common mark.

A process that is forked on another one's behalf is to be that one's child: nobody else can take its number, and its
exit code arrives whatever becomes of the process that forked it. One that nobody would end any more is to end with
whoever began it, also where that is killed. Source: prctl(2), PR_SET_CHILD_SUBREAPER and PR_SET_PDEATHSIG, of Linux.

Children inherit a mark in their environment, also in a session or group of their own, so that they are found and ended
by it when whoever started them is gone. Linux only: elsewhere none is found.
"""

from __future__ import annotations

import ctypes
import os
import signal
from collections.abc import Container, Iterable, Iterator
from contextlib import suppress
from pathlib import Path

_PR_SET_PDEATHSIG = 1
_PR_SET_CHILD_SUBREAPER = 36


def adopt() -> bool:
    """Become the parent of all descendants that lose theirs, from now on; whether that can be."""
    prctl = getattr(ctypes.CDLL(None, use_errno=True), "prctl", None)
    return prctl is not None and prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) == 0


def reap(known: Container[int]) -> None:
    """Let go of adopted children that have ended.

    Args:
        known: process numbers of children that somebody else waits for; these are left alone.
    """
    with suppress(ChildProcessError):
        while (ended := os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)) is not None:
            if ended.si_pid in known:
                return  # it is waited for soon; what ended behind it has time
            os.waitpid(ended.si_pid, 0)


def die_with_parent(parent: int) -> None:
    """Have the kernel kill this process when its parent ends, however that ends, or end now if it has.

    Other systems than Linux have no such call: there a process needs a deadline as well. The parent is the thread that
    made this process.
    """
    prctl = getattr(ctypes.CDLL(None, use_errno=True), "prctl", None)
    if prctl is not None:
        prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    if os.getppid() != parent:  # it ended before the kernel was told
        os._exit(1)


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
        with suppress(ProcessLookupError, PermissionError):
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
        with suppress(OSError, ValueError, IndexError):
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
                with suppress(OSError):
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
    entry = f"{variable}={mark}".encode()
    return any(found.startswith(entry) if prefix else found == entry for found in variables)
