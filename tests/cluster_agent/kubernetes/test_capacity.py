"""Free capacity: what pods ask for is what kube-scheduler counts, worked out by hand from its rules."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cluster_agent.kubernetes.capacity import (
    NodeFacts,
    PodFacts,
    Taint,
    free_amounts,
    milli,
    node_facts,
    pod_facts,
    requests_of,
    tolerates,
)


def container(cpu: str, name: str = "main", **more: Any) -> dict[str, Any]:
    return {"name": name, "resources": {"requests": {"cpu": cpu}}, **more}


def cpu_of(spec: dict[str, Any], status: dict[str, Any] | None = None) -> int:
    return requests_of(spec, status or {})["cpu"]


@pytest.mark.parametrize(
    ("quantity", "thousandths"),
    [("100m", 100), ("2", 2000), ("0.1", 100), ("1Ki", 1_024_000), ("1k", 1_000_000), ("1e3", 1_000_000), ("1n", 1)],
)
def test_quantities_are_read_and_rounded_up(quantity: str, thousandths: int) -> None:
    assert milli(quantity) == thousandths


@pytest.mark.parametrize("quantity", ["", "x", "-1", "1Kk", "NaN", "Infinity", "1 Gi"])
def test_what_is_no_quantity_is_refused(quantity: str) -> None:
    with pytest.raises(ValueError, match=r".+"):
        milli(quantity)


def test_containers_add_up_and_starting_ones_take_turns() -> None:
    spec = {"containers": [container("100m"), container("200m", "b")], "initContainers": [container("250m", "i")]}
    assert cpu_of(spec) == 300
    spec["initContainers"].append(container("700m", "j"))
    assert cpu_of(spec) == 700


def test_sidecars_count_beside_containers_and_beside_later_starting_ones() -> None:
    sidecar = container("100m", "s", restartPolicy="Always")
    spec = {"containers": [container("300m")], "initContainers": [container("350m", "before"), sidecar]}
    assert cpu_of(spec) == 400
    spec["initContainers"].append(container("350m", "after"))
    assert cpu_of(spec) == 450


def test_overhead_comes_on_top_and_requests_of_the_pod_before_its_containers() -> None:
    spec: dict[str, Any] = {"containers": [container("300m")], "overhead": {"cpu": "50m"}}
    assert cpu_of(spec) == 350
    spec["resources"] = {"requests": {"cpu": "1", "nvidia.com/gpu": "4"}}
    found = requests_of(spec, {})
    assert found == {"cpu": 1050, "pods": 1}


def resized(asked: str, allocated: str, actual: str, *conditions: dict[str, str]) -> int:
    held = {
        "name": "main",
        "allocatedResources": {"cpu": allocated},
        "resources": {"requests": {"cpu": actual}},
    }
    return cpu_of({"containers": [container(asked)]}, {"containerStatuses": [held], "conditions": list(conditions)})


def test_a_container_that_is_resized_counts_with_the_most_that_it_has_or_may_get() -> None:
    assert resized("300m", "100m", "100m") == 300
    assert resized("100m", "300m", "200m") == 300
    assert resized("100m", "100m", "400m") == 400
    impossible = {"type": "PodResizePending", "reason": "Infeasible"}
    assert resized("900m", "100m", "200m", impossible) == 200


def test_pods_that_ended_count_nothing_and_those_that_end_or_are_nominated_do() -> None:
    pod: dict[str, Any] = {
        "metadata": {"name": "a", "ownerReferences": [{"uid": "1"}, {"uid": "2", "controller": True}]},
        "spec": {"containers": [container("1")], "nodeName": "n"},
        "status": {"phase": "Running"},
    }
    found = pod_facts(pod)
    assert found is not None
    assert (found.node, found.owner) == ("n", "2")
    for phase in ("Succeeded", "Failed"):
        assert pod_facts({**pod, "status": {"phase": phase}}) is None
    ending = pod_facts({**pod, "metadata": {"name": "a", "deletionTimestamp": "now"}})
    assert ending is not None
    assert (ending.node, ending.is_terminating) == ("n", True)
    waiting = pod_facts({**pod, "spec": {}, "status": {"phase": "Pending", "nominatedNodeName": "m"}})
    assert waiting is not None
    assert waiting.node == "m"


def test_taints_keep_away_whoever_does_not_tolerate_them() -> None:
    taint = Taint("gpu", "yes", "NoSchedule")
    assert not tolerates([], taint)
    assert tolerates([{"operator": "Exists"}], taint)
    assert tolerates([{"key": "gpu", "value": "yes"}], taint)
    assert tolerates([{"key": "gpu", "operator": "Exists", "effect": "NoSchedule"}], taint)
    assert not tolerates([{"key": "gpu", "value": "no"}], taint)
    assert not tolerates([{"key": "gpu", "operator": "Exists", "effect": "NoExecute"}], taint)
    assert tolerates([], Taint("soft", "", "PreferNoSchedule"))


def node(name: str, cpu: str = "4", **spec: Any) -> NodeFacts:
    status = {"allocatable": {"cpu": cpu, "memory": "1Gi", "pods": "10"}}
    return node_facts({"metadata": {"name": name}, "spec": spec, "status": status})


def test_nodes_that_no_pod_may_come_to_are_left_out() -> None:
    tainted = node("t", taints=[{"key": "k", "effect": "NoExecute"}])
    nodes = [node("a"), node("c", unschedulable=True), tainted, node("broken", cpu="many")]
    assert set(free_amounts(nodes, [])) == {"a", "t"}


def test_what_was_taken_beyond_what_there_is_leaves_nothing_and_not_less() -> None:
    greedy = PodFacts("a", {"cpu": 9000, "pods": 1}, "", "Running", is_terminating=False)
    assert free_amounts([node("a")], [greedy])["a"] == {"cpu": 0, "memory": 2**30, "pods": 9}


def test_a_pod_whose_requests_cannot_be_read_fills_its_node() -> None:
    pod = {"metadata": {"name": "p"}, "spec": {"nodeName": "a", "containers": [container("lots")]}, "status": {}}
    found = pod_facts(pod)
    assert found is not None
    assert free_amounts([node("a"), node("b")], [found])["a"] == {}


@given(
    st.lists(st.tuples(st.sampled_from("abz"), st.integers(0, 3000), st.booleans()), max_size=12),
)
def test_nothing_is_ever_free_twice_or_below_zero(pods: list[tuple[str, int, bool]]) -> None:
    facts = [
        PodFacts(name, {"cpu": cpu, "pods": 1}, "ours" if ours else "", "Running", is_terminating=False)
        for name, cpu, ours in pods
    ]
    found = free_amounts([node("a"), node("b")], facts, is_ours=lambda pod: pod.owner == "ours")
    for name in "ab":
        others = sum(cpu for where, cpu, ours in pods if where == name and not ours)
        assert found[name]["cpu"] == max(0, 4000 - others)
