"""What users get wrong: one clear line at the process that did, the others told, exit codes, no checkpoint lost."""

from pathlib import Path

import pytest
from forks import Forks
from live_job import COORDINATOR, NAME, LiveJob

from elastic_runtime.checkpoint import latest_durable, list_checkpoints
from elastic_runtime.control.client import ControlClient
from elastic_runtime.control.credentials import ClientCredentials
from elastic_runtime.control.messages import RequestOutcome, Size
from elastic_runtime.errors import BadInput
from elastic_runtime.protocol.plan import JobPhase

pytestmark = [pytest.mark.heavy, pytest.mark.timeout(400)]


def failed(job: LiveJob) -> str:
    """Wait for the job's failure and for the end of all its processes; its line."""
    job.allow(job.steps)
    job.until(lambda: job.view.phase in {JobPhase.FAILED, JobPhase.FINISHED}, "the failure")
    assert job.view.phase is JobPhase.FAILED, job.story()
    job.until(lambda: set(job.pids) <= {COORDINATOR}, "the end of all processes")
    return job.view.failure


@pytest.mark.parametrize(
    ("fault", "says", "tries"),
    [
        ("raise", "RuntimeError: this script has a mistake", 2),
        # Another try would end the same.
        ("grow", "parameter 'vectors.0' was float32 [1024] when the model joined the job and is float32 [7]", 1),
    ],
)
def test_a_script_that_keeps_failing_fails_its_job(
    forks: Forks, tmp_path: Path, fault: str, says: str, tries: int
) -> None:
    wrong = {"FAULT": fault, "FAULT_STEP": "20"}
    with LiveJob(forks, tmp_path, workers=1, environment=wrong, restarts=1) as job:
        job.train_until_durable()
        durable = job.status().durable_step
        line = failed(job)
        assert says in line
        assert ("2 tries failed alike at step 20" in line) == (tries > 1)
        assert "\n" not in line
        job.until(lambda: COORDINATOR in job.codes, "the coordinator's end")
        assert job.codes[COORDINATOR] == [1]
        assert [codes for task, codes in job.codes.items() if task.startswith("worker")] == [[3 - tries]] * tries
        assert "the job failed" in job.last_line("ps-0")
        newest = latest_durable(job.checkpoints)
        assert newest is not None
        assert newest.step >= durable


def test_a_script_that_fails_once_is_started_again(forks: Forks, tmp_path: Path) -> None:
    with LiveJob(forks, tmp_path, workers=1) as job:
        job.train_until_durable()
        job.own_environment["worker-1"] = {"FAULT": "raise", "FAULT_STEP": "36"}
        job.resize(1, 2)
        assert job.settle() is RequestOutcome.DONE, job.story()
        job.finish()
        assert job.codes["worker-1"] == [1]
        assert job.view.generation == 1, job.story()


@pytest.mark.parametrize(
    ("environment", "says"),
    [
        ({"TENSORS": "5"}, "worker-1 has another model than its job: "),
        ({"STEPS": "30"}, "worker-1 trains otherwise than its job (here: the task; there: the job): "),
        ({"ELASTIC_TOKEN_FILE": "other"}, f"wrong token for job {NAME}"),
        ({"ELASTIC_JOB": "other"}, "coordinator of job tiny"),
    ],
)
def test_a_resize_to_a_worker_that_does_not_belong_is_given_up_and_the_job_goes_on(
    forks: Forks, tmp_path: Path, environment: dict[str, str], says: str
) -> None:
    (tmp_path / "other").write_text("the-token-of-another-job-altogether")
    (tmp_path / "other").chmod(0o600)
    if "ELASTIC_TOKEN_FILE" in environment:
        environment = {"ELASTIC_TOKEN_FILE": str(tmp_path / "other")}
    with LiveJob(forks, tmp_path, workers=1) as job:
        job.train_until_durable()
        job.own_environment["worker-1"] = environment
        job.resize(1, 2)
        assert job.settle() is RequestOutcome.ABORTED, job.story()
        assert job.codes["worker-1"] == [2]
        assert says in job.last_line("worker-1")
        assert says in job.status().requests[-1].detail
        job.resize(1, 2, "again")
        assert job.settle("again") is RequestOutcome.DONE, job.story()
        assert job.view.generation == 1, job.story()
        job.finish()


def test_a_damaged_checkpoint_is_passed_over_and_no_step_is_lost(forks: Forks, tmp_path: Path) -> None:
    with LiveJob(forks, tmp_path) as job:
        job.train_until_durable()
        job.rest()  # one that is still being completed while the job halts is on the disk, and not counted
        job.until(lambda: job.status().durable_step == job.view.changes[-1].clock, "the newest checkpoint")
        job.suspend()
        assert job.settle("suspend") is RequestOutcome.DONE
        job.until(lambda: set(job.pids) <= {COORDINATOR}, "the end of all tasks")
        (older, _), (newest, folder) = list_checkpoints(job.checkpoints)[-2:]
        shard = next(folder.glob("*.safetensors"))
        shard.write_bytes(shard.read_bytes()[:-1])
        job.resume(2, 2)
        job.until(lambda: job.view.phase is JobPhase.RUNNING and job.view.generation > 1, "the job goes on")
        assert job.view.start_step == older
        assert f"going back to step {older}: {folder.name} is passed over: {shard} has " in job.view.notice
        assert not any(code for codes in job.codes.values() for code in codes), "nobody ended with a failure"
        job.finish()
        assert list_checkpoints(job.checkpoints)[-1][0] > newest


def test_a_resumed_job_takes_no_other_model(forks: Forks, tmp_path: Path) -> None:
    with LiveJob(forks, tmp_path, workers=1) as job:
        job.train_until_durable()
        job.suspend()
        assert job.settle("suspend") is RequestOutcome.DONE
        job.until(lambda: set(job.pids) <= {COORDINATOR}, "the end of all tasks")
        step = job.status().durable_step
        job.environment["TENSORS"] = "5"
        job.resume(2, 1)
        line = failed(job)
        assert "has another model than its job: " in line
        assert "restarts are allowed" not in line, "it was tried once"
        assert list_checkpoints(job.checkpoints)[-1][0] == step


def test_requests_that_cannot_be_are_refused_and_change_nothing(forks: Forks, tmp_path: Path) -> None:
    with LiveJob(forks, tmp_path, minimum_workers=2) as job:
        job.train_until_durable()
        for servers, workers, says in (
            (0, 2, "0 PSs and 2 workers: a job needs both; 0 and 0 suspends it"),
            (1, 0, "1 PS and 0 workers: a job needs both"),
            (1, 1, "below job tiny's minimum of 1 PS and 2 workers"),
            (7, 2, "7 PSs for a model of 6 blocks"),
            (1, 7, "7 workers cannot share a global batch of 6"),
        ):
            with pytest.raises(BadInput, match=says) as raised:
                job.resize(servers, workers)
            assert "\n" not in str(raised.value)
        with pytest.raises(BadInput, match="worker-7 is no task of job tiny"):
            job.client.resize("victims", Size(1, 2), ["worker-7"])
        with (
            ControlClient(job.address, NAME, ClientCredentials("another-token-altogether")) as stranger,
            pytest.raises(BadInput, match="wrong token for job tiny"),
        ):
            stranger.resize("resize", Size(2, 2))
        assert not job.status().requests
        job.finish()
        assert job.view.generation == 1, job.story()
