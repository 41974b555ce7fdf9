"""What the launcher has to tell the coordinator: in order, each until it is taken.

A thread of its own: the launcher goes on looking after its processes while nobody answers.
"""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable
from dataclasses import dataclass

from elastic_runtime.control.backoff import Backoff
from elastic_runtime.errors import CoordinatorUnreachable, ElasticError

_JOIN_SECONDS = 5.0


@dataclass(frozen=True, slots=True)
class _Letter:
    send: Callable[[], object]
    refused: Callable[[ElasticError], None]


class Outbox:
    """Sends from its making until it is closed."""

    def __init__(self, seed: int = 0) -> None:
        self._letters: queue.SimpleQueue[_Letter | None] = queue.SimpleQueue()
        self._backoff = Backoff(seed)
        self._closed = threading.Event()
        self._unsent = 0
        self._lock = threading.Lock()
        self._thread = threading.Thread(target=self._run, name="launcher outbox", daemon=True)
        self._thread.start()

    def post(self, send: Callable[[], object], refused: Callable[[ElasticError], None]) -> None:
        """Have this sent.

        Args:
            send: one call, which may be repeated; it raises `CoordinatorUnreachable` if it has to be.
            refused: gets any other error, from the outbox' thread.
        """
        with self._lock:
            self._unsent += 1
        self._letters.put(_Letter(send, refused))

    @property
    def empty(self) -> bool:
        """Whether everything was taken, or refused."""
        with self._lock:
            return self._unsent == 0

    def stop(self) -> None:
        """Send nothing more; what was not sent stays unsent: a coordinator misses its members by itself."""
        self._closed.set()
        self._letters.put(None)

    def close(self) -> None:
        """Stop, and wait for the thread; whoever closes the channel before has not to wait for the call under way."""
        self.stop()
        self._thread.join(_JOIN_SECONDS)

    def _run(self) -> None:
        while (letter := self._letters.get()) is not None:
            while not self._closed.is_set() and not self._sent(letter):
                self._closed.wait(self._backoff.next_seconds())
            self._backoff.reset()
            with self._lock:
                self._unsent -= 1

    def _sent(self, letter: _Letter) -> bool:
        try:
            letter.send()
        except CoordinatorUnreachable:
            return False
        except ElasticError as error:
            letter.refused(error)
        except ValueError:
            return self._closed.is_set()  # the channel was closed under the call
        return True
