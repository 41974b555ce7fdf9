"""What is done next, when nothing is under way: end, suspend, repair, resize, replace, checkpoint, in this order."""

from __future__ import annotations

from dataclasses import replace

from elastic_runtime.control.messages import RequestOutcome, RequestState, ResizeMode, Size
from elastic_runtime.coordinator import leases, requests
from elastic_runtime.coordinator.assignment import assign, stages
from elastic_runtime.coordinator.changes import last_step, propose
from elastic_runtime.coordinator.checkpointing import due
from elastic_runtime.coordinator.draining import can_do_without, going, release_spares
from elastic_runtime.coordinator.endings import end, end_halt
from elastic_runtime.coordinator.job import Job
from elastic_runtime.coordinator.resize_times import ResizeTimes
from elastic_runtime.coordinator.state import Purpose, TaskState
from elastic_runtime.coordinator.tasks import dismiss, recover, want
from elastic_runtime.protocol.plan import Phase, Role, Stage


def decide(job: Job, now: float) -> None:
    """One look at a running job without a proposal and without a moving change."""
    if job.state.generation.ended:
        end(job, now)
        return
    if end_halt(job, now) or not _all_under_way(job) or not _somebody_works(job, now):
        return
    release_spares(job, (*job.plan().workers, *job.plan().servers))
    running = requests.running(job)
    if running is not None and running.kind == "suspend":
        propose(job, Purpose.SUSPEND, now, checkpoint=True, halt=True)
    elif _repair(job, now) or _replicate(job, now):
        pass
    elif running is not None:
        _resize(job, running, now)
    elif not (requests.start_next(job) or _replace(job, now)):
        _checkpoint(job, now)


def _checkpoint(job: Job, now: float) -> bool:
    return due(job, now) and propose(job, Purpose.CHECKPOINT, now, checkpoint=True)


def _all_under_way(job: Job) -> bool:
    """Whether all workers of the plan have done a step since the last change; a new one does not vote before."""
    if leases.asynchronous(job):
        return True  # nobody votes
    changes = job.state.generation.changes
    least = last_step(changes[-1]) + 1 if changes else job.state.generation.start_step
    return all(job.heard(name) and job.report(name).step >= least for name in job.working())


def _somebody_works(job: Job, now: float) -> bool:
    """Without any worker asynchronous training waits for a new one, but not for ever."""
    if job.working() or not leases.asynchronous(job):
        job.timers.clear("workers")
    elif job.timers.passed("workers", now, job.settings.start_seconds):
        recover(job)
        return False
    return True


def _repair(job: Job, now: float) -> bool:
    """Take lost workers out of the plan, so that their stand-ins are not slower than the others for long."""
    plan = job.plan()
    left = tuple(name for name in dict.fromkeys(plan.workers) if job.alive(name))
    if left == plan.workers or not left:
        return False
    return propose(job, Purpose.REPAIR, now, (Stage({}, left),))


def _replicate(job: Job, now: float) -> bool:
    """Give blocks that lost one of their holders another one, of the servers that are there."""
    if not _lacks_replicas(job):
        return False
    plan = job.plan()
    return _change_to(job, now, list(plan.servers), plan.workers, ResizeMode.ROLLING, Purpose.REPAIR)


def _lacks_replicas(job: Job) -> bool:
    """Whether blocks have one holder that should have two, and could."""
    plan = job.plan()
    if job.settings.replicas == 1 or len(plan.servers) == 1:
        return False
    return not plan.replicas or not all(plan.replicas)


def _resize(job: Job, running: RequestState, now: float) -> None:
    restart = running.mode is ResizeMode.CHECKPOINT_RESTART  # ends all tasks, whether they want to go or not
    servers, workers, missing = wanted_members(
        job, running.target, (*running.victims, *(() if restart else going(job)))
    )
    job.times = job.times or ResizeTimes(now)
    if not any(task.name in missing for task in job.tasks(None, TaskState.WANTED)):
        job.times.note_registered(now)
    if missing:
        if job.timers.passed("new tasks", now, job.settings.new_task_seconds):
            names = " and ".join(missing)
            abort(job, running, f"{names} did not come within {job.settings.new_task_seconds:g} s; nothing changed")
        elif not _relieve(job, now, servers, workers):
            _checkpoint(job, now)
        return
    job.timers.clear("new tasks")
    job.times.note_ready(now)
    plan = job.plan()
    if (set(servers), workers) == (set(plan.servers), plan.workers):
        _done(job, running)
        return
    if restart:
        propose(job, Purpose.RESTART, now, checkpoint=True, halt=True)
    elif job.state.generation.purpose is not Purpose.CHECKPOINT and _checkpoint(job, now):
        pass  # in turn, or requests that follow each other would leave the job without
    elif not _change_to(job, now, servers, workers, running.mode):
        abort(job, running, "the job ends before the resize could")


