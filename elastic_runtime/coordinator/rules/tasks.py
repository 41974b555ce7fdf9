"""Tasks of a job as they come and go: wanted, told to leave, asking to leave, lost.

A server can be lost without a step back if every block that it held has another live holder. The holders before a
change that is under way have its blocks, whatever has come of it: who gives a block away keeps its copy until the
change is over. The holders after it have them once they have said that everything arrived.

A task drains when it was told to go, as its container is evicted: it works on until others have what it had. It says so
in its reports, again and again, so nothing of it has to be remembered. The target stays: it is replaced.

Source: none; DL2 §5 goes back to a checkpoint.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import replace

import structlog

from elastic_runtime.coordinator.rules import leases
from elastic_runtime.coordinator.rules.checkpointing import give_up
from elastic_runtime.coordinator.rules.job import CoordinatedJob
from elastic_runtime.coordinator.rules.phases import GATHERING, drop_change, enter, withdraw_proposal
from elastic_runtime.coordinator.rules.state import Task, TaskState
from elastic_runtime.protocol.plan import ENDED, JobPhase, Plan, TaskRole

_log = structlog.get_logger()
TASK_PREFIXES = {TaskRole.WORKER: "worker", TaskRole.SERVER: "ps"}


def new_names(role: TaskRole, first: int, count: int) -> list[str]:
    """Names of the next tasks of a role."""
    return [f"{TASK_PREFIXES[role]}-{number}" for number in range(first, first + count)]


def request_tasks(job: CoordinatedJob, role: TaskRole, count: int) -> None:
    """Ask for new tasks."""
    roster = job.state.roster
    first = roster.next_number[role]
    new = [Task(name, role) for name in new_names(role, first, count)]
    if new:
        job.state.roster = replace(
            roster,
            tasks={**roster.tasks, **{task.name: task for task in new}},
            next_number={**roster.next_number, role: first + count},
        )


def pause(job: CoordinatedJob, seconds: float, now: float) -> None:
    """Replace no worker for some seconds: its script fails again and again, though the job gets on."""
    job.memory.paused_until_seconds = max(job.memory.paused_until_seconds, now + seconds)


def replace_missing(job: CoordinatedJob, role: TaskRole, count: int, now: float) -> None:
    """Ask for new tasks in the place of others, unless that is to wait."""
    if role is TaskRole.SERVER or now >= job.memory.paused_until_seconds:
        request_tasks(job, role, count)


def dismiss(job: CoordinatedJob, names: Iterable[str]) -> None:
    """Tell tasks to end; those that never came are forgotten."""
    for name in names:
        task = job.task(name)
        if task is not None and task.state in {TaskState.WANTED, TaskState.LIVE}:
            job.put(replace(task, state=TaskState.GONE if task.state is TaskState.WANTED else TaskState.LEAVING))
            job.timers.clear(f"leave {name}")


def spares(job: CoordinatedJob, needed: Sequence[str] = ()) -> tuple[str, ...]:
    """Tasks that want to go and have no part in the training; a checkpoint may still need servers without blocks."""
    kept = {*needed, *job.memory.released}
    live = [task.name for task in job.tasks(None, TaskState.LIVE)]
    return tuple(name for name in live if name not in kept and job.reports.of(name).draining)


def release_later(job: CoordinatedJob, names: Iterable[str]) -> None:
    """Let servers without blocks go once no checkpoint needs them."""
    job.memory.released.update(names)


def release(job: CoordinatedJob, now: float) -> None:
    """Let servers without blocks go; forget who was told to go and does not."""
    released = job.memory.released
    pending = job.state.checkpoints.pending
    free = [name for name in released if pending is None or name not in pending.servers]
    if free:
        released -= set(free)
        holders = job.holders() if job.is_training else set()
        dismiss(job, [name for name in free if name not in holders])
    for task in job.tasks(None, TaskState.LEAVING):
        if job.timers.passed(f"leave {task.name}", now, job.settings.leave_seconds):
            lose(job, task.name, "it was told to leave")


def lose(job: CoordinatedJob, name: str, why: str) -> None:
    """Take a task out of the job; others do its work, or it is done again.

    A worker: somebody else computes its slices, from the step in flight on. A server that holds blocks: their other
    holders go on with them, or the job goes back to its last durable checkpoint. Who was told to leave, or has nothing
    left to do, is not missed.
    """
    task = job.task(name)
    if task is None:
        return
    course = job.state.course
    moving = job.moving_change()
    workers = {*job.plan().workers, *(job.plan_before(moving).workers if moving is not None else ())}
    worked = job.is_training and task.role is TaskRole.WORKER and name in workers
    missed = (
        task.state is not TaskState.LEAVING and course.phase not in ENDED and not (worked and not _is_needed(job, name))
    )
    needed = job.is_training and (_is_needed(job, name) if task.role is TaskRole.WORKER else name in job.holders())
    job.put(replace(task, state=TaskState.GONE))
    job.reports.forget(name)
    job.timers.clear(f"leave {name}", f"suspect {name}", f"drain {name}")
    leases.on_worker_lost(job, name)
    if missed:
        _log.warning("task-lost", task=name, why=why)
        job.state.set_course(losses=course.losses + 1)
    if course.phase in GATHERING:
        plan = job.state.generation.start_plan
        if course.formed and (name in plan.workers or name in plan.servers):
            job.state.set_course(formed=False)
            job.timers.clear("ready", "gather")
    elif job.is_training:
        _withdraw_for(job, name)
        if needed and task.role is TaskRole.SERVER:
            _without_server(job, name)
        elif needed and not job.is_asynchronous:
            _without_worker(job, name)


def _is_needed(job: CoordinatedJob, name: str) -> bool:
    """Whether a worker of the plan still has steps to compute, as far as is known."""
    if job.state.generation.ended:
        return False
    step, moving, halt = job.report(name).step, job.moving_change(), job.halt()
    if halt is not None and step >= halt.clock:
        return False
    if name in job.plan().workers:
        return True
    return moving is not None and name in job.plan_before(moving).workers and step < moving.clock


def _withdraw_for(job: CoordinatedJob, name: str) -> None:
    proposal = job.state.generation.proposal
    if proposal is not None and any(
        name in (stage.workers or ())
        or name in stage.moves.values()
        # What takes a holder from blocks may have counted on this one.
        or (stage.replicas and name in job.holders())
        for stage in proposal.stages
    ):
        withdraw_proposal(job.state)


def _without_server(job: CoordinatedJob, name: str) -> None:
    """Go on with the other holders of a server's blocks; where there are none, go back."""
    lost = (*job.state.generation.lost, name)
    if not survives(job, lost):
        recover(job)
        return
    pending = job.state.checkpoints.pending
    if pending is not None and name in pending.servers and not pending.shards:
        give_up(job, f"{name} was lost; another one is begun")
    job.state.set_generation(lost=lost)


