"""HTTP server of the learner: /healthz (the process answers), /readyz (it takes updates), /metrics, the live page at /.

It has a bounded number of connections, each short-lived, and plain refusals. Anybody who reaches the port may ask: a
caller that sends nothing, or a byte now and then, keeps a thread for seconds and no longer, and of one that sends much
little is kept. Where all connections are taken, a newcomer takes the place of the oldest one of the address that has
most of them, unless that is its own: one address cannot keep others out.
"""

from __future__ import annotations

import contextlib
import socket
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from io import BufferedIOBase
from types import MappingProxyType
from typing import Any

from prometheus_client import CONTENT_TYPE_LATEST, generate_latest

from global_learner.errors import BadLearnerConfig
from global_learner.report.live import LiveReport
from global_learner.settings import is_loopback, split_address
from global_learner.telemetry import LearnerTelemetry

TEXT = "text/plain; charset=utf-8"
CONNECTION_SECONDS = 10.0
"""Longest life of a connection; a scrape takes milliseconds."""
MOST_CONNECTIONS = 256
"""Open at once, each with a thread that waits; a Prometheus and a few people looking on need a handful."""
MOST_HEAD_BYTES = 16 << 10
"""Of a request, its first line and its headers together: twice what a browser with many cookies sends. Python's own
limits are a hundred lines of 64 KiB, which by all connections would fill the machine's memory."""
_LINGER_SECONDS = 1.0
_MOST_LINGER_BYTES = 256 << 10
"""How long, and for how much, to go on reading what is thrown away: closed on bytes unread, a connection may lose the
answer that was sent on it."""


class HttpRefusal(StrEnum):
    """Why a request for a page is not answered with one; metrics know exactly these words."""

    NOT_FOUND = "not-found"
    """There is no such page."""
    BAD_METHOD = "bad-method"
    """Pages are read, by GET or HEAD, and nothing else."""
    FOREIGN_HOST = "foreign-host"
    """A page about the fleet was asked for under a name that is not this machine's own."""
    MALFORMED = "malformed"
    """It is no HTTP request, or one whose first line or headers are too long or too many (16 KiB together)."""
    TOO_BUSY = "too-busy"
    """As many connections as there is room for are open."""
    TOO_SLOW = "too-slow"
    """Its connection was open for too long."""


class HeadTooLarge(Exception):
    """A request's head is larger than is taken."""


class HeadReader:
    """Lines of a request's head, of so many bytes at most; stands where the base class reads its request."""

    def __init__(self, stream: BufferedIOBase) -> None:
        self._stream = stream
        self._bytes_left = MOST_HEAD_BYTES
        self.close = stream.close

    @property
    def is_new(self) -> bool:
        """Whether no line was read whole."""
        return self._bytes_left == MOST_HEAD_BYTES

    def readline(self, limit: int) -> bytes:
        """The next line; empty at the end.

        Raises:
            HeadTooLarge: it does not fit in with those before it.
        """
        line = self._stream.readline(min(limit, self._bytes_left + 1))
        if len(line) > self._bytes_left:
            raise HeadTooLarge
        self._bytes_left -= len(line)
        return line


@dataclass(frozen=True, slots=True)
class HttpAnswer:
    """What a request gets; `refusal` if it is no page."""

    status: int
    body: bytes
    kind: str = TEXT
    headers: Mapping[str, str] = field(default_factory=dict)
    refusal: HttpRefusal | None = None


@dataclass(frozen=True, slots=True)
class _Began:
    """When a connection was opened, and from where."""

    seconds: float
    address: str


