"""HTTP endpoint: /healthz (the process answers), /readyz (it takes updates), /metrics, and the live page at /."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from types import MappingProxyType

from prometheus_client import CONTENT_TYPE_LATEST, generate_latest

from global_learner.errors import BadLearnerConfig
from global_learner.report.live import LiveReport
from global_learner.service.http_server import BoundedHttpServer, HttpAnswer, HttpRefusal
from global_learner.settings import is_loopback, split_address
from global_learner.telemetry import LearnerTelemetry

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
    said = remark()
    return HttpAnswer(200, f"ready; {said}\n".encode() if said else b"ready\n")


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
