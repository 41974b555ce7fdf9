"""An API server: objects as JSON, with a deadline for every request, and errors of our own."""

from __future__ import annotations

import contextlib
import json
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from datetime import UTC, datetime
from enum import StrEnum
from http import HTTPStatus
from http.client import HTTPException
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import urlencode

from urllib3.exceptions import HTTPError, ReadTimeoutError, SSLError
from urllib3.util import Timeout

from cluster_agent.kubernetes.errors import ApiError, ApiUnanswered, NotActing, WatchSilent, error_of
from cluster_agent.kubernetes.resources import Json
from foundation.clocks import Clock
from foundation.text import parse_json, plain_line

if TYPE_CHECKING:
    from kubernetes.client import ApiClient
    from urllib3 import BaseHTTPResponse

Query = Mapping[str, str | int]

REQUEST_SECONDS = 10.0
"""Longest wait for an answer. A page of 500 pods takes a busy server a second."""
FIELD_MANAGER: Final = "fedl2-agent"
"""By which others see in an object's managedFields what was written from here."""
_CONNECT_SECONDS = 5.0
_PIECE_BYTES = 1 << 16
_LARGEST_BYTES = 256 << 20
"""Of one answer, or of one event of a watch; etcd itself holds no object above 1.5 MB, and a list comes in pages."""


class ContentType(StrEnum):
    """How a body is meant; the last two are kinds of patches."""

    OBJECT = "application/json"
    JSON_PATCH = "application/json-patch+json"
    MERGE_PATCH = "application/merge-patch+json"


class ApiServer:
    """Requests to one server; safe to use from several threads.

    Args:
        client: or what gives the one to use for each request, where its credentials may be replaced.
        may_write: asked last before a request that changes something is sent, so that a process that was held up, even
            in the middle of what it wrote, writes no more; `NotActing` is raised where it may not.
        on_error: called with every error before it is raised.
    """

    def __init__(
        self,
        client: ApiClient | Callable[[], ApiClient],
        request_seconds: float = REQUEST_SECONDS,
        clock: Clock = time.monotonic,
        may_write: Callable[[], bool] = lambda: True,
        on_error: Callable[[ApiError], None] = lambda _: None,
    ) -> None:
        self._current: Callable[[], ApiClient] = client if callable(client) else lambda: client
        self._address = str(self._current().configuration.host)
        self._may_write, self._on_error = may_write, on_error
        self._request_seconds = request_seconds
        self._clock = clock

    @property
    def address(self) -> str:
        """Of the server, for messages."""
        return self._address

    def get(self, path: str, query: Query | None = None) -> Json:
        """Read an object or one page of a list.

        Raises:
            ApiRefused, ApiUnanswered: as their classes say; so of all requests.
        """
        return self._request("GET", path, query)

    def create(self, path: str, body: Json, query: Query | None = None) -> Json:
        """Post an object; returns it as stored."""
        return self._request("POST", path, _managed(query), body)

    def replace(self, path: str, body: Json, query: Query | None = None) -> Json:
        """Put an object, whose `resourceVersion` says which state of it is replaced."""
        return self._request("PUT", path, _managed(query), body)

    def patch(
        self, path: str, body: Json | Sequence[Json], content_type: ContentType, query: Query | None = None
    ) -> Json:
        """Change parts of an object; returns it as stored."""
        return self._request("PATCH", path, _managed(query), body, content_type)

    def delete(self, path: str, body: Json | None = None, query: Query | None = None) -> Json:
        """Delete an object; the body is DeleteOptions, such as the preconditions on its uid and version."""
        return self._request("DELETE", path, query, body)

    @contextmanager
    def watch(self, path: str, query: Query, silence_seconds: float) -> Iterator[WatchStream]:
        """Open a watch, with a longest wait for the next byte: servers send bookmarks every minute or so."""
        request = f"watch of {path}"
        timeout = Timeout(connect=_CONNECT_SECONDS, read=silence_seconds)
        with self._reported_of():  # also of what is raised while it is read
            response = self._open("GET", path, {**query, "watch": "1"}, None, ContentType.OBJECT, timeout, request)
            with closing(response):
                if response.status != HTTPStatus.OK:
                    raise self._error(response, request, self._clock() + self._request_seconds)
                yield WatchStream(response, request, silence_seconds)

    def close(self) -> None:
        """Close what connections are kept."""
        self._current().close()

    @contextmanager
    def _reported_of(self) -> Iterator[None]:
        try:
            yield
        except ApiError as error:
            self._on_error(error)
            raise

    def _request(
        self,
        method: str,
        path: str,
        query: Query | None,
        body: Any = None,
        content_type: ContentType = ContentType.OBJECT,
    ) -> Json:
        with self._reported_of():
            return self._answer(method, path, query or {}, body, content_type)

    def _answer(self, method: str, path: str, query: Query, body: Any, content_type: ContentType) -> Json:
        request = f"{method} {path}"
        deadline = self._clock() + self._request_seconds
        timeout = Timeout(connect=min(_CONNECT_SECONDS, self._request_seconds), read=self._request_seconds)
        response = self._open(method, path, query, body, content_type, timeout, request)
        with closing(response):
            if not HTTPStatus.OK <= response.status < HTTPStatus.MULTIPLE_CHOICES:
                raise self._error(response, request, deadline)
            content = self._read(response, request, deadline)
            # The whole answer is read: the connection can be used again.
            response.release_conn()
        try:
            found = parse_json(content)
        except ValueError as error:
            raise ApiUnanswered(f"{request}: the answer is no JSON: {plain_line(str(error))}") from error
        if not isinstance(found, dict):
            raise ApiUnanswered(f"{request}: the answer is a {type(found).__name__}, and no object")
        return found

    def _open(
        self,
        method: str,
        path: str,
        query: Query,
        body: Any,
        content_type: ContentType,
        timeout: Timeout,
        request: str,
    ) -> BaseHTTPResponse:
        target = f"{path}?{urlencode(query)}" if query else path
        headers = {"Accept": "application/json"}
        if body is not None:
            headers["Content-Type"] = content_type
        client = self._current()
        try:
            _, url, headers, _, _ = client.param_serialize(
                method, target, header_params=headers, auth_settings=["BearerToken"]
            )
        except Exception as error:
            # A command or a file that gives credentials may raise anything; nothing has been sent.
            raise ApiUnanswered(
                f"{request}: no credentials: {plain_line(str(error))}", may_have_happened=False
            ) from error
        content = None if body is None else json.dumps(body, allow_nan=False).encode()
        if method != "GET" and not self._may_write():
            raise NotActing(f"{request}: not sent, another agent may act by now")
        try:
            return client.rest_client.pool_manager.request(
                method,
                url,
                body=content,
                headers=headers,
                timeout=timeout,
                retries=False,
                redirect=False,
                preload_content=False,
            )
        except SSLError as error:
            line = f"{request}: no trusted connection to {self.address}: {plain_line(str(error))}"
            raise ApiUnanswered(line, may_have_happened=False) from error
        except (HTTPError, HTTPException, OSError) as error:
            raise ApiUnanswered(f"{request}: {self.address} does not answer: {plain_line(str(error))}") from error

    def _read(self, response: BaseHTTPResponse, request: str, deadline: float) -> bytes:
        content = bytearray()
        try:
            while piece := response.read1(_PIECE_BYTES):
                content += piece
                if len(content) > _LARGEST_BYTES:
                    raise ApiUnanswered(f"{request}: the answer is larger than {_LARGEST_BYTES >> 20} MB")
                if self._clock() > deadline:
                    raise ApiUnanswered(f"{request}: the answer takes longer than {self._request_seconds:g} s")
        except (HTTPError, HTTPException, OSError) as error:
            raise ApiUnanswered(f"{request}: the answer was cut: {plain_line(str(error))}") from error
        return bytes(content)

    def _error(self, response: BaseHTTPResponse, request: str, deadline: float) -> Exception:
        content = self._read(response, request, deadline)
        try:
            status = parse_json(content)
        except ValueError:
            status = None
        return error_of(response.status, status, request, _seconds_of(response.headers.get("Retry-After")))


