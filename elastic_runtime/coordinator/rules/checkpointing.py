"""Checkpoints of a job: when one is due, who writes what of it, when it is durable, and what the shell does for it.

The rules have no files. What they want done with some is an order, collected while an event is handled; that it was
carried out is an event again.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import structlog

from elastic_runtime.control.messages import Shard
from elastic_runtime.coordinator.rules.job import CoordinatedJob
from elastic_runtime.coordinator.rules.state import PendingCheckpoint
from elastic_runtime.protocol.plan import Change

_log = structlog.get_logger()


@dataclass(frozen=True)
class ManifestOrder:
    """All shards of a checkpoint are written: verify and complete it.

    Attributes:
        protected: steps whose checkpoints members may still read.
        leases_json: which samples are done, in asynchronous training.
    """

    name: str
    generation: int
    step: int
    shards: tuple[Shard, ...]
    layout_json: str
    training_json: str
    protected: tuple[int, ...]
    leases_json: str = ""


@dataclass(frozen=True)
class SearchOrder:
    """Servers say that their generation's checkpoint is damaged: find the newest sound one of `names`, newest first."""

    generation: int
    names: tuple[str, ...]


@dataclass(frozen=True)
class FoundCheckpoint:
    """A sound checkpoint on the disk; `book_json`: leases at that time, in asynchronous training."""

    name: str
    step: int
    layout_json: str
    book_json: str = ""


@dataclass(frozen=True)
class SearchResult:
    """Result of a search for a sound checkpoint.

    Attributes:
        sound: the newest; None: there is none.
        line: which, why, and what is taken in their place; empty without any.
    """

    sound: FoundCheckpoint | None
    damaged: bool = False
    line: str = ""


Order = ManifestOrder | SearchOrder


class Orders(list[Order]):
    """Orders, collected while an event is handled, and taken by the machine's caller."""

    def take(self) -> list[Order]:
        """Orders since the last call."""
        taken = list(self)
        self.clear()
        return taken


def checkpoint_name(step: int) -> str:
    """Name of the checkpoint at a step, and of its folder."""
    return f"step-{step:010d}"


def begin_checkpoint(job: CoordinatedJob, change: Change, now: float) -> None:
    """Have the servers write, as a change with a checkpoint is confirmed."""
    servers = tuple(dict.fromkeys(job.plan().owners))
    number = job.state.generation.number
    pending = PendingCheckpoint(
        checkpoint_name(change.clock), number, change.clock, servers, (), job.state.leases.book_json, change.number
    )
    job.state.checkpoints = replace(job.state.checkpoints, pending=pending)
    job.timers.begin("next checkpoint", now)
    job.timers.clear("checkpoint")


def watch_checkpoint(job: CoordinatedJob, now: float) -> None:
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
                (job.state.generation.start_step, job.durable_step()),
                pending.book_json,
            )
            job.own(Orders).append(order)
    # The time begins when the workers are at the clock: before that, servers have nothing to write.
    begun = job.is_asynchronous or all(job.report(name).step >= pending.step for name in job.live_workers())
    if begun and job.timers.passed("checkpoint", now, job.settings.checkpoint_write_seconds):
        give_up(job, f"not written within {job.settings.checkpoint_write_seconds:g} s")


def on_checkpoint_completed(job: CoordinatedJob, order: ManifestOrder, error: str) -> None:
    """Take note that the pending checkpoint is complete on disk, or (`error`) will not be."""
    checkpoints = job.state.checkpoints
    pending = checkpoints.pending
    if pending is None or not pending.shards or (pending.name, pending.generation) != (order.name, order.generation):
        return  # of a generation that is over; this one may be writing one of the same name
    if error:
        give_up(job, error)
        return
    durable = tuple(row for row in checkpoints.durable if row[0] != order.name)
    durable = (*durable, (pending.name, pending.step))
    kept = durable[-job.settings.checkpoints_kept :]
    grew = pending.step > job.durable_step()
    job.state.checkpoints = replace(checkpoints, durable=kept, pending=None, book_json=pending.book_json)
    if grew:
        job.state.set_course(losses=0)
    job.timers.clear("checkpoint")


def give_up(job: CoordinatedJob, why: str) -> None:
    """Give the pending checkpoint up; the one before stands."""
    pending = job.state.checkpoints.pending
    if pending is not None:
        _log.warning("checkpoint-given-up", name=pending.name, why=why)
        job.state.checkpoints = replace(job.state.checkpoints, pending=None)
        job.timers.clear("checkpoint")
