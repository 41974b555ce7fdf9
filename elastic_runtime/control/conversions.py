"""Conversions between the protocol's messages and plain values; whoever reads a message from a socket checks it here.

Readers raise `ProtocolError` on anything that no coordinator or member of this version sends: a name too long, an index
outside its list, a number of no enumeration. Sizes of whole messages are limited by the channel.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import fields
from typing import Any, TypeVar

from elastic_runtime.control.checks import check_amount, check_count, check_figure, check_task, check_text
from elastic_runtime.control.messages import (
    JobStatus,
    MemberReport,
    RequestOutcome,
    RequestState,
    ResizeMode,
    Shard,
    Size,
    TaskStatus,
)
from elastic_runtime.errors import ProtocolError
from elastic_runtime.generated import elastic_pb2 as pb
from elastic_runtime.model.sample_leases import SampleLease
from elastic_runtime.protocol.plan import Change, ChangeStage, JobPhase, Member, Plan, TaskRole, View
from foundation.python310 import StrEnum

_MOST_STAGES = 2**20
_MOST_SHARDS = 64
"""Of one server: its newest few checkpoints."""
_MOST_SUSPECTS = 4096
_COUNTED = (
    *("view", "generation", "step", "accepted", "refused", "arrived", "samples"),
    *("bytes_sent", "bytes_received", "owned_bytes", "moved_bytes"),
)
_SHARD_FILE = re.compile("[A-Za-z0-9][A-Za-z0-9._-]{0,250}")
_DIGEST = re.compile("[0-9a-f]{64}")
_Enumeration = TypeVar("_Enumeration", bound=StrEnum)
_NUMBERS: dict[type, dict[Any, int]] = {
    TaskRole: {role: pb.Role.Value(f"ROLE_{role.name}") for role in TaskRole},
    JobPhase: {phase: pb.Phase.Value(f"PHASE_{phase.name}") for phase in JobPhase},
    ResizeMode: {mode: pb.ResizeMode.Value(f"RESIZE_MODE_{mode.name}") for mode in ResizeMode},
}
_CALLED: dict[type, str] = {TaskRole: "role", JobPhase: "phase", ResizeMode: "way of resizing"}
MESSAGES: dict[type, Any] = {
    JobStatus: pb.JobStatus,
    Member: pb.Member,
    MemberReport: pb.ReportRequest,
    RequestState: pb.RequestState,
    SampleLease: pb.LeasedRange,
    Shard: pb.Shard,
    Size: pb.Size,
    TaskStatus: pb.TaskStatus,
    View: pb.View,
}


def to_message(value: Any) -> Any:
    """A plain value as it is sent: dataclasses by their fields' names, an enumeration by its number."""
    kind = type(value)
    if kind in _NUMBERS:
        return _NUMBERS[kind][value]
    if kind in _OTHERWISE:
        return _OTHERWISE[kind](value)
    if kind not in MESSAGES:
        return value
    names = MESSAGES[kind].DESCRIPTOR.fields_by_name
    found = {name: to_message(getattr(value, name)) for name in names if getattr(value, name, None) is not None}
    if "has_loss" in names:
        found["has_loss"] = value.loss is not None
    return MESSAGES[kind](**found)


def status_to_message(status: JobStatus) -> pb.JobStatus:
    """A status as it is sent."""
    message: pb.JobStatus = to_message(status)
    return message


def enumeration_from_message(kind: type[_Enumeration], number: int) -> _Enumeration:
    """What a number stands for; a way of resizing that is not said is the usual one."""
    if kind is ResizeMode and number == pb.RESIZE_MODE_UNSPECIFIED:
        return kind(ResizeMode.ROLLING)
    for one, known in _NUMBERS[kind].items():
        if known == number:
            return kind(one)
    raise ProtocolError(f"{number} is no {_CALLED[kind]} that this version knows")


def outcome_from_message(state: str) -> RequestOutcome:
    """Where a request is."""
    try:
        return RequestOutcome(state)
    except ValueError as error:
        raise ProtocolError(f"{state[:40]!r} is no state of a request that this version knows") from error


