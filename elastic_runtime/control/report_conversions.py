"""Reports, registrations, requests and status between the protocol's messages and plain values.

Raises `ProtocolError` as `view_conversions` does.
"""

from __future__ import annotations

import math
import re
from dataclasses import fields
from typing import Any

from elastic_runtime.control.checks import check_amount, check_count, check_figure, check_task, check_text
from elastic_runtime.control.messages import (
    JobStatus,
    LeasedRange,
    MemberReport,
    RequestOutcome,
    RequestState,
    ResizeMode,
    Shard,
    Size,
    TaskStatus,
)
from elastic_runtime.control.view_conversions import (
    phase_from_message,
    phase_to_message,
    role_from_message,
    role_to_message,
)
from elastic_runtime.errors import ProtocolError
from elastic_runtime.generated import elastic_pb2 as pb

_MOST_SHARDS = 64
"""Of one server: its newest few checkpoints."""
_MOST_SUSPECTS = 4096
_COUNTED = (
    *("view", "generation", "step", "accepted", "refused", "arrived", "samples"),
    *("bytes_sent", "bytes_received", "owned_bytes", "moved_bytes"),
)
_SHARD_FILE = re.compile("[A-Za-z0-9][A-Za-z0-9._-]{0,250}")
_DIGEST = re.compile("[0-9a-f]{64}")
_FIGURES = ("samples_per_second", "step_seconds", "stall_seconds")
_SAME_IN_REPORT = tuple(
    field.name for field in fields(MemberReport) if field.name not in {"shards", "loss", "suspects", *_FIGURES}
)
_SAME_IN_STATUS = tuple(
    field.name
    for field in fields(JobStatus)
    if field.name not in {"phase", "size", "target", "tasks", "requests", "loss", "wanted", "leaving"}
)
_SAME_IN_TASK = tuple(field.name for field in fields(TaskStatus) if field.name != "role")
_SAME_IN_REQUEST = tuple(
    field.name for field in fields(RequestState) if field.name not in {"state", "target", "mode", "victims"}
)
_MODES: dict[ResizeMode, Any] = {mode: pb.ResizeMode.Value(f"RESIZE_MODE_{mode.name}") for mode in ResizeMode}
_MODE_OF: dict[int, ResizeMode] = {number: mode for mode, number in _MODES.items()} | {
    pb.RESIZE_MODE_UNSPECIFIED: ResizeMode.ROLLING
}


def report_to_message(report: MemberReport) -> pb.ReportRequest:
    """A report as it is sent."""
    message = pb.ReportRequest(
        **{name: getattr(report, name) for name in (*_SAME_IN_REPORT, *_FIGURES)},
        suspects=report.suspects,
        shards=[
            pb.Shard(
                name=shard.name,
                step=shard.step,
                size_bytes=shard.size_bytes,
                sha256=shard.sha256,
                change=shard.change,
            )
            for shard in report.shards
        ],
        has_loss=report.loss is not None,
    )
    if report.loss is not None:
        message.loss = report.loss
    return message


def report_from_message(message: pb.ReportRequest) -> MemberReport:
    """A report as it came; a loss that is no number is as good as none."""
    check_task(message.task)
    check_text(message.failure, "a member's failure")
    check_text(message.damage, "a checkpoint's damage")
    check_count(len(message.shards), _MOST_SHARDS, "shards in a report")
    check_count(len(message.suspects), _MOST_SUSPECTS, "suspects in a report")
    same: dict[str, Any] = {name: getattr(message, name) for name in _SAME_IN_REPORT}
    for name in _COUNTED:
        check_amount(same[name], name)
    for name in _FIGURES:
        same[name] = check_figure(getattr(message, name), name)
    return MemberReport(
        **same,
        suspects=tuple(check_task(name) for name in message.suspects),
        shards=tuple(_shard(shard) for shard in message.shards),
        loss=message.loss if message.has_loss and math.isfinite(message.loss) else None,
    )


def size_to_message(size: Size) -> pb.Size:
    """A size as it is sent."""
    return pb.Size(servers=size.servers, workers=size.workers)


