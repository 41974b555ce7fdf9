"""Connection of a launcher to its coordinator, whether that restarts or not: the newest view, and reports in order.

Each way has a thread of its own: the launcher goes on looking after its processes while nobody answers.
"""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable
from typing import Any

from elastic_runtime.control.calls import STREAM_SECONDS, SealedChannel, call_backoff
from elastic_runtime.control.conversions import view_from_message
from elastic_runtime.control.credentials import ClientCredentials
from elastic_runtime.errors import CoordinatorUnproven, CoordinatorUnreachable, ElasticError, ProtocolError
from elastic_runtime.generated import elastic_pb2 as pb
from elastic_runtime.generated.elastic_pb2_grpc import MembershipStub
from elastic_runtime.protocol.plan import View

_JOIN_SECONDS = 5.0


class ViewFollower:
    """Follower of views, from its making until it is closed; keeps the newest.

    Args:
        on_news: called from its thread when there is a newer view, or the end of following; must not block.

    Attributes:
        failure: why it follows no longer (a wrong token, a protocol of another version); None while it does.
    """

    def __init__(self, address: str, job: str, credentials: ClientCredentials, on_news: Callable[[], None]) -> None:
        self.view: View | None = None
        self.failure: ElasticError | None = None
        self._address = address
        self._on_news = on_news
        self._backoff = call_backoff(0)
        self._closed = threading.Event()
        self._stream: Any = None
        self._channel = SealedChannel(address, job, credentials)
        self._stub = MembershipStub(self._channel)
        self._thread = threading.Thread(target=self._follow, name="launcher views", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """End the thread and the channel."""
        self._closed.set()
        if self._stream is not None:
            self._stream.cancel()
        self._channel.close()
        self._thread.join(_JOIN_SECONDS)

    def _follow(self) -> None:
        while not self._closed.is_set():
            try:
                self._read()
            except CoordinatorUnreachable as error:
                # It is being started again, or its network comes back; who never was our coordinator will not be it.
                if isinstance(error, CoordinatorUnproven) and self.view is None:
                    self._fail(error)
                    return
            except (ElasticError, ValueError) as error:
                self._fail(error)
                return
            self._closed.wait(self._backoff.next_seconds())

    def _read(self) -> None:
        request = pb.FollowRequest(task="launcher")
        self._stream = self._stub.Follow(request, timeout=STREAM_SECONDS)
        for message in self._stream:
            self._backoff.reset()
            if self.view is None or message.number > self.view.number:
                self.view = view_from_message(message)
                self._on_news()

    def _fail(self, error: ElasticError | ValueError) -> None:
        if self._closed.is_set():  # under the call, which raises ValueError then too
            return
        if isinstance(error, ValueError):
            error = ProtocolError(f"the coordinator at {self._address} sent no view: {error}")
        self.failure = error
        self._on_news()


class CoordinatorReporter:
    """Reports to the coordinator, in order, each until it is taken.

    Args:
        wake: called from its thread when everything is sent.
    """

    def __init__(self, wake: Callable[[], None] = lambda: None) -> None:
        self._wake = wake
        self._reports: queue.SimpleQueue[tuple[Callable[[], object], Callable[[ElasticError], None]] | None]
        self._reports = queue.SimpleQueue()
        self._backoff = call_backoff(0)
        self._closed = threading.Event()
        self._unsent = 0
        self._lock = threading.Lock()
        self._thread = threading.Thread(target=self._run, name="launcher reports", daemon=True)
        self._thread.start()

    def post(self, send: Callable[[], object], refused: Callable[[ElasticError], None]) -> None:
        """Send this.

        Args:
            send: one call, which may be repeated; it raises `CoordinatorUnreachable` if it has to be.
            refused: gets any other error, from the reporter's thread.
        """
        with self._lock:
            self._unsent += 1
        self._reports.put((send, refused))

    @property
    def empty(self) -> bool:
        """Whether everything was taken, or refused."""
        with self._lock:
            return self._unsent == 0

    def stop(self) -> None:
        """Send nothing more; unsent reports are dropped: a coordinator misses its members by itself."""
        self._closed.set()
        self._reports.put(None)

    def close(self) -> None:
        """Stop, and wait for the thread; with its channel closed before, no call is waited for."""
        self.stop()
        self._thread.join(_JOIN_SECONDS)

    def _run(self) -> None:
        while (report := self._reports.get()) is not None:
            while not self._closed.is_set() and not self._send(*report):
                self._closed.wait(self._backoff.next_seconds())
            self._backoff.reset()
            with self._lock:
                self._unsent -= 1
            if self.empty:
                self._wake()

    def _send(self, send: Callable[[], object], refused: Callable[[ElasticError], None]) -> bool:
        try:
            send()
        except CoordinatorUnreachable:
            return False
        except ElasticError as error:
            refused(error)
        except ValueError:
            return self._closed.is_set()  # the channel was closed under the call
        return True
