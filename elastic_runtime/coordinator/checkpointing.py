"""Checkpoints: when one is due, who writes what of it, and when it is durable."""

from __future__ import annotations

from dataclasses import replace

import structlog

from elastic_runtime.coordinator import leases
from elastic_runtime.coordinator.depot import checkpoint_name
from elastic_runtime.coordinator.job import Job
from elastic_runtime.coordinator.orders import ManifestOrder
from elastic_runtime.coordinator.state import PendingCheckpoint
from elastic_runtime.protocol.plan import Change

_log = structlog.get_logger()


def due(job: Job, now: float) -> bool:
    """Whether it is time for the next checkpoint."""
    if job.checkpointed_seconds is None:
        job.checkpointed_seconds = now
    pending = job.state.checkpoints.pending is not None
    return not pending and now - job.checkpointed_seconds >= job.settings.checkpoint_seconds


def durable_step(job: Job) -> int:
    """The step that the job goes back to if a server is lost."""
    durable = job.state.checkpoints.durable
    return durable[-1][1] if durable else 0


def begin_checkpoint(job: Job, change: Change, now: float) -> None:
    """A change with a checkpoint is confirmed: its servers will write."""
    servers = tuple(dict.fromkeys(job.plan().owners))
    number = job.state.generation.number
    pending = PendingCheckpoint(
        checkpoint_name(change.clock), number, change.clock, servers, (), job.state.leases.book_json, change.number
    )
    job.state.checkpoints = replace(job.state.checkpoints, pending=pending)
    job.checkpointed_seconds = now
    job.timers.clear("checkpoint")


def watch_checkpoint(job: Job, now: float) -> None:
    """Collect shards; once all are there, have the checkpoint completed."""
    checkpoints = job.state.checkpoints
    pending = checkpoints.pending
    if pending is None:
        return
    shards = []
    for server in pending.servers:
        found = [shard for shard in job.report(server).shards if shard.change == pending.change]
        if not found:
            break
        shards += found
    else:
        if not pending.shards:
            job.state.checkpoints = replace(checkpoints, pending=replace(pending, shards=tuple(shards)))
            model = job.state.model
            order = ManifestOrder(
                pending.name,
                pending.generation,
                pending.step,
                tuple(shards),
                model.layout_json,
                model.training_json,
                (job.state.generation.start_step, durable_step(job)),
                pending.book_json,
            )
            job.orders.manifests.append(order)
    # The time begins when the workers are at the clock: before that, servers have nothing to write.
    working = job.working()
    begun = not working or leases.asynchronous(job) or job.lowest_step(working) >= pending.step
    if begun and job.timers.passed("checkpoint", now, job.settings.checkpoint_write_seconds):
        give_up(job, f"not written within {job.settings.checkpoint_write_seconds:g} s")


def completed(job: Job, order: ManifestOrder, error: str) -> None:
    """An order was carried out: the pending checkpoint is complete on disk, or (`error`) will not be."""
    checkpoints = job.state.checkpoints
    pending = checkpoints.pending
    if pending is None or not pending.shards or (pending.name, pending.generation) != (order.name, order.generation):
        return  # of a generation that is over; this one may be writing one of the same name
    if error:
        give_up(job, error)
        return
    name = order.name
    durable = tuple(row for row in checkpoints.durable if row[0] != name)
    durable = (*durable, (pending.name, pending.step))
    kept = durable[-job.settings.checkpoints_kept :]
    grew = pending.step > durable_step(job)
    job.state.checkpoints = replace(checkpoints, durable=kept, pending=None, book_json=pending.book_json)
    if grew:
        job.course(losses=0)
    job.timers.clear("checkpoint")


def give_up(job: Job, why: str) -> None:
    """The pending checkpoint is not going to be; the one before stands."""
    pending = job.state.checkpoints.pending
    if pending is not None:
        _log.warning("checkpoint_given_up", name=pending.name, why=why)
        job.state.checkpoints = replace(job.state.checkpoints, pending=None)
        job.timers.clear("checkpoint")
