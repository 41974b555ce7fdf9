"""How training stops: the job is done, is suspended, or restarts with other tasks. Each begins with a halt.

All workers stop at one step, the servers write it, and once that is durable the tasks may go.
"""

from __future__ import annotations

from elastic_runtime.control.messages import RequestOutcome
from elastic_runtime.coordinator import requests
from elastic_runtime.coordinator.assembly import fail, sleep
from elastic_runtime.coordinator.changes import close, write_again
from elastic_runtime.coordinator.checkpointing import durable_step
from elastic_runtime.coordinator.job import Job
from elastic_runtime.coordinator.state import Purpose, TaskState
from elastic_runtime.coordinator.tasks import dismiss, recover, unwant
from elastic_runtime.protocol.plan import Change, Phase

_TRIES = 3


def end(job: Job, now: float) -> None:
    """All steps are applied: write the last checkpoint, wait for the workers that still take the values, finish."""
    halt = job.halt()
    if halt is None:
        close(job, now)
        return
    if job.state.checkpoints.pending is not None:
        return
    if durable_step(job) < halt.clock:
        if not write_again(job, halt, now):
            _retry(job, halt)
    elif all(job.report(name).finished for name in job.working()) or job.timers.passed(
        "ending", now, job.settings.leave_seconds
    ):
        finish(job)


def end_halt(job: Job, now: float) -> bool:
    """If the job was halted: go on to what it was halted for, once its checkpoint is durable."""
    halt = job.halt()
    if halt is None:
        return False
    if job.state.checkpoints.pending is not None:
        return True
    if durable_step(job) < halt.clock:
        if not write_again(job, halt, now):
            _retry(job, halt)
        return True
    job.halt_tries = 0
    if job.state.generation.purpose is Purpose.RESTART:
        _restart(job)
    else:
        sleep(job, "the job was suspended")
    return True


def _retry(job: Job, halt: Change) -> None:
    """The checkpoint of a halt was not written: go back to the one before, and come here again; not for ever."""
    job.halt_tries += 1
    if job.halt_tries >= _TRIES:
        job.halt_tries = 0
        line = f"the checkpoint at step {halt.clock} could not be written; the one at step {durable_step(job)} stands"
        if job.state.generation.purpose is Purpose.FINISH:
            fail(job, line)
            return
        running = requests.running(job)
        if running is not None:
            requests.end(job, running, RequestOutcome.ABORTED, line)
        job.course(target=job.state.course.settled)
    recover(job)


def finish(job: Job) -> None:
    """All is done and durable."""
    job.course(phase=Phase.FINISHED)
    requests.abort_all(job, "the job has finished")
    unwant(job, [task.name for task in job.tasks(None, TaskState.WANTED)])


def _restart(job: Job) -> None:
    """The mode checkpoint-restart: all tasks end, and as many as were asked for are started."""
    dismiss(job, [task.name for task in job.tasks(None, TaskState.LIVE, TaskState.WANTED)])
    job.course(phase=Phase.STARTING, formed=False)
    job.timers.clear("start", "gather")
