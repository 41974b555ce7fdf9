"""Damaged files of jobs: told in a line, never silent, and the other jobs go on."""

from __future__ import annotations

import json
import os
import re
import shutil
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import structlog

from cluster_agent.backend_settings import LocalBackendSettings
from cluster_agent.backends.base import AgentParts
from cluster_agent.backends.local.backend import open_backend
from cluster_agent.backends.local.job_file import check_job
from cluster_agent.backends.local.job_processes import ElasticJob, JobProcesses, ScriptJob
from cluster_agent.backends.local.job_table import JobTable, LocalJobRecord
from cluster_agent.backends.local.launchers import Launchers
from cluster_agent.backends.local.machine_shares import GpuLedger
from cluster_agent.backends.local.scripts.script_folder import ScriptRecord, ScriptState, Target
from cluster_agent.errors import JobRefused, StateDamaged
from elastic_runtime.checkpoint.rank_files import RankFiles, RankProgress
from elastic_runtime.control.messages import JobStatus, Size
from elastic_runtime.launcher.gpu_seats import write_gpus, write_used
from elastic_runtime.launcher.job_folder import create, write_json
from elastic_runtime.launcher.job_spec import JobSpec
from elastic_runtime.launcher.job_status import status_record
from elastic_runtime.protocol.plan import JobPhase
from foundation.locks import FileLock

