"""Admission of calls: who makes each one, with which role, whether it finds a seat and can be read, and how it ends.

The caller is known from its connection, before anything of its message is: a call first gets a seat of its caller's
share, and only then is its message taken from the connection. The seat is given back when the answer has been sent. So
a caller that sends slowly, or reads nothing, keeps its own share busy, nobody else's, and not for ever.

gRPC itself refuses, without a word to us, what is larger than the largest message, and what is compressed (a bomb would
be unpacked in full before anybody could measure it). Everything else is refused here in a line that says what to do,
and counted; what never arrives whole, or is never read, when its call ends. The learner's errors become gRPC statuses
with their one line, anything else is logged: a caller never sees a traceback or a word about what failed inside,
neither a path nor a statement of SQL.
"""

from __future__ import annotations

import asyncio
import functools
import time
from collections import Counter
from collections.abc import Awaitable, Callable
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Any, NamedTuple, NoReturn, Protocol, TypeVar

import grpc
import structlog
from google.protobuf.message import DecodeError
from grpc import StatusCode

from foundation.text import plain_line
from global_learner.errors import (
    BadRequest,
    CallRefusal,
    ChangedSince,
    DatabaseAway,
    DiskFull,
    EnrollmentRefused,
    FleetFull,
    IdentityRefused,
    LearnerError,
    LogBroken,
    MessageTooLarge,
    NoAuthority,
    NoHeadYet,
    NoRounds,
    NotActive,
    RolloutRefused,
    ShareTaken,
    StateUnusable,
    TooBusy,
    TooFast,
    TooOften,
    Unknown,
    UnknownIncarnation,
)
from global_learner.folded_lines import host_of
from global_learner.identity import AuthContext, Caller, CallerRole, check_role
from global_learner.section_settings import CallSettings
from global_learner.service.connection_guard import ConnectionGuard
from global_learner.service.lanes import FairQueue, Lanes, Seat
from global_learner.telemetry import LearnerTelemetry
from policy_net.errors import SpecMismatch

_log = structlog.get_logger()


class _Ending(NamedTuple):
    """How a call ends that raised an error; `line` stands in place of the error's own words."""

    status: StatusCode
    reason: CallRefusal
    line: str = ""


_ENDINGS: dict[type[Exception], _Ending] = {
    BadRequest: _Ending(StatusCode.INVALID_ARGUMENT, CallRefusal.BAD_REQUEST),
    IdentityRefused: _Ending(StatusCode.PERMISSION_DENIED, CallRefusal.WRONG_IDENTITY),
    EnrollmentRefused: _Ending(StatusCode.PERMISSION_DENIED, CallRefusal.NOT_ENROLLED),
    NoAuthority: _Ending(StatusCode.FAILED_PRECONDITION, CallRefusal.NO_AUTHORITY),
    UnknownIncarnation: _Ending(StatusCode.FAILED_PRECONDITION, CallRefusal.UNKNOWN_INCARNATION),
    NoRounds: _Ending(StatusCode.FAILED_PRECONDITION, CallRefusal.NO_ROUNDS),
    RolloutRefused: _Ending(StatusCode.FAILED_PRECONDITION, CallRefusal.ROLLOUT_REFUSED),
    ChangedSince: _Ending(StatusCode.ABORTED, CallRefusal.CHANGED_SINCE),
    SpecMismatch: _Ending(StatusCode.FAILED_PRECONDITION, CallRefusal.WRONG_SPEC),
    FleetFull: _Ending(StatusCode.RESOURCE_EXHAUSTED, CallRefusal.FLEET_FULL),
    MessageTooLarge: _Ending(StatusCode.INVALID_ARGUMENT, CallRefusal.TOO_LARGE),
    ShareTaken: _Ending(StatusCode.RESOURCE_EXHAUSTED, CallRefusal.SHARE_TAKEN),
    TooOften: _Ending(StatusCode.RESOURCE_EXHAUSTED, CallRefusal.TOO_OFTEN),
    TooBusy: _Ending(StatusCode.RESOURCE_EXHAUSTED, CallRefusal.TOO_BUSY),
    TooFast: _Ending(StatusCode.RESOURCE_EXHAUSTED, CallRefusal.TOO_FAST),
    Unknown: _Ending(StatusCode.NOT_FOUND, CallRefusal.NOT_FOUND),
    DiskFull: _Ending(
        StatusCode.RESOURCE_EXHAUSTED,
        CallRefusal.DISK_FULL,
        "the learner's disk is full; send this again later",
    ),
    DatabaseAway: _Ending(
        StatusCode.UNAVAILABLE,
        CallRefusal.DATABASE_AWAY,
        "the learner's database does not answer; come again",
    ),
    NotActive: _Ending(
        StatusCode.UNAVAILABLE,
        CallRefusal.NOT_ACTIVE,
        "this learner is not the active one; try the next address, or come again",
    ),
    NoHeadYet: _Ending(StatusCode.UNAVAILABLE, CallRefusal.NO_HEAD),
    StateUnusable: _Ending(
        StatusCode.DATA_LOSS, CallRefusal.FAILED, "the learner's state is damaged; its log says where"
    ),
    LogBroken: _Ending(
        StatusCode.UNAVAILABLE, CallRefusal.FAILED, "the learner cannot write its log and ends; come again"
    ),
}
_FAILED = _Ending(StatusCode.INTERNAL, CallRefusal.FAILED, "the learner failed; its log says why")
"""All others are the learner's own failures, of which a caller learns no more than that."""

