"""Views between the protocol's messages and `plan`; whoever reads a message from a socket checks it here.

Raises `ProtocolError` on anything that no coordinator or member of this version sends: a name too long, an index
outside its list, a number of no enumeration. Sizes of whole messages are limited by the channel.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, TypeVar

from elastic_runtime.control.checks import check_count, check_task, check_text
from elastic_runtime.errors import ProtocolError
from elastic_runtime.generated import elastic_pb2 as pb
from elastic_runtime.protocol.plan import Change, ChangeStage, JobPhase, Member, Plan, TaskRole, View

_MOST_STAGES = 2**20
_T = TypeVar("_T")
_ROLES: dict[TaskRole, Any] = {TaskRole.WORKER: pb.ROLE_WORKER, TaskRole.SERVER: pb.ROLE_SERVER}
_PHASES: dict[JobPhase, Any] = {phase: pb.Phase.Value(f"PHASE_{phase.name}") for phase in JobPhase}
_ROLE_OF = {number: role for role, number in _ROLES.items()}
_PHASE_OF = {number: phase for phase, number in _PHASES.items()}


def role_to_message(role: TaskRole) -> Any:
    """A role's number."""
    return _ROLES[role]


def role_from_message(number: int) -> TaskRole:
    """The role of a number."""
    return _lookup(_ROLE_OF, number, "role")


def phase_to_message(phase: JobPhase) -> Any:
    """A phase's number."""
    return _PHASES[phase]


def phase_from_message(number: int) -> JobPhase:
    """The phase of a number."""
    return _lookup(_PHASE_OF, number, "phase")


def view_to_message(view: View) -> pb.View:
    """A view as it is sent."""
    message = pb.View(
        number=view.number,
        generation=view.generation,
        phase=_PHASES[view.phase],
        start_step=view.start_step,
        start_checkpoint=view.start_checkpoint,
        start_plan=_plan_to_message(view.start_plan),
        changes=[_change_to_message(change) for change in view.changes],
        members=[
            pb.Member(task=m.task, role=_ROLES[m.role], incarnation=m.incarnation, address_json=m.address_json)
            for m in view.members
        ],
        committed=view.committed,
        substitutes=[pb.Substitute(worker=worker, by=by) for worker, by in view.substitutes.items()],
        initialiser=view.initialiser,
        wanted=view.wanted,
        leaving=view.leaving,
        failure=view.failure,
        lost_servers=view.lost_servers,
        notice=view.notice,
        ends_at=view.ends_at,
    )
    if view.proposal is not None:
        message.proposal.CopyFrom(_change_to_message(view.proposal))
    return message


def view_from_message(message: pb.View) -> View:
    """A view as it came.

    Raises:
        ProtocolError: see the module's head.
    """
    plan = _plan_from_message(message.start_plan)
    blocks = len(plan.owners)
    changes = tuple(_change_from_message(change, blocks) for change in message.changes)
    numbers = [change.number for change in changes]
    if numbers != sorted(set(numbers)):
        raise ProtocolError(f"a view with changes {numbers[:20]}, which are not in order")
    _check_clocks(changes, message.start_step)
    return View(
        number=message.number,
        generation=message.generation,
        phase=phase_from_message(message.phase),
        start_step=message.start_step,
        start_checkpoint=check_text(message.start_checkpoint, "the first checkpoint's name"),
        start_plan=plan,
        changes=changes,
        proposal=_change_from_message(message.proposal, blocks) if message.HasField("proposal") else None,
        members=tuple(_member_from_message(member) for member in message.members),
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


def _check_clocks(changes: Sequence[Change], start_step: int) -> None:
    """Each change begins where the one before has ended, as a `Timeline` wants it."""
    least = start_step
    for change in changes:
        if change.clock < least:
            raise ProtocolError(
                f"a view whose change {change.number} at step {change.clock} begins before step {least}"
            )
        least = change.clock + max(len(change.stages), 1) - 1


def _member_from_message(message: pb.Member) -> Member:
    address = check_text(message.address_json, "a member's address")
    return Member(check_task(message.task), role_from_message(message.role), message.incarnation, address)


def _plan_to_message(plan: Plan) -> pb.Plan:
    servers = plan.servers
    index = {server: place for place, server in enumerate(servers)}
    return pb.Plan(
        workers=plan.workers,
        servers=servers,
        owners=[index[owner] for owner in plan.owners],
        replicas=[_second_to_message(index, replica) for replica in plan.replicas],
    )


def _plan_from_message(message: pb.Plan) -> Plan:
    servers = _tasks(message.servers)
    owners = tuple(_pick(servers, owner, "a block's owner") for owner in message.owners)
    replicas = tuple(_second(servers, replica) for replica in message.replicas)
    if replicas and len(replicas) != len(owners):
        raise ProtocolError(f"a plan with {len(replicas)} replicas of {len(owners)} blocks")
    for block, (owner, replica) in enumerate(zip(owners, replicas, strict=False)):
        if owner == replica:
            raise ProtocolError(f"a plan in which {owner} holds block {block} twice")
    return Plan(_tasks(message.workers), owners, replicas=replicas)


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


def _change_from_message(message: pb.Change, blocks: int) -> Change:
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


def _second_to_message(index: Mapping[str, int], replica: str) -> int:
    return 1 + index[replica] if replica else 0


def _second(servers: Sequence[str], number: int) -> str:
    return _pick(servers, number - 1, "a block's replica") if number else ""


def _lookup(table: Mapping[int, _T], number: int, what: str) -> _T:
    if number not in table:
        raise ProtocolError(f"{number} is no {what} that this version knows")
    return table[number]
