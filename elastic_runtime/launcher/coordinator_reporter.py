"""Reports of the launcher to the coordinator: in order, each until it is taken.

A thread of its own: the launcher goes on looking after its processes while nobody answers.
"""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable
from dataclasses import dataclass

from elastic_runtime.errors import CoordinatorUnreachable, ElasticError
from elastic_runtime.launcher.settings import call_backoff

_JOIN_SECONDS = 5.0


@dataclass(frozen=True, slots=True)
class _Report:
    send: Callable[[], object]
    refused: Callable[[ElasticError], None]


class CoordinatorReporter:
    """Sends from its making until it is closed.

    Args:
        wake: called from its thread when everything is sent.
    """

    def __init__(self, wake: Callable[[], None] = lambda: None, seed: int = 0) -> None:
        self._wake = wake
        self._reports: queue.SimpleQueue[_Report | None] = queue.SimpleQueue()
        self._backoff = call_backoff(seed)
        self._closed = threading.Event()
        self._unsent = 0
        self._lock = threading.Lock()
        self._thread = threading.Thread(target=self._run, name="launcher reports", daemon=True)
        self._thread.start()

    def post(self, send: Callable[[], object], refused: Callable[[ElasticError], None]) -> None:
        """Have this sent.

        Args:
            send: one call, which may be repeated; it raises `CoordinatorUnreachable` if it has to be.
            refused: gets any other error, from the reporter's thread.
        """
        with self._lock:
            self._unsent += 1
        self._reports.put(_Report(send, refused))

    @property
    def empty(self) -> bool:
        """Whether everything was taken, or refused."""
        with self._lock:
            return self._unsent == 0

    def stop(self) -> None:
        """Send nothing more; what was not sent stays unsent: a coordinator misses its members by itself."""
        self._closed.set()
        self._reports.put(None)

    def close(self) -> None:
        """Stop, and wait for the thread; whoever closes the channel before has not to wait for the call under way."""
        self.stop()
        self._thread.join(_JOIN_SECONDS)

    def _run(self) -> None:
        while (report := self._reports.get()) is not None:
            while not self._closed.is_set() and not self._sent(report):
                self._closed.wait(self._backoff.next_seconds())
            self._backoff.reset()
            with self._lock:
                self._unsent -= 1
            if self.empty:
                self._wake()

    def _sent(self, report: _Report) -> bool:
        try:
            report.send()
        except CoordinatorUnreachable:
            return False
        except ElasticError as error:
            report.refused(error)
        except ValueError:
            return self._closed.is_set()  # the channel was closed under the call
        return True
