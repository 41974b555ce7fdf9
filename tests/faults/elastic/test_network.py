"""The network between a job's processes breaks, stalls or is slow; a process hangs: training waits, or goes back."""

from pathlib import Path

import pytest
from forks import Forks
from live_job import COORDINATOR, NEVER_SECONDS, LiveJob
from resize_states import STATES, moving

from elastic_runtime.control.messages import RequestOutcome
from elastic_runtime.protocol.plan import JobPhase

pytestmark = [pytest.mark.heavy, pytest.mark.timeout(400)]


def stand_for(job: LiveJob, seconds: float) -> None:
    """Let time pass while nothing can be done."""
    began = job.now()
    job.until(lambda: job.now() - began >= seconds)


def is_lost(job: LiveJob, task: str) -> None:
    """A task that is silent is taken for dead; so may be, on a busy machine, others while that is waited for."""
    job.adjust(lost_seconds=0.8, silent_seconds=1.0)
    job.until(lambda: job.view.member(task) is None, "the loss")
    job.adjust(lost_seconds=NEVER_SECONDS, silent_seconds=NEVER_SECONDS)


def log_of_coordinator(job: LiveJob) -> str:
    return job.log(COORDINATOR).read_text(errors="replace")


@pytest.mark.parametrize("fault", ["cut", "stall"])
@pytest.mark.parametrize("state", ["steady", "committed"])
def test_data_that_does_not_get_through_is_sent_again(forks: Forks, tmp_path: Path, fault: str, state: str) -> None:
    with LiveJob(forks, tmp_path, apart="ps-0") as job:
        job.train_until_durable()
        STATES[state](job)
        job.stand()
        getattr(job.data_wire, fault)()
        stands_at = job.limit
        job.allow(stands_at + 3)
        stand_for(job, 0.7)
        assert job.status().step == stands_at
        job.data_wire.mend()
        if state != "steady":
            assert job.settle() is RequestOutcome.DONE, job.story()
        job.finish()
        assert job.view.generation == 1, job.story()


def test_blocks_that_move_over_a_broken_network_arrive_when_it_is_mended(forks: Forks, tmp_path: Path) -> None:
    with LiveJob(forks, tmp_path) as job:
        job.train_until_durable()
        wire = job.between("ps-1")
        STATES["confirmed"](job)
        change = moving(job)
        assert change is not None
        wire.cut()
        job.allow(change.clock + len(change.stages) + 1)
        job.until(lambda: job.begun(change.clock), "the clock")
        stand_for(job, 0.5)
        assert job.view.committed < change.number
        wire.mend()
        assert job.settle() is RequestOutcome.DONE, job.story()
        job.finish()
        assert job.view.generation == 1, job.story()


def test_a_server_that_no_worker_reaches_is_given_up(forks: Forks, tmp_path: Path) -> None:
    with LiveJob(forks, tmp_path, apart="ps-0", environment={"SUSPECTS_AFTER_SECONDS": "0.5"}) as job:
        job.train_until_durable()
        job.data_wire.cut()
        job.allow(job.limit + 3)
        job.adjust(suspect_seconds=0.5)
        job.until(lambda: job.view.member("ps-0") is None, "the loss")
        job.adjust(suspect_seconds=NEVER_SECONDS)
        job.until(lambda: job.view.generation > 1 and job.view.phase is JobPhase.RUNNING, "a new generation")
        job.finish()
        assert job.codes["ps-0"] == [1]
        assert "took ps-0 for dead" in job.last_line("ps-0")


def test_a_worker_whose_pushes_reach_no_server_is_given_up_and_no_step_is_lost(forks: Forks, tmp_path: Path) -> None:
    environment = {"SUSPECTS_AFTER_SECONDS": "0.5", "UNHEARD_FROM_STEP": "worker-1 8"}
    with LiveJob(forks, tmp_path, servers=2, limit=12, environment=environment) as job:
        # Until the servers' word has come everything looks as if no server could be reached.
        job.until(lambda: '"task": "worker-1", "event": "task-suspected"' in log_of_coordinator(job), "the suspicion")
        job.adjust(suspect_seconds=0.1)
        job.until(lambda: "worker-1" in job.codes, "its end")
        job.adjust(suspect_seconds=NEVER_SECONDS)
        assert job.codes["worker-1"] == [1]
        assert "took worker-1 for dead" in job.last_line("worker-1")
        job.start("worker-1")  # as containers are started again
        job.until(lambda: len(job.codes["worker-1"]) == 2, "its second end")
        assert job.codes["worker-1"] == [1, 0]
        job.finish()
        assert job.view.generation == 1, job.story()


@pytest.mark.parametrize("fault", ["cut", "stall"])
@pytest.mark.parametrize("state", ["registration", "confirmed"])
def test_control_that_is_lost_for_a_while_costs_nothing(forks: Forks, tmp_path: Path, fault: str, state: str) -> None:
    with LiveJob(forks, tmp_path, wired="worker-0") as job:
        job.train_until_durable()
        STATES[state](job)
        getattr(job.wire, fault)()
        job.held.clear()
        job.allow(job.limit + 3)
        stand_for(job, 0.7)
        job.wire.mend()
        assert job.settle() is RequestOutcome.DONE, job.story()
        job.finish()
        assert job.view.generation == 1, job.story()
        assert "worker-2" not in {*job.pids, *job.codes}


@pytest.mark.parametrize("task", ["worker-0", "ps-0"])
def test_who_is_not_heard_of_for_long_is_replaced_and_ends_when_it_learns_that(
    forks: Forks, tmp_path: Path, task: str
) -> None:
    with LiveJob(forks, tmp_path, wired=task) as job:
        job.train_until_durable()
        job.wire.cut()
        is_lost(job, task)
        job.until(lambda: job.allow_changes(moves=True) or job.view.phase is JobPhase.RUNNING, "its replacement")
        job.wire.mend()
        job.allow(job.limit + 3)  # a script learns it at the end of its step
        job.until(lambda: task in job.codes, "its end")
        assert job.codes[task] == [1]
        assert f"took {task} for dead" in job.last_line(task)
        job.finish()


@pytest.mark.parametrize("task", ["worker-1", "ps-0"])
def test_a_process_that_hangs_is_replaced(forks: Forks, tmp_path: Path, task: str) -> None:
    with LiveJob(forks, tmp_path) as job:
        job.train_until_durable()
        job.pause(task)
        is_lost(job, task)
        job.until(lambda: job.allow_changes(moves=True) or job.view.phase is JobPhase.RUNNING, "its replacement")
        job.go_on(task)
        job.allow(job.limit + 3)  # a script learns it at the end of its step
        job.until(lambda: task in job.codes, "its end")
        assert f"took {task} for dead" in job.last_line(task)
        job.finish()


def test_a_slow_server_makes_the_training_slow_and_nothing_else(forks: Forks, tmp_path: Path) -> None:
    with LiveJob(forks, tmp_path, apart="ps-0", steps=30) as job:
        job.train_until_durable()
        job.data_wire.slow(0.01)
        job.resize(2, 2)
        assert job.settle() is RequestOutcome.DONE, job.story()
        job.finish()
        assert job.view.generation == 1, job.story()
