"""Admission of calls: before its method, each is looked at for whether it can be read, is small, and finds room.

gRPC itself refuses, without a word to us, what is larger than the largest message, what is compressed (a bomb would be
unpacked in full before anybody could measure it), and calls beyond its own limit. The interceptor's limits lie within
gRPC's, so that nearly everything is refused here: with a line that says what to do, and counted. What never arrives
whole is counted when its call ends, and its call is ended after a while.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any

import grpc
from google.protobuf.message import DecodeError

from global_learner.errors import BadRequest, LearnerError, MessageTooLarge, Refusal, TooBusy
from global_learner.service.calls import Context, refuse
from global_learner.telemetry import Telemetry

IDENTITY_ONLY = 1
"""gRPC's set of compressions with none but "no compression" in it."""
HARD_LIMIT_FACTOR = 2
"""gRPC's own limit of calls in progress, in the interceptor's."""
UNKNOWN = "unknown"
"""The method of a call that names none of ours; its own words would be anybody's."""


@dataclass(frozen=True, slots=True)
class Limits:
    """How much callers may ask of a server at once.

    Attributes:
        message_bytes: largest request.
        large_methods: their requests may be that large; all others at most `envelope_bytes`.
        calls: in progress.
        connections: open, those that do not say anything included.
        handshake_seconds: after which a connection that has not become one is closed.
        arrival_seconds: after which a call whose message has not come is ended; it would take up room for ever.
    """

    message_bytes: int
    calls: int
    connections: int
    large_methods: frozenset[str] = field(default_factory=frozenset)
    envelope_bytes: int = 1 << 20
    handshake_seconds: float = 20.0
    arrival_seconds: float = 60.0

    def of(self, method: str) -> int:
        """Largest request of a method, in bytes."""
        return self.message_bytes if method in self.large_methods else min(self.message_bytes, self.envelope_bytes)


def _options(limits: Limits) -> list[tuple[str, int]]:
    """gRPC's own limits, a last resort beyond the interceptor's."""
    return [
        ("grpc.max_receive_message_length", limits.message_bytes),
        ("grpc.max_send_message_length", -1),
        ("grpc.compression_enabled_algorithms_bitset", IDENTITY_ONLY),
        ("grpc.max_allowed_incoming_connections", limits.connections),
        ("grpc.server_handshake_timeout_ms", round(1000 * limits.handshake_seconds)),
        # Two learners on one port would share the fleet's calls between them; the second must fail instead.
        ("grpc.so_reuseport", 0),
    ]


@dataclass(frozen=True, slots=True)
class _Refused:
    """Stands in a request's place."""

    error: LearnerError


class AdmissionInterceptor(grpc.aio.ServerInterceptor):
    """Looks at every call of one server."""

    def __init__(self, limits: Limits, telemetry: Telemetry) -> None:
        self._limits = limits
        self._telemetry = telemetry
        self._open = 0

    async def intercept_service(
        self, continuation: Callable[[grpc.HandlerCallDetails], Awaitable[Any]], details: grpc.HandlerCallDetails
    ) -> Any:
        """gRPC's hook: the method's handler, behind the checks."""
        handler = await continuation(details)
        if handler is None:
            self._telemetry.on_refusal(UNKNOWN, Refusal.UNKNOWN_METHOD)
            return None
        method = details.method.rpartition("/")[2]
        task = asyncio.current_task()
        assert task is not None  # noqa: S101  (gRPC runs each call in one)
        arrival = _Arrival(asyncio.get_running_loop().call_later(self._limits.arrival_seconds, task.cancel))
        self._open += 1
        task.add_done_callback(lambda _: self._ended(method, arrival))
        crowded = self._open > self._limits.calls
        return grpc.unary_unary_rpc_method_handler(
            self._behind(method, handler.unary_unary),
            lambda data: self._read(method, data, handler.request_deserializer, arrival, crowded),
            handler.response_serializer,
        )

    def _ended(self, method: str, arrival: _Arrival) -> None:
        self._open -= 1
        arrival.patience.cancel()
        if not arrival.whole:
            self._telemetry.on_refusal(method, Refusal.NOT_RECEIVED)

    def _read(
        self, method: str, data: bytes, parse: Callable[[bytes], object], arrival: _Arrival, crowded: bool
    ) -> object:
        arrival.whole = True
        arrival.patience.cancel()
        if crowded:
            return _Refused(TooBusy(f"{self._limits.calls} calls are in progress; come again in a moment"))
        largest = self._limits.of(method)
        if len(data) > largest:
            return _Refused(MessageTooLarge(f"{method}: a message of {len(data)} bytes; at most {largest} are taken"))
        try:
            return parse(data)
        except DecodeError:
            return _Refused(BadRequest(f"{method}: the message cannot be read; it must be fleet.proto's, whole"))

    def _behind(
        self, method: str, behaviour: Callable[[Any, Context], Awaitable[object]]
    ) -> Callable[[Any, Context], Awaitable[object]]:
        async def call(request: object, context: Context) -> object:
            if isinstance(request, _Refused):
                await refuse(self._telemetry, context, method, request.error)
            return await behaviour(request, context)

        return call


@dataclass(slots=True)
class _Arrival:
    """Whether a call's message has come whole; `patience` ends the call unless it does."""

    patience: asyncio.TimerHandle
    whole: bool = False


def bounded_server(limits: Limits, telemetry: Telemetry) -> grpc.aio.Server:
    """A server behind the interceptor; services and ports are still to be added."""
    return grpc.aio.server(
        interceptors=[AdmissionInterceptor(limits, telemetry)],
        options=_options(limits),
        maximum_concurrent_rpcs=HARD_LIMIT_FACTOR * limits.calls,
    )
