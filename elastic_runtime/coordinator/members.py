"""Members after they joined: what they report, how they end, and how it is noticed that they are gone."""

from __future__ import annotations

from dataclasses import replace

import structlog

from elastic_runtime.control.messages import MemberReport
from elastic_runtime.coordinator import leases
from elastic_runtime.coordinator.assembly import fail
from elastic_runtime.coordinator.failures import failed
from elastic_runtime.coordinator.job import ENDED, GATHERING, Job
from elastic_runtime.coordinator.state import TaskState
from elastic_runtime.coordinator.tasks import dismiss, lose
from elastic_runtime.errors import BadInput
from elastic_runtime.protocol.plan import Role

_log = structlog.get_logger()
_BAD_INPUT = 2
"""The exit code of whoever was used or told wrongly: another try would end the same."""
_UNREACHABLE = 3
"""The exit code of a member that waited for its coordinator in vain: no failure of the script."""


def return_to(job: Job, now: float) -> None:
    """A coordinator begins with a remembered state: everybody has the whole time to report; no vote is known."""
    for task in job.tasks():
        if task.live:
            job.reports.begin(task.name, task.incarnation, now)
    job.generation(proposal=None)
    job.course(notice="")
    checkpoints = job.state.checkpoints
    if checkpoints.pending is not None:
        job.state.checkpoints = replace(checkpoints, pending=replace(checkpoints.pending, shards=()))


def report(job: Job, report: MemberReport, now: float) -> bool:
    """Take a report; False if the process is not part of the job (any more).

    Raises:
        BadInput: it says that more steps are done than the job has.
    """
    steps = job.model.total_steps if job.model is not None else None
    if steps is not None and report.step > steps:
        raise BadInput(f"{report.task} says that it is at step {report.step}; job {job.settings.job} has {steps}")
    task = job.task(report.task)
    if task is None or not task.live or task.incarnation != report.incarnation:
        return False
    if report.generation > job.state.generation.number:
        return False  # of a coordinator whose state was lost
    if report.draining and not job.reports.of(report.task).draining:
        _log.info("task_draining", task=report.task)
    job.reports.take(report, now)
    if report.failure and job.state.course.phase not in ENDED:
        failed(job, report.task, report.failure, report.bad_input)
        return False
    if report.finished and report.generation > 0 and not _current(job, report):
        # Its loop ended before the job went back: steps that are done again are done by others.
        lose(job, report.task, "it had finished before the job went back")
        return False
    if report.finished and job.training:
        # Who has the last step's values has all blocks' values: nobody has anything left to push.
        job.generation(ended=True, proposal=None)
    _note_stall(job, report)
    if report.left:
        lose(job, report.task, "it left")
    return True


def _current(job: Job, report: MemberReport) -> bool:
    """Whether a report is of what goes on now, and not of what the job went back from."""
    gathering = job.state.course.phase in GATHERING and not job.state.course.formed
    return report.generation == job.state.generation.number and not gathering


def ended(job: Job, name: str, exit_code: int, last_line: str) -> None:
    """A task's process has ended."""
    task = job.task(name)
    if task is None:
        return
    missed = task.state is not TaskState.LEAVING and job.state.course.phase not in ENDED
    if missed and exit_code > 0 and exit_code != _UNREACHABLE:
        failed(job, name, last_line or f"its process ended with code {exit_code}", exit_code == _BAD_INPUT)
    elif missed and exit_code == 0 and task.role is Role.WORKER and not job.reports.of(name).finished:
        failed(job, name, "its script ended before the job did; let its loop over the job's batches come to its end")
    else:
        lose(job, name, f"its process ended with {exit_code}")
    _check_losses(job)


