"""Kinship of processes: whose children orphans become, and who ends with its parent.

A task that is forked on the launcher's behalf is to be its child, so that nobody else can take its number, and its exit
code reaches the launcher whatever becomes of the process that forked it. With it come orphans of the tasks, which are
let go of when they end.

Source: prctl(2), PR_SET_CHILD_SUBREAPER and PR_SET_PDEATHSIG, of Linux.
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
    """Have the kernel kill this process when its parent ends, or end now if it has.

    Args:
        parent: its process number.
    """
    ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    if os.getppid() != parent:
        os._exit(1)
