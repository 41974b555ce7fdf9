"""A disk that is full: nothing that was promised is lost, nobody ends for it, and all go on once there is room."""

from __future__ import annotations

import errno
import os
import resource
import sys
from pathlib import Path

import pytest
import structlog
from local_world import LocalWorld, SimulatedJob

from cluster_agent.backends.local.job_table import JobState
from cluster_agent.backends.local.scripts.launcher import ScriptSupervisor
from cluster_agent.backends.local.scripts.script_folder import ScriptFolder, ScriptRecord, Target
from cluster_agent.errors import BackendUnavailable
from elastic_runtime.launcher.gpu_seats import write_gpus
from elastic_runtime.protocol.plan import JobPhase
from policy_net.domain import Allocation, Decision

FIXED = {"elastic": False, "communication": "AllReduce", "worker": {"min": 1, "max": 1, "replicas": 1, "cpu": 1}}


class Disk:
    """The world's, which takes nothing while it is full."""

    def __init__(self, world: LocalWorld) -> None:
        self.full = False
        write = world.backend.table._write

        def watched(record: object) -> None:
            if self.full:
                raise OSError(errno.ENOSPC, "No space left on device")
            write(record)  # type: ignore[arg-type]

        world.backend.table._write = watched  # type: ignore[method-assign]


def go_on(world: LocalWorld) -> int:
    """Decide as the agent's loop does, until all jobs have ended or a minute is over; how often it was told off."""
    reported, until = 0, world.now + 60.0
    while world.now < until and not world.backend.finished:
        try:
            observed = world.backend.observe()
            if observed is None:
                break
            sizes = {job.job_id: Allocation(job.min_workers, job.min_ps) for job in observed[0].jobs}
            world.backend.apply(Decision(sizes))
        except BackendUnavailable as error:
            reported += "No space left on device" in str(error) and "free space" in str(error)
            world.wait(5.0)
    return reported


@pytest.mark.parametrize("full_at", [0.0, 1.0, 3.0, 8.0, 12.0])
def test_jobs_end_once_there_is_room_again_each_once(tmp_path: Path, full_at: float) -> None:
    world = LocalWorld(tmp_path, slot_seconds=2.0, debounce_seconds=0.5)
    for name, more in (("ps", {}), ("ring", {"communication": "AllReduce"}), ("script", FIXED)):
        world.submit(name, epochs=1, **more)
    disk = Disk(world)
    start = world.now
    world.at.append((start + full_at, lambda: setattr(disk, "full", True)))
    world.at.append((start + 40.0, lambda: setattr(disk, "full", False)))
    assert go_on(world) > 0
    go_on(world)
    assert {record.state for record in world.backend.table} == {JobState.DONE}
    assert world.ends == dict.fromkeys(world.jobs, 1)
    for job in world.jobs.values():
        assert (job.starts, job.samples) == (1, job.total_samples)


def refusing(job: SimulatedJob, error: OSError) -> None:
    """Its launcher cannot be started."""

    def start(allocation: Allocation) -> None:
        del allocation
        raise error

    job.start = start  # type: ignore[method-assign]


def test_a_job_for_whose_launcher_there_is_no_room_waits_and_says_why(tmp_path: Path) -> None:
    world = LocalWorld(tmp_path, slot_seconds=2.0, debounce_seconds=0.5, gpus=1)
    job = world.submit("job", epochs=1, worker={"gpu": 1, "cpu": 1})
    start = job.start
    refusing(job, OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), "/state/jobs/.room"))
    assert go_on(world) == 0
    record = world.backend.table.get("job")
    assert record is not None
    assert record.state is JobState.QUEUED, "however often it was tried"
    facts = world.backend.facts(record)
    assert facts["note"] == "it cannot be started (/state/jobs/.room: No space left on device)"
    assert facts["waitedSeconds"] > 50
    assert world.ledger.granted == {}
    job.start = start  # type: ignore[method-assign]
    go_on(world)
    record = world.backend.table.get("job")
    assert record is not None
    assert (record.state, world.backend.facts(record)["note"]) == (JobState.DONE, "")


def test_a_job_whose_folder_is_gone_fails_with_that_line(tmp_path: Path) -> None:
    world = LocalWorld(tmp_path, gpus=1)
    job = world.submit("job", worker={"gpu": 1, "cpu": 1}, workdir="/gone")
    refusing(job, FileNotFoundError(errno.ENOENT, "No such file", "/gone"))
    go_on(world)
    record = world.backend.table.get("job")
    assert record is not None
    assert (record.state, record.failure) == (JobState.FAILED, "it cannot be started (/gone: No such file)")
    assert world.ledger.granted == {}
    assert world.backend.finished


def test_a_launcher_that_finds_no_room_for_its_workers_starts_them_once_there_is(tmp_path: Path) -> None:
    now = 100.0
    (tmp_path / "script.py").write_text("", encoding="utf-8")
    folder = ScriptFolder(tmp_path / "job")
    folder.make()
    gpus = tmp_path / "job.gpus"
    write_gpus(gpus, ["GPU-0"])
    record = ScriptRecord(
        python=sys.executable, script=tmp_path / "script.py", workdir=tmp_path, elastic=False, gpus=1, gpu_file=gpus
    )
    launcher = ScriptSupervisor(folder, record, os.environ, lambda: now)
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (0, before[1]))
    try:
        with structlog.testing.capture_logs() as logs:
            launcher._begin(Target(request_id="", workers=1))
            now += 1.0
            launcher.poll(signals=0)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert (launcher.state.phase, launcher.group) == (JobPhase.STARTING, None)
    assert launcher.state.failure == "no process can be started: File too large"
    assert [line["event"] for line in logs] == ["workers-wait-for-room"], "said once"
    launcher.poll(signals=0)
    assert launcher.group is None, "not ten times a second"
    now += 1.0
    launcher.poll(signals=0)
    assert launcher.group is not None
    assert launcher.state.failure == ""
    launcher.group.kill()
    launcher.group.close()
