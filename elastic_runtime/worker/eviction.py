"""SIGTERM for a worker, which its container gets before it is ended: it asks to be let go, and works until it is."""

from __future__ import annotations

import os
import queue
import signal
import threading
from collections.abc import Callable
from types import FrameType

import structlog

_log = structlog.get_logger()
_JOIN_SECONDS = 5.0


class Eviction:
    """Answers SIGTERM until it is closed: the first asks, the second ends the process as if nobody answered.

    A script that handles SIGTERM itself, or trains in another thread than its main one, is left to itself.

    Args:
        ask: tells the coordinator that this worker wants to go; called in a thread.
        grace_seconds: how long to wait to be let go; then the process ends as by a second SIGTERM.
    """

    def __init__(self, ask: Callable[[], None], grace_seconds: float) -> None:
        self._ask = ask
        self._grace_seconds = grace_seconds
        self._process = os.getpid()
        self._asked = self._closed = False
        # A handler may come upon any lock of its own thread: it only fills a queue made for that.
        self._news: queue.SimpleQueue[bool] = queue.SimpleQueue()
        self._thread: threading.Thread | None = None
        in_main = threading.current_thread() is threading.main_thread()
        if in_main and signal.getsignal(signal.SIGTERM) is signal.SIG_DFL:
            self._thread = threading.Thread(target=self._wait, name="eviction", daemon=True)
            self._thread.start()
            signal.signal(signal.SIGTERM, self._take)

    def close(self) -> None:
        """SIGTERM does again what it did before."""
        if self._thread is None:
            return
        self._closed = True
        in_main = threading.current_thread() is threading.main_thread()
        if in_main and signal.getsignal(signal.SIGTERM) == self._take:
            signal.signal(signal.SIGTERM, signal.SIG_DFL)
        self._news.put(False)
        self._thread.join(_JOIN_SECONDS)

    def _take(self, number: int, frame: FrameType | None) -> None:
        del frame
        # A child that was forked with this handler has no thread that would act on it.
        if self._asked or self._closed or os.getpid() != self._process:
            signal.signal(number, signal.SIG_DFL)
            os.kill(os.getpid(), number)
        else:
            self._asked = True
            self._news.put(True)

    def _wait(self) -> None:
        if not self._news.get():
            return
        _log.warning("told_to_go", grace_seconds=self._grace_seconds)
        self._ask()
        try:
            self._news.get(timeout=self._grace_seconds)
        except queue.Empty:
            _log.warning("not_let_go", waited_seconds=self._grace_seconds)
            os.kill(self._process, signal.SIGTERM)
