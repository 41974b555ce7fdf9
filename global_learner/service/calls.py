"""Boundary of every call: the learner's errors become gRPC statuses with their one line, anything else is logged.

A caller never sees a traceback or a word about what failed inside, neither a path nor a statement of SQL: that is the
log's. Whatever is refused is counted by a reason of a fixed set.
"""

from __future__ import annotations

import asyncio
import functools
import time
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, NoReturn, Protocol, TypeVar

import grpc
import structlog

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
from global_learner.telemetry import LearnerTelemetry
from policy_net.errors import SpecMismatch

_log = structlog.get_logger()

_STATUSES: dict[type[Exception], grpc.StatusCode] = {
    BadRequest: grpc.StatusCode.INVALID_ARGUMENT,
    IdentityRefused: grpc.StatusCode.PERMISSION_DENIED,
    EnrollmentRefused: grpc.StatusCode.PERMISSION_DENIED,
    NoAuthority: grpc.StatusCode.FAILED_PRECONDITION,
    UnknownIncarnation: grpc.StatusCode.FAILED_PRECONDITION,
    NoRounds: grpc.StatusCode.FAILED_PRECONDITION,
    RolloutRefused: grpc.StatusCode.FAILED_PRECONDITION,
    ChangedSince: grpc.StatusCode.ABORTED,
    SpecMismatch: grpc.StatusCode.FAILED_PRECONDITION,
    FleetFull: grpc.StatusCode.RESOURCE_EXHAUSTED,
    MessageTooLarge: grpc.StatusCode.INVALID_ARGUMENT,
    TooBusy: grpc.StatusCode.RESOURCE_EXHAUSTED,
    TooFast: grpc.StatusCode.RESOURCE_EXHAUSTED,
    Unknown: grpc.StatusCode.NOT_FOUND,
    StateUnusable: grpc.StatusCode.DATA_LOSS,
    DiskFull: grpc.StatusCode.RESOURCE_EXHAUSTED,
    DatabaseAway: grpc.StatusCode.UNAVAILABLE,
    NotActive: grpc.StatusCode.UNAVAILABLE,
    NoHeadYet: grpc.StatusCode.UNAVAILABLE,
    LogBroken: grpc.StatusCode.UNAVAILABLE,
    LearnerError: grpc.StatusCode.INTERNAL,
}

_REASONS: dict[type[Exception], CallRefusal] = {
    BadRequest: CallRefusal.BAD_REQUEST,
    IdentityRefused: CallRefusal.WRONG_IDENTITY,
    EnrollmentRefused: CallRefusal.NOT_ENROLLED,
    NoAuthority: CallRefusal.NO_AUTHORITY,
    UnknownIncarnation: CallRefusal.UNKNOWN_INCARNATION,
    NoRounds: CallRefusal.NO_ROUNDS,
    RolloutRefused: CallRefusal.ROLLOUT_REFUSED,
    ChangedSince: CallRefusal.CHANGED_SINCE,
    SpecMismatch: CallRefusal.WRONG_SPEC,
    FleetFull: CallRefusal.FLEET_FULL,
    MessageTooLarge: CallRefusal.TOO_LARGE,
    ShareTaken: CallRefusal.SHARE_TAKEN,
    TooOften: CallRefusal.TOO_OFTEN,
    TooBusy: CallRefusal.TOO_BUSY,
    TooFast: CallRefusal.TOO_FAST,
    Unknown: CallRefusal.NOT_FOUND,
    DiskFull: CallRefusal.DISK_FULL,
    DatabaseAway: CallRefusal.DATABASE_AWAY,
    NotActive: CallRefusal.NOT_ACTIVE,
    NoHeadYet: CallRefusal.NO_HEAD,
}
"""All others are the learner's own failures, of which a caller learns no more than that."""

_FAILURES: dict[type[Exception], str] = {
    StateUnusable: "the learner's state is damaged; its log says where",
    DiskFull: "the learner's disk is full; send this again later",
    DatabaseAway: "the learner's database does not answer; come again",
    NotActive: "this learner is not the active one; try the next address, or come again",
    LogBroken: "the learner cannot write its log and ends; come again",
}

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
Found = TypeVar("Found")
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
    status = _of(_STATUSES, error, grpc.StatusCode.INTERNAL)
    reason = _of(_REASONS, error, CallRefusal.FAILED)
    message = plain_line(str(error))
    if isinstance(error, (TooOften, TooFast)):
        await pause()
    if reason is not CallRefusal.FAILED:
        telemetry.refusal_log.on_refusal(context.peer(), reason, method, status.name, str(error)[:_LONGEST_LOGGED])
        message = _of(_FAILURES, error, message)
    else:
        _log.error("call-failed", method=method, status=status.name, reason=str(error), exc_info=error)
        message = _of(_FAILURES, error, "the learner failed; its log says why")
    if isinstance(error, IdentityRefused):
        telemetry.identity_refusals.labels(error.reason).inc()
    if isinstance(error, DiskFull):
        telemetry.disk_refusals.labels(method).inc()
    if isinstance(error, EnrollmentRefused):
        telemetry.enrollments.labels(error.reason).inc()
    telemetry.on_refusal(method, reason)
    telemetry.on_call(method, status.name.lower(), seconds)
    _end_after(_REFUSAL_SECONDS)
    await context.abort(status, message)
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


def _of(table: Mapping[type[Exception], Found], error: Exception, otherwise: Found) -> Found:
    return next((found for kind, found in table.items() if isinstance(error, kind)), otherwise)
