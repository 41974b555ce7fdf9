"""Signals: handlers that are set together and put back together, and the one that a process gets when its parent ends.

Python runs a handler between two instructions of the main thread, whatever that was at: a handler sets a flag, fills a
`SimpleQueue` or raises, and leaves all work to whoever looks.

Source: prctl(2), PR_SET_PDEATHSIG, of Linux.
"""

from __future__ import annotations

import ctypes
import os
import signal
from collections.abc import Callable, Iterable
from types import FrameType
from typing import Any, Self

_PR_SET_PDEATHSIG = 1


def die_with_parent(parent: int) -> None:
    """Have the kernel kill this process when its parent ends, however that ends, or end now if it has.

    Other systems than Linux have no such call: there a process needs a deadline as well. The parent is the thread that
    made this process.

    Args:
        parent: its process number.
    """
    prctl = getattr(ctypes.CDLL(None, use_errno=True), "prctl", None)
    if prctl is not None:
        prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    if os.getppid() != parent:  # it ended before the kernel was told
        os._exit(1)


class SignalHandlers:
    """One handler for some signals, from `install` to `restore`; only in the main thread.

    A signal that whoever started the program had ignored, as `nohup` does with SIGHUP, stays ignored if it is one of
    `unless_ignored`.

    Args:
        numbers: the signals.
        take: called with a signal's number.
        unless_ignored: those of `numbers` that an ignoring parent keeps.
    """

    def __init__(
        self,
        numbers: Iterable[signal.Signals],
        take: Callable[[int], None],
        unless_ignored: Iterable[signal.Signals] = (signal.SIGHUP,),
    ) -> None:
        self._numbers = tuple(numbers)
        self._take = take
        self._unless_ignored = frozenset(unless_ignored)
        self._before: dict[signal.Signals, Any] = {}

    def install(self) -> None:
        """Take the signals from now on; a second time changes nothing."""
        for number in self._numbers:
            ignored = signal.getsignal(number) is signal.SIG_IGN and number in self._unless_ignored
            if number not in self._before and not ignored:
                self._before[number] = signal.signal(number, self._on_signal)

    def restore(self) -> None:
        """Put back what stood before."""
        while self._before:
            signal.signal(*self._before.popitem())

    def __enter__(self) -> Self:
        self.install()
        return self

    def __exit__(self, *_: object) -> None:
        self.restore()

    def _on_signal(self, number: int, frame: FrameType | None) -> None:
        del frame
        self._take(number)
