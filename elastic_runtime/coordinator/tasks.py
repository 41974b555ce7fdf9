"""Tasks come and go: wanting new ones, telling others to leave, and losing them."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

import structlog

from elastic_runtime.coordinator import leases
from elastic_runtime.coordinator.checkpointing import give_up
from elastic_runtime.coordinator.job import ENDED, GATHERING, Job
from elastic_runtime.coordinator.state import Task, TaskState
from elastic_runtime.coordinator.survival import survives
from elastic_runtime.protocol.plan import Phase, Plan, Role

_log = structlog.get_logger()
PREFIX = {Role.WORKER: "worker", Role.SERVER: "ps"}


def want(job: Job, role: Role, count: int) -> list[str]:
    """Ask for so many new tasks."""
    roster = job.state.roster
    first = roster.next_number[role]
    new = [Task(f"{PREFIX[role]}-{number}", role) for number in range(first, first + count)]
    if new:
        job.state.roster = replace(
            roster,
            tasks={**roster.tasks, **{task.name: task for task in new}},
            next_number={**roster.next_number, role: first + count},
        )
    return [task.name for task in new]


def unwant(job: Job, names: Iterable[str]) -> None:
    """Tasks that were wanted, and did not come, are wanted no more."""
    for name in names:
        task = job.task(name)
        if task is not None and task.state is TaskState.WANTED:
            job.put(replace(task, state=TaskState.GONE))


def dismiss(job: Job, names: Iterable[str]) -> None:
    """Tell tasks to end; those that never came are forgotten."""
    for name in names:
        task = job.task(name)
        if task is not None and task.state is TaskState.LIVE:
            job.put(replace(task, state=TaskState.LEAVING))
            job.timers.clear(f"leave {name}")
    unwant(job, names)


def lose(job: Job, name: str, why: str) -> None:
    """A task is no more; what it was needed for is done by others, or anew.

    A worker: somebody else computes its slices, from the step in flight on. A server that holds blocks: their other
    holders go on with them, or the job goes back to its last durable checkpoint. Who was told to leave, or has nothing
    left to do, is not missed.
    """
    task = job.task(name)
    if task is None:
        return
    course = job.state.course
    worked = job.training and task.role is Role.WORKER and name in _all_workers(job)
    missed = task.state is not TaskState.LEAVING and course.phase not in ENDED and not (worked and not job.needs(name))
    needed = job.training and (job.needs(name) if task.role is Role.WORKER else name in job.owning())
    job.put(replace(task, state=TaskState.GONE))
    job.reports.forget(name)
    job.timers.clear(f"leave {name}", f"suspect {name}", f"drain {name}")
    leases.returned(job, name)
    if missed:
        _log.warning("task_lost", task=name, why=why)
        job.course(losses=course.losses + 1)
    if course.phase in GATHERING:
        plan = job.state.generation.start_plan
        if course.formed and (name in plan.workers or name in plan.servers):
            job.course(formed=False)
            job.timers.clear("ready", "gather")
    elif job.training:
        _withdraw(job, name)
        if needed and task.role is Role.SERVER:
            _without_server(job, name)
        elif needed and not leases.asynchronous(job):
            _without_worker(job, name)


def _all_workers(job: Job) -> set[str]:
    moving = job.moving()
    return {*job.plan().workers, *(job.plan_before(moving).workers if moving is not None else ())}


def _withdraw(job: Job, name: str) -> None:
    """Nobody is to join, or get blocks, who is lost."""
    proposal = job.state.generation.proposal
    if proposal is not None and any(
        name in (stage.workers or ())
        or name in stage.moves.values()
        # What takes a holder from blocks may have counted on this one.
        or (stage.replicas and name in job.owning())
        for stage in proposal.stages
    ):
        job.generation(proposal=None)


def _without_server(job: Job, name: str) -> None:
    """The other holders of its blocks go on with them; where there are none, the job goes back."""
    lost = (*job.state.generation.lost, name)
    if not survives(job, lost):
        recover(job)
        return
    pending = job.state.checkpoints.pending
    if pending is not None and name in pending.servers and not pending.shards:
        give_up(job, f"{name} was lost; another one is begun")
    job.generation(lost=lost)


def _without_worker(job: Job, name: str) -> None:
    generation = job.state.generation
    moving = job.moving()
    plans = [
        plan for plan in (job.plan(), job.plan_before(moving) if moving else None) if plan and name in plan.workers
    ]
    if not plans:
        return
    standing_in = _stand_in(job, plans)
    if standing_in:
        job.generation(substitutes={**generation.substitutes, name: standing_in})
    else:
        recover(job)


def _stand_in(job: Job, plans: list[Plan]) -> str:
    """The live worker with the fewest slices, of those in all plans that the lost one was in; empty: there is none."""
    slices: dict[str, int] = {}
    for name in dict.fromkeys(plans[0].workers):
        if job.alive(name) and all(name in plan.workers for plan in plans):
            slices[name] = plans[0].workers.count(name)
    for gone, by in job.state.generation.substitutes.items():
        if by in slices:
            slices[by] += plans[0].workers.count(gone)
    return min(slices, key=lambda name: slices[name], default="")


def recover(job: Job) -> None:
    """Go back to the last durable checkpoint with whoever is left; nothing that was decided since holds."""
    # Their loops have ended: steps that are done again are done by others.
    dismiss(job, [name for name in job.live(Role.WORKER) if job.reports.of(name).finished])
    job.course(phase=Phase.RECOVERING, formed=False)
    job.generation(proposal=None, moving=0)
    job.state.checkpoints = replace(job.state.checkpoints, pending=None)
    leases.gone_back(job, job.state.checkpoints.book_json)
    job.timers.clear("start", "gather", "ready", "vote", "arrival", "checkpoint", "ending")
