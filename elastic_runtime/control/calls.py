"""Calls to a coordinator: each sealed by a session, each answer checked, errors of gRPC translated into ours.

What an error says counts only where the coordinator proves it: somebody else at its address, while it is away, can
make nobody believe that the job has refused anything. Such a one is waited for like a coordinator that is away.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from time import monotonic
from typing import Any

import grpc

from elastic_runtime.control.credentials import ClientCredentials, open_channel
from elastic_runtime.control.sessions import CallerSession, Unproven
from elastic_runtime.errors import (
    BadInput,
    CoordinatorMistrusted,
    CoordinatorUnproven,
    CoordinatorUnreachable,
    ElasticError,
    ProtocolError,
    ResizeFailed,
)
from elastic_runtime.generated import elastic_pb2 as pb
from elastic_runtime.generated.elastic_pb2_grpc import SessionsStub
from foundation.backoff import Backoff
from foundation.text import plain_line

REFUSAL_KEY = "elastic-refusal-bin"
"""Of the metadata at a call's end: the proof that the coordinator has refused it."""
SESSION_KEY = "elastic-session"
"""Likewise, with `UNKNOWN`: the caller is to open another session."""
UNKNOWN = "unknown"
STREAM_SECONDS = 3600.0
"""A stream of views is opened anew after an hour, so that even a half-dead one has an end."""
_OPEN_SECONDS = 10.0
_SHOWN_CHARACTERS = 400
_GONE = {
    grpc.StatusCode.UNAVAILABLE,
    grpc.StatusCode.DEADLINE_EXCEEDED,
    grpc.StatusCode.CANCELLED,
    # A fault of the coordinator's own: it ends, and is started again from its journal.
    grpc.StatusCode.UNKNOWN,
    grpc.StatusCode.INTERNAL,
}
_MISTRUST = {
    "certificate has expired": "its certificate has expired; give it another one",
    "CERTIFICATE_VERIFY_FAILED": "its certificate is not signed by the CA file's; give all of the job the same CA file",
    "Hostname Verification Check failed": "its certificate is of another host; name the host that stands in it",
    "WRONG_VERSION_NUMBER": "it speaks no TLS; start it with a certificate and key, or its members without CA file",
}
"""What stands in gRPC's words when a handshake fails, which to it is one more address where nobody answers."""
_OURS: dict[grpc.StatusCode, type[ElasticError]] = {
    grpc.StatusCode.UNAUTHENTICATED: BadInput,
    grpc.StatusCode.NOT_FOUND: BadInput,
    grpc.StatusCode.FAILED_PRECONDITION: BadInput,
    grpc.StatusCode.RESOURCE_EXHAUSTED: ResizeFailed,
}
_EARLIER = {grpc.StatusCode.UNIMPLEMENTED, grpc.StatusCode.UNAUTHENTICATED}
"""How a coordinator answers an Open that it has never heard of: it asks for the token first."""


def call_backoff(seed: int) -> Backoff:
    """Waits of 0.025 s up to 2 s between calls that nobody answers: a coordinator is back within seconds of its death.

    Callers have different seeds, so that a restarted coordinator is not rushed.
    """
    return Backoff(seed, first_seconds=0.05, longest_seconds=2.0, least_share=0.5)


