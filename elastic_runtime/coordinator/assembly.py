"""A generation begins: tasks gather, read the checkpoint, and run.

The job's start, a resume and the recovery from a lost server are one path; at the start a worker writes the first
checkpoint.
"""

from __future__ import annotations

from dataclasses import replace

from elastic_runtime.control.messages import RequestOutcome, Size
from elastic_runtime.coordinator import requests
from elastic_runtime.coordinator.assignment import assign
from elastic_runtime.coordinator.depot import checkpoint_name
from elastic_runtime.coordinator.draining import release_spares
from elastic_runtime.coordinator.job import Job
from elastic_runtime.coordinator.orders import SearchOrder
from elastic_runtime.coordinator.state import Generation, TaskState
from elastic_runtime.coordinator.tasks import dismiss, lose, unwant, want
from elastic_runtime.protocol.plan import Phase, Plan, Role


def assemble(job: Job, now: float) -> None:
    """One look at a job that is STARTING or RECOVERING."""
    if job.state.course.formed:
        _await_servers(job, now)
        return
    release_spares(job)
    _want_missing(job)
    _initialise(job)
    target = job.state.course.target
    here = Size(len(job.live(Role.SERVER)), len(job.live(Role.WORKER)))
    everybody = here.servers >= target.servers and here.workers >= target.workers
    if everybody and job.state.checkpoints.durable:
        _form(job)
        return
    recovering = job.state.course.phase is Phase.RECOVERING
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
            sleep(job, _too_few(job, here))
        else:
            fail(job, _too_few(job, here))


def fail(job: Job, line: str) -> None:
    """The job has failed; all are told why."""
    job.course(phase=Phase.FAILED, failure=line, initialiser="")
    job.generation(proposal=None)
    unwant(job, [task.name for task in job.tasks(None, TaskState.WANTED)])


def sleep(job: Job, why: str) -> None:
    """All tasks may go; the job waits for a resume. A running request that is not a suspend was in vain."""
    dismiss(job, [task.name for task in job.tasks(None, TaskState.LIVE, TaskState.WANTED)])
    job.course(phase=Phase.SUSPENDED, target=Size(0, 0), formed=False, initialiser="")
    job.timers.clear("start", "gather", "ready")
    running = requests.running(job)
    if running is not None:
        done = running.kind == "suspend"
        requests.end(job, running, RequestOutcome.DONE if done else RequestOutcome.ABORTED, "" if done else why)


def _too_few(job: Job, here: Size) -> str:
    seconds = job.settings.start_seconds
    if here.workers and here.servers and not job.state.checkpoints.durable:
        return f"{job.state.course.initialiser} wrote no first checkpoint within {seconds:g} s; see its output"
    target = job.state.course.target
    return f"only {here} of {target} came within {seconds:g} s; see the output of the missing ones"


def _want_missing(job: Job) -> None:
    target = job.state.course.target
    for role, count in ((Role.SERVER, target.servers), (Role.WORKER, target.workers)):
        coming = job.tasks(role, TaskState.LIVE, TaskState.WANTED)
        want(job, role, count - len(coming))


def _initialise(job: Job) -> None:
    """The first worker writes the job's first checkpoint; if it is lost, the next one."""
    course, checkpoints = job.state.course, job.state.checkpoints
    if checkpoints.durable:
        job.course(initialiser="")
        return
    workers = job.live(Role.WORKER)
    if course.initialiser not in workers:
        job.course(initialiser=workers[0] if workers else "")
    initialiser = job.state.course.initialiser
    name = checkpoint_name(0)
    if initialiser:
        job.generation(start_checkpoint=name)
    if initialiser and job.reports.of(initialiser).initialised:
        job.state.checkpoints = replace(checkpoints, durable=((name, 0),))
        job.course(initialiser="")


def _form(job: Job) -> None:
    """Publish a new generation, which begins from the newest durable checkpoint."""
    model = job.model
    if model is None:
        raise AssertionError("a checkpoint without a model")
    before, target = job.state.generation, job.state.course.target
    plan = job.plan() if before.number else Plan((), ())
    name, step = job.state.checkpoints.durable[-1]
    servers = _chosen(list(plan.servers), job.live(Role.SERVER), target.servers)
    workers = _chosen(list(dict.fromkeys(plan.workers)), job.live(Role.WORKER), target.workers)
    held = assign(model.layout, servers, plan, job.settings.replicas)
    job.state.generation = Generation(
        number=before.number + 1,
        start_step=step,
        start_checkpoint=name,
        start_plan=replace(held, workers=tuple(workers)),
        committed=job.state.numbers.change,
    )
    spare = [*job.live(Role.SERVER), *job.live(Role.WORKER)]
    dismiss(job, [task for task in spare if task not in servers and task not in workers])
    job.course(formed=True)
    job.timers.clear("ready", "gather", "start")


def _chosen(before: list[str], live: list[str], count: int) -> list[str]:
    """Those that were there, in their order, then the others; a worker's place decides which slice it computes."""
    ordered = [*(name for name in before if name in live), *(name for name in live if name not in before)]
    return ordered[:count]


def _await_servers(job: Job, now: float) -> None:
    generation = job.state.generation
    waiting = [name for name in generation.start_plan.servers if not job.report(name).ready]
    if not waiting:
        job.course(phase=Phase.RUNNING, formed=False)
        job.timers.clear("ready")
        job.checkpointed_seconds = now
    elif _searches(job):
        job.timers.clear("ready")
    elif job.timers.passed("ready", now, job.settings.ready_seconds):
        for name in waiting:
            lose(job, name, "it did not read its blocks in time")


def _searches(job: Job) -> bool:
    """Whether a sound checkpoint is being looked for, as servers say that the one to begin from is damaged."""
    generation = job.state.generation
    if job.searching == generation.number:
        return True
    if not any(job.report(name).damage for name in generation.start_plan.servers):
        return False
    job.searching = generation.number
    names = tuple(name for name, _ in reversed(job.state.checkpoints.durable))
    job.orders.searches.append(SearchOrder(generation.number, names))
    return True
