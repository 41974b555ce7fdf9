"""TrainingJobs whose pods are processes: resized, without their coordinator, suspended, each sample counts once."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from apiserver.cluster import Cluster, Waits, running_cluster
from held_digits import EPOCHS, SAMPLES, held_command
from training_cluster import (
    Agent,
    agent_of,
    events_of,
    finish,
    install,
    let_go,
    pods_of,
    status_of,
    submit,
    wait_phase,
    wait_size,
    wait_told,
)
from training_objects import TABLE, spec, template

from cluster_agent.backends.kubernetes.training.story import reporter
from elastic_runtime.checkpoint import latest_durable, place_of
from policy_net.domain import Allocation

Json = dict[str, Any]
GRACE_SECONDS = 2


@pytest.fixture
def cluster(monkeypatch: pytest.MonkeyPatch) -> Iterator[Cluster]:
    monkeypatch.setattr(reporter, "PROGRESS_SECONDS", 1.0)
    with running_cluster(kubelet="processes", waits=Waits(0.1, 0.1, 1.0)) as found:
        install(found)
        yield found


@pytest.fixture
def agent(cluster: Cluster) -> Iterator[Agent]:
    with agent_of(cluster) as found:
        yield found


def digits(cluster: Cluster, **more: Any) -> Json:
    """Tasks whose coordinator is gone for good cannot hand over anything: they get little time for it."""
    made = template(held_command(let_go(cluster)), terminationGracePeriodSeconds=GRACE_SECONDS)
    servers = template(terminationGracePeriodSeconds=GRACE_SECONDS)
    return spec(worker={"min": 1, "max": 4, "template": made}, ps={"max": 2, "template": servers}, **more)


def samples(cluster: Cluster) -> int:
    return int((status_of(cluster).get("progress") or {}).get("samples", 0))


def kill_coordinator(cluster: Cluster) -> str:
    """End its process as a crash does; the pod's uid."""
    pod = pods_of(cluster)["coordinator"]
    uid = str(pod["metadata"]["uid"])
    cluster.server.call(lambda: cluster.processes.send(uid, signal.SIGKILL))
    return uid


def wait_other_coordinator(cluster: Cluster, uid: str) -> None:
    """Until the job trains under another one."""
    cluster.wait(lambda: status_of(cluster).get("coordinator") not in (uid, None), "another coordinator leads")


def check_complete(cluster: Cluster) -> None:
    status = finish(cluster)
    assert status["progress"]["samples"] == SAMPLES * EPOCHS, "each sample of each epoch counts once"
    cluster.wait(
        lambda: all(pod["status"]["phase"] in ("Succeeded", "Failed") for pod in pods_of(cluster).values()),
        "no process is left",
    )


@pytest.mark.long
def test_with_a_journal_nothing_is_lost_but_time(cluster: Cluster, agent: Agent) -> None:
    submit(cluster, digits(cluster))
    agent.decide(digits=Allocation(1, 1))
    wait_size(cluster, 1, 1)
    agent.decide(digits=Allocation(2, 2))
    wait_size(cluster, 2, 2)
    workers = {task: pod["metadata"]["uid"] for task, pod in pods_of(cluster).items() if task != "coordinator"}
    uid = kill_coordinator(cluster)
    wait_other_coordinator(cluster, uid)
    wait_size(cluster, 2, 2)
    now = {task: pod["metadata"]["uid"] for task, pod in pods_of(cluster).items()}
    assert workers.items() <= now.items(), "its tasks waited for it"
    agent.decide(digits=Allocation(3, 1))
    wait_size(cluster, 3, 1)
    cluster.change(TABLE, "digits", lambda found: {**found, "spec": {**found["spec"], "suspend": True}})
    wait_phase(cluster, "Suspended")
    cluster.wait(lambda: not pods_of(cluster), "no pod is left")
    before = samples(cluster)
    cluster.change(TABLE, "digits", lambda found: {**found, "spec": {**found["spec"], "suspend": False}})
    agent.decide(digits=Allocation(2, 1))
    wait_size(cluster, 2, 1)
    cluster.wait(lambda: samples(cluster) > before, "it goes on from where it was")
    check_complete(cluster)


