"""Tasks come and go: wanting new ones, telling others to leave, and losing them."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

import structlog

from elastic_runtime.coordinator.job import GATHERING, Job
from elastic_runtime.coordinator.state import Task, TaskState
from elastic_runtime.plan import Phase, Plan, Role

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
    """A live task is no more; what it was needed for is done by others, or anew.

    A worker: somebody else computes its slices, from the step in flight on. A server that owns blocks: the job goes
    back to its last durable checkpoint.
    """
    task = job.task(name)
    if task is None or task.state is TaskState.GONE:
        return
    was_leaving = task.state is TaskState.LEAVING
    job.put(replace(task, state=TaskState.GONE))
    job.reports.forget(name)
    _log.warning("task_lost", task=name, why=why) if not was_leaving else None
    course = job.state.course
    if not was_leaving:
        job.course(losses=course.losses + 1)
    if course.phase in GATHERING:
        plan = job.state.generation.start_plan
        if course.formed and (name in plan.workers or name in plan.owners):
            job.course(formed=False)
            job.timers.clear("ready", "gather")
        return
    if not job.training:
        return
    if task.role is Role.SERVER:
        _without_server(job, name)
    else:
        _without_worker(job, name)


def _without_server(job: Job, name: str) -> None:
    if name in job.owning():
        recover(job)
        return
    proposal = job.state.generation.proposal
    if proposal is not None and any(name in stage.moves.values() for stage in proposal.stages):
        job.generation(proposal=None)


def _without_worker(job: Job, name: str) -> None:
    generation = job.state.generation
    proposal = generation.proposal
    if proposal is not None and any(name in (stage.workers or ()) for stage in proposal.stages):
        job.generation(proposal=None)  # nobody is to join, or stay, who is lost
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
    job.course(phase=Phase.RECOVERING, formed=False)
    job.generation(proposal=None, moving=0)
    job.state.checkpoints = replace(job.state.checkpoints, pending=None)
    job.timers.clear("gather", "ready", "vote", "arrival", "checkpoint")
