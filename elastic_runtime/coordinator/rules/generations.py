"""Generations of a job, from the tasks' gathering to the halt that ends one.

A generation begins: tasks gather, read the checkpoint, and run. The job's start, a resume and the recovery from a lost
server are one path; at the start a worker writes the first checkpoint.

It ends: the job is done, is suspended, or restarts with other tasks. Each begins with a halt: all workers stop at one
step, the servers write it, and once that is durable the tasks may go.
"""

from __future__ import annotations

from dataclasses import replace

from elastic_runtime.control.messages import RequestOutcome, Size
from elastic_runtime.coordinator.rules import requests
from elastic_runtime.coordinator.rules.changes import begin_last_checkpoint, write_again
from elastic_runtime.coordinator.rules.checkpointing import (
    Orders,
    SearchOrder,
    checkpoint_name,
)
from elastic_runtime.coordinator.rules.job import CoordinatedJob
from elastic_runtime.coordinator.rules.moves import assign
from elastic_runtime.coordinator.rules.phases import enter, withdraw_proposal
from elastic_runtime.coordinator.rules.state import Generation, Purpose, TaskState
from elastic_runtime.coordinator.rules.tasks import dismiss, lose, recover, replace_missing, spares
from elastic_runtime.protocol.plan import Change, JobPhase, Plan, TaskRole

_HALT_TRIES = 3


def assemble(job: CoordinatedJob, now: float) -> None:
    """Gather tasks of a job that is STARTING or RECOVERING, and form a generation of them."""
    if job.state.course.formed:
        _await_servers(job, now)
        return
    dismiss(job, spares(job))
    target = job.state.course.target
    for role, count in ((TaskRole.SERVER, target.servers), (TaskRole.WORKER, target.workers)):
        coming = job.tasks(role, TaskState.LIVE, TaskState.WANTED)
        replace_missing(job, role, count - len(coming), now)
    _initialise(job)
    here = Size(len(job.live(TaskRole.SERVER)), len(job.live(TaskRole.WORKER)))
    everybody = here.servers >= target.servers and here.workers >= target.workers
    if everybody and job.state.checkpoints.durable:
        _form(job)
        return
    recovering = job.state.course.phase is JobPhase.RECOVERING
    enough = (
        here.servers >= job.settings.minimum_servers
        and here.workers >= job.settings.minimum_workers
        and bool(job.state.checkpoints.durable)
    )
    if recovering and enough and job.timers.passed("gather", now, job.settings.replacement_seconds):
        _form(job)
    elif job.timers.passed("start", now, job.settings.start_seconds):
        if enough:
            _form(job)
        elif job.state.checkpoints.durable and not recovering:
            suspend(job, _too_few(job, here))
        else:
            fail(job, _too_few(job, here))


def fail(job: CoordinatedJob, line: str) -> None:
    """Fail the job, and tell all members why."""
    enter(job.state, JobPhase.FAILED, failure=line, initialiser="")
    withdraw_proposal(job.state)
    dismiss(job, [task.name for task in job.tasks(None, TaskState.WANTED)])


def suspend(job: CoordinatedJob, why: str) -> None:
    """Let all tasks go; the job waits for a resume.

    A running suspend is done, anything else was in vain. There are two where a job was suspended while it still
    gathered for a resume.
    """
    dismiss(job, [task.name for task in job.tasks(None, TaskState.LIVE, TaskState.WANTED)])
    enter(job.state, JobPhase.SUSPENDED, target=Size(0, 0), formed=False, initialiser="")
    job.timers.clear("start", "gather", "ready")
    for row in job.state.requests.rows:
        if row.state is RequestOutcome.RUNNING:
            done = row.kind == "suspend"
            requests.end(job, row, RequestOutcome.DONE if done else RequestOutcome.ABORTED, "" if done else why)


def _too_few(job: CoordinatedJob, here: Size) -> str:
    seconds = job.settings.start_seconds
    if here.workers and here.servers and not job.state.checkpoints.durable:
        return f"{job.state.course.initialiser} wrote no first checkpoint within {seconds:g} s; see its output"
    target = job.state.course.target
    return f"only {here} of {target} came within {seconds:g} s; see the output of the missing ones"


def _initialise(job: CoordinatedJob) -> None:
    """Have the first worker write the job's first checkpoint; if it is lost, the next one."""
    course, checkpoints = job.state.course, job.state.checkpoints
    if checkpoints.durable:
        job.state.set_course(initialiser="")
        return
    workers = job.live(TaskRole.WORKER)
    if course.initialiser not in workers:
        job.state.set_course(initialiser=workers[0] if workers else "")
    initialiser = job.state.course.initialiser
    name = checkpoint_name(0)
    if initialiser:
        job.state.set_generation(start_checkpoint=name)
    if initialiser and job.reports.of(initialiser).initialised:
        job.state.checkpoints = replace(checkpoints, durable=((name, 0),))
        job.state.set_course(initialiser="")