_LONGEST_LOGGED = 2000
_PAUSE_SECONDS = 0.5
"""Who asks too often is told so after this, or asking again at once would cost the others as much as being answered."""
_REFUSAL_SECONDS = 10.0
"""How long a caller may take to read a refusal, which is one line."""

Pause = Callable[[], Awaitable[None]]
Context = Any
"""`grpc.aio.ServicerContext`, whose type parameters would differ per call."""


class Service(Protocol):
    """What a service must have for its calls to be counted."""

    telemetry: LearnerTelemetry


ServiceT = TypeVar("ServiceT", bound=Service)
Request = TypeVar("Request")
Reply = TypeVar("Reply")
Method = Callable[[ServiceT, Request, Context], Awaitable[Reply]]


def answered(method: Method[ServiceT, Request, Reply]) -> Method[ServiceT, Request, Reply]:
    """Translate what a call raises, and count how it ended."""
    name = method.__name__

    @functools.wraps(method)
    async def call(self: ServiceT, request: Request, context: Context) -> Reply:
        started = time.perf_counter()
        try:
            reply = await method(self, request, context)
        except Exception as error:
            await refuse(self.telemetry, context, name, error, time.perf_counter() - started)
        self.telemetry.on_call(name, "ok", time.perf_counter() - started)
        return reply

    return call


async def refuse(
    telemetry: LearnerTelemetry, context: Context, method: str, error: Exception, seconds: float = 0.0
) -> NoReturn:
    """End a call with an error's status and line; counted and logged."""
    found = next((ending for kind, ending in _ENDINGS.items() if isinstance(error, kind)), _FAILED)
    status, reason, line = found
    if isinstance(error, (TooOften, TooFast)):
        await pause()
    if reason is not CallRefusal.FAILED:
        telemetry.refusal_log.on_refusal(context.peer(), reason, method, status.name, str(error)[:_LONGEST_LOGGED])
    else:
        _log.error("call-failed", method=method, status=status.name, reason=str(error), exc_info=error)
    if isinstance(error, IdentityRefused):
        telemetry.identity_refusals.labels(error.reason).inc()
    if isinstance(error, DiskFull):
        telemetry.disk_refusals.labels(method).inc()
    if isinstance(error, EnrollmentRefused):
        telemetry.enrollments.labels(error.reason).inc()
    telemetry.on_refusal(method, reason)
    telemetry.on_call(method, status.name.lower(), seconds)
    _end_after(_REFUSAL_SECONDS)
    await context.abort(status, line or plain_line(str(error)))
    raise AssertionError("abort raises") from error


async def pause() -> None:
    """What stands before the answer to a caller that asks too often."""
    await asyncio.sleep(_PAUSE_SECONDS)


def _end_after(seconds: float) -> None:
    """End the running call if it has not ended by itself by then: its caller does not read."""
    task = asyncio.current_task()
    assert task is not None  # noqa: S101  (gRPC runs each call in one)
    timer = asyncio.get_running_loop().call_later(seconds, task.cancel)
    task.add_done_callback(lambda _: timer.cancel())


IDENTITY_ONLY = 1
"""gRPC's set of compressions with none but "no compression" in it."""
STREAMS = 64
"""Calls of one connection that gRPC lets come at a time; further ones wait at the caller's."""
UNKNOWN = "unknown"
"""The method of a call that names none of ours; its own words would be anybody's."""
_LIFE_SIGN_SHARE = 3
"""A silent connection is asked for a sign of life once a while, and has a third of that while to give one."""
_MOST_OPEN = 256
"""Calls of one caller that may be open, with those whose refusal it does not read; twice what an operator may queue."""


