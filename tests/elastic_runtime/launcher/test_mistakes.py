"""What users get wrong, under the real command: a line where it happened, the others told, an exit code, nobody left.

Bad values of options are in tests/hostile; here are mistakes that show while processes run.
"""

from __future__ import annotations

import contextlib
import io
import json
import resource
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from job_makers import make_job
from real_jobs import RealJob

from elastic_runtime.checkpoint import list_checkpoints
from elastic_runtime.cli import app
from foundation.command_line import run

pytestmark = [pytest.mark.heavy, pytest.mark.timeout(900)]
SCRIPT = Path(__file__).with_name("mistaken_training.py")


class Mistakes:
    """Which worker makes which mistake, from now on."""

    def __init__(self, folder: Path) -> None:
        self._path = folder / "mistakes.json"
        self.are({})

    def are(self, mistakes: dict[str, str]) -> None:
        aside = self._path.with_suffix(".new")
        aside.write_text(json.dumps(mistakes))
        aside.replace(self._path)


@pytest.fixture
def mistakes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Mistakes:
    monkeypatch.setenv("MISTAKES", str(tmp_path / "mistakes.json"))
    return Mistakes(tmp_path)


@pytest.fixture
def job(tmp_path: Path) -> Iterator[RealJob]:
    with RealJob(tmp_path, "first") as job:
        yield job
    job.leaves_nobody()


def ended(job: RealJob) -> tuple[int, str]:
    """Exit code of the launcher, and its last line."""
    code = job.end()
    return code, job.output().splitlines()[-1]


def typed(job: RealJob, command: str, *words: str) -> tuple[int, str]:
    """Type a command in this process, where it need not import everything anew; exit code, and JSON or error's line."""
    out, err = io.StringIO(), io.StringIO()
    line = [command, job.name, "--folder", str(job.folder.parent), *words, "-o", "json"]
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        code = run(app, "elastic-run", line)
    return code, err.getvalue() if code else out.getvalue()


def ask(job: RealJob, command: str, *words: str, code: int = 0) -> Any:
    """What a command prints that ends so."""
    ended, text = typed(job, command, *words)
    assert ended == code, text + job.output()
    return text if code else json.loads(text)