def _change_to(
    job: Job,
    now: float,
    servers: list[str],
    workers: tuple[str, ...],
    mode: ResizeMode,
    purpose: Purpose = Purpose.RESIZE,
) -> bool:
    plan, model = job.plan(), job.model
    if model is None:
        return False
    began = job.unix_clock()
    after = plan
    if set(servers) != set(plan.servers) or _lacks_replicas(job):
        after = assign(model.layout, servers, plan, job.settings.replicas)
    total_bytes = model.layout.total_bytes
    at_once = mode is ResizeMode.STOP_THE_WORLD
    budget = total_bytes if at_once else int(total_bytes * job.settings.stage_fraction)
    new_workers = workers if workers != plan.workers else None
    if leases.asynchronous(job):
        budget = total_bytes  # servers send a few blocks at a time by themselves
    cut, moved_bytes = stages(model.layout, job.named(), plan, after, new_workers, budget)
    if job.times is not None:
        job.times.assignment_seconds = max(0.0, job.unix_clock() - began)
    return propose(job, purpose, now, cut, barrier=at_once and moved_bytes > 0, minimum_bytes=moved_bytes)


def wanted_members(
    job: Job, target: Size, victims: tuple[str, ...] = ()
) -> tuple[list[str], tuple[str, ...], list[str]]:
    """Servers and workers for a size, and which of them have yet to come; those are wanted from now on.

    Victims go first, then the newest. Who stays keeps its place, as that decides which slice it computes.
    """
    plan = job.plan()
    missing: list[str] = []
    chosen: dict[Role, list[str]] = {}
    for role, current, count in (
        (Role.SERVER, plan.servers, target.servers),
        (Role.WORKER, tuple(dict.fromkeys(plan.workers)), target.workers),
    ):
        live = job.live(role)
        staying = [name for name in current if name in live and name not in victims]
        oldest = sorted(staying, key=lambda name: int(name.rpartition("-")[2]))[:count]
        staying = [name for name in staying if name in oldest]
        need = count - len(staying)
        fresh = [name for name in live if name not in current and name not in victims]
        warm = [name for name in fresh if _warm(job, name, role)][:need]
        coming = [*(name for name in fresh if name not in warm)]
        coming += [task.name for task in job.tasks(role, TaskState.WANTED)]
        lacking = need - len(warm)
        if lacking > 0:
            coming += want(job, role, lacking - len(coming))
            missing += coming[:lacking]
        chosen[role] = [*staying, *warm]
    return chosen[Role.SERVER], tuple(chosen[Role.WORKER]), missing


def _warm(job: Job, name: str, role: Role) -> bool:
    """Whether a new task can be named: a worker has tried the model, a server has come to this generation."""
    return job.reports.of(name).ready if role is Role.WORKER else job.report(name).ready


def _replace(job: Job, now: float) -> bool:
    """Bring a job that lost tasks, or is about to, back to its size, as their replacements come."""
    target, leaving = job.state.course.target, going(job)
    if job.size() == target and not leaving:
        return False
    servers, workers, _ = wanted_members(job, target, leaving)
    plan = job.plan()
    if not leaving:
        grown = set(servers) > set(plan.servers) or set(workers) > set(plan.workers)
        return grown and _change_to(job, now, servers, workers, ResizeMode.ROLLING)
    return _relieve(job, now, servers, workers)


def _relieve(job: Job, now: float, servers: list[str], workers: tuple[str, ...]) -> bool:
    """Take tasks that want to go out of the plan, once others can have their part; the rest stays as it is."""
    plan = job.plan()
    holding = list(plan.servers)
    if not can_do_without(job, Role.SERVER, holding, servers, now):
        servers = holding
    if not can_do_without(job, Role.WORKER, plan.workers, workers, now):
        workers = plan.workers
    if (set(servers), workers) == (set(holding), plan.workers):
        return False
    return _change_to(job, now, servers, workers, ResizeMode.ROLLING, Purpose.REPAIR)


def _done(job: Job, running: RequestState) -> None:
    row = replace(running, stall_seconds=job.stalls.get(running.request_id, 0.0))
    plan = job.plan()
    spare = [name for role in Role for name in job.live(role) if name not in plan.workers and name not in plan.servers]
    dismiss(job, [*spare, *(task.name for task in job.tasks(None, TaskState.WANTED))])
    job.course(phase=Phase.RUNNING, settled=running.target, target=running.target)
    requests.end(job, row, RequestOutcome.DONE, "")


def abort(job: Job, running: RequestState, why: str) -> None:
    """Give a running resize up: the job goes on with what its plan has."""
    plan = job.plan()
    names = [task.name for task in job.tasks(None, TaskState.LIVE, TaskState.WANTED)]
    dismiss(job, [name for name in names if name not in plan.workers and name not in plan.servers])
    job.course(phase=Phase.RUNNING, target=job.state.course.settled)
    job.timers.clear("new tasks")
    requests.end(job, running, RequestOutcome.ABORTED, why)
