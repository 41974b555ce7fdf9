"""Changes of a plan, each from its proposal to its end: clock, votes, confirmation, arrivals, commit.

No worker may have begun the clock's step when a change is confirmed; so each is asked, and holds that step back from
its yes on until it hears more. One change at a time.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

from elastic_runtime.coordinator.rules import requests
from elastic_runtime.coordinator.rules.checkpointing import begin_checkpoint, give_up
from elastic_runtime.coordinator.rules.job import CoordinatedJob
from elastic_runtime.coordinator.rules.phases import (
    begin_change,
    end_change,
    publish_proposal,
    withdraw_change,
    withdraw_proposal,
)
from elastic_runtime.coordinator.rules.state import Purpose
from elastic_runtime.coordinator.rules.tasks import dismiss, lose, recover, release_later
from elastic_runtime.protocol.plan import Change, ChangeStage, transfers

_LEAST_MARGIN_STEPS = 2
"""The step in flight, and the one that may be begun while the proposal travels."""
_LARGEST_FACTOR = 64
_MOST_CHANGES = 8


@dataclass(frozen=True, slots=True)
class PlannedChange:
    """A change as a rule wants it; number and clock are found when it is proposed.

    Attributes:
        minimum_bytes: what has to move at the least.
    """

    purpose: Purpose
    stages: tuple[ChangeStage, ...] = ()
    checkpoint: bool = False
    halt: bool = False
    barrier: bool = False
    minimum_bytes: int = 0


def propose(job: CoordinatedJob, planned: PlannedChange, clock: int, now: float) -> None:
    """Publish a proposal with a clock (`next_clock`); a halt is at the last step at the latest."""
    total = job.model.total_steps if job.model is not None else None
    if total is not None and planned.halt:
        clock = min(clock, total)
    checkpoint = planned.checkpoint and not (planned.halt and job.is_asynchronous)  # there it follows the halt
    change = Change(_next_number(job), clock, planned.stages, checkpoint, planned.halt, planned.barrier)
    if job.is_asynchronous:
        # Nobody has to agree: whoever works goes on at once, and asks the new owners as soon as these have the blocks.
        _confirm(job, change, now, purpose=planned.purpose, minimum_bytes=planned.minimum_bytes)
    else:
        publish_proposal(job.state, change, planned.purpose, planned.minimum_bytes)
        job.timers.clear("vote")


def next_clock(job: CoordinatedJob, now: float) -> int:
    """A step that no worker has begun and none will before it has voted, if all goes as usual."""
    if job.is_asynchronous:
        return _next_mark(job)
    working = job.live_workers()
    seconds = max((job.report(name).step_seconds for name in working), default=0.0)
    factor = job.memory.margin_factor
    delay = job.settings.control_delay_seconds * factor
    ahead = math.ceil(delay / seconds) if seconds > 0 else factor
    after = max((last_step(change) + 1 for change in job.state.generation.changes), default=0)
    return max(_expected_step(job, working, now) + _LEAST_MARGIN_STEPS + ahead, after)


def _expected_step(job: CoordinatedJob, workers: Sequence[str], now: float) -> int:
    """The step that the fastest of these will have come to, as reports are some steps old."""
    steps = [job.state.generation.start_step]
    for name in workers:
        report = job.report(name)
        age_seconds = min(job.reports.silent_seconds(name, now), job.settings.report_every_seconds)
        steps.append(report.step + (int(age_seconds / report.step_seconds) if report.step_seconds > 0 else 0))
    return max(steps)


def count_votes(job: CoordinatedJob, now: float) -> None:
    """Confirm, withdraw, or go on waiting for an open proposal."""
    proposal = job.state.generation.proposal
    if proposal is None:
        return
    voters = job.live_workers()
    if any(job.report(name).refused == proposal.number for name in voters):
        job.memory.margin_factor = min(job.memory.margin_factor * 2, _LARGEST_FACTOR)
        withdraw_proposal(job.state)
        return
    silent = [name for name in voters if job.report(name).accepted != proposal.number]
    if not silent:
        _confirm(job, proposal, now)
    elif job.timers.passed("vote", now, job.settings.vote_seconds):
        for name in silent:
            lose(job, name, "it did not answer a proposal in time")


def _confirm(job: CoordinatedJob, change: Change, now: float, **generation: object) -> None:
    job.memory.margin_factor = max(1, job.memory.margin_factor // 2)
    begin_change(job.state, change, **generation)
    job.timers.clear("vote", "arrival")
    requests.note_begin(job, change, now)
    if change.checkpoint:
        job.memory.written_without = set(job.state.generation.lost)
        begin_checkpoint(job, change, now)


def watch_moving(job: CoordinatedJob, now: float) -> None:
    """See whether the confirmed change is over: all workers past it, all blocks arrived."""
    change = job.moving_change()
    if change is None:
        return
    if job.is_asynchronous:
        _watch_asynchronous(job, change, now)
        return
    before = job.plan_before(change)
    working = job.live_workers()
    staying = set(job.plan().workers)
    dismiss(
        job,
        [
            name
            for name in dict.fromkeys(before.workers)
            if name not in staying and job.is_alive(name) and job.report(name).step >= change.clock
        ],
    )
    reports = [job.report(name) for name in working if job.has_reported(name)]
    past = [report for report in reports if report.finished or report.step >= last_step(change)]
    if len(past) == len(working) and _all_arrived(job, change, now):
        _commit(job, change, now)


def _all_arrived(job: CoordinatedJob, change: Change, now: float) -> bool:
    """Whether moved blocks are where they belong; who does not get them in time is lost."""
    lost = job.state.generation.lost
    receivers = dict.fromkeys(name for row in transfers(change, job.named_before(change)) for name in row.coming)
    missing = [name for name in receivers if name not in lost and job.report(name).arrived < change.number]
    if missing and job.timers.passed("arrival", now, job.settings.arrival_seconds):
        for name in missing:
            lose(job, name, "moved blocks did not arrive in time")
    return not missing


def _commit(job: CoordinatedJob, change: Change, now: float) -> None:
    generation, plan, before = job.state.generation, job.plan(), job.plan_before(change)
    # Nobody is at a step before the change any more: lost workers that it took out need no stand-in.
    substitutes = {name: by for name, by in generation.substitutes.items() if name in plan.workers}
    end_change(job.state, change, substitutes)
    job.timers.clear("arrival")
    requests.note_end(job, change, now)
    release_later(job, set(before.servers) - set(plan.servers))
    _fold(job)


def _fold(job: CoordinatedJob) -> None:
    """Forget changes that are over, so that views do not grow: those that changed nothing, and the oldest of many.

    The newest stays, as data messages name it. What a folded one changed becomes part of the plan at the start, which
    is asked about later steps only.
    """
    generation = job.state.generation
    over = [change for change in generation.changes if change.number != generation.moving]
    kept = [change for change in over[:-1] if change.stages] + over[-1:]
    while len(kept) > _MOST_CHANGES:
        job.state.set_generation(start_plan=job.named_after(kept[0]), changes=tuple(kept[1:]))
        kept = kept[1:]
    moving = tuple(change for change in generation.changes if change.number == generation.moving)
    job.state.set_generation(changes=(*kept, *moving))
    _forget_lost(job)


def _forget_lost(job: CoordinatedJob) -> None:
    generation = job.state.generation
    if generation.lost:
        named = set(generation.start_plan.servers)
        for change in generation.changes:
            for stage in change.stages:
                named |= {*stage.moves.values(), *stage.replicas.values()}
        job.state.set_generation(lost=tuple(name for name in generation.lost if name in named))


def _next_mark(job: CoordinatedJob) -> int:
    """Asynchronous training: a number for a change, later than all before; about the newest update that is known."""
    known = [job.report(task.name).step for task in job.tasks() if task.live]
    after = max((last_step(change) + 1 for change in job.state.generation.changes), default=0)
    return max(*known, after, job.durable_step() + 1, job.state.generation.start_step + 1)


def _watch_asynchronous(job: CoordinatedJob, change: Change, now: float) -> None:
    """In asynchronous training: over once all blocks have arrived, and no worker reads their former owners' memory.

    A halt is followed by its checkpoint when all workers have stopped: that one holds every update.
    """
    before = job.plan_before(change)
    workers = dict.fromkeys((*before.workers, *job.plan().workers))
    dismiss(job, [name for name in workers if name not in job.plan().workers])
    unsettled = [name for name in workers if job.is_alive(name) and job.report(name).arrived < change.number]
    if not _all_arrived(job, change, now) or (unsettled and not change.checkpoint):
        return
    _commit(job, change, now)
    if change.halt and not change.checkpoint:
        _confirm(job, Change(_next_number(job), _next_mark(job), checkpoint=True, halt=True), now)


def begin_last_checkpoint(job: CoordinatedJob, now: float) -> None:
    """Write a last checkpoint, as all steps are applied. No worker votes: none has a step left to begin."""
    newest = max((job.report(name).step for name in job.live_workers()), default=job.state.generation.start_step)
    clock = max(newest, max((last_step(change) for change in job.state.generation.changes), default=0))
    if job.is_asynchronous:
        clock = _next_mark(job) if job.state.generation.ends_at is not None else max(_next_mark(job), job.total_steps())
    elif job.model is not None:
        clock = job.total_steps()
    _confirm(job, Change(_next_number(job), clock, checkpoint=True, halt=True), now, purpose=Purpose.FINISH)


def end_early(job: CoordinatedJob, step: int) -> None:
    """End a job early, after a number of steps, as its script has left the loop.

    A checkpoint that was to be written later never is. Blocks that were to move later, or a halt, cannot be taken back:
    the job goes back to its last checkpoint, and the script will end it from there.
    """
    if step >= job.total_steps():
        return
    moving = None if job.is_asynchronous else job.moving_change()
    if moving is not None and last_step(moving) > step:
        if moving.stages or moving.halt:
            recover(job)
            return
        give_up(job, "the job ends before it")
        withdraw_change(job.state, moving)
    job.state.set_generation(ends_at=step)


def write_again(job: CoordinatedJob, halt: Change, now: float) -> bool:
    """Write a halt's checkpoint again, by the present owners, as a server was lost before it was written.

    Nobody is asked, as the workers stand at the halt already. False if no server was lost since the last time.
    """
    if set(job.state.generation.lost) <= job.memory.written_without:
        return False
    _confirm(job, Change(_next_number(job), halt.clock, checkpoint=True, halt=True), now)
    return True


def _next_number(job: CoordinatedJob) -> int:
    number = job.state.numbers.change + 1
    job.state.numbers = replace(job.state.numbers, change=number)
    return number


def last_step(change: Change) -> int:
    """Step of a change's last stage."""
    return change.clock + max(len(change.stages), 1) - 1