def watch(job: Job, now: float) -> None:
    """Look for members that are silent for too long, or that nobody reaches."""
    settings = job.settings
    for task in job.tasks():
        if not task.live:
            continue
        silent = job.reports.silent_seconds(task.name, now)
        limit = settings.silent_seconds if job.reports.heard(task.name).streams else settings.lost_seconds
        if silent >= limit:
            lose(job, task.name, f"silent for {silent:.1f} s")
    for name in _unreachable(job):
        if not job.timers.runs(f"suspect {name}"):
            _log.info("task_suspected", task=name)
        if job.timers.passed(f"suspect {name}", now, settings.suspect_seconds):
            lose(job, name, "its peers say that it does not answer")
            break  # what the others wait for may come now
    _check_losses(job)


def _unreachable(job: Job) -> list[str]:
    """Who is cut off from its peers: workers first, as nothing is lost with one.

    A worker that still computes suspects nobody, so slow workers make no server suspect. One whose pushes do not get
    through makes every worker wait for every server; but the servers, to which the others' pushes come, name it.
    """
    if not job.training:
        return []
    workers, servers = job.working(), list(job.plan().servers)
    found = _cut_off(job, workers, servers)
    if not found and workers:
        found = [name for name in servers if all(name in job.report(peer).suspects for peer in workers)]
    for name in (*workers, *servers):
        if name not in found:
            job.timers.clear(f"suspect {name}")
    return found


def _cut_off(job: Job, workers: list[str], servers: list[str]) -> list[str]:
    """Workers that a server waits for while they wait for it: for every server, or one that other workers reach.

    The only worker of several servers, none of which answers it, is cut off itself. In asynchronous training no server
    waits for anybody: there it is the others, which wait for servers only, that show whether a server can be reached.
    """
    if leases.asynchronous(job):
        waiting = {worker: set(job.report(worker).suspects) & set(servers) for worker in workers}
        all_wait_for = set(servers).intersection(*waiting.values())
        return [worker for worker in workers if waiting[worker] - all_wait_for]
    apart = {
        worker: {s for s in servers if s in job.report(worker).suspects and worker in job.report(s).suspects}
        for worker in workers
    }
    if len(workers) == 1 < len(servers) and set(servers) <= set(job.report(workers[0]).suspects):
        return workers
    reached = [server for server in servers if any(server not in apart[worker] for worker in workers)]
    return [
        worker for worker in workers if len(apart[worker]) == len(servers) or any(s in reached for s in apart[worker])
    ]


def release(job: Job, now: float) -> None:
    """Servers without blocks may go once no checkpoint needs them; who does not go is forgotten in the end."""
    pending = job.state.checkpoints.pending
    free = [name for name in job.released if pending is None or name not in pending.servers]
    if free:
        job.released -= set(free)
        owning = job.owning() if job.training else set()
        dismiss(job, [name for name in free if name not in owning])
    for task in job.tasks(None, TaskState.LEAVING):
        if job.timers.passed(f"leave {task.name}", now, job.settings.leave_seconds):
            lose(job, task.name, "it was told to leave")


def _check_losses(job: Job) -> None:
    course = job.state.course
    if course.phase not in ENDED and course.losses > job.settings.losses:
        fail(job, f"{course.losses} tasks were lost and no step became durable since; see their output")


def _note_stall(job: Job, report: MemberReport) -> None:
    """How long workers waited since the newest resize was proposed, at most.

    A worker knows of its own waits for the change; of pushes that waited for a block to arrive the block's new owner
    knows. Several of these may have waited at the same steps, which is not known here: their waits are added up.
    """
    before = job.stalled_before.get(report.task)
    rows = [row.request_id for row in job.state.requests.rows if row.clock]
    if before is None or not rows:
        return
    job.waited[report.task] = max(0.0, report.stall_seconds - before)
    roles = {task.name: task.role for task in job.tasks()}
    at_workers = max((s for name, s in job.waited.items() if roles.get(name) is Role.WORKER), default=0.0)
    at_servers = sum(s for name, s in job.waited.items() if roles.get(name) is Role.SERVER)
    job.stalls[rows[-1]] = max(job.stalls.get(rows[-1], 0.0), at_workers + at_servers)
