"""A job's folder: private, named, found again; and owned by one launcher."""

import os
import stat
from pathlib import Path

import pytest
from job_makers import make_job

from elastic_runtime.errors import BadInput
from elastic_runtime.launcher.commands.launch_checks import check_script
from elastic_runtime.launcher.job_folder import (
    LOCK_FILE,
    JobBusy,
    JobLock,
    NoSuchJob,
    all_jobs,
    create,
    holder_of,
    jobs_folder,
    open_job,
    read_json,
    write_json,
)
from elastic_runtime.launcher.job_spec import spec_of

SCRIPT = Path("My Net.py")


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def test_names_come_from_the_script_and_a_counter(tmp_path: Path) -> None:
    names = [create(tmp_path, None, SCRIPT, {}).name for _ in range(3)]
    assert names == ["my-net-1", "my-net-2", "my-net-3"]
    assert create(tmp_path, None, Path("!.py"), {}).name == "job-1"
    assert {job.name for job in all_jobs(tmp_path)} == {*names, "job-1"}


def test_jobs_are_told_in_the_order_of_their_making_whatever_the_clock_says_of_it(tmp_path: Path) -> None:
    jobs = [create(tmp_path, None, SCRIPT, {}) for _ in range(12)]
    for job in jobs:
        os.utime(job.record_file, ns=(10**18, 10**18))  # all within one tick
    assert [job.name for job in all_jobs(tmp_path)] == [job.name for job in jobs]
    os.utime(jobs[7].record_file, ns=(10**18 - 1, 10**18 - 1))
    assert next(iter(all_jobs(tmp_path))).name == jobs[7].name


@pytest.mark.parametrize("umask", [0o000, 0o077])
def test_nobody_else_may_look_into_it(tmp_path: Path, umask: int) -> None:
    before = os.umask(umask)
    try:
        job = create(tmp_path / "jobs", None, SCRIPT, {})
        write_json(job.state_file, {"step": 1})
    finally:
        os.umask(before)
    assert mode(job.path) == 0o700
    assert mode(job.token_file) == mode(job.state_file) == mode(job.record_file) == 0o600
    assert len(job.token()) >= 32
    assert job.token() != create(tmp_path / "jobs", None, SCRIPT, {}).token()


def test_a_name_that_is_taken_or_is_none_is_refused(tmp_path: Path) -> None:
    create(tmp_path, "mine", SCRIPT, {})
    with pytest.raises(BadInput, match="elastic-run resume mine"):
        create(tmp_path, "mine", SCRIPT, {})
    for name in ("", "..", "a/b", "-a", "A", "a" * 63):
        with pytest.raises(BadInput, match="--name"):
            create(tmp_path, name, SCRIPT, {})


def test_a_job_that_is_not_there_is_answered_with_those_that_are(tmp_path: Path) -> None:
    with pytest.raises(NoSuchJob, match="there is none"):
        open_job(tmp_path, "net-1")
    for _ in range(12):
        os.utime(create(tmp_path, None, Path("net.py"), {}).record_file, ns=(10**18, 10**18))
    with pytest.raises(NoSuchJob, match=r"net-3, .*net-12 and 2 more"):
        open_job(tmp_path, "nte-1")
    with pytest.raises(NoSuchJob):
        open_job(tmp_path, "../jobs")
    assert open_job(tmp_path, "net-7").name == "net-7"


def test_a_folder_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    blocked = tmp_path / "file"
    blocked.write_text("")
    with pytest.raises(BadInput, match=r"file.*name another --folder"):
        create(blocked / "jobs", None, SCRIPT, {})


def test_jobs_live_where_the_standard_says() -> None:
    assert jobs_folder(None, {"XDG_STATE_HOME": "/s", "HOME": "/h"}) == Path("/s/fedl2/jobs")
    assert jobs_folder(None, {"XDG_STATE_HOME": "s", "HOME": "/h"}) == Path("/h/.local/state/fedl2/jobs")
    assert jobs_folder(Path("/x"), {"HOME": "/h"}) == Path("/x")


