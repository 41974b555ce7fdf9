"""Asynchronous training: SIGTERM lets a task go with no update lost or done twice; a death meanwhile is a death."""

import os
import signal
from pathlib import Path

import pytest
from forks import Forks
from live_job import COORDINATOR, LiveJob
from more_resizes import plan_of
from test_asynchronous_killed import finish, trickle

from elastic_runtime.control.messages import RequestOutcome, Size

pytestmark = [pytest.mark.heavy, pytest.mark.timeout(400)]
STEPS = 360


def reported(job: LiveJob, task: str) -> None:
    os.kill(job.pids[task], signal.SIGTERM)


def drains(job: LiveJob, task: str) -> bool:
    """Whether the coordinator knows that a task was told to go."""
    return f'"task": "{task}", "event": "task-draining"' in job.log(COORDINATOR).read_text(errors="replace")


def test_who_is_told_to_go_goes_and_no_update_is_lost_or_done_twice(forks: Forks, tmp_path: Path) -> None:
    with LiveJob(forks, tmp_path, servers=2, steps=STEPS, environment={"ASYNCHRONOUS": "1"}) as job:
        trickle(job, lambda: job.status().durable_step > 0, "a durable step")
        reported(job, "ps-0")
        reported(job, "worker-0")
        job.resize(2, 3)  # which waits its turn
        trickle(job, lambda: {"ps-0", "worker-0"} <= set(job.codes), "their ends")
        trickle(job, lambda: job.outcome() is RequestOutcome.DONE, "the resize")
        assert set(finish(job)) == {STEPS}
        assert job.view.generation == 1, job.story()
        assert {code for task, codes in job.codes.items() if task != COORDINATOR for code in codes} == {0}


def test_whoever_is_killed_while_somebody_is_let_go(forks: Forks, tmp_path: Path) -> None:
    with LiveJob(forks, tmp_path, servers=2, steps=STEPS, environment={"ASYNCHRONOUS": "1"}) as job:
        trickle(job, lambda: job.status().durable_step > 0, "a durable step")
        job.resize(2, 3)
        trickle(job, lambda: len(set(plan_of(job).workers)) == 3, "three workers")
        for worker, victim in (("worker-0", "worker-0"), ("worker-1", COORDINATOR)):
            reported(job, worker)
            trickle(job, lambda: drains(job, worker) or worker not in job.pids, "a worker that is let go")  # noqa: B023
            if victim in job.pids:
                job.kill(victim, may_have_ended=True)
            trickle(job, lambda: worker in job.codes, "its end")  # noqa: B023
        assert job.view.generation == 1, job.story()
        job.held.add("ps")  # without another one it cannot be let go
        reported(job, "ps-0")
        trickle(job, lambda: drains(job, "ps-0"), "a server that is to be let go")
        job.kill("ps-0")
        job.held.clear()
        trickle(job, lambda: job.view.generation == 2 and job.status().size == Size(2, 3), "all that it is to have")
        assert min(finish(job)) >= STEPS