def _form(job: CoordinatedJob) -> None:
    """Publish a new generation, which begins from the newest durable checkpoint."""
    model = job.model
    if model is None:
        raise AssertionError("a checkpoint without a model")
    before, target = job.state.generation, job.state.course.target
    plan = job.plan() if before.number else Plan((), ())
    name, step = job.state.checkpoints.durable[-1]
    servers = _chosen(list(plan.servers), job.live(TaskRole.SERVER), target.servers)
    workers = _chosen(list(dict.fromkeys(plan.workers)), job.live(TaskRole.WORKER), target.workers)
    holders = assign(model.layout, servers, plan, job.settings.replicas)
    job.state.generation = Generation(
        number=before.number + 1,
        start_step=step,
        start_checkpoint=name,
        start_plan=replace(holders, workers=tuple(workers)),
        committed=job.state.numbers.change,
    )
    spare = [*job.live(TaskRole.SERVER), *job.live(TaskRole.WORKER)]
    dismiss(job, [task for task in spare if task not in servers and task not in workers])
    job.state.set_course(formed=True)
    job.timers.clear("ready", "gather", "start")


def _chosen(before: list[str], live: list[str], count: int) -> list[str]:
    """Those that were there, in their order, then the others: a worker's place decides which slice it computes."""
    ordered = [*(name for name in before if name in live), *(name for name in live if name not in before)]
    return ordered[:count]


def _await_servers(job: CoordinatedJob, now: float) -> None:
    generation = job.state.generation
    waiting = [name for name in generation.start_plan.servers if not job.report(name).ready]
    if not waiting:
        enter(job.state, JobPhase.RUNNING, formed=False)
        job.timers.clear("ready")
        job.timers.begin("next checkpoint", now)
    elif _searches(job):
        job.timers.clear("ready")
    elif job.timers.passed("ready", now, job.settings.ready_seconds):
        for name in waiting:
            lose(job, name, "it did not read its blocks in time")


def _searches(job: CoordinatedJob) -> bool:
    """Whether a sound checkpoint is being looked for, as servers say that the one to begin from is damaged."""
    generation = job.state.generation
    if job.memory.searched_generation == generation.number:
        return True
    if not any(job.report(name).damage for name in generation.start_plan.servers):
        return False
    job.memory.searched_generation = generation.number
    names = tuple(name for name, _ in reversed(job.state.checkpoints.durable))
    job.own(Orders).append(SearchOrder(generation.number, names))
    return True


def end_search(job: CoordinatedJob) -> None:
    """End the search for a sound checkpoint; the next complaint begins another."""
    job.memory.searched_generation = 0


def end_training(job: CoordinatedJob, now: float) -> None:
    """Write the last checkpoint, as all steps are applied; wait for workers that still take the values; finish."""
    halt = job.halt()
    if halt is None:
        begin_last_checkpoint(job, now)
        return
    if job.state.checkpoints.pending is not None:
        return
    if job.durable_step() < halt.clock:
        if not write_again(job, halt, now):
            _retry(job, halt)
    elif all(job.report(name).finished for name in job.live_workers()) or job.timers.passed(
        "ending", now, job.settings.leave_seconds
    ):
        _finish(job)


def end_halt(job: CoordinatedJob, now: float) -> bool:
    """Go on to what the job was halted for, once the halt's checkpoint is durable; False if it was not halted."""
    halt = job.halt()
    if halt is None:
        return False
    if job.state.checkpoints.pending is not None:
        return True
    if job.durable_step() < halt.clock:
        if not write_again(job, halt, now):
            _retry(job, halt)
        return True
    job.memory.halt_tries = 0
    if job.state.generation.purpose is Purpose.RESTART:
        _restart(job)
    else:
        suspend(job, "the job was suspended")
    return True


def _retry(job: CoordinatedJob, halt: Change) -> None:
    """Go back to the checkpoint before, as a halt's was not written, and come here again; not for ever."""
    job.memory.halt_tries += 1
    if job.memory.halt_tries >= _HALT_TRIES:
        job.memory.halt_tries = 0
        line = f"the checkpoint at step {halt.clock} could not be written; the one at step {job.durable_step()} stands"
        if job.state.generation.purpose is Purpose.FINISH:
            fail(job, line)
            return
        running = requests.running(job)
        if running is not None:
            requests.end(job, running, RequestOutcome.ABORTED, line)
        job.state.set_course(target=job.state.course.settled)
    recover(job)


def _finish(job: CoordinatedJob) -> None:
    enter(job.state, JobPhase.FINISHED)
    requests.abort_all(job, "the job has finished")
    dismiss(job, [task.name for task in job.tasks(None, TaskState.WANTED)])


def _restart(job: CoordinatedJob) -> None:
    dismiss(job, [task.name for task in job.tasks(None, TaskState.LIVE, TaskState.WANTED)])
    enter(job.state, JobPhase.STARTING, formed=False)
    job.timers.clear("start", "gather")
