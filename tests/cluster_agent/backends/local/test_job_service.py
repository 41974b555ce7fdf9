"""What users ask of a machine's jobs, over the socket that only they can open."""

from __future__ import annotations

import stat
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from local_world import LocalWorld

from cluster_agent.backends.local.job_file import JobFile, check_job
from cluster_agent.backends.local.job_server import JobServer
from cluster_agent.backends.local.job_service import JobDesk
from cluster_agent.backends.local.job_table import JobState, JobTable
from cluster_agent.errors import AgentUnreachable, BadAgentConfig, JobRefused, StateDamaged
from cluster_agent.jobs.client import JobClient
from elastic_runtime.launcher.job_folder import launcher_lock
from policy_net.domain import Allocation, Decision


@pytest.fixture
def world(tmp_path: Path) -> LocalWorld:
    return LocalWorld(tmp_path)


@pytest.fixture
def client(world: LocalWorld, tmp_path: Path) -> Iterator[JobClient]:
    desk = JobDesk(world.backend.table, world.capacity, world.backend.facts, lambda: world.now)
    server = JobServer(tmp_path / "s" / "jobs.sock", desk.answers)
    client = JobClient(tmp_path / "s" / "jobs.sock")
    yield client
    server.close()


def table_file(world: LocalWorld, name: str) -> JobFile:
    return check_job({"name": name, "modelType": "mlp", "script": world.script.name}, world.folder, "job.yaml")


def request(world: LocalWorld, **more: Any) -> dict[str, Any]:
    job = {"modelType": "mlp", "script": world.script.name, **more}
    return {"job": job, "folder": str(world.folder), "source": "job.yaml"}


def test_a_submitted_job_is_on_disk_and_is_decided_about(world: LocalWorld, client: JobClient) -> None:
    facts = client.call("submit", request(world, name="a", work={"epochs": 3}))
    assert (facts["name"], facts["state"]) == ("a", "queued")
    assert [record.name for record in JobTable(world.folder / "submitted")] == ["a"]
    observed = world.backend.observe()
    assert observed is not None
    world.backend.apply(Decision({"a": Allocation(1, 1)}))
    (facts,) = client.call("jobs", {"name": "a"})["jobs"]
    assert (facts["state"], facts["workers"], facts["ps"]) == ("running", 1, 1)
    assert 0.2 < facts["progress"] < 0.3


def test_names_are_found_for_jobs_without_and_taken_ones_are_refused(world: LocalWorld, client: JobClient) -> None:
    assert client.call("submit", request(world))["name"] == "train-1"
    assert client.call("submit", request(world))["name"] == "train-2"
    with pytest.raises(JobRefused, match="there is a job train-1 already"):
        client.call("submit", request(world, name="train-1"))


def test_more_than_the_machine_has_is_refused_and_nothing_is_kept(world: LocalWorld, client: JobClient) -> None:
    with pytest.raises(JobRefused, match=r"job.yaml: needs at least 8.5 cores; this machine's jobs have 6 cores"):
        client.call("submit", request(world, worker={"cpu": 8}))
    assert client.call("jobs", {})["jobs"] == []


def test_a_cancelled_job_ends_whether_it_runs_or_waits_and_again_is_no_fault(
    world: LocalWorld, client: JobClient
) -> None:
    running = world.submit("runs", epochs=100)
    world.submit("waits")
    world.backend.observe()
    world.backend.apply(Decision({"runs": Allocation(1, 1)}))
    for name in ("waits", "runs", "runs"):
        client.call("cancel", {"name": name})
    world.backend.observe()
    states = {record.name: record.state for record in world.backend.table}
    assert states == {"runs": JobState.CANCELLED, "waits": JobState.CANCELLED}
    assert running.process is None
    with pytest.raises(JobRefused, match="runs is cancelled; nothing of it can be suspended"):
        client.call("suspend", {"name": "runs"})


