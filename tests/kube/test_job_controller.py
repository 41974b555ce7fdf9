"""The stand-in Job controller, beside the stand-in collector: pods of Jobs, and what becomes of them."""

from __future__ import annotations

import pytest
from apiserver.cluster import Cluster
from apiserver.controllers.pretending import Fate
from kube_objects import JOBS, PODS, Clock, Json, index_of, job, phase_of, pod_spec


def settled(cluster: Cluster, name: str = "a") -> Json:
    cluster.server.settle()
    found = cluster.find(JOBS, name)
    assert found is not None
    return found


def indices(cluster: Cluster) -> list[int]:
    cluster.server.settle()
    return sorted(index_of(each) for each in cluster.all(PODS) if phase_of(each) in ("Pending", "Running"))


def resize(cluster: Cluster, pods: int) -> None:
    numbers = {"parallelism": pods, "completions": pods}
    cluster.change(JOBS, "a", lambda found: {**found, "spec": {**found["spec"], **numbers}})
    cluster.server.settle()


def end(cluster: Cluster, index: int, code: int = 0) -> None:
    """End the pod of an index that runs."""
    [uid] = [
        each["metadata"]["uid"] for each in cluster.all(PODS) if index_of(each) == index and phase_of(each) == "Running"
    ]
    cluster.server.call(lambda: cluster.pretending.end(uid, code))
    cluster.server.settle()


def conditions(found: Json) -> dict[str, str]:
    """Reasons of those that are True."""
    return {each["type"]: each["reason"] for each in found["status"].get("conditions", ()) if each["status"] == "True"}


def test_an_indexed_job_has_a_pod_an_index_and_completes(cluster: Cluster) -> None:
    made = cluster.make(JOBS, job("a", 3))
    assert indices(cluster) == [0, 1, 2]
    first = cluster.all(PODS)[0]
    assert first["metadata"]["name"].startswith("a-0-")
    assert len(first["metadata"]["name"]) == len("a-0-") + 5
    [owner] = first["metadata"]["ownerReferences"]
    assert (owner["uid"], owner["controller"]) == (made["metadata"]["uid"], True)
    assert first["spec"]["containers"][0]["env"][-1]["name"] == "JOB_COMPLETION_INDEX"
    assert settled(cluster)["status"]["active"] == settled(cluster)["status"]["ready"] == 3
    for index in (2, 0, 1):
        end(cluster, index)
    status = settled(cluster)["status"]
    assert (status["succeeded"], status["completedIndexes"], "active" in status) == (3, "0-2", False)
    assert conditions(settled(cluster))["Complete"] == "CompletionsReached"
    assert status["completionTime"]


def test_parallelism_and_completions_move_together_and_the_highest_leave_first(cluster: Cluster) -> None:
    cluster.make(JOBS, job("a", 4))
    assert indices(cluster) == [0, 1, 2, 3]
    before = {each["metadata"]["uid"] for each in cluster.all(PODS)}
    resize(cluster, 2)
    assert indices(cluster) == [0, 1]
    assert {each["metadata"]["uid"] for each in cluster.all(PODS)} < before
    resize(cluster, 6)
    assert indices(cluster) == [0, 1, 2, 3, 4, 5]
    assert "failed" not in settled(cluster)["status"]


def test_an_index_that_has_succeeded_is_not_made_again(cluster: Cluster) -> None:
    cluster.make(JOBS, job("a", 3))
    cluster.server.settle()
    end(cluster, 1)
    assert indices(cluster) == [0, 2]
    assert settled(cluster)["status"]["completedIndexes"] == "1"
    resize(cluster, 1)
    end(cluster, 0)
    assert "Complete" in conditions(settled(cluster))


def test_a_failed_pod_is_made_again_after_its_back_off_until_the_limit(cluster: Cluster, clock: Clock) -> None:
    cluster.make(JOBS, job("a", 1, backoffLimit=1))
    cluster.server.settle()
    end(cluster, 0, 3)
    assert indices(cluster) == []
    assert settled(cluster)["status"]["failed"] == 1
    clock.now += 10.0
    assert indices(cluster) == [0]
    end(cluster, 0, 3)
    assert conditions(settled(cluster))["Failed"] == "BackoffLimitExceeded"


def test_a_pod_that_another_deletes_counts_as_failed_and_is_replaced(cluster: Cluster, clock: Clock) -> None:
    cluster.make(JOBS, job("a", 2))
    cluster.server.settle()
    cluster.delete(PODS, cluster.all(PODS)[0]["metadata"]["name"])
    cluster.server.settle()
    clock.now += 10.0
    assert indices(cluster) == [0, 1]
    assert settled(cluster)["status"]["failed"] == 1


