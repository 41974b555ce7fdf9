"""Signal handlers that are set together and, where their holder asks for it, put back together.

Python runs a handler between two instructions of the main thread, whatever that was at: a handler sets a flag, fills a
`SimpleQueue` or raises, and leaves all work to whoever looks.
"""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterable
from types import FrameType
from typing import Any, Self


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