def size_from_message(message: pb.Size) -> Size:
    """A size as it came."""
    return Size(message.servers, message.workers)


def lease_from_message(message: pb.LeasedRange) -> SampleLease:
    """A lease as it came."""
    if message.stop <= message.start:
        raise ProtocolError(f"a lease of samples {message.start} to {message.stop}")
    return SampleLease(message.id, message.epoch, message.start, message.stop)


def report_from_message(message: pb.ReportRequest) -> MemberReport:
    """A report as it came; a loss that is no number is as good as none."""
    check_task(message.task)
    check_text(message.failure, "a member's failure")
    check_text(message.damage, "a checkpoint's damage")
    check_count(len(message.shards), _MOST_SHARDS, "shards in a report")
    check_count(len(message.suspects), _MOST_SUSPECTS, "suspects in a report")
    same = _same(MemberReport, message, "suspects", "shards", "loss")
    for name in _COUNTED:
        check_amount(same[name], name)
    return MemberReport(
        **same,
        suspects=tuple(check_task(name) for name in message.suspects),
        shards=tuple(_shard(shard) for shard in message.shards),
        loss=_loss(message),
    )


def status_from_message(message: pb.JobStatus) -> JobStatus:
    """A status as it came."""
    return JobStatus(
        **_same(JobStatus, message, "phase", "size", "target", "tasks", "requests", "loss", "wanted", "leaving"),
        phase=enumeration_from_message(JobPhase, message.phase),
        size=size_from_message(message.size),
        target=size_from_message(message.target),
        tasks=tuple(
            TaskStatus(role=enumeration_from_message(TaskRole, task.role), **_same(TaskStatus, task, "role"))
            for task in message.tasks
        ),
        requests=tuple(_request(request) for request in message.requests),
        loss=_loss(message),
        wanted=tuple(message.wanted),
        leaving=tuple(message.leaving),
    )


def view_from_message(message: pb.View) -> View:
    """A view as it came."""
    plan = _plan(message.start_plan)
    blocks = len(plan.owners)
    changes = tuple(_change(change, blocks) for change in message.changes)
    numbers = [change.number for change in changes]
    if numbers != sorted(set(numbers)):
        raise ProtocolError(f"a view with changes {numbers[:20]}, which are not in order")
    _check_clocks(changes, message.start_step)
    return View(
        number=message.number,
        generation=message.generation,
        phase=enumeration_from_message(JobPhase, message.phase),
        start_step=message.start_step,
        start_checkpoint=check_text(message.start_checkpoint, "the first checkpoint's name"),
        start_plan=plan,
        changes=changes,
        proposal=_change(message.proposal, blocks) if message.HasField("proposal") else None,
        members=tuple(_member(member) for member in message.members),
        committed=message.committed,
        substitutes={check_task(row.worker): check_task(row.by) for row in message.substitutes},
        initialiser=check_task(message.initialiser) if message.initialiser else "",
        wanted=_tasks(message.wanted),
        leaving=_tasks(message.leaving),
        failure=check_text(message.failure, "the job's failure"),
        lost_servers=_tasks(message.lost_servers),
        notice=check_text(message.notice, "the job's notice"),
        ends_at=message.ends_at if message.HasField("ends_at") else None,
    )


def _same(kind: type[Any], message: Any, *apart: str) -> dict[str, Any]:
    """Fields that are named alike on both sides, without those `apart`; figures have to be some."""
    found = {field.name: getattr(message, field.name) for field in fields(kind) if field.name not in apart}
    for name, value in found.items():
        if isinstance(value, float):
            check_figure(value, name)
    return found


def _loss(message: pb.ReportRequest | pb.JobStatus) -> float | None:
    return message.loss if message.has_loss and math.isfinite(message.loss) else None


def _request(message: pb.RequestState) -> RequestState:
    return RequestState(
        **_same(RequestState, message, "state", "target", "mode", "victims"),
        state=outcome_from_message(message.state),
        target=size_from_message(message.target),
        mode=enumeration_from_message(ResizeMode, message.mode),
    )


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


