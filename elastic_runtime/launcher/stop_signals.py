"""Signals that end a launcher: the first asks for a checkpoint and an end, the second for an end at once.

SIGHUP, of a terminal or a line to this machine that was closed, is one of them, unless it is ignored (`nohup`).
"""

from __future__ import annotations

import queue
import signal
from types import FrameType, TracebackType
from typing import Any

SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class StopSignals:
    """Counts signals while its context lasts; only in the main thread.

    Args:
        news: gets something at each signal. A `SimpleQueue` may be filled from a handler, whatever the thread was at.
    """

    def __init__(self, news: queue.SimpleQueue[None]) -> None:
        self._news = news
        self._before: dict[signal.Signals, Any] = {}
        self.count = 0

    def __enter__(self) -> StopSignals:
        for number in SIGNALS:
            if number is signal.SIGHUP and signal.getsignal(number) is signal.SIG_IGN:
                continue
            self._before[number] = signal.signal(number, self._take)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)

    def _take(self, number: int, frame: FrameType | None) -> None:
        del number, frame
        self.count += 1
        self._news.put(None)
