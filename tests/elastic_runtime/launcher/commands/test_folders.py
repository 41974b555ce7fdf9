"""What a job's processes wrote is shown, by process, to its end and as it grows; a job that does not run is removed."""

import json
import os
from collections.abc import Callable
from pathlib import Path

import click
import pytest
from job_makers import make_job

from elastic_runtime.cli import app
from elastic_runtime.launcher.commands import folders
from elastic_runtime.launcher.commands.options import names_that_begin
from elastic_runtime.launcher.job_folder import JobFolder, JobLock, write_json
from elastic_runtime.launcher.job_spec import spec_of
from foundation.command_line import run

Typed = Callable[..., tuple[int, str, str]]


@pytest.fixture
def typed(tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Typed:
    """Types a command in this process: exit code, stdout, stderr."""
    monkeypatch.setenv("ELASTIC_JOBS", str(tmp_path / "jobs"))
    monkeypatch.setenv("COLUMNS", "200")

    def type_(*words: str) -> tuple[int, str, str]:
        capsys.readouterr()
        code = run(app, "elastic-run", list(words))
        said = capsys.readouterr()
        return code, said.out, said.err

    return type_


@pytest.fixture
def job(tmp_path: Path) -> JobFolder:
    job = make_job(tmp_path, "pass")
    job.log_file("ps-0").write_text("ready\n", encoding="utf-8")
    job.log_file("worker-0").write_text("".join(f"step {number}\n" for number in range(5)) + "half", encoding="utf-8")
    job.log_file("worker-1").write_text("step 0\n", encoding="utf-8")
    return job


def test_every_process_is_shown_behind_its_name_and_one_alone_without(typed: Typed, job: JobFolder) -> None:
    _, out, _ = typed("logs", job.name)
    first = ["ps-0 | ready", *(f"worker-0 | step {number}" for number in range(5)), "worker-0 | half"]
    assert out.splitlines() == [*first, "worker-1 | step 0"]
    assert typed("logs", job.name, "--rank", "1") == (0, "step 0\n", "")
    assert typed("logs", job.name, "--task", "ps-0") == (0, "ready\n", "")


def test_only_the_last_lines_of_each_are_shown_where_the_log_was_begun_anew_too(typed: Typed, job: JobFolder) -> None:
    assert typed("logs", job.name, "--rank", "0", "--tail", "2") == (0, "step 4\nhalf\n", "")
    log = job.log_file("worker-1")
    log.replace(log.with_name(f"{log.name}.1"))
    log.write_text("step 1\n", encoding="utf-8")
    assert typed("logs", job.name, "--rank", "1") == (0, "step 0\nstep 1\n", "")
    _, out, _ = typed("logs", job.name, "--tail", "1")
    assert out == "ps-0 | ready\nworker-0 | half\nworker-1 | step 1\n"


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["--rank", "7"], "train-1: there is no log of 'worker-7'; there are ps-0, worker-0, worker-1"),
        (["--task", "../job"], "train-1: there is no log of '../job'; there are ps-0, worker-0, worker-1"),
        (["--task", ""], "train-1: there is no log of ''; there are ps-0, worker-0, worker-1"),
        (["--rank", "0", "--task", "ps-0"], "--rank and --task do not go together: --rank 0 is --task worker-0"),
    ],
)
def test_who_is_not_there_is_said_in_a_line(typed: Typed, job: JobFolder, words: list[str], says: str) -> None:
    assert typed("logs", job.name, *words) == (2, "", f"elastic-run: {says}\n")


def test_a_job_that_has_written_nothing_says_so(typed: Typed, tmp_path: Path) -> None:
    job = make_job(tmp_path, "pass")
    says = f"elastic-run: {job.name}: nothing of it has written anything yet\n"
    assert typed("logs", job.name) == typed("logs", job.name, "-f") == (2, "", says)


