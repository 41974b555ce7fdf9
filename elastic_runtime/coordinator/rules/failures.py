"""A task fails by its own fault: it is replaced, or another try would end the same and nobody waits for one."""

from __future__ import annotations

import structlog

from elastic_runtime.control.messages import RequestState
from elastic_runtime.coordinator.rules import requests
from elastic_runtime.coordinator.rules.assembly import fail
from elastic_runtime.coordinator.rules.job import Job
from elastic_runtime.coordinator.rules.resizing import abort
from elastic_runtime.coordinator.rules.state import Purpose
from elastic_runtime.coordinator.rules.tasks import lose
from elastic_runtime.plain_line import plain_line

_log = structlog.get_logger()


def failed(job: Job, name: str, words: str, bad_input: bool = False) -> None:
    """A task failed; after so many failures (`restarts`) the job fails with its line.

    Of bad input, such as a model that is not the job's or a wrong token, the job fails at once: the task's successor
    would end like it. A resize that wanted the task is given up in place of that, and the job goes on as before.
    """
    line = plain_line(words)
    _log.warning("task_failed", task=name, line=line, bad_input=bad_input)
    failures = job.state.course.script_failures + 1
    job.course(script_failures=failures)
    resize = _resize_for(job, name)
    lose(job, name, line)
    what = line if line.startswith(name) else f"{name}: {line}"
    if bad_input and resize is not None:
        if job.state.generation.purpose is Purpose.RESIZE:
            job.generation(proposal=None)  # the resize's; one of a checkpoint, or a repair, goes on
        abort(job, resize, f"{what}; nothing changed")
    elif bad_input:
        fail(job, what)
    elif failures > job.settings.restarts:
        allowed = "1 restart is" if job.settings.restarts == 1 else f"{job.settings.restarts} restarts are"
        tried = f" ({failures} failures; {allowed} allowed)" if failures > 1 else ""
        fail(job, what + tried)


def _resize_for(job: Job, name: str) -> RequestState | None:
    """The resize without which a job that trains would not need this task, if nothing of it holds yet."""
    running = requests.running(job)
    if running is None or running.kind != "resize" or not job.training:
        return None
    if job.moving() is not None and job.state.generation.purpose is Purpose.RESIZE:
        return None  # it was agreed to, and is not taken back
    plan = job.plan()
    return None if name in plan.workers or name in plan.servers else running