def _without_worker(job: CoordinatedJob, name: str) -> None:
    generation = job.state.generation
    moving = job.moving_change()
    plans = [
        plan for plan in (job.plan(), job.plan_before(moving) if moving else None) if plan and name in plan.workers
    ]
    if not plans:
        return
    standing_in = _stand_in(job, plans)
    if standing_in:
        job.state.set_generation(substitutes={**generation.substitutes, name: standing_in})
    else:
        recover(job)


def _stand_in(job: CoordinatedJob, plans: list[Plan]) -> str:
    """The live worker with the fewest slices, of those in all plans that the lost one was in; empty: there is none."""
    slices: dict[str, int] = {}
    for name in dict.fromkeys(plans[0].workers):
        if job.is_alive(name) and all(name in plan.workers for plan in plans):
            slices[name] = plans[0].workers.count(name)
    for gone, by in job.state.generation.substitutes.items():
        if by in slices:
            slices[by] += plans[0].workers.count(gone)
    return min(slices, key=lambda name: slices[name], default="")


def recover(job: CoordinatedJob) -> None:
    """Go back to the last durable checkpoint with the tasks that are left; decisions since then are void."""
    # Their loops have ended: steps that are done again are done by others.
    dismiss(job, [name for name in job.live(TaskRole.WORKER) if job.reports.of(name).finished])
    enter(job.state, JobPhase.RECOVERING, formed=False)
    drop_change(job.state)
    job.state.checkpoints = replace(job.state.checkpoints, pending=None)
    leases.go_back(job, job.state.checkpoints.book_json)
    job.timers.clear("start", "gather", "ready", "vote", "arrival", "checkpoint", "ending")


def await_workers(job: CoordinatedJob, now: float) -> bool:
    """Whether a job that trains has workers; without any asynchronous training waits for one, but not for ever."""
    if job.live_workers() or not job.is_asynchronous:
        job.timers.clear("workers")
    elif job.timers.passed("workers", now, job.settings.start_seconds):
        recover(job)
        return False
    return True


def survives(job: CoordinatedJob, lost: Collection[str]) -> bool:
    """Whether all blocks have a live holder to go on with them, and one to have them from, without these servers."""
    after, before, arrived = _plans(job)
    return all(_goes_on(after, before, arrived, block, lost) for block in range(len(after.owners)))


def count_replicated(job: CoordinatedJob) -> int:
    """Number of blocks that outlive the loss of any one server; a copy that is still on its way counts as none."""
    plan, moving = job.plan(), job.moving_change()
    if moving is None or not moving.stages:
        return len(plan.replicas) - plan.replicas.count("")
    after, before, arrived = _plans(job)
    gone = job.state.generation.lost
    return sum(
        all(
            _goes_on(after, before, arrived, block, {*gone, name})
            for name in (*after.holders(block), *before.holders(block))
            if name not in gone
        )
        for block in range(len(after.owners))
    )


def _plans(job: CoordinatedJob) -> tuple[Plan, Plan, Collection[str]]:
    """The newest plan, the one before the change under way, and the servers that have got all that it brings."""
    after, moving = job.named(), job.moving_change()
    if moving is None:
        return after, after, ()
    return (
        after,
        job.named_before(moving),
        {name for name in after.servers if job.report(name).arrived >= moving.number},
    )


def _goes_on(after: Plan, before: Plan, arrived: Collection[str], block: int, lost: Collection[str]) -> bool:
    new, old = _live(after, block, lost), _live(before, block, lost)
    return bool(new) and (bool(old) or all(name in arrived for name in new))


def _live(plan: Plan, block: int, lost: Collection[str]) -> list[str]:
    return [name for name in plan.holders(block) if name not in lost]
