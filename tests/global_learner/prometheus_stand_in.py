"""A stand-in of a Prometheus server on loopback: answers `/api/v1/query` as a test says, also as no server should."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs

Behave = Callable[[BaseHTTPRequestHandler, str], None]
"""Answers one question, of which it is given the PromQL."""
CALM_SECONDS = 60.0


def vector(*numbers: str, **more: Any) -> bytes:
    """An answer with so many series."""
    series = [{"metric": {"n": str(place)}, "value": [1.8e9, number]} for place, number in enumerate(numbers)]
    return json.dumps({"status": "success", "data": {"resultType": "vector", "result": series}, **more}).encode()


def says(content: bytes, code: int = 200, **headers: str) -> Behave:
    """The same answer to every question."""

    def behave(handler: BaseHTTPRequestHandler, text: str) -> None:
        del text
        handler.send_response(code)
        for name, value in headers.items():
            handler.send_header(name, value)
        handler.send_header("Content-Length", str(len(content)))
        handler.end_headers()
        handler.wfile.write(content)

    return behave


class StandIn:
    """A server; what it answers may be changed while it serves.

    Attributes:
        texts: the PromQL of all questions so far.
        paths, tokens: of these questions.
        ending: set when it is to end, for an answer that never comes.
    """

    def __init__(self) -> None:
        self.behave = says(vector("0.02"))
        self.texts: list[str] = []
        self.paths: list[str] = []
        self.tokens: list[str | None] = []
        self.ending = threading.Event()
        stand_in = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                self._answer("")

            def do_POST(self) -> None:
                form = parse_qs(self.rfile.read(int(self.headers["Content-Length"])).decode())
                self._answer(form["query"][0])

            def _answer(self, text: str) -> None:
                stand_in.texts.append(text)
                stand_in.paths.append(self.path)
                stand_in.tokens.append(self.headers["Authorization"])
                try:
                    stand_in.behave(self, text)
                except OSError:
                    self.close_connection = True  # whoever asked waits no longer

            def log_message(self, *_: object) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.address = f"http://127.0.0.1:{self._server.server_port}"
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.01,))
        self._thread.start()

    def never(self, handler: BaseHTTPRequestHandler, text: str) -> None:
        """Take a question, and say nothing."""
        del handler, text
        self.ending.wait(CALM_SECONDS)

    def a_byte_at_a_time(self, handler: BaseHTTPRequestHandler, text: str) -> None:
        """An answer that is right, and never whole."""
        del text
        handler.wfile.write(b"HTTP/1.1 200 OK\r\n")
        while not self.ending.wait(0.05):
            handler.wfile.write(b"X-More: yes\r\n")

    def close(self) -> None:
        self.ending.set()
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


@contextmanager
def stand_in() -> Iterator[StandIn]:
    server = StandIn()
    try:
        yield server
    finally:
        server.close()