def test_a_half_written_file_is_as_good_as_none(tmp_path: Path) -> None:
    (tmp_path / "a.json").write_text('{"step": ')
    assert read_json(tmp_path / "a.json") is None
    (tmp_path / "a.json").write_text("[1]")
    assert read_json(tmp_path / "a.json") is None
    assert read_json(tmp_path / "b.json") is None


def test_one_launcher_a_job(tmp_path: Path) -> None:
    job = create(tmp_path, None, SCRIPT, {})
    assert holder_of(job.path) is None
    with JobLock(job.path):
        assert holder_of(job.path) == os.getpid()
        with pytest.raises(JobBusy, match=str(os.getpid())):
            JobLock(job.path)
    assert holder_of(job.path) is None


def test_the_number_that_a_dead_launcher_left_means_nothing(tmp_path: Path) -> None:
    job = create(tmp_path, None, SCRIPT, {})
    (job.path / LOCK_FILE).write_text("1\n")  # process 1 lives
    assert holder_of(job.path) is None
    with JobLock(job.path):
        assert holder_of(job.path) == os.getpid()


def test_a_record_that_was_changed_by_hand_is_refused_in_one_line(tmp_path: Path) -> None:
    job = make_job(tmp_path, "pass")
    record = job.record()
    assert spec_of(record, job.record_file).workers == 1
    with pytest.raises(BadInput, match=r"job\.json: field workers = 0 cannot be .*; start the job anew$"):
        spec_of({**record, "workers": 0}, job.record_file)
    with pytest.raises(
        BadInput, match=r"job\.json: unknown field wrkers; did you mean workers\? .*start the job anew$"
    ):
        spec_of({**record, "wrkers": 1}, job.record_file)
    with pytest.raises(BadInput, match=r"job\.json: field script is missing .*; start the job anew$"):
        spec_of({name: value for name, value in record.items() if name != "script"}, job.record_file)
    job.record_file.write_text("{")
    with pytest.raises(BadInput, match="no record of a job"):
        job.record()


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (None, "no such file"),
        (b"def f(:", r"line 1: is no Python"),
        (b"a\0b", "is no Python"),
        (b"\xff\xfe", "is no Python"),
    ],
)
def test_a_script_that_python_cannot_run_is_refused_before_anything_starts(
    tmp_path: Path, content: bytes | None, says: str
) -> None:
    script = tmp_path / "train.py"
    if content is not None:
        script.write_bytes(content)
    with pytest.raises(BadInput, match=says):
        check_script(script)
    with pytest.raises(BadInput, match="is no file"):
        check_script(tmp_path)


def test_threads_are_shared_among_the_workers_unless_somebody_said_how_many(tmp_path: Path) -> None:
    job = make_job(tmp_path, "pass")
    spec = spec_of(job.record(), job.record_file)
    cores = len(os.sched_getaffinity(0))
    assert spec.threads_of_a_worker(1, 0, {}) == cores
    assert spec.threads_of_a_worker(1, 1, {}) == max(1, cores - 1)  # the parameter server has one
    assert spec.threads_of_a_worker(cores + 1, 0, {}) == 1
    assert spec.threads_of_a_worker(1, cores + 1, {}) == 1
    assert spec.threads_of_a_worker(1, 1, {"OMP_NUM_THREADS": "5"}) == 5
    assert spec.model_copy(update={"worker_threads": 3}).threads_of_a_worker(1, 1, {"OMP_NUM_THREADS": "5"}) == 3


def test_a_name_that_is_nearly_a_job_is_answered_with_it(tmp_path: Path) -> None:
    for name in ("long", "short"):
        create(tmp_path, name, SCRIPT, {})
    with pytest.raises(NoSuchJob, match=r"lnog: no such job in .*; did you mean long\? there are long, short$"):
        open_job(tmp_path, "lnog")
    with pytest.raises(NoSuchJob, match=f"in {tmp_path}; there are long, short$"):
        open_job(tmp_path, "other")


def test_a_jobs_own_folder_is_no_folder_of_jobs(tmp_path: Path) -> None:
    job = create(tmp_path, "long", SCRIPT, {})
    with pytest.raises(NoSuchJob, match=f"is the folder of one job; .*--folder {tmp_path}$"):
        open_job(job.path, "long")