def _check_clocks(changes: Sequence[Change], start_step: int) -> None:
    """Each change begins where the one before has ended, as a `Timeline` wants it."""
    least = start_step
    for change in changes:
        if change.clock < least:
            raise ProtocolError(
                f"a view whose change {change.number} at step {change.clock} begins before step {least}"
            )
        least = change.clock + max(len(change.stages), 1) - 1


def _member(message: pb.Member) -> Member:
    role = enumeration_from_message(TaskRole, message.role)
    address = check_text(message.address_json, "a member's address")
    return Member(check_task(message.task), role, message.incarnation, address)


def _plan_to_message(plan: Plan) -> pb.Plan:
    servers = plan.servers
    index = {server: place for place, server in enumerate(servers)}
    return pb.Plan(
        workers=plan.workers,
        servers=servers,
        owners=[index[owner] for owner in plan.owners],
        replicas=[_second_to_message(index, replica) for replica in plan.replicas],
    )


def _change_to_message(change: Change) -> pb.Change:
    named = (server for s in change.stages for server in (*s.moves.values(), *s.replicas.values()) if server)
    servers = list(dict.fromkeys(named))
    index = {server: place for place, server in enumerate(servers)}
    stages = [
        pb.Stage(
            moves=[pb.Move(block=block, server=index[server]) for block, server in stage.moves.items()],
            has_workers=stage.workers is not None,
            workers=stage.workers or (),
            replicas=[
                pb.Move(block=block, server=_second_to_message(index, replica))
                for block, replica in stage.replicas.items()
            ],
        )
        for stage in change.stages
    ]
    return pb.Change(
        number=change.number,
        clock=change.clock,
        stages=stages,
        servers=servers,
        checkpoint=change.checkpoint,
        halt=change.halt,
        barrier=change.barrier,
    )


def _second_to_message(index: Mapping[str, int], replica: str) -> int:
    """The number of a block's second holder: 0 is none."""
    return 1 + index[replica] if replica else 0


_OTHERWISE: dict[type, Callable[[Any], Any]] = {
    tuple: lambda values: [to_message(value) for value in values],
    dict: lambda substitutes: [pb.Substitute(worker=worker, by=by) for worker, by in substitutes.items()],
    Plan: _plan_to_message,
    Change: _change_to_message,
}


def _plan(message: pb.Plan) -> Plan:
    servers = _tasks(message.servers)
    owners = tuple(_pick(servers, owner, "a block's owner") for owner in message.owners)
    replicas = tuple(_second(servers, replica) for replica in message.replicas)
    if replicas and len(replicas) != len(owners):
        raise ProtocolError(f"a plan with {len(replicas)} replicas of {len(owners)} blocks")
    for block, (owner, replica) in enumerate(zip(owners, replicas, strict=False)):
        if owner == replica:
            raise ProtocolError(f"a plan in which {owner} holds block {block} twice")
    return Plan(_tasks(message.workers), owners, replicas=replicas)


def _change(message: pb.Change, blocks: int) -> Change:
    servers = _tasks(message.servers)
    check_count(len(message.stages), _MOST_STAGES, "stages of a change")
    stages = []
    for stage in message.stages:
        moves = {move.block: _pick(servers, move.server, "a moved block's owner") for move in stage.moves}
        replicas = {move.block: _second(servers, move.server) for move in stage.replicas}
        if any(block >= blocks for block in (*moves, *replicas)):
            highest = max((*moves, *replicas))
            raise ProtocolError(f"change {message.number} moves block {highest} of a model of {blocks} blocks")
        stages.append(ChangeStage(moves, _tasks(stage.workers) if stage.has_workers else None, replicas))
    return Change(message.number, message.clock, tuple(stages), message.checkpoint, message.halt, message.barrier)


def _tasks(names: Iterable[str]) -> tuple[str, ...]:
    return tuple(check_task(name) for name in names)


def _pick(servers: Sequence[str], index: int, what: str) -> str:
    if index >= len(servers):
        raise ProtocolError(f"{what} has number {index} of {len(servers)} PSs")
    return servers[index]


def _second(servers: Sequence[str], number: int) -> str:
    return _pick(servers, number - 1, "a block's replica") if number else ""