class BoundedHttpServer(ThreadingHTTPServer):
    """Bounds how many connections there are, and how long each lives; what gets no page is `refused`."""

    daemon_threads = True
    block_on_close = False
    request_queue_size = MOST_CONNECTIONS

    def __init__(
        self,
        address: tuple[str, int],
        answer: Callable[[str, str], HttpAnswer],
        refused: Callable[[HttpRefusal], None],
        clock: Callable[[], float],
    ) -> None:
        self.answer = answer
        self.refused = refused
        self._clock = clock
        self._began: dict[socket.socket, _Began] = {}
        self._lock = threading.Lock()
        super().__init__(address, _Handler)

    def process_request(self, request: Any, client_address: Any) -> None:
        """A new connection: a thread for it, if there is room."""
        address = client_address[0]
        with self._lock:
            evicted = self._evicted(address) if len(self._began) >= MOST_CONNECTIONS else None
            if evicted is not None:
                del self._began[evicted]
            admitted = len(self._began) < MOST_CONNECTIONS
            if admitted:
                self._began[request] = _Began(self._clock(), address)
        if evicted is not None:
            self._end(evicted, HttpRefusal.TOO_BUSY)
        if admitted:
            super().process_request(request, client_address)
        else:
            self.refused(HttpRefusal.TOO_BUSY)
            super().shutdown_request(request)

    def shutdown_request(self, request: Any) -> None:
        """A connection is done."""
        with self._lock:
            self._began.pop(request, None)
        super().shutdown_request(request)

    def service_actions(self) -> None:
        """Now and then: end what is open for too long."""
        limit = self._clock() - CONNECTION_SECONDS
        with self._lock:
            overdue = [connection for connection, began in self._began.items() if began.seconds < limit]
            for connection in overdue:
                del self._began[connection]
        for connection in overdue:
            self._end(connection, HttpRefusal.TOO_SLOW)

    def _evicted(self, newcomer: str) -> socket.socket | None:
        """Whose place a newcomer takes; None if its own address has as many as any."""
        connections = Counter(began.address for began in self._began.values())
        most, count = connections.most_common(1)[0]
        if count <= connections[newcomer] + 1:
            return None
        return next(connection for connection, began in self._began.items() if began.address == most)

    def _end(self, connection: socket.socket, reason: HttpRefusal) -> None:
        self.refused(reason)
        with contextlib.suppress(OSError):  # it may just have gone by itself
            connection.shutdown(socket.SHUT_RDWR)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A caller that went away is no news."""


class _Handler(BaseHTTPRequestHandler):
    timeout = CONNECTION_SECONDS
    server: BoundedHttpServer

    def setup(self) -> None:
        """Before the first byte is read."""
        super().setup()
        self._head = HeadReader(self.rfile)
        self.rfile = self._head  # type: ignore[assignment]  # all that the base class asks of it is a line

    def handle_one_request(self) -> None:
        """Read a request and answer it."""
        too_large = False
        try:
            super().handle_one_request()
        except HeadTooLarge:
            too_large = True
        if too_large:  # only here, as what was read of the head goes with the error
            self._refuse_head()

    def _refuse_head(self) -> None:
        self.command = self.requestline = self.path = ""
        self.raw_requestline = b""
        long_line = self._head.is_new
        self.send_error(HTTPStatus.REQUEST_URI_TOO_LONG if long_line else HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE)
        self._throw_away()

    def _throw_away(self) -> None:
        """Let the caller read the answer before the connection is closed."""
        left = _MOST_LINGER_BYTES
        with contextlib.suppress(OSError):
            self.connection.shutdown(socket.SHUT_WR)
            self.connection.settimeout(_LINGER_SECONDS)
            while left > 0 and (part := self.connection.recv(8192)):
                left -= len(part)

    def do_GET(self) -> None:
        self._send(self.server.answer(self.path.partition("?")[0], self.headers.get("Host", "")))

    do_HEAD = do_GET

    def send_error(self, code: int, message: str | None = None, explain: str | None = None) -> None:
        """What the base class finds wrong with a request: one plain line, without the words of the request."""
        del message, explain
        if code == HTTPStatus.NOT_IMPLEMENTED:  # the base class's word for a method that it does not know
            allowed = {"Allow": "GET, HEAD"}
            unable = HTTPStatus.METHOD_NOT_ALLOWED
            self._send(HttpAnswer(unable, b"use GET\n", headers=allowed, refusal=HttpRefusal.BAD_METHOD))
        else:
            line = f"{HTTPStatus(code).phrase}\n".encode()
            self._send(HttpAnswer(code, line, refusal=HttpRefusal.MALFORMED))

    def _send(self, answer: HttpAnswer) -> None:
        if answer.refusal is not None:
            self.server.refused(answer.refusal)
        self.close_connection = True
        self.request_version = "HTTP/1.0"  # or the base class leaves the head out, if the request's was no version
        self.send_response(answer.status)
        own = {
            "Content-Type": answer.kind,
            "Content-Length": str(len(answer.body)),
            "X-Content-Type-Options": "nosniff",
        }
        for name, value in (own | dict(answer.headers)).items():
            self.send_header(name, value)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(answer.body)

    def version_string(self) -> str:
        """Which Python this is, is nobody's business."""
        return "global-learner"

    def log_message(self, format: str, *args: object) -> None:  # the base class's name
        """Requests for metrics are not worth a line."""


