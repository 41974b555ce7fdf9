"""SIGTERM and SIGINT: at once while the agent is still starting, in good order once it schedules."""

from __future__ import annotations

import signal
import threading
from types import FrameType

SIGNALS = (signal.SIGTERM, signal.SIGINT)


class StoppedEarly(BaseException):
    """Told to stop before anything ran; no `Exception`, so that whatever was being read cannot take it for a fault."""


class StopSignals:
    """Takes both signals from its making on; only in the main thread.

    Attributes:
        stop: set once the agent, having started, is to stop.
    """

    def __init__(self) -> None:
        self.stop = threading.Event()
        self._started = False
        for number in SIGNALS:
            signal.signal(number, self._take)

    def started(self) -> None:
        """From now on signals interrupt nothing: somebody looks at `stop`, or the command is at its end."""
        self._started = True

    def _take(self, number: int, frame: FrameType | None) -> None:
        del number, frame
        if self.stop.is_set():
            return  # a second one, while the first is being obeyed
        self.stop.set()
        if not self._started:
            raise StoppedEarly
