"""Health and metrics over plain HTTP: /healthz (the process answers), /readyz (it takes updates), /metrics."""

from __future__ import annotations

import threading
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from prometheus_client import CONTENT_TYPE_LATEST, CollectorRegistry, generate_latest

from global_learner.errors import BadConfig
from global_learner.settings import split_address

_TEXT = "text/plain; charset=utf-8"
_REQUEST_SECONDS = 10.0


class HttpEndpoint:
    """A small server on threads of its own."""

    def __init__(self, address: str, registry: CollectorRegistry, ready: Callable[[], bool]) -> None:
        """Listen.

        Raises:
            BadConfig: the address cannot be listened on.
        """

        class Handler(BaseHTTPRequestHandler):
            timeout = _REQUEST_SECONDS

            def do_GET(self) -> None:
                pages: dict[str, Callable[[], tuple[int, str, bytes]]] = {
                    "/healthz": lambda: (200, _TEXT, b"ok\n"),
                    "/readyz": lambda: (200, _TEXT, b"ready\n") if ready() else (503, _TEXT, b"not ready\n"),
                    "/metrics": lambda: (200, CONTENT_TYPE_LATEST, generate_latest(registry)),
                }
                page = pages.get(self.path.partition("?")[0])
                status, kind, body = page() if page else (404, _TEXT, b"try /metrics, /healthz or /readyz\n")
                self.send_response(status)
                self.send_header("Content-Type", kind)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

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
