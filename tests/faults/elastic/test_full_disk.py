"""Disks that are full, under the checkpoints of a server and under the coordinator: training goes on."""

import resource
from pathlib import Path

import pytest
from forks import Forks
from live_job import COORDINATOR, NEVER_SECONDS, LiveJob

from elastic_runtime.checkpoint import list_checkpoints
from elastic_runtime.errors import ResizeFailed

pytestmark = [pytest.mark.heavy, pytest.mark.timeout(400)]


def files_may_grow_to(job: LiveJob, task: str, size_bytes: int) -> None:
    resource.prlimit(job.pids[task], resource.RLIMIT_FSIZE, (size_bytes, resource.RLIM_INFINITY))


def gives_up(job: LiveJob) -> bool:
    return "checkpoint-given-up" in job.log(COORDINATOR).read_text(errors="replace")


def test_a_server_that_cannot_write_its_part_of_a_checkpoint(forks: Forks, tmp_path: Path) -> None:
    with LiveJob(forks, tmp_path) as job:
        job.train_until_durable()
        job.more_checkpoints()
        durable = job.status().durable_step
        files_may_grow_to(job, "ps-0", 2000)
        job.until(lambda: job.allow_changes() or "checkpoint-shard-failed" in job.log("ps-0").read_text(), "a failure")
        job.until(lambda: job.allow_changes() or job.status().step > durable, "progress")
        assert job.status().durable_step == durable
        job.held.add("ps")
        job.kill("ps-0")  # back to the checkpoint that there is
        assert list_checkpoints(job.checkpoints)[-1][0] == durable
        job.held.clear()
        job.finish()
        assert job.view.generation == 2
        assert job.view.start_step == durable


def test_there_is_room_again(forks: Forks, tmp_path: Path) -> None:
    with LiveJob(forks, tmp_path) as job:
        job.train_until_durable()
        job.more_checkpoints()
        durable = job.status().durable_step
        files_may_grow_to(job, "ps-0", 2000)
        job.until(lambda: job.allow_changes() or "checkpoint-shard-failed" in job.log("ps-0").read_text(), "a failure")
        files_may_grow_to(job, "ps-0", resource.RLIM_INFINITY)
        job.adjust(checkpoint_write_seconds=0.1)
        job.until(lambda: job.allow_changes() or gives_up(job), "a checkpoint that is given up")
        job.adjust(checkpoint_write_seconds=NEVER_SECONDS)
        job.until(lambda: job.allow_changes() or job.status().durable_step > durable, "the next checkpoint")
        job.finish()
        assert job.view.generation == 1, job.story()


def test_a_coordinator_that_cannot_write_takes_no_requests_until_there_is_room(forks: Forks, tmp_path: Path) -> None:
    with LiveJob(forks, tmp_path) as job:
        job.train_until_durable()
        job.more_checkpoints()
        files_may_grow_to(job, COORDINATOR, 1000)

        def refused() -> bool:
            job.allow_changes()
            try:
                job.resize(2, 2)
            except ResizeFailed as error:
                return "journal is full" in str(error)
            return False

        job.until(refused, "a refusal")
        step = job.status().step
        job.allow(job.limit + 5)
        job.until(lambda: job.allow_changes() or job.status().step > step, "progress")
        files_may_grow_to(job, COORDINATOR, resource.RLIM_INFINITY)
        job.until(lambda: not refused(), "room")
        job.settle()
        job.finish()
        assert job.view.generation == 1, job.story()
