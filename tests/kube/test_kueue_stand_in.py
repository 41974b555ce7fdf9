"""The stand-in for Kueue: who is admitted, what a slice takes, and what its webhooks would have refused."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from apiserver.cluster import Cluster, running_cluster
from apiserver.controllers.kueue import WORKLOADS, KueueStandIn, kueue_crds
from apiserver.controllers.stepping import is_true

Json = dict[str, Any]
CRDS = "customresourcedefinitions.apiextensions.k8s.io"


@pytest.fixture
def cluster() -> Iterator[Cluster]:
    with running_cluster() as found:
        for each in kueue_crds():
            found.make(CRDS, each)
        yield found


@pytest.fixture
def kueue(cluster: Cluster) -> KueueStandIn:
    found = KueueStandIn(cluster.server.store, {"queue": 4})
    cluster.server.call(lambda: cluster.server.attach(found))
    return found


def ask(cluster: Cluster, name: str, cpu: int, priority: int = 0, replaces: str = "") -> None:
    template = {"spec": {"containers": [{"name": "c", "resources": {"requests": {"cpu": "1"}}}]}}
    spec = {
        "queueName": "queue",
        "priority": priority,
        "podSets": [{"name": "main", "count": cpu, "template": template}],
    }
    notes = {"kueue.x-k8s.io/workload-slice-replacement-for": f"team/{replaces}"} if replaces else {}
    cluster.make(WORKLOADS, {"metadata": {"name": name, "namespace": "team", "annotations": notes}, "spec": spec})
    cluster.server.settle()


def holds(cluster: Cluster, name: str, condition: str) -> bool:
    return is_true(cluster.find(WORKLOADS, name) or {}, condition)


def count(cluster: Cluster, name: str, pods: int) -> None:
    def change(found: Json) -> Json:
        return {**found, "spec": {**found["spec"], "podSets": [{**found["spec"]["podSets"][0], "count": pods}]}}

    cluster.change(WORKLOADS, name, change)
    cluster.server.settle()


def test_what_fits_is_admitted_and_the_rest_waits(cluster: Cluster, kueue: KueueStandIn) -> None:
    ask(cluster, "first", 3)
    ask(cluster, "second", 2)
    assert holds(cluster, "first", "Admitted")
    assert not holds(cluster, "second", "QuotaReserved")
    count(cluster, "first", 2)
    assert holds(cluster, "second", "Admitted")
    assert kueue.broken == []


def test_a_slice_needs_what_it_has_more_and_finishes_the_one_before(cluster: Cluster, kueue: KueueStandIn) -> None:
    ask(cluster, "first", 3)
    ask(cluster, "larger", 5, replaces="first")
    assert not holds(cluster, "larger", "QuotaReserved")
    assert not holds(cluster, "first", "Finished")
    ask(cluster, "fitting", 4, replaces="first")
    assert holds(cluster, "fitting", "Admitted")
    assert holds(cluster, "first", "Finished")
    assert kueue.broken == []


def test_who_is_preempted_keeps_its_quota_until_it_is_given_back(cluster: Cluster, kueue: KueueStandIn) -> None:
    ask(cluster, "weak", 4)
    ask(cluster, "strong", 2, priority=5)
    assert holds(cluster, "weak", "Evicted")
    assert not holds(cluster, "strong", "QuotaReserved")

    def given_back(found: Json) -> Json:
        time = found["metadata"]["creationTimestamp"]
        given = {"type": "QuotaReserved", "status": "False", "reason": "Pending", "lastTransitionTime": time}
        return {**found, "status": {"conditions": [given]}}

    cluster.change(WORKLOADS, "weak", given_back, part="status")
    cluster.server.settle()
    assert holds(cluster, "strong", "Admitted")
    assert not holds(cluster, "weak", "QuotaReserved")


def test_counts_that_rise_under_quota_are_noted(cluster: Cluster, kueue: KueueStandIn) -> None:
    ask(cluster, "first", 1)
    count(cluster, "first", 2)
    assert kueue.broken == ["podSets of first were changed while it has quota"]