class SealedChannel:
    """A channel for the stubs of one job's coordinator; from any thread. Nothing is sent before the first call.

    Every call raises, in place of gRPC's errors:

        CoordinatorUnreachable: nobody answers at the address, or not in time; or who does is not trusted.
        CoordinatorUnproven: who answers does not have the job's token, or is of an earlier version.
        BadInput: a request that the coordinator refuses.
        ResizeFailed: the coordinator takes no requests now, such as with a full disk.
        ProtocolError: it did not understand us, or failed.
        ValueError: the channel was closed.
    """

    def __init__(self, address: str, job: str, credentials: ClientCredentials) -> None:
        self.address = address
        self._job, self._credentials = job, credentials
        self._trusted = credentials.trusted
        self._channels = [open_channel(address, credentials)]
        self._lock = threading.Lock()
        self._session: CallerSession | None = None

    def unary_unary(
        self, path: str, request_serializer: Any, response_deserializer: Any, **_: object
    ) -> Callable[..., Any]:
        """For a stub: a call with one answer; of a session that the coordinator forgot, made once more in a new one."""

        def call(request: Any, timeout: float) -> Any:
            raw: Any = self._channel().unary_unary(path)
            payload = request_serializer(request)
            for again in (True, False):
                session = self._open_session(timeout)
                number, data = session.seal(path, payload)
                try:
                    answer = raw(data, timeout=timeout)
                except grpc.RpcError as error:
                    if self._is_forgotten(session, error) and again:
                        continue
                    raise self._judged(session, path, number, error) from error
                return response_deserializer(self._checked(session, path, number, 0, answer))
            raise AssertionError("the second time has no `continue`")

        return call

    def unary_stream(
        self, path: str, request_serializer: Any, response_deserializer: Any, **_: object
    ) -> Callable[..., SealedStream]:
        """For a stub: a call with a stream of answers."""

        def call(request: Any, timeout: float) -> SealedStream:
            raw: Any = self._channel().unary_stream(path)
            session = self._open_session(min(timeout, _OPEN_SECONDS))
            number, data = session.seal(path, request_serializer(request))
            stream = raw(data, timeout=timeout)

            def answers() -> Iterator[Any]:
                try:
                    for index, answer in enumerate(stream):
                        yield response_deserializer(self._checked(session, path, number, index, answer))
                except grpc.RpcError as error:
                    self._is_forgotten(session, error)  # the caller's next stream is in a new one
                    raise self._judged(session, path, number, error) from error

            return SealedStream(answers(), stream.cancel)

        return call

    def close(self) -> None:
        """End all calls."""
        for channel in self._channels:
            channel.close()

    def _channel(self) -> grpc.Channel:
        """The one for the next call: another one where the coordinator is to be known by other certificates now."""
        with self._lock:
            trusted = self._credentials.trusted
            if trusted != self._trusted:
                self._trusted, self._session = trusted, None
                # What streams on the one before goes on until it ends.
                self._channels.append(open_channel(self.address, self._credentials))
            return self._channels[-1]

    def _open_session(self, timeout_seconds: float) -> CallerSession:
        with self._lock:
            if self._session is None:
                self._session = self._opened(timeout_seconds)
            return self._session

    def _opened(self, timeout_seconds: float) -> CallerSession:
        number = CallerSession.draw()
        try:
            request = pb.OpenRequest(job=self._job, number=number)
            reply = SessionsStub(self._channels[-1]).Open(request, timeout=timeout_seconds)
        except grpc.RpcError as error:
            code, line = error.code(), plain_line(error.details() or "", _SHOWN_CHARACTERS)
            if code is grpc.StatusCode.NOT_FOUND:
                raise CoordinatorUnproven(f"{self.address}: {line}") from error
            if code in _EARLIER:
                raise CoordinatorUnproven(
                    f"the coordinator at {self.address} is of an earlier version of fedl2, which asks for the job's "
                    "token itself; it is not sent: end that job with the version that started it, or start it anew"
                ) from error
            raise self._unproven(error) from error
        try:
            return CallerSession(self._credentials.token, self._job, number, reply, monotonic)
        except Unproven as error:
            raise CoordinatorUnproven(
                f"wrong token for job {self._job}: whoever answers at {self.address} has another one; give the file "
                "that the job was started with"
            ) from error

    def _is_forgotten(self, session: CallerSession, error: grpc.RpcError) -> bool:
        """Whether the answer is that there is no such session; then the next call opens one, whoever says so."""
        if (SESSION_KEY, UNKNOWN) not in _trailing(error).items():
            return False
        with self._lock:
            if self._session is session:
                self._session = None
        return True

    def _judged(self, session: CallerSession, path: str, number: int, error: grpc.RpcError) -> ElasticError:
        code, line = error.code(), error.details() or ""
        proof = _trailing(error).get(REFUSAL_KEY, b"")
        if isinstance(proof, bytes) and session.is_refusal(path, number, code.name, line, proof):
            return _OURS.get(code, ProtocolError)(line)
        return self._unproven(error)

    def _unproven(self, error: grpc.RpcError) -> ElasticError:
        code, line = error.code(), error.details() or ""
        for sign, reason in _MISTRUST.items():
            if code in _GONE and sign in line:
                return CoordinatorMistrusted(f"the coordinator at {self.address} is not trusted: {reason}")
        if code in _GONE:
            return CoordinatorUnreachable(f"no coordinator answers at {self.address} ({code.name.lower()})")
        answer = plain_line(f"{code.name.lower()}: {line}", _SHOWN_CHARACTERS)
        return CoordinatorUnreachable(f"no coordinator answers at {self.address}; what does says {answer}")

    def _checked(self, session: CallerSession, path: str, number: int, index: int, answer: bytes) -> bytes:
        try:
            return session.opened(path, number, index, answer)
        except Unproven as error:
            raise CoordinatorMistrusted(
                f"the coordinator at {self.address} is not trusted: {error}; somebody changes what it says"
            ) from error


class SealedStream:
    """Answers as they come, and the way to want no more."""

    def __init__(self, answers: Iterator[Any], cancel: Callable[[], object]) -> None:
        self._answers, self.cancel = answers, cancel

    def __iter__(self) -> Iterator[Any]:
        return self._answers


def _trailing(error: grpc.RpcError) -> dict[str, str | bytes]:
    return {item.key: item.value for item in error.trailing_metadata() or ()}
