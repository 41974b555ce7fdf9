"""An event for handlers of signals, apart from `program_life`: threads take time to import."""

from __future__ import annotations

import queue
import threading
from contextlib import suppress
from typing import NoReturn


class SignalEvent(threading.Event):
    """An event that a signal's handler may set, whatever the main thread is at; it is not cleared.

    `threading.Event` takes a lock to be set, for ever if the handler came upon a `wait` that had it.
    """

    def __init__(self) -> None:
        super().__init__()
        self._happened = False
        self._news: queue.SimpleQueue[None] = queue.SimpleQueue()

    def is_set(self) -> bool:
        """Whether it was set."""
        return self._happened

    def set(self) -> None:
        """Let everybody go on who waits, or will."""
        self._happened = True
        self._news.put(None)

    def clear(self) -> NoReturn:
        """It stays set.

        Raises:
            NotImplementedError: always.
        """
        raise NotImplementedError("what a signal has asked for is not taken back")

    def wait(self, timeout: float | None = None) -> bool:
        """Wait until it is set, for so many seconds at most; whether it is."""
        if not self._happened:
            with suppress(queue.Empty):
                self._news.get(timeout=None if timeout is None else max(timeout, 0.0))
                self._news.put(None)  # for whoever waits, too
        return self._happened