def test_a_suspended_job_has_no_pods_and_starts_anew_when_resumed(cluster: Cluster, clock: Clock) -> None:
    cluster.make(JOBS, job("a", 2))
    started = settled(cluster)["status"]["startTime"]
    cluster.change(JOBS, "a", lambda found: {**found, "spec": {**found["spec"], "suspend": True}})
    assert indices(cluster) == []
    assert conditions(settled(cluster)) == {"Suspended": "JobSuspended"}
    assert "startTime" not in settled(cluster)["status"]
    clock.now += 100.0
    cluster.change(JOBS, "a", lambda found: {**found, "spec": {**found["spec"], "suspend": False}})
    assert indices(cluster) == [0, 1]
    assert settled(cluster)["status"]["startTime"] > started
    assert "failed" not in settled(cluster)["status"]


def test_a_deadline_ends_a_job(cluster: Cluster, clock: Clock) -> None:
    cluster.make(JOBS, job("a", 1, activeDeadlineSeconds=60))
    cluster.server.settle()
    clock.now += 61.0
    assert conditions(settled(cluster))["Failed"] == "DeadlineExceeded"
    assert indices(cluster) == []


def test_a_job_that_is_not_indexed_makes_as_many_pods_as_it_needs(cluster: Cluster) -> None:
    cluster.pretending.fate = lambda pod: Fate(run_seconds=0.0)
    body = {"parallelism": 2, "completions": 5, "template": {"spec": pod_spec()}}
    cluster.make(JOBS, {"metadata": {"name": "a", "namespace": "team"}, "spec": body})
    assert settled(cluster)["status"]["succeeded"] == 5
    assert len(cluster.all(PODS)) == 5


def test_names_come_from_a_seed(cluster: Cluster) -> None:
    from apiserver.controllers.jobs import JobController
    from apiserver.store import Store

    def names(seed: int) -> list[str]:
        store = Store(lambda: 0.0)
        store.create(JOBS, job("a", 2))
        JobController(store, seed).step()
        return [each["metadata"]["name"] for each in store.all(PODS)]

    assert names(1) == names(1) != names(2)


@pytest.mark.parametrize("policy", ["", "Background", "Foreground", "Orphan"])
def test_pods_of_a_job_that_is_deleted(cluster: Cluster, policy: str) -> None:
    cluster.make(JOBS, job("a", 2))
    cluster.server.settle()
    cluster.delete(JOBS, "a", **({"propagationPolicy": policy} if policy else {}))
    cluster.server.settle()
    assert cluster.find(JOBS, "a") is None
    left = cluster.all(PODS)
    assert len(left) == (2 if policy == "Orphan" else 0)
    assert not any(each["metadata"].get("ownerReferences") for each in left)


def test_a_job_deleted_in_the_foreground_waits_for_its_pods(cluster: Cluster) -> None:
    cluster.pretending.fate = lambda pod: Fate(obeys=False)
    cluster.make(JOBS, job("a", 1))
    cluster.server.settle()
    cluster.delete(JOBS, "a", propagationPolicy="Foreground")
    cluster.server.settle()
    found = cluster.find(JOBS, "a")
    assert found is not None
    assert found["metadata"]["finalizers"] == ["foregroundDeletion"]
    assert "deletionTimestamp" in cluster.all(PODS)[0]["metadata"]


def test_pods_of_a_node_that_is_gone_are_deleted(cluster: Cluster, clock: Clock) -> None:
    cluster.make(JOBS, job("a", 1, template=pod_spec(4)))
    cluster.server.settle()
    [pod] = cluster.all(PODS)
    cluster.delete("nodes", pod["spec"]["nodeName"], "")
    cluster.server.settle()
    assert len(cluster.all(PODS)) == 1
    clock.now += 40.0
    cluster.server.settle()
    clock.now += 10.0
    cluster.server.settle()
    [other] = cluster.all(PODS)
    assert other["spec"]["nodeName"] != pod["spec"]["nodeName"]


def test_an_object_of_an_owner_that_was_never_there_goes(cluster: Cluster) -> None:
    owner = {"apiVersion": "v1", "kind": "ConfigMap", "name": "none", "uid": "never"}
    metadata = {"name": "a", "namespace": "team", "ownerReferences": [owner]}
    cluster.make("configmaps", {"metadata": metadata})
    cluster.server.settle()
    assert cluster.find("configmaps", "a") is None