@dataclass(frozen=True, slots=True)
class AdmissionLimits:
    """How much callers may ask of a server at once.

    Attributes:
        message_bytes: largest request.
        connections: open, those that do not say anything included.
        patience: how long a call may take to find a seat, to arrive and to be read.
        large_methods: their requests may be that large; all others at most `envelope_bytes`.
        handshake_seconds: after which a connection that has not become one is closed.
    """

    message_bytes: int
    connections: int
    patience: CallSettings = field(default_factory=CallSettings)
    large_methods: frozenset[str] = field(default_factory=frozenset)
    envelope_bytes: int = 1 << 20
    handshake_seconds: float = 20.0

    def of(self, method: str) -> int:
        """Largest request of a method, in bytes."""
        return self.message_bytes if method in self.large_methods else min(self.message_bytes, self.envelope_bytes)


def _options(limits: AdmissionLimits) -> list[tuple[str, int]]:
    """What gRPC itself sees to."""
    alive_ms = round(1000 * limits.patience.keepalive_seconds)
    return [
        ("grpc.max_receive_message_length", limits.message_bytes),
        ("grpc.max_send_message_length", -1),
        ("grpc.compression_enabled_algorithms_bitset", IDENTITY_ONLY),
        ("grpc.max_allowed_incoming_connections", limits.connections),
        ("grpc.max_concurrent_streams", STREAMS),
        # It counts calls that ended and are not yet cleared away, and cuts off those of callers that keep to the limit.
        ("grpc.http.overload_protection", 0),
        ("grpc.server_handshake_timeout_ms", round(1000 * limits.handshake_seconds)),
        ("grpc.keepalive_time_ms", alive_ms),
        ("grpc.keepalive_timeout_ms", alive_ms // _LIFE_SIGN_SHARE),
        ("grpc.keepalive_permit_without_calls", 1),
        ("grpc.http2.max_pings_without_data", 0),
        # Two learners on one port would share the fleet's calls between them; the second must fail instead.
        ("grpc.so_reuseport", 0),
    ]


CallerOf = Callable[[AuthContext, str], Caller]
"""Who calls, by what gRPC knows of the connection and its peer; IdentityRefused for nobody whose calls count."""


def calling_host(_context: AuthContext, peer: str) -> Caller:
    """The calling host: what tells callers apart where none shows a certificate."""
    return Caller(host_of(peer), CallerRole.UNCERTIFIED)


class AdmissionInterceptor(grpc.aio.ServerInterceptor):
    """Looks at every call of one server."""

    def __init__(
        self,
        limits: AdmissionLimits,
        caller_of: CallerOf,
        lanes: Lanes,
        telemetry: LearnerTelemetry,
        guard: ConnectionGuard,
    ) -> None:
        self.caller_of = caller_of
        self.guard = guard
        self.limits = limits
        self.lanes = lanes
        self.telemetry = telemetry
        self.open_calls: Counter[str] = Counter()
        self._handlers: dict[str, grpc.RpcMethodHandler[Any, Any]] = {}

    async def intercept_service(
        self, continuation: Callable[[grpc.HandlerCallDetails], Awaitable[Any]], details: grpc.HandlerCallDetails
    ) -> Any:
        """gRPC's hook: the method's handler, behind the checks."""
        handler = await continuation(details)
        if handler is None:
            self.telemetry.on_refusal(UNKNOWN, CallRefusal.UNKNOWN_METHOD)
            return None
        return self._handlers.get(details.method) or self._handler_of(details.method, handler)

    def _handler_of(self, path: str, handler: grpc.RpcMethodHandler[Any, Any]) -> grpc.RpcMethodHandler[Any, Any]:
        """Made once a method: making one imports a module."""
        method = path.rpartition("/")[2]

        async def run(_messages: object, context: Context) -> object:
            call = _Call(self, method, handler)
            _RUNNING.set(call)
            return await call.run(context)

        def serialized(reply: object) -> bytes:
            return _RUNNING.get().serialized(reply)

        # As if it were a stream of messages, of which one is taken: a handler of a single message is only called when
        # that is in memory, whoever sent it.
        self._handlers[path] = grpc.stream_unary_rpc_method_handler(run, None, serialized)
        return self._handlers[path]


class _SeatedContext:
    """gRPC's context of a call, with who calls read once: it is made of copies each time."""

    __slots__ = ("_auth_context", "_context", "_peer")

    def __init__(self, context: Context) -> None:
        self._context = context
        self._auth_context: AuthContext = context.auth_context()
        self._peer: str = context.peer()

    def auth_context(self) -> AuthContext:
        return self._auth_context

    def peer(self) -> str:
        return self._peer

    async def read(self) -> object:
        return await self._context.read()

    def set_code(self, status: grpc.StatusCode) -> None:
        self._context.set_code(status)

    def set_details(self, details: str) -> None:
        self._context.set_details(details)

    async def abort(self, status: grpc.StatusCode, details: str) -> NoReturn:
        await self._context.abort(status, details)
        raise AssertionError("abort raises")


class _Call:
    """One call, from its first byte until its answer has been sent."""

    def __init__(self, desk: AdmissionInterceptor, method: str, handler: grpc.RpcMethodHandler[Any, Any]) -> None:
        self._desk = desk
        self._method = method
        self._handler = handler
        self._caller: Caller | None = None
        self._queue: FairQueue | None = None
        self._seat: Seat | None = None
        self._task: asyncio.Task[Any] | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._late: CallRefusal | None = None

    async def run(self, context: Context) -> object:
        """Find a seat, take the message, and let the method answer."""
        self._task = asyncio.current_task()
        assert self._task is not None  # noqa: S101  (gRPC runs each call in one)
        self._task.add_done_callback(self._ended)
        context = _SeatedContext(context)
        try:
            await self._be_seated(context)
            request = self._parsed(await self._message(context))
        except LearnerError as error:
            await refuse(self._desk.telemetry, context, self._method, error)
        return await self._handler.unary_unary(request, context)  # type: ignore[misc]  # its method is one of ours

    def serialized(self, reply: object) -> bytes:
        """The answer's bytes, unless it is these already; from now on the caller has to read."""
        data = reply if isinstance(reply, bytes) else self._handler.response_serializer(reply)  # type: ignore[misc]
        if self._queue is not None and self._seat is not None:
            self._queue.hold(self._seat, len(data))
        self._end_in(self._desk.limits.patience.send_seconds, CallRefusal.NOT_SENT)
        return data

    async def _be_seated(self, context: Context) -> None:
        desk = self._desk
        caller = desk.caller_of(context.auth_context(), context.peer())
        if desk.open_calls[caller.name] >= _MOST_OPEN:
            desk.telemetry.on_refusal(self._method, CallRefusal.SHARE_TAKEN)
            raise asyncio.CancelledError  # without a word: it does not read them
        desk.open_calls[caller.name] += 1
        self._caller = caller
        desk.guard.on_call(context.peer())
        check_role(self._method, caller.name, caller.role)
        lane = desk.lanes.lane(caller, self._method)
        self._queue = desk.lanes.queues[lane]
        self._seat = self._queue.ask(caller.name)
        if self._seat.turn is not None:
            with desk.telemetry.queue_seconds.labels(lane).time():
                await asyncio.wait((self._seat.turn,), timeout=desk.limits.patience.wait_seconds)
            if not self._seat.begun:
                raise desk.lanes.on_full(lane, caller)

    async def _message(self, context: Context) -> bytes:
        self._end_in(self._desk.limits.patience.arrival_seconds, CallRefusal.NOT_RECEIVED)
        data = await context.read()
        if self._timer is not None:
            self._timer.cancel()
        if data is grpc.aio.EOF:
            self._late = CallRefusal.NOT_RECEIVED
            raise asyncio.CancelledError
        return bytes(data)

    def _parsed(self, data: bytes) -> object:
        largest = self._desk.limits.of(self._method)
        if len(data) > largest:
            raise MessageTooLarge(f"{self._method}: a message of {len(data)} bytes; at most {largest} are taken")
        try:
            return self._handler.request_deserializer(data)  # type: ignore[misc]  # its method is one of ours
        except DecodeError as error:
            raise BadRequest(f"{self._method}: the message cannot be read; it must be fleet.proto's, whole") from error

    def _end_in(self, seconds: float, reason: CallRefusal) -> None:
        self._timer = asyncio.get_running_loop().call_later(seconds, self._end, reason)

    def _end(self, reason: CallRefusal) -> None:
        self._late = reason
        assert self._task is not None  # noqa: S101  (it runs)
        self._task.cancel()

    def _ended(self, _task: object) -> None:
        desk = self._desk
        if self._timer is not None:
            self._timer.cancel()
        if self._late is not None:
            desk.telemetry.on_refusal(self._method, self._late)
        if self._queue is not None and self._seat is not None:
            self._queue.give_back(self._seat)
        if self._caller is not None:
            desk.open_calls[self._caller.name] -= 1
            if not desk.open_calls[self._caller.name]:
                del desk.open_calls[self._caller.name]
        # A refused call's error holds what it was refused for: in a circle that would stay until a collection, and
        # these come by number of objects, not by megabytes.
        self._task = self._timer = None


_RUNNING: ContextVar[_Call] = ContextVar("_RUNNING")
"""The call of the task that runs; gRPC's serializers are not told."""


def bounded_server(
    limits: AdmissionLimits,
    caller_of: CallerOf,
    lanes: Lanes,
    telemetry: LearnerTelemetry,
    guard: ConnectionGuard | None = None,
) -> grpc.aio.Server:
    """A server behind the interceptor; services and ports are still to be added, and the guard is still to watch."""
    desk = AdmissionInterceptor(limits, caller_of, lanes, telemetry, guard or ConnectionGuard(limits.connections))
    return grpc.aio.server(interceptors=[desk], options=_options(limits))
