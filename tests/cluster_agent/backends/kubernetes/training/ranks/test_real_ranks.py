"""An all-reduce TrainingJob, applied with kubectl, whose ranks are processes: resized, suspended, failed, complete."""

from __future__ import annotations

import json
import shutil
import signal
import subprocess
from collections.abc import Iterator
from typing import Any

import pytest
from apiserver.cluster import Cluster, Waits, running_cluster
from held_digits import EPOCHS, SAMPLES, held_command
from training_cluster import (
    Agent,
    agent_of,
    finish,
    install,
    let_go,
    pods_of,
    status_of,
    wait_phase,
    wait_size,
    wait_told,
)
from training_objects import TABLE, template

from cluster_agent.backends.kubernetes.training.story import reporter
from policy_net.domain import Allocation

Json = dict[str, Any]


@pytest.fixture
def cluster(monkeypatch: pytest.MonkeyPatch) -> Iterator[Cluster]:
    monkeypatch.setattr(reporter, "PROGRESS_SECONDS", 1.0)
    if shutil.which("kubectl") is None:
        pytest.skip("kubectl is not installed")
    with running_cluster(kubelet="processes", waits=Waits(0.1, 0.1, 1.0)) as found:
        install(found)
        yield found


@pytest.fixture
def agent(cluster: Cluster) -> Iterator[Agent]:
    with agent_of(cluster) as found:
        yield found


def kubectl(cluster: Cluster, *words: str, given: str | None = None) -> str:
    done = subprocess.run(
        ["kubectl", f"--kubeconfig={cluster.kubeconfig}", "--namespace=team", *words],
        input=given,
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def apply(cluster: Cluster, **more: Any) -> None:
    made = template(held_command(let_go(cluster)))
    body = {
        "apiVersion": "fedl2.io/v1alpha1",
        "kind": "TrainingJob",
        "metadata": {"name": "digits", "namespace": "team"},
        "spec": {
            "modelType": "digits",
            "communication": "AllReduce",
            "worker": {"min": 1, "max": 4, "template": made},
            "checkpoints": {"claimName": "shared"},
            **more,
        },
    }
    kubectl(cluster, "apply", "-f", "-", given=json.dumps(body))


def samples(cluster: Cluster) -> int:
    return int((status_of(cluster).get("progress") or {}).get("samples", 0))


def uids(cluster: Cluster) -> dict[str, str]:
    return {task: pod["metadata"]["uid"] for task, pod in pods_of(cluster).items()}


def suspend(cluster: Cluster, wish: bool) -> None:
    kubectl(cluster, "patch", TABLE, "digits", "--type=merge", "-p", json.dumps({"spec": {"suspend": wish}}))


@pytest.mark.long
def test_it_trains_is_resized_suspended_resumed_and_completes(cluster: Cluster, agent: Agent) -> None:
    apply(cluster)
    agent.decide(digits=Allocation(1))
    wait_size(cluster, 1, 0)
    cluster.wait(lambda: samples(cluster) > 0, "it trains")
    before = samples(cluster)
    agent.decide(digits=Allocation(3))
    wait_size(cluster, 3, 0)
    assert set(pods_of(cluster)) == {"worker-0", "worker-1", "worker-2"}
    cluster.wait(lambda: samples(cluster) > before, "it goes on from where it was")
    suspend(cluster, True)
    wait_phase(cluster, "Suspended")
    assert not pods_of(cluster)
    before = samples(cluster)
    assert before > 0
    suspend(cluster, False)
    agent.decide(digits=Allocation(2))
    wait_size(cluster, 2, 0)
    cluster.wait(lambda: samples(cluster) > before, "it goes on from where it was")
    let_go(cluster).touch()
    kubectl(cluster, "wait", "--for=condition=Complete", "trainingjob/digits", "--timeout=200s")
    status = status_of(cluster)
    assert status["progress"]["samples"] == SAMPLES * EPOCHS, "each sample of each epoch counts once"
    assert status["ranks"]["failures"] == 0
    assert status["ranks"]["gang"] >= 3, "each size is another gang"
    assert "test accuracy" in kubectl(cluster, "logs", "digits-worker-0")


@pytest.mark.long
def test_a_rank_that_is_killed_is_followed_by_another_gang_also_with_another_agent(cluster: Cluster) -> None:
    with agent_of(cluster) as agent:
        apply(cluster)
        agent.decide(digits=Allocation(2))
        wait_size(cluster, 2, 0)
        cluster.wait(lambda: samples(cluster) > 0, "it trains")
    before = uids(cluster)
    cluster.server.call(lambda: cluster.processes.send(before["worker-1"], signal.SIGKILL))
    with agent_of(cluster, lease_epoch=8):
        cluster.wait(lambda: not set(before.values()) & set(uids(cluster).values()), "nothing is left of that gang")
        wait_size(cluster, 2, 0)
        assert status_of(cluster)["ranks"]["failures"] == 1
        wait_told(cluster, "RankFailed", "worker-1 was ended by SIGKILL")
        # A node that is drained has ranks told to end: all stop after the same step, and nothing counts as a failure.
        before = uids(cluster)
        kubectl(cluster, "delete", "pod", "digits-worker-1", "--wait=false")
        cluster.wait(lambda: not set(before.values()) & set(uids(cluster).values()), "nothing is left of that gang")
        wait_size(cluster, 2, 0)
        assert status_of(cluster)["ranks"]["failures"] == 1
        status = finish(cluster)
    assert status["progress"]["samples"] == SAMPLES * EPOCHS
