"""Plain HTTP: /healthz (the process answers), /readyz (it takes updates), /metrics, and the live page at /."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import MappingProxyType

from prometheus_client import CONTENT_TYPE_LATEST, CollectorRegistry, generate_latest

from global_learner.errors import BadConfig
from global_learner.report.live import LiveReport
from global_learner.settings import is_loopback, split_address

_TEXT = "text/plain; charset=utf-8"
_REQUEST_SECONDS = 10.0
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


@dataclass(frozen=True, slots=True)
class _Answer:
    status: int
    body: bytes
    kind: str = _TEXT
    headers: Mapping[str, str] = field(default_factory=dict)


class HttpEndpoint:
    """A small server on threads of its own; it only tells, and changes nothing."""

    def __init__(
        self, address: str, registry: CollectorRegistry, ready: Callable[[], bool], live: LiveReport | None = None
    ) -> None:
        """Listen.

        Args:
            live: the page at `/`; None if nothing about the fleet is shown here.

        Raises:
            BadConfig: the address cannot be listened on.
        """
        pages: dict[str, Callable[[], _Answer]] = {
            "/healthz": lambda: _Answer(200, b"ok\n"),
            "/readyz": lambda: _Answer(200, b"ready\n") if ready() else _Answer(503, b"not ready\n"),
            "/metrics": lambda: _Answer(200, generate_latest(registry), CONTENT_TYPE_LATEST),
        }
        if live is not None:
            pages |= {"/": lambda: _page(live), "/report.json": lambda: _data(live)}
        known = _Answer(404, f"try {', '.join(pages)}\n".encode())
        local = is_loopback(address)

        class Handler(BaseHTTPRequestHandler):
            timeout = _REQUEST_SECONDS

            def do_GET(self) -> None:
                path = self.path.partition("?")[0]
                answer = pages[path]() if path in pages else known
                if local and answer.headers and not _names_loopback(self.headers.get("Host", "")):
                    # A page elsewhere that had its own name point here would else read the fleet's state.
                    answer = _Answer(403, b"ask for localhost or 127.0.0.1: this address shows the fleet to no other\n")
                self.send_response(answer.status)
                self.send_header("Content-Type", answer.kind)
                self.send_header("Content-Length", str(len(answer.body)))
                for name, value in answer.headers.items():
                    self.send_header(name, value)
                self.end_headers()
                self.wfile.write(answer.body)

            def log_message(self, format: str, *args: object) -> None:  # the base class's name
                """Requests for metrics are not worth a line."""

        try:
            self._server = ThreadingHTTPServer(split_address(address), Handler)
        except OSError as error:
            raise BadConfig(
                f"telemetry.http_listen {address}: cannot be listened on ({error.strerror}); name another port"
            ) from error
        self._server.daemon_threads = True
        self._thread = threading.Thread(target=self._server.serve_forever, name="http", daemon=True)

    @property
    def port(self) -> int:
        """The bound port."""
        return self._server.server_port

    def start(self) -> None:
        """Begin to answer."""
        self._thread.start()

    def close(self) -> None:
        """Stop answering."""
        if self._thread.is_alive():
            self._server.shutdown()
        self._server.server_close()


def _page(live: LiveReport) -> _Answer:
    headers = {**_PRIVATE, "Content-Security-Policy": live.policy}
    return _Answer(200, live.page, "text/html; charset=utf-8", headers)


def _data(live: LiveReport) -> _Answer:
    data = live.data()
    if data is None:
        return _Answer(503, b"the learner is busy; ask again\n", headers=_PRIVATE)
    return _Answer(200, data, "application/json", _PRIVATE)


def _names_loopback(host: str) -> bool:
    """Whether a request's `Host` is this machine's own name for itself."""
    name = host if host.endswith("]") or ":" not in host else host.rpartition(":")[0]
    return is_loopback(f"{name}:0")