def test_a_job_that_has_ended_is_deleted_with_what_it_left_and_its_name_is_free(
    world: LocalWorld, tmp_path: Path
) -> None:
    backend = world.backend
    desk = JobDesk(backend.table, world.capacity, backend.facts, lambda: world.now, remove=backend.remove)
    desk.submit(request(world, name="a"))
    with pytest.raises(JobRefused, match="a has not ended; end it first with `cluster-agent cancel a`"):
        desk.delete({"name": "a"})
    desk.cancel({"name": "a"})
    with pytest.raises(JobRefused, match="it is cancelled: `cluster-agent delete a` frees its name"):
        desk.submit(request(world, name="a"))
    left = world.folder / "jobs" / "a" / "logs" / "worker-0.log"
    left.parent.mkdir(parents=True)
    left.write_text("loss 1\n")
    launcher_lock(world.folder / "jobs", "a").touch()
    assert desk.delete({"name": "a"})["deleted"] is True
    assert not list((world.folder / "jobs").glob("*a*"))
    assert not JobTable(world.folder / "submitted").unended
    with pytest.raises(JobRefused, match="no job named a"):
        desk.delete({"name": "a"})
    assert desk.submit(request(world, name="a"))["state"] == "queued"


@pytest.mark.parametrize("method", ["cancel", "suspend", "resume", "jobs", "delete"])
def test_a_name_that_nobody_has_is_answered_with_the_nearest(world: LocalWorld, client: JobClient, method: str) -> None:
    world.submit("digits")
    with pytest.raises(JobRefused, match="no job named digit; did you mean digits"):
        client.call(method, {"name": "digit"})


@pytest.mark.parametrize("content", [{}, {"job": 3, "folder": "/", "source": "x"}, {"job": {}}, []])
def test_a_request_that_is_none_is_refused_and_the_next_is_answered(
    world: LocalWorld, client: JobClient, content: Any
) -> None:
    with pytest.raises(JobRefused):
        client.call("submit", content)
    assert client.call("jobs", {})["jobs"] == []


def test_nobody_else_can_reach_the_socket(client: JobClient, tmp_path: Path) -> None:
    client.call("jobs", {})
    assert stat.S_IMODE((tmp_path / "s").stat().st_mode) == 0o700


def test_where_no_agent_answers_one_line_says_what_to_do(tmp_path: Path) -> None:
    client = JobClient(tmp_path / "none.sock", timeout_seconds=60.0)
    with pytest.raises(AgentUnreachable) as caught:
        client.call("jobs", {})
    assert "no agent answers there; start one with `cluster-agent run --config FILE`" in str(caught.value)


def test_a_socket_whose_path_is_too_long_is_refused(world: LocalWorld, tmp_path: Path) -> None:
    desk = JobDesk(world.backend.table, world.capacity, world.backend.facts, lambda: world.now)
    with pytest.raises(BadAgentConfig, match="is longer than 100 bytes; name a shorter one"):
        JobServer(tmp_path / ("long" * 40) / "jobs.sock", desk.answers)


def test_a_record_that_cannot_be_read_back_is_named_and_not_passed_over(world: LocalWorld) -> None:
    world.submit("a")
    path = world.folder / "submitted" / "a.json"
    path.write_bytes(path.read_bytes()[:-20])
    table = JobTable(world.folder / "submitted")
    desk = JobDesk(table, world.capacity, world.backend.facts, lambda: world.now)
    with pytest.raises(StateDamaged, match=r"a\.json: is no job's record .* move it away to go on without that job"):
        desk.jobs({"name": "a"})
    assert desk.jobs({}) == {"jobs": []}


def test_of_the_jobs_that_ended_the_newest_are_at_hand_and_all_are_known_by_name(world: LocalWorld) -> None:
    table = world.backend.table
    for number in range(4):
        table.add(table_file(world, f"job-{number}"), float(number))
        table.change(f"job-{number}", state=JobState.DONE, ended_unix_seconds=10.0 - number)
    again = JobTable(world.folder / "submitted", keep_ended=2)
    assert [record.name for record in again] == ["job-0", "job-1"], "these ended last"
    old = again.get("job-3")
    assert old is not None
    assert old.ended_unix_seconds == 7.0
    with pytest.raises(JobRefused, match="there is a job job-3 already"):
        again.add(table_file(world, "job-3"), 11.0)
    assert again.add(table_file(world, "job-4"), 11.0).number == 5
    again.change("job-4", state=JobState.DONE, ended_unix_seconds=12.0)
    assert [record.name for record in again] == ["job-0", "job-4"]
    assert again.get("../submitted/job-3") is None