Damage = Callable[[bytes], bytes]
DAMAGES: dict[str, Damage] = {
    "empty": lambda data: b"",
    "torn": lambda data: data[: len(data) // 2],
    "zeros": lambda data: bytes(len(data)),
    "binary": lambda data: bytes(range(256)),
    "list": lambda data: b"[1, 2]",
    "object": lambda data: b"{}",
    "number": lambda data: b"7",
    "other values": lambda data: (
        json.dumps(dict.fromkeys(json.loads(data), "x")).encode() if data[:1] == b"{" else b"x"
    ),
    "huge numbers": lambda data: re.sub(rb"[0-9]+", b"9" * 400, data),
    "deep": lambda data: b"[" * 100_000,
}
DIGIT: Damage = lambda data: re.sub(rb'"number": \d', b'"number": 7', data)  # noqa: E731  (one of them)
"""What only a checksum shows."""


def job_of(folder: Path, name: str, **more: object) -> LocalJobRecord:
    folder.mkdir(exist_ok=True)
    script = folder / "train.py"
    script.write_text("import elastic_runtime\n", encoding="utf-8")
    file = check_job({"name": name, "modelType": "any", "script": "train.py", **more}, folder, "it")
    return LocalJobRecord(name=name, number=1, file=file, submitted_unix_seconds=0.0)


@pytest.mark.parametrize("damage", [*DAMAGES.values(), DIGIT], ids=[*DAMAGES, "digit"])
def test_a_damaged_record_is_told_of_and_the_other_jobs_are_there(tmp_path: Path, damage: Damage) -> None:
    table = JobTable(tmp_path / "submitted")
    for name in ("first", "second", "third"):
        table.add(job_of(tmp_path, name).file, 1.0)
    path = tmp_path / "submitted" / "second.json"
    path.write_bytes(damage(path.read_bytes()))
    damaged = path.read_bytes()
    with structlog.testing.capture_logs() as logs:
        after = JobTable(tmp_path / "submitted")
    assert [record.name for record in after] == ["first", "third"]
    assert list(after.damaged) == ["second"]
    assert [(line["event"], line["job"]) for line in logs] == [("job-record-damaged", "second")]
    assert f"{path}: is no job's record (" in logs[0]["line"]
    assert "\n" not in logs[0]["line"]
    with pytest.raises(JobRefused, match="there is a job second already"):
        after.add(job_of(tmp_path, "second").file, 2.0)
    with pytest.raises(StateDamaged, match="move it away to go on without that job"):
        after.get("second")
    assert path.read_bytes() == damaged, "it is left as it is"


def test_an_agent_does_not_begin_beside_processes_of_a_job_whose_record_is_damaged(tmp_path: Path) -> None:
    JobTable(tmp_path / "submitted").add(job_of(tmp_path, "job").file, 1.0)
    (tmp_path / "submitted" / "job.json").write_bytes(b"{")
    (tmp_path / "jobs").mkdir()
    settings = LocalBackendSettings(cpu_milli=1000)
    parts = AgentParts(tmp_path, "drf", None, lambda seconds: True, lambda: 0.0)
    line = "its processes run, so that nothing else can be given away safely"
    with FileLock(tmp_path / "jobs" / "job.launcher.lock"), pytest.raises(StateDamaged, match=line):
        open_backend(settings, parts)
    assert open_backend(settings, parts).observe() is None


def test_a_record_of_another_job_is_damage(tmp_path: Path) -> None:
    table = JobTable(tmp_path / "submitted")
    table.add(job_of(tmp_path, "first").file, 1.0)
    (tmp_path / "submitted" / "other.json").write_bytes((tmp_path / "submitted" / "first.json").read_bytes())
    after = JobTable(tmp_path / "submitted")
    assert [record.name for record in after] == ["first"]
    assert "it is of a job named first" in after.damaged["other"]


def test_a_name_is_found_for_a_job_without_one_beside_damaged_records(tmp_path: Path) -> None:
    (tmp_path / "submitted").mkdir()
    (tmp_path / "submitted" / "train-1.json").write_bytes(b"")
    file = job_of(tmp_path, "any").file.model_copy(update={"name": None})
    assert JobTable(tmp_path / "submitted").add(file, 1.0).name == "train-2"


def elastic_job(folder: Path) -> JobProcesses:
    """A job that has trained, and rests."""
    script = folder / "train.py"
    record = job_of(folder, "job", worker={"gpu": 1})
    spec = JobSpec(script=script, python=sys.executable, working_folder=folder, servers=1, workers=1)
    made = create(folder / "jobs", "job", script, spec.record())
    status = JobStatus("job", JobPhase.RUNNING, size=Size(1, 1), target=Size(1, 1), samples=640)
    write_json(made.state_file, status_record(status))
    write_json(made.address_file, {"address": "127.0.0.1:1", "pid": 1})
    return ElasticJob(folder / "jobs", record, os.environ, Launchers(folder / "jobs"))


def ring_job(folder: Path) -> JobProcesses:
    """Likewise, without parameter servers."""
    record = job_of(folder, "job", communication="AllReduce", worker={"gpu": 1})
    job = ScriptJob(folder / "jobs", record, os.environ, Launchers(folder / "jobs"))
    made = job._folder
    made.make()
    script = ScriptRecord(python=sys.executable, script=folder / "train.py", workdir=folder, elastic=True)
    made.write(script)
    made.write(ScriptState(phase=JobPhase.RUNNING, workers=1, target=1))
    made.write(Target(request_id="", workers=1))
    RankFiles(made.path).report(RankProgress(1, 1, 10, 640, 1.0, 2.0), at_once=True)
    return job


def as_folder(path: Path) -> None:
    path.unlink()
    path.mkdir()


def as_pipe(path: Path) -> None:
    path.unlink()
    os.mkfifo(path)


def as_link(path: Path) -> None:
    path.rename(path.with_name(f"was-{path.name}"))
    path.symlink_to(path.with_name(f"was-{path.name}"))


def as_endless(path: Path) -> None:
    path.unlink()
    path.symlink_to("/dev/zero")


def as_huge(path: Path) -> None:
    os.truncate(path, 1 << 40)


KINDS = (as_folder, as_pipe, as_link, as_endless, as_huge, Path.unlink)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("make", [elastic_job, ring_job])
def test_whatever_stands_in_a_files_place_the_agent_looks_at_the_job_and_goes_on(
    tmp_path: Path, make: Callable[[Path], JobProcesses], kind: Callable[[Path], None]
) -> None:
    job = make(tmp_path / "whole")
    gpus = tmp_path / "whole" / "jobs" / "job.gpus"
    write_gpus(gpus, ["GPU-0"])
    write_used(gpus, {"worker-0": ["GPU-0"]})
    (tmp_path / "whole" / "jobs" / "job" / "lock").write_bytes(b"123\n")
    (tmp_path / "whole" / "jobs" / "job.launcher.lock").write_bytes(b"123\n")
    whole = job.measure()
    files = [path for path in (tmp_path / "whole" / "jobs").rglob("*") if path.is_file()]
    names = [path.relative_to(tmp_path / "whole") for path in files]
    assert len(names) > 5
    for number, name in enumerate(names):
        folder = tmp_path / str(number)
        shutil.copytree(tmp_path / "whole", folder)
        kind(folder / name)
        record = job_of(folder, "job", worker={"gpu": 1})
        launchers = Launchers(folder / "jobs")
        after: JobProcesses = type(job)(folder / "jobs", record, os.environ, launchers)  # type: ignore[call-arg]
        assert after.launcher is None
        measured = after.measure()
        assert measured.samples in (0.0, whole.samples), name
        if name.name in ("job.json", "token") and kind is not Path.unlink:
            assert f"{folder / name}" in measured.damage
        ledger = GpuLedger(folder / "jobs", ["GPU-0", "GPU-1"], ["job"])
        ledger.settle("job", 1)


@pytest.mark.parametrize("make", [elastic_job, ring_job])
def test_a_job_whose_folder_is_a_link_is_not_looked_into(tmp_path: Path, make: Callable[[Path], JobProcesses]) -> None:
    job = make(tmp_path)
    place = tmp_path / "jobs" / "job"
    assert job.measure().samples == 640
    place.rename(tmp_path / "jobs" / "other")
    place.symlink_to(tmp_path / "jobs" / "other")
    before = {path: path.read_bytes() for path in (tmp_path / "jobs" / "other").rglob("*") if path.is_file()}
    measured = job.measure()
    assert (job.launcher, measured.samples) == (None, 0.0)
    assert f"{place}" in measured.damage
    assert "it is a link, which is not followed" in measured.damage
    assert {path: path.read_bytes() for path in (tmp_path / "jobs" / "other").rglob("*") if path.is_file()} == before


@pytest.mark.parametrize("damage", DAMAGES.values(), ids=DAMAGES)
@pytest.mark.parametrize("make", [elastic_job, ring_job])
def test_no_file_of_a_job_stops_its_agent_from_looking_at_it(
    tmp_path: Path, make: Callable[[Path], JobProcesses], damage: Damage
) -> None:
    job = make(tmp_path)
    gpus = tmp_path / "jobs" / "job.gpus"
    write_gpus(gpus, ["GPU-0"])
    write_used(gpus, {"worker-0": ["GPU-0"]})
    for name in ("lock", "stop"):
        (tmp_path / "jobs" / "job" / name).write_bytes(b"123\n")
    (tmp_path / "jobs" / "job.launcher.lock").write_bytes(b"123\n")
    whole = job.measure()
    files = [path for path in (tmp_path / "jobs").rglob("*") if path.is_file()]
    assert len(files) > 6
    for path in files:
        before = path.read_bytes()
        path.write_bytes(damage(before))
        assert job.launcher is None
        assert job.measure().samples in (0.0, whole.samples), path
        ledger = GpuLedger(tmp_path / "jobs", ["GPU-0", "GPU-1"], ["job"])
        ledger.settle("job", 1)
        path.write_bytes(before)
