"""How training stops: the job is done, is suspended, or restarts with other tasks. Each begins with a halt.

All workers stop at one step, the servers write it, and once that is durable the tasks may go.
"""

from __future__ import annotations

from elastic_runtime.control.messages import RequestOutcome, Size
from elastic_runtime.coordinator import requests
from elastic_runtime.coordinator.assembly import fail
from elastic_runtime.coordinator.changes import propose
from elastic_runtime.coordinator.checkpointing import durable_step
from elastic_runtime.coordinator.job import Job
from elastic_runtime.coordinator.state import Purpose, TaskState
from elastic_runtime.coordinator.tasks import dismiss, recover, unwant
from elastic_runtime.plan import Phase

_TRIES = 3


def propose_end(job: Job) -> None:
    """All workers have finished: halt where they are, with a last checkpoint, if there is none of this step."""
    if durable_step(job) >= job.newest_step(job.working()):
        finish(job)
    else:
        propose(job, Purpose.FINISH, checkpoint=True, halt=True)


def end_halt(job: Job) -> bool:
    """If the job was halted: go on to what it was halted for, once its checkpoint is durable."""
    halt = next((change for change in reversed(job.state.generation.changes) if change.halt), None)
    if halt is None:
        return False
    if job.state.checkpoints.pending is not None:
        return True
    purpose = job.state.generation.purpose
    if durable_step(job) >= halt.clock:
        job.halt_tries = 0
        if purpose is Purpose.FINISH or all(job.report(name).finished for name in job.working()):
            finish(job)
        elif purpose is Purpose.SUSPEND:
            suspended(job)
        else:
            _restart(job)
        return True
    job.halt_tries += 1
    if job.halt_tries < _TRIES:
        propose(job, purpose, checkpoint=True, halt=True)
        return True
    job.halt_tries = 0
    line = f"the checkpoint at step {halt.clock} could not be written; the one at step {durable_step(job)} stands"
    if purpose is Purpose.FINISH:
        fail(job, line)
        return True
    running = requests.running(job)
    if running is not None:
        requests.end(job, running, RequestOutcome.ABORTED, line)
    job.course(target=job.state.course.settled)
    recover(job)
    return True


def finish(job: Job) -> None:
    """All is done and durable."""
    job.course(phase=Phase.FINISHED)
    requests.abort_all(job, "the job has finished")
    unwant(job, [task.name for task in job.tasks(None, TaskState.WANTED)])


def suspended(job: Job) -> None:
    """All tasks may go; the job waits for a resume."""
    dismiss(job, [task.name for task in job.tasks(None, TaskState.LIVE, TaskState.WANTED)])
    job.course(phase=Phase.SUSPENDED, target=Size(0, 0), formed=False, initialiser="")
    running = requests.running(job)
    if running is not None:
        if running.kind == "suspend":
            requests.end(job, running, RequestOutcome.DONE, "")
        else:
            requests.end(job, running, RequestOutcome.ABORTED, "the job was suspended")


def _restart(job: Job) -> None:
    """The mode checkpoint-restart: all tasks end, and as many as were asked for are started."""
    dismiss(job, [task.name for task in job.tasks(None, TaskState.LIVE, TaskState.WANTED)])
    job.course(phase=Phase.STARTING, formed=False)
    job.timers.clear("start", "gather")
