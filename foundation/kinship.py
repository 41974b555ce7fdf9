"""Kinship of processes: whose children orphans become, and who ends with its parent.

A process that is forked on another one's behalf is to be that one's child: nobody else can take its number, and its
exit code arrives whatever becomes of the process that forked it. One that nobody would end any more is to end with
whoever began it, also where that is killed. Source: prctl(2), PR_SET_CHILD_SUBREAPER and PR_SET_PDEATHSIG, of Linux.
"""

from __future__ import annotations

import ctypes
import os
import signal
from collections.abc import Container
from contextlib import suppress

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