@pytest.mark.long
def test_without_a_journal_it_goes_on_from_a_checkpoint(cluster: Cluster, agent: Agent) -> None:
    submit(cluster, digits(cluster, coordinator={}))
    agent.decide(digits=Allocation(2, 1))
    wait_size(cluster, 2, 1)
    uid = kill_coordinator(cluster)
    wait_other_coordinator(cluster, uid)
    wait_size(cluster, 2, 1)
    # A task's end is heard of, and another takes its place.
    worker = next(task for task in sorted(pods_of(cluster)) if task.startswith("worker-"))
    found = pods_of(cluster)[worker]["metadata"]["uid"]
    cluster.server.call(lambda: cluster.processes.send(found, signal.SIGKILL))
    cluster.wait(
        lambda: (
            sum(pod["status"].get("phase") == "Running" for pod in pods_of(cluster).values()) == 4
            and pods_of(cluster)[worker]["status"]["phase"] == "Failed"
        ),
        "another worker takes its place",
    )
    check_complete(cluster)


@pytest.mark.long
def test_with_a_store_it_goes_on_from_a_checkpoint_there(cluster: Cluster, agent: Agent, tmp_path: Path) -> None:
    cluster.make("secrets", {"metadata": {"name": "keys", "namespace": "team"}, "data": {"STORE_KEY": "a2V5"}})
    submit(
        cluster,
        digits(cluster, coordinator={}, checkpoints={"store": f"file://{tmp_path}/store", "secretName": "keys"}),
    )
    agent.decide(digits=Allocation(2, 2))
    wait_size(cluster, 2, 2)
    found = pods_of(cluster)["ps-0"]["metadata"]["uid"]
    process = cluster.server.call(lambda: cluster.processes.process_of(found))
    assert process is not None
    assert b"STORE_KEY=key" in Path(f"/proc/{process.pid}/environ").read_bytes().split(b"\0")
    uid = kill_coordinator(cluster)
    wait_other_coordinator(cluster, uid)
    cluster.change(TABLE, "digits", lambda found: {**found, "spec": {**found["spec"], "suspend": True}})
    wait_phase(cluster, "Suspended")
    (folder,) = [path for path in (tmp_path / "store").iterdir() if path.name.startswith("digits-")]
    last = latest_durable(place_of(f"file://{folder}"))
    assert last is not None
    assert last.step > 0
    cluster.change(TABLE, "digits", lambda found: {**found, "spec": {**found["spec"], "suspend": False}})
    agent.decide(digits=Allocation(1, 1))
    check_complete(cluster)


@pytest.mark.long
def test_a_job_that_is_deleted_leaves_what_it_has_trained(cluster: Cluster, agent: Agent, tmp_path: Path) -> None:
    checkpoints = {"store": f"file://{tmp_path}/store", "lastOnDelete": True}
    submit(cluster, digits(cluster, checkpoints=checkpoints))
    agent.decide(digits=Allocation(2, 1))
    wait_size(cluster, 2, 1)
    cluster.wait(lambda: samples(cluster) > 0, "it trains")
    cluster.delete(TABLE, "digits")
    cluster.wait(lambda: cluster.find(TABLE, "digits") is None, "the job is gone")
    wait_told(cluster, "LastCheckpoint")
    job_report = events_of(cluster)["LastCheckpoint"]
    (folder,) = [path for path in (tmp_path / "store").iterdir() if path.name.startswith("digits-")]
    last = latest_durable(place_of(f"file://{folder}"))
    assert last is not None
    assert last.step > 0
    assert "its last checkpoint is of" in job_report
