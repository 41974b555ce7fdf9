"""The stand-in scheduler: which node a pod gets, and why none."""

from typing import Any

import pytest
from apiserver.cluster import Cluster, Node
from apiserver.controllers.requests import ONE, amount, requests_of
from hypothesis import given
from hypothesis import strategies as st
from kube_objects import PODS, Json, pod, pod_spec


def node_of(cluster: Cluster, name: str) -> str:
    cluster.server.settle()
    found = cluster.find(PODS, name)
    assert found is not None
    return str(found["spec"].get("nodeName", ""))


def why(cluster: Cluster, name: str) -> tuple[str, str]:
    cluster.server.settle()
    found = cluster.find(PODS, name)
    assert found is not None
    [condition] = [each for each in found["status"]["conditions"] if each["type"] == "PodScheduled"]
    return condition.get("reason", ""), condition.get("message", "")


def on_names(kind: str, names: list[str], weight: int = 50) -> Json:
    term = {"matchFields": [{"key": "metadata.name", "operator": "In", "values": names}]}
    if kind == "required":
        return {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [term]}}}
    preferred = [{"weight": weight, "preference": term}]
    return {"nodeAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": preferred}}


def test_a_pod_gets_a_node_with_room_and_others_wait_until_there_is_some(cluster: Cluster) -> None:
    for name in ("first", "second"):
        cluster.make(PODS, pod(name, gpus=4))
    assert {node_of(cluster, "first"), node_of(cluster, "second")} == {"node-a", "node-b"}
    cluster.make(PODS, pod("third", gpus=2))
    assert why(cluster, "third") == ("Unschedulable", "0/2 nodes are available: 2 Insufficient nvidia.com/gpu.")
    assert [each["reason"] for each in cluster.all("events") if each["involvedObject"]["name"] == "third"] == [
        "FailedScheduling"
    ]
    was_on = node_of(cluster, "first")
    cluster.delete(PODS, "first")
    assert node_of(cluster, "third") == was_on


def test_what_fits_no_node_fits_one_that_joins(cluster: Cluster) -> None:
    cluster.make(PODS, pod("large", gpus=8))
    assert node_of(cluster, "large") == ""
    cluster.add(Node("node-c", gpus=8))
    assert node_of(cluster, "large") == "node-c"


def test_a_preferred_node_overflows_and_a_required_one_does_not(cluster: Cluster) -> None:
    for number in range(3):
        cluster.make(PODS, pod(f"liked-{number}", gpus=2, affinity=on_names("preferred", ["node-b"])))
    assert [node_of(cluster, f"liked-{number}") for number in range(3)] == ["node-b", "node-b", "node-a"]
    cluster.make(PODS, pod("only", affinity=on_names("required", ["node-b"])))
    assert why(cluster, "only")[0] == "Unschedulable"
    cluster.make(PODS, pod("never", affinity=on_names("required", ["node-gone"])))
    assert "2 node(s) didn't match Pod's node affinity/selector" in why(cluster, "never")[1]


@pytest.mark.parametrize(
    ("node", "spec", "fits"),
    [
        ({"labels": {"zone": "x"}}, {"nodeSelector": {"zone": "x"}}, True),
        ({"labels": {"zone": "x"}}, {"nodeSelector": {"zone": "y"}}, False),
        ({"more": {"unschedulable": True}}, {}, False),
        ({"more": {"taints": [{"key": "a", "value": "b", "effect": "NoSchedule"}]}}, {}, False),
        (
            {"more": {"taints": [{"key": "a", "value": "b", "effect": "NoSchedule"}]}},
            {"tolerations": [{"key": "a", "operator": "Exists"}]},
            True,
        ),
        (
            {"more": {"taints": [{"key": "a", "value": "b", "effect": "NoSchedule"}]}},
            {"tolerations": [{"key": "a", "value": "c"}]},
            False,
        ),
        ({"more": {"taints": [{"key": "a", "effect": "PreferNoSchedule"}]}}, {}, True),
        ({"pods": 0}, {}, False),
    ],
)
def test_what_nodes_and_pods_say_of_each_other(cluster: Cluster, node: Any, spec: Json, fits: bool) -> None:
    cluster.add(Node("node-c", gpus=100, **node))
    cluster.make(PODS, pod("a", gpus=50, **spec))
    assert node_of(cluster, "a") == ("node-c" if fits else "")


