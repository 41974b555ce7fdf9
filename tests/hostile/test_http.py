"""The HTTP port under bad requests and slow callers: a plain answer, counted, and nobody else's words on a page."""

from __future__ import annotations

import contextlib
import io
import socket
import sys
from collections.abc import Iterator
from functools import partial

import pytest
from processes import wait_until

from global_learner.service.http_server import (
    MOST_CONNECTIONS,
    MOST_HEAD_BYTES,
    HeadReader,
    HeadTooLarge,
    HttpRefusal,
    http_pages,
)
from global_learner.telemetry import LearnerTelemetry

SECONDS = 60.0
HEAD = b" HTTP/1.1\r\nHost: x\r\n"

BAD: dict[str, tuple[bytes, int, HttpRefusal]] = {
    "post": (b"POST /metrics" + HEAD + b"Content-Length: 3\r\n\r\nabc", 405, HttpRefusal.BAD_METHOD),
    "delete": (b"DELETE /healthz" + HEAD + b"\r\n", 405, HttpRefusal.BAD_METHOD),
    "method-of-ours": (b"DO_GET /metrics" + HEAD + b"\r\n", 405, HttpRefusal.BAD_METHOD),
    "no-such-page": (b"GET /nowhere" + HEAD + b"\r\n", 404, HttpRefusal.NOT_FOUND),
    "parent": (b"GET /../../etc/passwd" + HEAD + b"\r\n", 404, HttpRefusal.NOT_FOUND),
    "encoded-parent": (b"GET /%2e%2e/%2e%2e/etc/passwd" + HEAD + b"\r\n", 404, HttpRefusal.NOT_FOUND),
    "markup": (b"GET /<script>alert(1)</script>" + HEAD + b"\r\n", 404, HttpRefusal.NOT_FOUND),
    "nul": (b"GET /metrics\x00" + HEAD + b"\r\n", 404, HttpRefusal.NOT_FOUND),
    "absolute": (b"GET http://elsewhere/metrics" + HEAD + b"\r\n", 404, HttpRefusal.NOT_FOUND),
    "long-path": (b"GET /" + b"a" * 70_000 + HEAD + b"\r\n", 414, HttpRefusal.MALFORMED),
    "long-header": (b"GET /metrics" + HEAD + b"X: " + b"a" * 70_000 + b"\r\n\r\n", 431, HttpRefusal.MALFORMED),
    "large-head": (b"GET /metrics" + HEAD + (b"X: " + b"a" * 4000 + b"\r\n") * 5, 431, HttpRefusal.MALFORMED),
    "many-headers": (b"GET /metrics" + HEAD + b"X: a\r\n" * 500 + b"\r\n", 431, HttpRefusal.MALFORMED),
    "no-http": (b"\x16\x03\x01\x00\x05hello\r\n\r\n", 400, HttpRefusal.MALFORMED),
    "markup-version": (b"GET /metrics <script>\r\n\r\n", 400, HttpRefusal.MALFORMED),
    "future-version": (b"GET /metrics HTTP/9.9\r\n\r\n", 505, HttpRefusal.MALFORMED),
    "bad-version": (b"GET /metrics HTTP/a.b\r\n\r\n", 400, HttpRefusal.MALFORMED),
}


class Clock:
    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


class Port:
    """An endpoint, and raw bytes to it."""

    def __init__(self) -> None:
        self.telemetry, self.clock = LearnerTelemetry(), Clock()
        self.served = contextlib.ExitStack()
        pages = http_pages("127.0.0.1:0", self.telemetry, lambda: "", clock=self.clock)
        self.number = self.served.enter_context(pages)

    def connect(self, source: str = "127.0.0.1") -> socket.socket:
        return socket.create_connection(("127.0.0.1", self.number), SECONDS, (source, 0))

    def ask(self, request: bytes, source: str = "127.0.0.1") -> bytes:
        """The whole answer; empty if the connection was closed without one."""
        answer = b""
        with self.connect(source) as connection, contextlib.suppress(ConnectionError):
            connection.sendall(request)
            while part := connection.recv(65536):
                answer += part
        return answer

    def refused(self, reason: HttpRefusal) -> float:
        return self.telemetry.http_refusals.labels(reason)._value.get()


@pytest.fixture(scope="module")
def port() -> Iterator[Port]:
    port = Port()
    yield port
    port.served.close()


@pytest.mark.parametrize("case", BAD)
def test_a_bad_request_gets_one_plain_line_and_is_counted(case: str, port: Port) -> None:
    request, status, reason = BAD[case]
    before = port.refused(reason)
    answer = port.ask(request)
    head, _, body = answer.partition(b"\r\n\r\n")
    if answer:  # with bytes of ours unread the system may cut the connection before the answer is read
        assert head.split(b"\r\n")[0].split()[1] == str(status).encode()
        assert b"text/plain" in head
        assert b"nosniff" in head
        assert b"Python" not in head
        assert body.count(b"\n") == 1
        assert b"<script>" not in body
        assert b"Traceback" not in body
    wait_until(lambda: port.refused(reason) == before + 1, "counted")
    assert port.ask(b"GET /healthz HTTP/1.0\r\n\r\n").endswith(b"ok\n")