def test_followed_lines_come_as_they_are_written_until_nothing_of_the_job_runs(
    typed: Typed, job: JobFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever happens between two looks happens in their sleep."""
    lock = JobLock(job.path)

    def more() -> None:
        with job.log_file("worker-0").open("a", encoding="utf-8") as log:
            log.write(" a line\nnext\n")
        job.log_file("worker-2").write_text("begins\n", encoding="utf-8")

    def last_words() -> None:
        with job.log_file("worker-0").open("a", encoding="utf-8") as log:
            log.write("no end")
        lock.release()

    looks = iter([more, last_words])
    monkeypatch.setattr(folders.time, "sleep", lambda _: next(looks)())
    code, out, err = typed("logs", job.name, "--follow", "--tail", "1")
    assert (code, err) == (0, "")
    assert out.splitlines() == [
        *("ps-0 | ready", "worker-0 | step 4", "worker-1 | step 0"),
        *("worker-0 | half a line", "worker-0 | next", "worker-2 | begins"),
        "worker-0 | no end",
    ]
    assert next(looks, None) is None


def test_a_job_that_failed_while_it_was_followed_is_exit_code_1(typed: Typed, job: JobFolder) -> None:
    write_json(job.state_file, {"phase": "failed"})
    code, out, err = typed("logs", job.name, "-f")
    assert (code, out.count("\n")) == (1, 8)
    assert err == "elastic-run: train-1 has failed; `elastic-run status train-1` says what is known of it\n"
    assert typed("logs", job.name)[0] == 0


def test_a_job_that_runs_is_not_deleted(typed: Typed, job: JobFolder) -> None:
    with JobLock(job.path):
        says = "elastic-run: train-1 runs; end it first with `elastic-run stop train-1`, then delete it\n"
        assert typed("delete", job.name) == (2, "", says)
    assert job.record_file.exists()
    assert job.log_file("ps-0").exists()


def test_a_job_is_deleted_with_all_that_is_in_its_folder(typed: Typed, job: JobFolder) -> None:
    job.checkpoint_folder.mkdir()
    (job.checkpoint_folder / "step-7").write_bytes(b"x")
    assert typed("delete", job.name) == (0, "train-1 is deleted\n", "")
    assert list(job.path.parent.iterdir()) == []
    assert typed("delete", job.name)[0] == 2


def test_checkpoints_elsewhere_stay_and_are_named(typed: Typed, tmp_path: Path, job: JobFolder) -> None:
    (elsewhere := tmp_path / "kept").mkdir()
    (elsewhere / "step-7").write_bytes(b"x")
    spec = spec_of({**job.record(), "checkpoints": str(elsewhere)}, job.record_file)
    write_json(job.record_file, {"name": job.name, **spec.record()})
    assert typed("delete", job.name) == (0, f"train-1 is deleted; its checkpoints in {elsewhere} stay\n", "")
    assert (elsewhere / "step-7").exists()


def test_a_job_is_kept_while_anothers_checkpoints_lie_there(typed: Typed, tmp_path: Path, job: JobFolder) -> None:
    job.checkpoint_folder.mkdir()
    heir = make_job(tmp_path, "pass")
    spec = spec_of({**heir.record(), "checkpoints": str(job.checkpoint_folder)}, heir.record_file)
    write_json(heir.record_file, {"name": heir.name, **spec.record()})
    code, _, err = typed("delete", job.name)
    assert (code, err.count("\n"), f"job {heir.name} keeps or takes checkpoints in it" in err) == (2, 1, True)
    assert job.checkpoint_folder.is_dir()
    assert typed("delete", heir.name)[0] == 0
    assert typed("delete", job.name)[0] == 0


def test_what_a_killed_deletion_has_left_goes_with_the_next_one(typed: Typed, job: JobFolder) -> None:
    left = job.path.with_name(".deleted-old-1234")
    (left / "checkpoints").mkdir(parents=True)
    assert typed("delete", job.name)[0] == 0
    assert list(job.path.parent.iterdir()) == []


def test_a_job_whose_record_is_damaged_is_deleted_too(typed: Typed, job: JobFolder) -> None:
    job.record_file.write_text("{", encoding="utf-8")
    assert typed("delete", job.name) == (0, "train-1 is deleted\n", "")


def test_a_link_to_another_folder_is_left_alone(typed: Typed, tmp_path: Path, job: JobFolder) -> None:
    moved = tmp_path / "moved"
    job.path.rename(moved)
    job.path.symlink_to(moved)
    code, _, err = typed("delete", job.name)
    assert (code, "is a link to another folder" in err) == (2, True)
    assert (moved / "job.json").exists()


@pytest.mark.skipif(os.geteuid() == 0, reason="the superuser may remove everything")
def test_a_folder_that_cannot_be_removed_is_said_in_a_line(typed: Typed, job: JobFolder) -> None:
    job.path.parent.chmod(0o500)
    try:
        code, _, err = typed("delete", job.name)
    finally:
        job.path.parent.chmod(0o700)
    assert (code, "cannot be removed" in err, err.count("\n")) == (2, True, 1)


def test_several_jobs_are_deleted_at_once_and_a_name_that_is_none_removes_nobody(typed: Typed, tmp_path: Path) -> None:
    jobs = [make_job(tmp_path, "pass") for _ in range(3)]
    names = [job.name for job in jobs]
    code, _, err = typed("delete", names[0], "nobody")
    assert code == 2
    assert "nobody: no such job" in err
    assert all(job.path.exists() for job in jobs)
    assert typed("delete", names[0], names[1], names[0]) == (0, f"{names[0]} is deleted\n{names[1]} is deleted\n", "")
    assert [job.path.exists() for job in jobs] == [False, False, True]
    code, out, _ = typed("delete", names[2], "-o", "json")
    assert (code, json.loads(out)["job"]) == (0, names[2])


def test_names_are_completed_for_the_shell(typed: Typed, tmp_path: Path) -> None:
    del typed  # it says where jobs are
    name = make_job(tmp_path, "pass").name
    context = click.Context(click.Command("status"))
    assert names_that_begin(context, name[:3]) == [name]
    assert names_that_begin(context, "other") == []
    context.params["folder"] = tmp_path / "none"
    assert names_that_begin(context, name[:3]) == []
