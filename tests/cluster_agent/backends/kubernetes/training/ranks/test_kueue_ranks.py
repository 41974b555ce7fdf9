"""An all-reduce TrainingJob that Kueue admits, whose ranks are processes: grown, shrunk, evicted, resumed, complete.

Kueue is its stand-in, whose book is looked at in the end: no rank was ever made beyond what was admitted.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from apiserver.asked import Asked, Fault
from apiserver.cluster import Cluster, Waits, running_cluster
from apiserver.controllers.kueue import FLAVORS, WORKLOADS, KueueStandIn, kueue_crds
from apiserver.controllers.requests import ONE
from apiserver.controllers.stepping import is_true
from held_digits import EPOCHS, SAMPLES, held_command
from training_cluster import (
    Agent,
    agent_of,
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
from training_objects import CRDS, template

from cluster_agent.backends.kubernetes.training import kueue as kueue_module
from cluster_agent.backends.kubernetes.training.story import reporter
from policy_net.domain import Allocation

Json = dict[str, Any]
GROUP = "workloads.kueue.x-k8s.io"


@pytest.fixture
def cluster(monkeypatch: pytest.MonkeyPatch) -> Iterator[Cluster]:
    monkeypatch.setattr(kueue_module, "AGAIN_SECONDS", 0.2)
    monkeypatch.setattr(reporter, "PROGRESS_SECONDS", 1.0)
    with running_cluster(kubelet="processes", waits=Waits(0.1, 0.1, 1.0)) as found:
        install(found)
        for each in kueue_crds():
            found.make(CRDS, each)
        found.make(FLAVORS, {"metadata": {"name": "default"}, "spec": {}})
        yield found


@pytest.fixture
def stand_in(cluster: Cluster) -> Iterator[KueueStandIn]:
    found = KueueStandIn(cluster.server.store, {"research": 0})
    cluster.server.call(lambda: cluster.server.attach(found))
    yield found
    assert cluster.server.call(lambda: list(found.broken)) == []


@pytest.fixture
def agent(cluster: Cluster, stand_in: KueueStandIn) -> Iterator[Agent]:
    del stand_in  # its book is closed after the agent's end
    with agent_of(cluster) as found:
        yield found


def give(cluster: Cluster, stand_in: KueueStandIn, cpu: int) -> None:
    def change() -> None:
        stand_in.quotas["research"] = cpu * ONE
        cluster.server.wake()

    cluster.server.call(change)


def live(cluster: Cluster) -> list[Json]:
    return [each for each in cluster.all(WORKLOADS) if not is_true(each, "Finished")]


def wait_workers(cluster: Cluster, workers: int) -> Json:
    """Wait until one Workload is left, admitted for so many workers and nothing else."""

    def holds() -> Json | None:
        found = live(cluster)
        asked = [[(each["name"], each["count"]) for each in one["spec"]["podSets"]] for one in found]
        return found[0] if asked == [[("worker", workers)]] and is_true(found[0], "Admitted") else None

    found: Json = cluster.wait(holds, f"one Workload for {workers} workers; there are {live(cluster)}")
    return found


def samples(cluster: Cluster) -> int:
    return int((status_of(cluster).get("progress") or {}).get("samples", 0))


def wait_more(cluster: Cluster) -> int:
    """Wait until it has trained more than now; how much it had."""
    before = samples(cluster)
    cluster.wait(lambda: samples(cluster) > before, f"it goes on from {before} samples")
    return before


def ranks(cluster: Cluster) -> int:
    """How many ranks' processes run; in the server's thread."""
    return sum(each["status"].get("phase") == "Running" for each in cluster.server.store.all("pods", "team"))


@pytest.mark.long
def test_a_gang_is_admitted_grows_by_a_slice_shrinks_and_resumes_after_an_eviction(
    cluster: Cluster, agent: Agent, stand_in: KueueStandIn
) -> None:
    written: list[tuple[str, int]] = []

    def faults(asked: Asked) -> Fault | None:
        if asked.verb == "patch" and asked.resource == GROUP:
            written.append((asked.part, ranks(cluster)))
        return None

    job = {
        "modelType": "digits",
        "communication": "AllReduce",
        "worker": {"min": 1, "max": 4, "template": template(held_command(let_go(cluster)))},
        "checkpoints": {"claimName": "shared"},
        "kueue": {"queueName": "research"},
    }
    submit(cluster, job)
    agent.decide(digits=Allocation(1))
    cluster.wait(lambda: len(live(cluster)) == 1, "a Workload that waits")
    assert not pods_of(cluster)
    give(cluster, stand_in, 8)
    first = wait_workers(cluster, 1)
    wait_size(cluster, 1, 0)
    wait_more(cluster)
    # It grows by a slice, which the one before makes room for.
    agent.decide(digits=Allocation(3))
    wait_size(cluster, 3, 0)
    second = wait_workers(cluster, 3)
    assert second["metadata"]["uid"] != first["metadata"]["uid"]
    assert wait_more(cluster) > 0
    # Its counts are lowered when the ranks that are too many are gone.
    cluster.server.faults = faults
    agent.decide(digits=Allocation(2))
    wait_size(cluster, 2, 0)
    shrunk = wait_workers(cluster, 2)
    assert shrunk["metadata"]["uid"] == second["metadata"]["uid"]
    lowered = [running for part, running in written if not part]
    assert lowered
    assert max(lowered) <= 2
    before = wait_more(cluster)
    # Evicted: its ranks keep what they have, go, and only then is the quota given back.
    written.clear()
    give(cluster, stand_in, 0)
    name = shrunk["metadata"]["name"]
    cluster.server.call(lambda: stand_in.evict(("team", name), "Preempted", "Preempted to accommodate a workload"))
    wait_told(cluster, "Evicted")
    cluster.wait(lambda: not pods_of(cluster), "its ranks are gone")
    cluster.wait(lambda: not is_true(cluster.find(WORKLOADS, name) or {}, "QuotaReserved"), "its quota is given back")
    assert [running for part, running in written if part == "status"][-1] == 0
    wait_phase(cluster, "Queued")
    kept = samples(cluster)
    assert kept >= before
    give(cluster, stand_in, 8)
    wait_size(cluster, 2, 0)
    cluster.wait(lambda: samples(cluster) > kept, "it goes on from its checkpoint")
    status = finish(cluster)
    assert status["progress"]["samples"] == SAMPLES * EPOCHS, "each sample of each epoch counts once"
    assert status["ranks"]["failures"] == 0, "an eviction is no failure"
    cluster.wait(lambda: not live(cluster), "it holds no quota any more")