def test_a_gated_pod_waits_for_its_gate(cluster: Cluster) -> None:
    cluster.make(PODS, pod("a", schedulingGates=[{"name": "fedl2.io/gang"}]))
    assert why(cluster, "a")[0] == "SchedulingGated"
    cluster.change(PODS, "a", lambda found: {**found, "spec": {**found["spec"], "schedulingGates": []}})
    assert node_of(cluster, "a") != ""


def test_a_pod_of_another_scheduler_is_left_alone(cluster: Cluster) -> None:
    cluster.make(PODS, pod("a", schedulerName="other"))
    assert node_of(cluster, "a") == ""


def test_higher_priority_goes_first(cluster: Cluster) -> None:
    def make() -> None:
        cluster.server.store.create(PODS, pod("low", gpus=8))
        for name in ("mean", "high", "low-too"):
            cluster.server.store.create(PODS, pod(name, gpus=3, priority={"high": 9, "mean": 5}.get(name, 0)))

    cluster.server.call(make)
    assert "" not in (node_of(cluster, "mean"), node_of(cluster, "high"))
    assert node_of(cluster, "low-too") == ""


def test_requests_count_sidecars_the_largest_init_container_overhead_and_the_pod_level() -> None:
    def of(cpu: str, **more: Any) -> Json:
        return {"resources": {"requests": {"cpu": cpu}}, **more}

    spec = {"containers": [of("500m"), of("1")], "overhead": {"cpu": "0.1"}}
    assert requests_of({"spec": spec})["cpu"] == amount("1600m")
    spec["initContainers"] = [of("1", restartPolicy="Always"), of("3")]
    assert requests_of({"spec": spec})["cpu"] == amount("4100m")
    assert requests_of({"spec": {**spec, "resources": {"requests": {"cpu": "7"}}}})["cpu"] == amount("7.1")
    limited = {"containers": [{"resources": {"limits": {"nvidia.com/gpu": 2}}}]}
    assert requests_of({"spec": limited})["nvidia.com/gpu"] == 2 * ONE


@given(st.integers(0, 10**6))
def test_quantities(number: int) -> None:
    assert amount(f"{number}Ki") == 1024 * number * ONE
    assert amount(f"{number}m") * 1000 == number * ONE
    assert amount(number) == amount(f"{number}e0") == number * ONE


@given(gpus=st.lists(st.integers(1, 5), min_size=1, max_size=12))
def test_no_node_is_ever_over_committed(gpus: list[int]) -> None:
    from apiserver.controllers.scheduler import Scheduler
    from apiserver.store import Store

    store = Store(lambda: 0.0)
    for name in ("a", "b"):
        allocatable = {"nvidia.com/gpu": "4", "cpu": "64", "memory": "64Gi", "pods": "9"}
        store.create("nodes", {"metadata": {"name": name}, "status": {"allocatable": allocatable}})
    scheduler = Scheduler(store)
    store.on_change.append(scheduler.note)
    for number, count in enumerate(gpus):
        store.create(PODS, {"metadata": {"name": f"p{number}", "namespace": "team"}, "spec": pod_spec(count)})
        scheduler.step()
        if number % 3 == 2:
            first = next(store.all(PODS))
            store.delete(PODS, "team", first["metadata"]["name"], {"gracePeriodSeconds": 0})
        on: dict[str, int] = {}
        for found in store.all(PODS):
            node = found["spec"].get("nodeName", "")
            on[node] = on.get(node, 0) + requests_of(found)["nvidia.com/gpu"]
        assert all(used <= 4 * ONE for node, used in on.items() if node)