class WatchStream:
    """Events of an open watch, each {"type", "object"}, until the server closes it.

    Raises:
        ApiUnanswered: in the wait for the next event: the connection was cut or fell silent.
    """

    def __init__(self, response: BaseHTTPResponse, request: str, silence_seconds: float) -> None:
        self._response, self._request, self._silence_seconds = response, request, silence_seconds

    def __iter__(self) -> Iterator[Json]:
        rest = bytearray()
        while True:
            try:
                piece = self._response.read1(_PIECE_BYTES)
            except (ReadTimeoutError, TimeoutError) as error:
                raise WatchSilent(f"{self._request}: silent for {self._silence_seconds:g} s") from error
            except (HTTPError, HTTPException, OSError, ValueError) as error:
                # ValueError: the file was closed by `shutdown` in between.
                raise ApiUnanswered(f"{self._request}: cut: {plain_line(str(error))}") from error
            if not piece:
                if rest.strip():
                    raise ApiUnanswered(f"{self._request}: cut in the middle of an event")
                return
            rest += piece
            *lines, last = rest.split(b"\n")
            rest = bytearray(last)
            if len(rest) > _LARGEST_BYTES:
                raise ApiUnanswered(f"{self._request}: an event is larger than {_LARGEST_BYTES >> 20} MB")
            for line in lines:
                if line.strip():
                    yield self._event(bytes(line))

    def _event(self, line: bytes) -> Json:
        try:
            event = parse_json(line)
        except ValueError as error:
            raise ApiUnanswered(f"{self._request}: an event is no JSON: {plain_line(str(error))}") from error
        if not (isinstance(event, dict) and isinstance(event.get("object"), dict)):
            raise ApiUnanswered(f"{self._request}: an event has no object")
        return event

    def shutdown(self) -> None:
        """End the wait of whoever reads, from another thread."""
        with contextlib.suppress(OSError):  # who reads has closed it at this moment
            self._response.shutdown()


def _managed(query: Query | None) -> Query:
    return {"fieldManager": FIELD_MANAGER, **(query or {})}


def _seconds_of(header: str | None) -> float:
    """Of a `Retry-After`; the other form, a date, is not used by API servers."""
    return float(header) if header is not None and header.isascii() and header.isdigit() else 0.0


def whole_time(unix_seconds: float) -> str:
    """A time as most objects have it."""
    return datetime.fromtimestamp(unix_seconds, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def micro_time(unix_seconds: float) -> str:
    """A time as Leases have it, always with six digits: one without a fraction gets 400."""
    return datetime.fromtimestamp(unix_seconds, UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
