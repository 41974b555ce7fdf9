"""Decisions of a job that trains, one at a time: suspend, repair, resize, replace, checkpoint, in this order.

A resize waits until the tasks that it needs are there and warm, finds new holders for the blocks, which move in
portions, and is proposed as one change. Equal load and as few moves as can be are `partition`'s and `replication`'s.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from elastic_runtime.control.messages import RequestState, ResizeMode
from elastic_runtime.coordinator.rules import requests
from elastic_runtime.coordinator.rules.changes import Wanted, last_step, propose
from elastic_runtime.coordinator.rules.checkpointing import is_due
from elastic_runtime.coordinator.rules.job import Job
from elastic_runtime.coordinator.rules.state import Purpose, TaskState
from elastic_runtime.coordinator.rules.tasks import (
    can_do_without,
    choose_members,
    draining_tasks,
    recover,
    release_spares,
)
from elastic_runtime.model import partition
from elastic_runtime.model.layout import Layout
from elastic_runtime.model.partition import Move
from elastic_runtime.model.replication import assign_holders
from elastic_runtime.protocol.plan import Plan, Role, Stage


def decide(job: Job, now: float) -> None:
    """One look at a job that trains, without a halt, a proposal or a moving change: propose what is wanted most."""
    if not _all_under_way(job) or not _somebody_works(job, now):
        return
    release_spares(job, (*job.plan().workers, *job.plan().servers))
    for wanted in _wanted_changes(job, now):
        if propose(job, wanted, now):
            break


def _wanted_changes(job: Job, now: float) -> Iterator[Wanted]:
    """What is wanted of a job, the most pressing first; a next one is only looked for if there is no time for it."""
    running = requests.running(job)
    if running is not None and running.kind == "suspend":
        yield Wanted(Purpose.SUSPEND, checkpoint=True, halt=True)
        return
    yield from _repair(job)
    yield from _replicate(job)
    if running is not None:
        yield from _resize(job, running, now)
    elif not requests.start_next(job):
        yield from _replace(job, now)
        yield from _checkpoint(job, now)


def _all_under_way(job: Job) -> bool:
    """Whether all workers of the plan have done a step since the last change; a new one does not vote before."""
    if job.is_asynchronous:
        return True  # nobody votes
    changes = job.state.generation.changes
    least = last_step(changes[-1]) + 1 if changes else job.state.generation.start_step
    return all(job.has_reported(name) and job.report(name).step >= least for name in job.live_workers())


def _somebody_works(job: Job, now: float) -> bool:
    """Without any worker asynchronous training waits for a new one, but not for ever."""
    if job.live_workers() or not job.is_asynchronous:
        job.timers.clear("workers")
    elif job.timers.passed("workers", now, job.settings.start_seconds):
        recover(job)
        return False
    return True


def _checkpoint(job: Job, now: float) -> Iterator[Wanted]:
    if is_due(job, now):
        yield Wanted(Purpose.CHECKPOINT, checkpoint=True)


def _resize(job: Job, running: RequestState, now: float) -> Iterator[Wanted]:
    restart = running.mode is ResizeMode.CHECKPOINT_RESTART  # ends all tasks, whether they want to go or not
    servers, workers, missing = choose_members(
        job, running.target, (*running.victims, *(() if restart else draining_tasks(job)))
    )
    registered = not any(task.name in missing for task in job.tasks(None, TaskState.WANTED))
    requests.note_new_tasks(job, now, registered, ready=not missing)
    if missing:
        if job.timers.passed("new tasks", now, job.settings.new_task_seconds):
            names = " and ".join(missing)
            requests.abort(
                job, running, f"{names} did not come within {job.settings.new_task_seconds:g} s; nothing changed"
            )
        else:
            yield from _relieve(job, now, servers, workers)
            yield from _checkpoint(job, now)
        return
    job.timers.clear("new tasks")
    plan = job.plan()
    if (set(servers), workers) == (set(plan.servers), plan.workers):
        requests.complete(job, running)
        return
    if restart:
        yield Wanted(Purpose.RESTART, checkpoint=True, halt=True)
        return
    if job.state.generation.purpose is not Purpose.CHECKPOINT:
        yield from _checkpoint(job, now)  # in turn, or requests that follow each other would leave the job without
    yield from _change_to(job, servers, workers, running.mode)
    requests.abort(job, running, "the job ends before the resize could")


def _change_to(
    job: Job,
    servers: list[str],
    workers: tuple[str, ...],
    mode: ResizeMode,
    purpose: Purpose = Purpose.RESIZE,
) -> Iterator[Wanted]:
    plan, model = job.plan(), job.model
    if model is None:
        return
    began = job.unix_clock()
    after = plan
    if set(servers) != set(plan.servers) or _lacks_replicas(job):
        after = assign(model.layout, servers, plan, job.settings.replicas)
    total_bytes = model.layout.total_bytes
    at_once = mode is ResizeMode.STOP_THE_WORLD
    budget = total_bytes if at_once else int(total_bytes * job.settings.stage_fraction)
    new_workers = workers if workers != plan.workers else None
    if job.is_asynchronous:
        budget = total_bytes  # servers send a few blocks at a time by themselves
    cut, moved_bytes = stages(model.layout, job.named(), plan, after, new_workers, budget)
    requests.note_assignment(job, max(0.0, job.unix_clock() - began))
    yield Wanted(purpose, cut, barrier=at_once and moved_bytes > 0, minimum_bytes=moved_bytes)


def assign(layout: Layout, servers: Sequence[str], before: Plan, holders: int) -> Plan:
    """A plan with other holders of the blocks: equal load, and as much as can be stays where it is.

    Args:
        layout: of the model.
        servers: who may hold some.
        before: who holds them now, lost ones too; without owners: nobody.
        holders: how many each block is to have, 1 or 2; with one server it has one.
    """
    if holders == 1:
        after = partition.assign(layout, servers, dict(enumerate(before.owners)))
        return Plan(before.workers, tuple(after[block.index] for block in layout.blocks))
    previous = {block: before.holders(block) for block in range(len(before.owners))}
    found = assign_holders(layout, servers, previous)
    rows = [found[block.index] for block in layout.blocks]
    replicas = tuple(names[1] if len(names) > 1 else "" for names in rows)
    return Plan(before.workers, tuple(names[0] for names in rows), replicas=replicas if any(replicas) else ())


def stages(
    layout: Layout, named: Plan, before: Plan, after: Plan, workers: tuple[str, ...] | None, budget_bytes: int
) -> tuple[tuple[Stage, ...], int]:
    """What leads from one plan's holders to another's, and how many bytes that moves.

    The moves are cut into portions of at most `budget_bytes`, or one block; the first stage also has the new workers
    (None: they stay), and what moves nothing: holders that swap their parts, or are no longer named.

    Args:
        layout: of the model.
        named: what the stages change, with lost servers.
        before: the same without them: who has the blocks.
        after: who is to have them.
        workers: the new list.
        budget_bytes: of one stage.
    """
    moves: list[Move] = []
    moved_bytes = 0
    silent: list[int] = []
    for block in range(len(after.owners)):
        old, new = before.holders(block), after.holders(block)
        coming = [name for name in new if name not in old]
        if coming:
            leaving = [name for name in old if name not in new]
            moves.append(Move(block, (leaving or old)[0], coming[0]))
            moved_bytes += layout.blocks[block].size_bytes * len(coming)
        elif named.holders(block) != new:
            silent.append(block)
    portions = [[move.block for move in portion] for portion in partition.batches(moves, layout, max(budget_bytes, 1))]
    first, *rest = portions or [[]]
    cut = [_stage(named, after, [*silent, *first], workers), *(_stage(named, after, part, None) for part in rest)]
    return tuple(cut), moved_bytes


def _stage(named: Plan, after: Plan, blocks: Sequence[int], workers: tuple[str, ...] | None) -> Stage:
    return Stage(
        {block: after.owners[block] for block in blocks if named.owners[block] != after.owners[block]},
        workers,
        {block: after.replica(block) for block in blocks if named.replica(block) != after.replica(block)},
    )


def _repair(job: Job) -> Iterator[Wanted]:
    """Take lost workers out of the plan, so that their stand-ins are not slower than the others for long."""
    plan = job.plan()
    left = tuple(name for name in dict.fromkeys(plan.workers) if job.is_alive(name))
    if left and left != plan.workers:
        yield Wanted(Purpose.REPAIR, (Stage({}, left),))


def _replicate(job: Job) -> Iterator[Wanted]:
    """Give blocks that lost one of their holders another one, of the servers that are there."""
    if _lacks_replicas(job):
        plan = job.plan()
        yield from _change_to(job, list(plan.servers), plan.workers, ResizeMode.ROLLING, Purpose.REPAIR)


def _lacks_replicas(job: Job) -> bool:
    """Whether blocks have one holder that should have two, and could."""
    plan = job.plan()
    if job.settings.replicas == 1 or len(plan.servers) == 1:
        return False
    return not plan.replicas or not all(plan.replicas)


def _replace(job: Job, now: float) -> Iterator[Wanted]:
    """Bring a job that lost tasks, or is about to, back to its size, as their replacements come."""
    target, leaving = job.state.course.target, draining_tasks(job)
    if job.size() == target and not leaving:
        return
    servers, workers, _ = choose_members(job, target, leaving)
    plan = job.plan()
    if leaving:
        yield from _relieve(job, now, servers, workers)
    elif set(servers) > set(plan.servers) or set(workers) > set(plan.workers):
        yield from _change_to(job, servers, workers, ResizeMode.ROLLING)


def _relieve(job: Job, now: float, servers: list[str], workers: tuple[str, ...]) -> Iterator[Wanted]:
    """Take tasks that want to go out of the plan, once others can have their part; the rest stays as it is."""
    plan = job.plan()
    holding = list(plan.servers)
    if not can_do_without(job, Role.SERVER, holding, servers, now):
        servers = holding
    if not can_do_without(job, Role.WORKER, plan.workers, workers, now):
        workers = plan.workers
    if (set(servers), workers) != (set(holding), plan.workers):
        yield from _change_to(job, servers, workers, ResizeMode.ROLLING, Purpose.REPAIR)
