"""Every process of a job killed at every state of a resize, and in steady state: the numbers stay the same."""

from pathlib import Path

import pytest
from forks import Forks
from live_job import LiveJob
from resize_states import STATES

from elastic_runtime.control.messages import RequestOutcome, Size

pytestmark = [pytest.mark.heavy, pytest.mark.timeout(400)]


NO_NEW_SERVER = {"steady", "registration"}


def test_what_an_undisturbed_job_computes_is_what_it_is_compared_with(forks: Forks, tmp_path: Path) -> None:
    with LiveJob(forks, tmp_path) as job:
        job.finish()
        assert job.view.generation == 1, job.story()


@pytest.mark.parametrize(
    ("victim", "state"),
    [
        (victim, state)
        for victim in ("ps-0", "ps-1", "worker-1", "coordinator")
        for state in STATES
        if victim != "ps-1" or state not in NO_NEW_SERVER
    ],
)
def test_a_resize_survives(forks: Forks, tmp_path: Path, victim: str, state: str) -> None:
    with LiveJob(forks, tmp_path, wired="worker-0") as job:
        job.train_until_durable()
        durable = job.status().durable_step
        STATES[state](job)
        job.kill(victim)
        for task in ("worker-0", "ps-1"):
            job.go_on(task)
        job.wire.mend()
        job.held.clear()
        if state != "steady":
            assert job.settle() is RequestOutcome.DONE, job.story()
            assert job.status().target == Size(2, 2)
        assert job.status().durable_step >= durable
        job.finish()
        loses_blocks = victim == "ps-0" or (victim == "ps-1" and state not in {"proposal", *NO_NEW_SERVER})
        assert job.view.generation == (2 if loses_blocks else 1)


def test_checkpoints_are_written_while_a_resize_waits_for_its_tasks(forks: Forks, tmp_path: Path) -> None:
    with LiveJob(forks, tmp_path) as job:
        job.train_until_durable()
        durable = job.status().durable_step
        STATES["registration"](job)
        job.more_checkpoints()
        job.until(lambda: job.allow_changes() or job.status().durable_step > durable, "a later durable step")
        job.no_more_checkpoints()
        job.held.clear()
        assert job.settle() is RequestOutcome.DONE
