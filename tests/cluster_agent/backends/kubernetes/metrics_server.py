"""A training job's own metrics endpoint on loopback, which says whatever a test wants, however it wants."""

from __future__ import annotations

import contextlib
import socket
import threading
from collections.abc import Callable, Iterator

Answer = Callable[[socket.socket, threading.Event], None]


def page(text: str, status: str = "200 OK") -> Answer:
    content = f"HTTP/1.1 {status}\r\nContent-Type: text/plain\r\nContent-Length: {len(text)}\r\n\r\n{text}".encode()

    def answer(connection: socket.socket, end: threading.Event) -> None:
        del end
        connection.sendall(content)

    return answer


def dripping(head: bytes, byte: bytes) -> Answer:
    """Begins to answer, and then says a byte at a time for ever."""

    def answer(connection: socket.socket, end: threading.Event) -> None:
        connection.sendall(head)
        while not end.wait(0.01):
            connection.sendall(byte)

    return answer


class MetricsServer:
    """Attributes:
    answer: to the next requests.
    asked: how many came.
    """

    def __init__(self) -> None:
        self.answer: Answer = page("")
        self.asked = 0
        self.at_once = self.most_at_once = 0
        self._lock = threading.Lock()
        self._end = threading.Event()
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = int(self._listener.getsockname()[1])

    @contextlib.contextmanager
    def running(self) -> Iterator[MetricsServer]:
        thread = threading.Thread(target=self._accept, daemon=True)
        thread.start()
        try:
            yield self
        finally:
            self._end.set()
            with contextlib.suppress(OSError):
                self._listener.shutdown(socket.SHUT_RDWR)
            self._listener.close()
            thread.join(30)

    def _accept(self) -> None:
        while not self._end.is_set():
            try:
                connection, _ = self._listener.accept()
            except OSError:
                return
            threading.Thread(target=self._serve, args=(connection,), daemon=True).start()

    def _serve(self, connection: socket.socket) -> None:
        with self._lock:
            self.asked += 1
            self.at_once += 1
            self.most_at_once = max(self.most_at_once, self.at_once)
        with connection, contextlib.suppress(OSError):
            while b"\r\n\r\n" not in connection.recv(4096):
                pass
            self.answer(connection, self._end)
        with self._lock:
            self.at_once -= 1
