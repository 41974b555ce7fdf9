"""Members after they joined: what they report, how they end, and how it is noticed that they are gone."""

from __future__ import annotations

from dataclasses import replace

import structlog

from elastic_runtime.control.messages import MemberReport
from elastic_runtime.coordinator.assembly import fail
from elastic_runtime.coordinator.job import ENDED, Job
from elastic_runtime.coordinator.state import TaskState
from elastic_runtime.coordinator.tasks import dismiss, lose
from elastic_runtime.plan import Role

_log = structlog.get_logger()


def return_to(job: Job, now: float) -> None:
    """A coordinator begins with a remembered state: everybody has the whole time to report; no vote is known."""
    for task in job.tasks():
        if task.live:
            job.reports.begin(task.name, task.incarnation, now)
    if job.state.generation.proposal is not None:
        job.generation(proposal=None)


def report(job: Job, report: MemberReport, now: float) -> bool:
    """Take a report; False if the process is not part of the job (any more)."""
    task = job.task(report.task)
    if task is None or not task.live or task.incarnation != report.incarnation:
        return False
    if report.generation > job.state.generation.number:
        return False  # of a coordinator whose state was lost
    job.reports.take(report, now)
    if report.failure and job.state.course.phase not in ENDED:
        _failed(job, report.task, report.failure)
        return False
    if report.left:
        if task.state is TaskState.LEAVING or job.state.course.phase in ENDED:
            _gone(job, report.task)
        else:
            lose(job, report.task, "it left")
    _note_stall(job, report)
    return True


def ended(job: Job, name: str, exit_code: int, last_line: str) -> None:
    """A task's process has ended."""
    task = job.task(name)
    if task is None or task.state is TaskState.GONE:
        return
    if task.state is TaskState.LEAVING or job.state.course.phase in ENDED:
        _gone(job, name)
    elif exit_code > 0:
        _failed(job, name, last_line or f"exit code {exit_code}")
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
        limit = settings.silent_seconds if job.reports.heard(task.name).following else settings.lost_seconds
        if silent >= limit:
            if task.state is TaskState.LEAVING or job.state.course.phase in ENDED:
                _gone(job, task.name)
            else:
                lose(job, task.name, f"silent for {silent:.1f} s")
    _check_losses(job)


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
            _gone(job, task.name)


def _gone(job: Job, name: str) -> None:
    task = job.task(name)
    if task is not None:
        was_needed = task.state is TaskState.LEAVING and job.training
        if was_needed:
            lose(job, name, "it left")
        else:
            job.put(replace(task, state=TaskState.GONE))
            job.reports.forget(name)
        job.timers.clear(f"leave {name}")


def _failed(job: Job, name: str, line: str) -> None:
    task = job.task(name)
    role = "worker" if task is not None and task.role is Role.WORKER else "PS"
    _log.warning("task_failed", task=name, line=line)
    failures = job.state.course.script_failures + 1
    job.course(script_failures=failures)
    lose(job, name, line)
    if failures > job.settings.restarts:
        after = f" ({failures} failures; {job.settings.restarts} restarts are allowed)" if failures > 1 else ""
        fail(job, f"{role} {name} failed: {line}{after}")


def _check_losses(job: Job) -> None:
    course = job.state.course
    if course.phase not in ENDED and course.losses > job.settings.losses:
        fail(job, f"{course.losses} tasks were lost and no step became durable since; see their output")


def _note_stall(job: Job, report: MemberReport) -> None:
    """The wait of the newest resize becomes known after it is over."""
    rows = [row for row in job.state.requests.rows if row.clock]
    if rows and report.last_stall_seconds and report.generation == job.state.generation.number:
        newest = rows[-1].request_id
        job.stalls[newest] = max(job.stalls.get(newest, 0.0), report.last_stall_seconds)