def size_from_message(message: pb.Size) -> Size:
    """A size as it came."""
    return Size(message.servers, message.workers)


def mode_to_message(mode: ResizeMode) -> Any:
    """A mode's number."""
    return _MODES[mode]


def mode_from_message(number: int) -> ResizeMode:
    """The mode of a number; rolling, if none is said."""
    if number not in _MODE_OF:
        raise ProtocolError(f"{number} is no way of resizing that this version knows")
    return _MODE_OF[number]


def status_to_message(status: JobStatus) -> pb.JobStatus:
    """A status as it is sent."""
    return pb.JobStatus(
        **{name: getattr(status, name) for name in _SAME_IN_STATUS},
        phase=phase_to_message(status.phase),
        size=size_to_message(status.size),
        target=size_to_message(status.target),
        tasks=[
            pb.TaskStatus(role=role_to_message(task.role), **{name: getattr(task, name) for name in _SAME_IN_TASK})
            for task in status.tasks
        ],
        requests=[_request_to_message(request) for request in status.requests],
        loss=status.loss or 0.0,
        has_loss=status.loss is not None,
        wanted=status.wanted,
        leaving=status.leaving,
    )


def status_from_message(message: pb.JobStatus) -> JobStatus:
    """A status as it came."""
    return JobStatus(
        **_same(message, _SAME_IN_STATUS),
        phase=phase_from_message(message.phase),
        size=size_from_message(message.size),
        target=size_from_message(message.target),
        tasks=tuple(
            TaskStatus(role=role_from_message(task.role), **_same(task, _SAME_IN_TASK)) for task in message.tasks
        ),
        requests=tuple(_request_from_message(request) for request in message.requests),
        loss=message.loss if message.has_loss and math.isfinite(message.loss) else None,
        wanted=tuple(message.wanted),
        leaving=tuple(message.leaving),
    )


def outcome_from_message(state: str) -> RequestOutcome:
    """Where a request is."""
    try:
        return RequestOutcome(state)
    except ValueError as error:
        raise ProtocolError(f"{state[:40]!r} is no state of a request that this version knows") from error


def lease_to_message(lease: LeasedRange) -> pb.LeasedRange:
    """A lease as it is sent."""
    return pb.LeasedRange(id=lease.lease, epoch=lease.epoch, start=lease.start, stop=lease.stop)


def lease_from_message(message: pb.LeasedRange) -> LeasedRange:
    """A lease as it came."""
    if message.stop <= message.start:
        raise ProtocolError(f"a lease of samples {message.start} to {message.stop}")
    return LeasedRange(message.id, message.epoch, message.start, message.stop)


def _request_to_message(request: RequestState) -> pb.RequestState:
    return pb.RequestState(
        **{name: getattr(request, name) for name in _SAME_IN_REQUEST},
        state=request.state.value,
        target=size_to_message(request.target),
        mode=_MODES[request.mode],
    )


def _request_from_message(message: pb.RequestState) -> RequestState:
    return RequestState(
        **_same(message, _SAME_IN_REQUEST),
        state=outcome_from_message(message.state),
        target=size_from_message(message.target),
        mode=mode_from_message(message.mode),
    )


def _same(message: Any, names: tuple[str, ...]) -> dict[str, Any]:
    """Fields that are named alike on both sides; figures have to be some."""
    found = {name: getattr(message, name) for name in names}
    for name, value in found.items():
        if isinstance(value, float):
            check_figure(value, name)
    return found


def _shard(message: pb.Shard) -> Shard:
    if not _DIGEST.fullmatch(message.sha256):
        raise ProtocolError(f"shard {message.name[:80]!r} has no SHA-256 of 64 hex digits")
    if not _SHARD_FILE.fullmatch(message.name):
        raise ProtocolError(f"{message.name[:80]!r} is no name of a shard's file")
    return Shard(
        message.name,
        check_amount(message.step, "a shard's step"),
        check_amount(message.size_bytes, "a shard's size in bytes"),
        message.sha256,
        check_amount(message.change, "a shard's change"),
    )