def files(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def refuses_what_cannot_be(job: RealJob) -> None:
    """Requests that are refused, and change nothing."""
    for words, says in (
        (("--ps", "0"), "0 PSs and 2 workers: a job needs both; 0 and 0 suspends it"),
        (("--workers", "0"), "1 PS and 0 workers: a job needs both"),
        (("--workers", "1"), "1 PS and 1 worker is below job first's minimum of 1 PS and 2 workers"),
        (("--ps", "200"), "200 PSs for a model of"),
        (("--workers", "25"), "25 workers cannot share a global batch of 24"),
        (("--workers", "3", "--victim", "worker-9"), "worker-9 is no task of job first"),
    ):
        assert says in ask(job, "resize", *words, code=2)
    token = job.folder / "token"
    right = token.read_text()
    token.write_text("of-another-job-altogether")
    assert "wrong token for job first" in ask(job, "status", code=2)
    token.write_text(right)


def takes_nothing_while_the_disk_is_full(job: RealJob) -> None:
    coordinator = job.pid_of("coordinator")
    resource.prlimit(coordinator, resource.RLIMIT_FSIZE, (1000, resource.RLIM_INFINITY))
    job.steps_on(1)
    same = ("resize", "--workers", "2", "--request-id", "while-full")
    assert "the disk with the coordinator's journal is full: " in ask(job, *same, code=1)
    job.steps_on(1)
    resource.prlimit(coordinator, resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
    job.wait_for("room", lambda _: typed(job, *same)[0] == 0)


def test_a_job_whose_users_make_one_mistake_after_the_other(job: RealJob, mistakes: Mistakes, tmp_path: Path) -> None:
    # After the first checkpoint there is none, however long this takes: failures are to leave all as it is.
    options = ("--ps", "1", "--workers", "2", "--min-workers", "2", "--restarts", "3", "--checkpoint-seconds", "86400")
    job.launch(*options, "--name", job.name, str(SCRIPT))
    job.steps_on(1)
    refuses_what_cannot_be(job)
    takes_nothing_while_the_disk_is_full(job)
    status = job.steps_on(1)
    assert [request["request_id"] for request in status["requests"]] == ["while-full"]
    assert status["generation"] == 1

    mistakes.are({"worker-2": "other-model", "worker-3": "raise"})
    assert "worker-2 has another model than its job: " in ask(job, "resize", "--workers", "3", code=1)
    ask(job, "resize", "--workers", "3")
    status = job.wait_for("a good worker", lambda status: "worker-4" in job.members(status)["worker"])
    assert status["generation"] == 1
    before = files(job.folder / "checkpoints")
    assert before
    mistakes.are({"all": "raise"})
    code, line = ended(job)
    assert code == 1
    assert "RuntimeError: this script has a mistake" in line
    # Alike at one step, unless a worker that was started again came in between.
    assert "all 2 workers failed alike at step " in line or "3 restarts are allowed" in line
    assert "the job failed" in (job.folder / "logs" / "ps-0.log").read_text()
    status = ask(job, "status")
    assert status["phase"] == "failed"
    assert files(job.folder / "checkpoints") == before
    assert f"--restore --checkpoints {job.folder}/checkpoints" in ask(job, "resume", code=2)

    others_do_not_begin_there(job, mistakes, tmp_path)


def others_do_not_begin_there(job: RealJob, mistakes: Mistakes, tmp_path: Path) -> None:
    """A job with another model, and one whose copy of the checkpoints is damaged."""
    checkpoints = tmp_path / "copy"
    shutil.copytree(job.folder / "checkpoints", checkpoints)
    before = files(checkpoints)
    mistakes.are({"worker-0": "other-model"})
    with RealJob(tmp_path, "other") as other:
        other.launch("--restore", "--checkpoints", str(checkpoints), "--name", other.name, str(SCRIPT))
        code, line = ended(other)
        assert code == 1
        assert "worker-0 has another model than the checkpoint to begin from: " in line
        assert "restarts are allowed" not in line, "it was tried once"
        assert files(checkpoints) == before

    for _, folder in list_checkpoints(checkpoints):
        for shard in folder.glob("*.safetensors"):
            content = bytearray(shard.read_bytes())
            content[-100] ^= 1
            shard.write_bytes(content)
    before = files(checkpoints)
    with RealJob(tmp_path, "damaged") as damaged:
        damaged.launch("--restore", "--checkpoints", str(checkpoints), "--name", damaged.name, str(SCRIPT))
        code, line = ended(damaged)
        assert code == 2
        assert f"no checkpoint in {checkpoints} can be used, and nothing was changed there: " in line
        assert "damaged" in line
        assert files(checkpoints) == before
        assert [log.name for log in (damaged.folder / "logs").iterdir()] == ["coordinator.log"]


def test_a_script_that_never_joins_is_refused_and_one_that_could_fails_its_job_at_once(
    job: RealJob, tmp_path: Path
) -> None:
    script = tmp_path / "train.py"
    script.write_text("print('no training here')\n")
    job.launch("--name", job.name, str(script))
    code, line = ended(job)
    assert code == 2
    assert f"{script}: does not import elastic_runtime, so that each worker would train all of it" in line
    assert not job.folder.exists()
    job.launch("--joins-elsewhere", "--name", job.name, str(script))
    code, line = ended(job)
    assert code == 1
    assert "worker-0: its script ended without having joined the job: it has to call elastic_runtime.join" in line


def test_a_script_that_fails_when_its_job_is_done_is_not_taken_for_done(job: RealJob, tmp_path: Path) -> None:
    script = tmp_path / "train.py"
    script.write_text(
        "import torch\n"
        "import elastic_runtime as elastic\n"
        "model = torch.nn.Linear(2, 1)\n"
        "job = elastic.join(model, elastic.SGD(lr=0.1), torch.zeros(8, 2), global_batch=4, epochs=2)\n"
        "for batch in job:\n"
        "    job.step(model(batch.data).square().mean())\n"
        "torch.save(model.state_dict(), 'no/such/folder/model.pt')\n"
    )
    job.launch("--name", job.name, str(script))
    code, line = ended(job)
    assert code == 1
    assert "first is trained, but worker-0 ended with exit code 1: RuntimeError: Parent directory" in line
    assert f"its checkpoints are in {job.folder}/checkpoints" in line
    assert ask(job, "status")["phase"] == "finished"


def test_a_damaged_journal_is_said_at_once_and_left_as_it_is(tmp_path: Path) -> None:
    folder = make_job(tmp_path, "pass")
    journal = folder.journal_folder / "journal"
    journal.write_bytes(b"not what a coordinator writes")
    with RealJob(tmp_path / "jobs", folder.name) as job:
        job.launch("resume", job.name)
        code, line = ended(job)
    assert code == 2
    assert f"the coordinator cannot start: elastic_runtime.coordinator: {journal} holds no coordinator's record" in line
    assert journal.read_bytes() == b"not what a coordinator writes"


def test_who_resumes_a_job_that_fails_then_is_told_at_once(job: RealJob, tmp_path: Path) -> None:
    script = tmp_path / "train.py"
    script.write_text(
        "import pathlib, torch\nimport elastic_runtime as elastic\n"
        "if pathlib.Path(__file__).with_name('broken').exists():\n"
        "    raise RuntimeError('it broke')\n"
        "model = torch.nn.Linear(2, 1)\n"
        "job = elastic.join(model, elastic.SGD(lr=0.1), torch.randn(64, 2), global_batch=8, epochs=100000)\n"
        "for batch in job:\n    job.step(model(batch.data).mean())\n"
    )
    job.launch("--ps", "1", "--workers", "1", "--name", job.name, str(script))
    job.steps_on()
    assert job.ask("suspend")["state"] == "done"
    (tmp_path / "broken").touch()
    said = job.ask("resume", code=1)
    assert f"{job.name} has failed meanwhile: " in said
    assert "it broke" in said
    assert job.end() == 1
