"""SIGTERM, as an evicted container gets it: what it owns and computes goes to others, and nothing is done again."""

import os
import signal
from pathlib import Path

import pytest
from forks import Forks
from live_job import LiveJob

from elastic_runtime.protocol.plan import Timeline

pytestmark = [pytest.mark.heavy, pytest.mark.timeout(400)]


def reported(job: LiveJob, task: str) -> None:
    assert task in job.pids, job.story()
    os.kill(job.pids[task], signal.SIGTERM)


def in_plan(job: LiveJob) -> set[str]:
    if not job.view.generation:
        return set()
    plan = Timeline(job.view).at(2**62)
    return {*plan.workers, *plan.owners}


def training(job: LiveJob, *tasks: str) -> None:
    job.until(lambda: job.allow_changes(moves=True) or in_plan(job) == set(tasks), f"{tasks} at work")


def test_a_server_and_a_worker_go_and_the_job_goes_on_as_if_nothing_were(forks: Forks, tmp_path: Path) -> None:
    with LiveJob(forks, tmp_path, servers=2, workers=2) as job:
        ready = {task: tmp_path / f"{task}.ready" for task in ("ps-2", "worker-2")}
        for task, path in ready.items():
            job.own_environment[task] = {"ELASTIC_READY_FILE": str(path)}
        job.train_until_durable()
        reported(job, "ps-0")
        reported(job, "worker-0")
        training(job, "ps-1", "ps-2", "worker-1", "worker-2")
        assert all(path.exists() for path in ready.values())
        job.until(lambda: job.allow_changes(moves=True) or {"ps-0", "worker-0"} <= set(job.codes), "their ends")
        job.finish()
        assert {view.generation for view in job.views if view.generation} == {1}
        assert {code for task, codes in job.codes.items() if task != "coordinator" for code in codes} == {0}
        assert not any(path.exists() for path in ready.values())


@pytest.mark.parametrize("way", ["again", "grace"])
def test_a_worker_that_is_not_let_go_in_time_ends_as_a_dead_one(forks: Forks, tmp_path: Path, way: str) -> None:
    environment = {} if way == "again" else {"ELASTIC_GRACE_SECONDS": "0.1"}
    with LiveJob(forks, tmp_path, environment=environment) as job:
        job.train_until_durable()
        reported(job, "worker-1")
        # It cannot leave, as nobody is let come to a change's clock.
        job.until(
            lambda: "drain-requested" in job.log("worker-1").read_text(errors="replace"), "the first signal's effect"
        )
        if way == "again":
            reported(job, "worker-1")
        job.until(lambda: "worker-1" in job.codes, "its end")
        assert job.codes["worker-1"] == [-signal.SIGTERM]
        training(job, "ps-0", "worker-0", "worker-2")
        job.finish()
        assert job.view.generation == 1


def test_a_server_that_nobody_relieves_ends_and_the_job_goes_back(forks: Forks, tmp_path: Path) -> None:
    with LiveJob(forks, tmp_path, environment={"ELASTIC_GRACE_SECONDS": "0.2"}) as job:
        job.train_until_durable()
        job.held.add("ps")
        reported(job, "ps-0")
        job.until(lambda: "ps-0" in job.codes, "its end")
        assert job.codes["ps-0"] == [0]
        assert "drain-expired" in job.log("ps-0").read_text()
        job.held.clear()
        training(job, "ps-1", "worker-0", "worker-1")
        job.finish()
        assert job.view.generation == 2


def test_a_server_that_waits_for_its_job_to_begin_just_ends(forks: Forks, tmp_path: Path) -> None:
    with LiveJob(forks, tmp_path, held=["worker"]) as job:
        job.until(lambda: job.view.member("ps-0"), "a registered server")
        reported(job, "ps-0")
        job.until(lambda: "ps-0" in job.codes, "its end")
        assert job.codes["ps-0"] == [0]
        job.held.clear()
        job.until(lambda: job.view.generation, "the beginning")
        job.finish()
