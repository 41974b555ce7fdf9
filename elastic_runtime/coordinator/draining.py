"""Tasks that were told to go, as their container is evicted: they work on until others have what they had.

A task says so in its reports, again and again, so nothing of it has to be remembered. The target stays: they are
replaced.
"""

from __future__ import annotations

from collections.abc import Sequence

from elastic_runtime.coordinator.job import Job
from elastic_runtime.coordinator.state import TaskState
from elastic_runtime.coordinator.tasks import dismiss
from elastic_runtime.protocol.plan import Role


def going(job: Job) -> tuple[str, ...]:
    """Tasks that want to go, and were not told yet that they may."""
    return tuple(task.name for task in job.tasks(None, TaskState.LIVE) if job.reports.of(task.name).draining)


def release_spares(job: Job, needed: Sequence[str] = ()) -> None:
    """Let go at once who has no part in the training; a checkpoint may still need servers without blocks."""
    dismiss(job, [name for name in going(job) if name not in needed and name not in job.released])


def can_do_without(job: Job, role: Role, before: Sequence[str], after: Sequence[str], now: float) -> bool:
    """Whether those who stay, and the replacements that have come, are to take over from those who want to go.

    Another worker can compute any slice, so nobody waits for a new one. A server's blocks would move twice: its
    replacement has some time to come.
    """
    leaving = [name for name in going(job) if name in before]
    waited = [job.timers.passed(f"drain {name}", now, job.settings.replacement_seconds) for name in leaving]
    target, settings = job.state.course.target, job.settings
    if role is Role.WORKER:
        return bool(leaving) and len(after) >= min(target.workers, settings.minimum_workers)
    enough = len(after) >= target.servers or (len(after) >= settings.minimum_servers and all(waited))
    return bool(leaving) and enough