def test_good_requests_are_answered(port: Port) -> None:
    assert port.ask(b"GET /readyz?x=1" + HEAD + b"\r\n").endswith(b"ready\n")
    assert b"fedl2_learner_head_steps" in port.ask(b"GET /metrics" + HEAD + b"\r\n")
    head = port.ask(b"HEAD /metrics" + HEAD + b"\r\n")
    assert head.startswith(b"HTTP/1.0 200")
    assert head.endswith(b"\r\n\r\n")


def head_of(size: int) -> bytes:
    """A request's whole head, of so many bytes, in lines as long as a browser's cookies."""
    head = b"GET /healthz" + HEAD
    while (missing := size - len(head) - len(b"\r\n")) > 0:
        line = min(missing, 4096)
        if 0 < missing - line < len(b"X: \r\n"):
            line -= len(b"X: \r\n")
        head += b"X: " + b"a" * (line - len(b"X: \r\n")) + b"\r\n"
    return head + b"\r\n"


@pytest.mark.parametrize("size", [2_000, 8_000, MOST_HEAD_BYTES])
def test_a_browser_with_many_cookies_is_answered(size: int, port: Port) -> None:
    request = head_of(size)
    assert len(request) == size
    assert port.ask(request).endswith(b"ok\n")


def test_a_head_one_byte_too_large_is_refused_in_a_line_that_arrives(port: Port) -> None:
    before = port.refused(HttpRefusal.MALFORMED)
    for request in (head_of(MOST_HEAD_BYTES + 1), head_of(4 * MOST_HEAD_BYTES)):
        assert port.ask(request).startswith(b"HTTP/1.0 431 ")
    assert port.refused(HttpRefusal.MALFORMED) == before + 2


def test_a_head_that_never_ends_is_refused_once_it_is_too_large(port: Port) -> None:
    unfinished = head_of(MOST_HEAD_BYTES + 3)[:-2]
    assert len(unfinished) == MOST_HEAD_BYTES + 1
    assert port.ask(unfinished).startswith(b"HTTP/1.0 431 ")


@pytest.mark.parametrize(
    "line", [b"X: a\r\n", b"a: " + b"x" * 65_500 + b"\r\n", b"x" * 100], ids=["short", "long", "one"]
)
def test_no_more_of_a_head_is_read_than_may_be_kept(line: bytes) -> None:
    sent = io.BytesIO(line * (1 + 8 * MOST_HEAD_BYTES // len(line)))
    lines = iter(partial(HeadReader(sent).readline, 65_537), b"")
    kept: list[bytes] = []
    with pytest.raises(HeadTooLarge):
        kept.extend(lines)
    assert sum(map(len, kept)) <= MOST_HEAD_BYTES
    assert sent.tell() == MOST_HEAD_BYTES + 1


def test_silent_callers_take_only_so_many_places_and_only_for_a_while(port: Port) -> None:
    wait_until(lambda: port.ask(b"GET /healthz HTTP/1.0\r\n\r\n") != b"", "earlier callers are gone")
    with contextlib.ExitStack() as open_connections:
        silent = [open_connections.enter_context(port.connect()) for _ in range(60)]
        assert port.ask(b"GET /healthz HTTP/1.0\r\n\r\n").endswith(b"ok\n")
        silent += [open_connections.enter_context(port.connect()) for _ in range(MOST_CONNECTIONS + 8 - 60)]
        silent[0].sendall(b"GET /met")
        wait_until(lambda: port.refused(HttpRefusal.TOO_BUSY) == 8, "eight find no room")
        assert port.ask(b"GET /healthz HTTP/1.0\r\n\r\n") == b""
        port.clock.now = 10.5
        wait_until(lambda: port.refused(HttpRefusal.TOO_SLOW) == MOST_CONNECTIONS, "the others are ended")
        assert port.ask(b"GET /healthz HTTP/1.0\r\n\r\n").endswith(b"ok\n")


def test_a_caller_that_leaves_at_once_leaves_no_trace(port: Port, capfd: pytest.CaptureFixture[str]) -> None:
    for _ in range(50):
        port.connect().close()
    # Until those are seen to have left there may be no room for one more.
    wait_until(lambda: port.ask(b"GET /healthz HTTP/1.0\r\n\r\n").endswith(b"ok\n"), "an answer")
    assert capfd.readouterr().err == ""


@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere loopback has one address")
def test_one_address_cannot_keep_others_out(port: Port) -> None:
    port.clock.now = 0.0
    wait_until(lambda: port.ask(b"GET /healthz HTTP/1.0\r\n\r\n") != b"", "earlier callers are gone")
    with contextlib.ExitStack() as open_connections:
        for _ in range(MOST_CONNECTIONS + 8):
            open_connections.enter_context(port.connect("127.0.0.2"))
        for _ in range(20):
            assert port.ask(b"GET /healthz HTTP/1.0\r\n\r\n").endswith(b"ok\n")
