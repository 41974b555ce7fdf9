"""The boundary of every call: the learner's errors become gRPC statuses with their one line, anything else is logged.

A caller never sees a traceback or a word about what failed inside.
"""

from __future__ import annotations

import functools
import time
from collections.abc import Awaitable, Callable
from typing import Any, Protocol, TypeVar

import grpc
import structlog

from global_learner.errors import (
    BadRequest,
    DiskFull,
    EnrollmentRefused,
    FleetFull,
    IdentityRefused,
    LearnerError,
    LogBroken,
    NoAuthority,
    NoRounds,
    StateUnusable,
    Unknown,
    UnknownIncarnation,
)
from global_learner.telemetry import Telemetry
from policy_net.errors import SpecMismatch

_log = structlog.get_logger()

_STATUSES: dict[type[Exception], grpc.StatusCode] = {
    BadRequest: grpc.StatusCode.INVALID_ARGUMENT,
    IdentityRefused: grpc.StatusCode.PERMISSION_DENIED,
    EnrollmentRefused: grpc.StatusCode.PERMISSION_DENIED,
    NoAuthority: grpc.StatusCode.FAILED_PRECONDITION,
    UnknownIncarnation: grpc.StatusCode.FAILED_PRECONDITION,
    NoRounds: grpc.StatusCode.FAILED_PRECONDITION,
    SpecMismatch: grpc.StatusCode.FAILED_PRECONDITION,
    FleetFull: grpc.StatusCode.RESOURCE_EXHAUSTED,
    Unknown: grpc.StatusCode.NOT_FOUND,
    StateUnusable: grpc.StatusCode.DATA_LOSS,
    DiskFull: grpc.StatusCode.RESOURCE_EXHAUSTED,
    LogBroken: grpc.StatusCode.UNAVAILABLE,
    LearnerError: grpc.StatusCode.INTERNAL,
}

Context = Any
"""`grpc.aio.ServicerContext`, whose type parameters would differ per call."""


class Service(Protocol):
    """What a service must have for its calls to be counted."""

    telemetry: Telemetry


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
            status = next((code for kind, code in _STATUSES.items() if isinstance(error, kind)), None)
            if status is None:
                _log.exception("call-failed", method=name)
                status, message = grpc.StatusCode.INTERNAL, "the learner failed; its log says why"
            else:
                message = str(error)
                if isinstance(error, IdentityRefused):
                    self.telemetry.identity_refusals.labels(error.reason).inc()
                if isinstance(error, DiskFull):
                    self.telemetry.disk_refusals.labels(name).inc()
                if isinstance(error, EnrollmentRefused):
                    self.telemetry.enrollments.labels(error.reason).inc()
                _log.warning("call-refused", method=name, status=status.name, reason=message)
            self.telemetry.called(name, status.name.lower(), time.perf_counter() - started)
            await context.abort(status, message)
            raise AssertionError("abort raises") from error
        self.telemetry.called(name, "ok", time.perf_counter() - started)
        return reply

    return call