_POLL_SECONDS = 0.2
"""How often to look for connections that are open for too long."""
_PRIVATE: Mapping[str, str] = MappingProxyType(
    {
        "Cache-Control": "no-store",
        "Cross-Origin-Resource-Policy": "same-origin",
        "Referrer-Policy": "no-referrer",
        "X-Content-Type-Options": "nosniff",
        "X-Frame-Options": "DENY",
    }
)
"""With whatever is about the fleet: for the reader's eyes, and for no other page."""
_FOREIGN = HttpAnswer(
    403,
    b"ask for localhost or 127.0.0.1: this address shows the fleet to no other\n",
    refusal=HttpRefusal.FOREIGN_HOST,
)


@contextlib.contextmanager
def http_pages(
    address: str | None,
    telemetry: LearnerTelemetry,
    not_ready: Callable[[], str],
    live: LiveReport | None = None,
    health: Callable[[], str] = lambda: "ok",
    remark: Callable[[], str] = lambda: "",
    clock: Callable[[], float] = time.monotonic,
) -> Iterator[int | None]:
    """Answer at an address, if there is one, on threads of its own for as long as the block lasts; the bound port.

    Args:
        not_ready: why updates are not taken; empty while they are.
        live: the page at `/`; None if nothing about the fleet is shown here.
        health: what /healthz says.
        remark: what /readyz says besides while updates are taken; empty where there is nothing.

    Raises:
        BadConfig: the address cannot be listened on.
    """
    if address is None:
        yield None
        return
    pages: dict[str, Callable[[], HttpAnswer]] = {
        "/healthz": lambda: HttpAnswer(200, f"{health()}\n".encode()),
        "/readyz": lambda: _readiness(not_ready(), remark),
        "/metrics": lambda: HttpAnswer(200, generate_latest(telemetry.registry), CONTENT_TYPE_LATEST),
    }
    if live is not None:
        pages |= {"/": lambda: _page(live), "/report.json": lambda: _data(live)}
    nowhere = HttpAnswer(404, f"try {', '.join(pages)}\n".encode(), refusal=HttpRefusal.NOT_FOUND)
    local = is_loopback(address)

    def answer(path: str, host: str) -> HttpAnswer:
        found = pages[path]() if path in pages else nowhere
        # A page elsewhere that had its own name point here would else read the fleet's state.
        return _FOREIGN if local and found.headers and not _names_loopback(host) else found

    def refused(reason: HttpRefusal) -> None:
        telemetry.http_refusals.labels(reason).inc()

    try:
        server = BoundedHttpServer(split_address(address), answer, refused, clock)
    except OSError as error:
        raise BadLearnerConfig(
            f"telemetry.http_listen {address}: cannot be listened on ({error.strerror}); name another port"
        ) from error
    threading.Thread(target=server.serve_forever, args=(_POLL_SECONDS,), name="http", daemon=True).start()
    try:
        yield server.server_port
    finally:
        server.shutdown()
        server.server_close()


def _readiness(not_ready: str, remark: Callable[[], str]) -> HttpAnswer:
    if not_ready:
        return HttpAnswer(503, f"not ready: {not_ready}\n".encode())
    reason = remark()
    return HttpAnswer(200, f"ready; {reason}\n".encode() if reason else b"ready\n")


def _page(live: LiveReport) -> HttpAnswer:
    headers = {**_PRIVATE, "Content-Security-Policy": live.policy}
    return HttpAnswer(200, live.page, "text/html; charset=utf-8", headers)


def _data(live: LiveReport) -> HttpAnswer:
    data = live.data()
    if data is None:
        return HttpAnswer(503, b"the learner is busy; ask again\n", headers=_PRIVATE)
    return HttpAnswer(200, data, "application/json", _PRIVATE)


def _names_loopback(host: str) -> bool:
    """Whether a request's `Host` is this machine's own name for itself."""
    name = host if host.endswith("]") or ":" not in host else host.rpartition(":")[0]
    return is_loopback(f"{name}:0")
