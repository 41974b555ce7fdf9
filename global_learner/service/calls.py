"""Boundary of every call: the learner's errors become gRPC statuses with their one line, anything else is logged.

A caller never sees a traceback or a word about what failed inside, neither a path nor a statement of SQL.
"""

from __future__ import annotations

import asyncio
import functools
import time
from collections.abc import Awaitable, Callable
from typing import Any, NamedTuple, NoReturn, Protocol, TypeVar

import structlog
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
