"""Room for pods that are about to be made: all of them or none, and never more than there is."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from cluster_agent.backends.kubernetes.training.free_capacity import ChosenNodes, ClusterCapacity, PodNeed
from cluster_agent.kubernetes.capacity import NodeChoice, NodeFacts, PodFacts, Taint, pod_facts


def node(name: str, cpu: int, *taints: Taint, cordoned: bool = False, pool: str = "") -> NodeFacts:
    return NodeFacts(name, (("cpu", cpu), ("pods", 10)), taints, cordoned, "", (("pool", pool),))


def of_pool(name: str, cpu: int) -> PodNeed:
    return PodNeed({"cpu": cpu}, NodeChoice(selector=(("pool", name),)))


def pod(cpu: int, where: str = "") -> PodFacts:
    return PodFacts(where, {"cpu": cpu, "pods": 1}, "", "Pending", False)


def test_all_or_nothing() -> None:
    free_capacity = ClusterCapacity([node("a", 1000), node("b", 1000)], [])
    assert not free_capacity.take([PodNeed({"cpu": 600})] * 3)
    assert free_capacity.take([PodNeed({"cpu": 600})] * 2), "what did not fit took nothing"
    assert not free_capacity.take([PodNeed({"cpu": 600})])


def test_what_waits_for_a_node_has_its_room_somewhere() -> None:
    assert not ClusterCapacity([node("a", 1000)], [pod(600)]).take([PodNeed({"cpu": 600})])
    assert not ClusterCapacity([node("a", 1000)], [pod(600, "a")]).take([PodNeed({"cpu": 600})])
    assert ClusterCapacity([node("a", 1000)], [pod(6000)]).take([PodNeed({"cpu": 600})]), (
        "what fits nowhere takes nothing"
    )


def test_nothing_of_a_resource_that_a_node_has_not() -> None:
    assert ClusterCapacity([node("a", 1000)], []).take([PodNeed({"cpu": 100, "nvidia.com/gpu": 0})])
    assert not ClusterCapacity([node("a", 1000)], []).take([PodNeed({"cpu": 100, "nvidia.com/gpu": 1})])


def test_cordons_and_taints() -> None:
    taint = Taint("gpu", "", "NoSchedule")
    assert not ClusterCapacity([node("a", 1000, cordoned=True)], []).take([PodNeed({"cpu": 1})])
    free_capacity = ClusterCapacity([node("a", 1000, taint)], [])
    assert not free_capacity.take([PodNeed({"cpu": 1})])
    assert free_capacity.take([PodNeed({"cpu": 1}, NodeChoice(({"key": "gpu", "operator": "Exists"},)))])


def test_what_can_use_some_nodes_only_gets_no_room_on_others() -> None:
    free_capacity = ClusterCapacity([node("a", 1000, pool="small"), node("b", 9000, pool="large")], [])
    assert not free_capacity.take([of_pool("small", 600), of_pool("small", 600)])
    assert free_capacity.take([of_pool("small", 600), of_pool("large", 600)])
    assert not free_capacity.take([of_pool("small", 600)])
    assert not free_capacity.take([of_pool("none", 1)])
    assert free_capacity.allows("a", NodeChoice(selector=(("pool", "small"),)))
    assert not free_capacity.allows("b", NodeChoice(selector=(("pool", "small"),)))
    assert not free_capacity.allows("gone", NodeChoice())


def test_who_could_be_elsewhere_leaves_room_for_who_could_not() -> None:
    """By themselves the larger ones would come first, and onto the node that they leave the least of."""
    free_capacity = ClusterCapacity([node("a", 1000, pool="small"), node("b", 1500, pool="large")], [])
    assert free_capacity.take([PodNeed({"cpu": 900}), of_pool("small", 800)])


def test_a_pod_that_waits_has_its_room_where_it_may_come_to() -> None:
    nodes = [node("a", 1000, pool="small"), node("b", 900, pool="large")]
    requests = {"containers": [{"name": "main", "resources": {"requests": {"cpu": "600m"}}}]}
    waiting = pod_facts({"metadata": {"name": "x"}, "spec": {**requests, "nodeSelector": {"pool": "small"}}})
    assert waiting is not None
    free_capacity = ClusterCapacity(nodes, [waiting])
    assert not free_capacity.take([of_pool("small", 600)])
    assert free_capacity.take([of_pool("large", 600)])
    placed = pod_facts({"metadata": {"name": "x"}, "spec": {**requests, "nodeName": "b", "nodeSelector": {}}})
    assert placed is not None
    assert placed.spec_of_nodes is None


@given(
    nodes=st.lists(st.integers(0, 60), min_size=2, max_size=4),
    asked=st.lists(st.tuples(st.sampled_from(["0", "1", ""]), st.integers(1, 40)), max_size=8),
)
def test_each_pool_gives_no_more_than_it_has(nodes: list[int], asked: list[tuple[str, int]]) -> None:
    free_capacity = ClusterCapacity([node(str(number), cpu, pool=str(number)) for number, cpu in enumerate(nodes)], [])
    given_away = {"0": 0, "1": 0, "": 0}
    for pool, cpu in asked:
        if free_capacity.take([of_pool(pool, cpu) if pool else PodNeed({"cpu": cpu})]):
            given_away[pool] += cpu
    assert given_away["0"] <= nodes[0]
    assert given_away["1"] <= nodes[1]
    assert sum(given_away.values()) <= sum(nodes)


def test_whoever_is_larger_than_any_node_is_told_so_and_whoever_waits_for_others_is_not() -> None:
    free_capacity = ClusterCapacity([node("a", 1000), node("b", 2000)], [pod(1900, "b")])
    assert free_capacity.too_large("worker", {"cpu": 2000, "pods": 1}, NodeChoice()) == "", "others' pods will end"
    line = free_capacity.too_large("worker", {"cpu": 2500, "memory": 2**31, "nvidia.com/gpu": 1}, NodeChoice())
    assert "no node is as large as a worker of it, which takes 2.5 cores, 2 GiB of memory, 1 nvidia.com/gpu" in line
    assert "the most that nodes have is 2 cores, 0 GiB of memory, 0 nvidia.com/gpu" in line


def test_a_large_node_that_a_pod_may_not_use_is_none() -> None:
    large = node("large", 9000, Taint("gpu", "", "NoSchedule"))
    free_capacity = ClusterCapacity([node("a", 1000), large, node("c", 9000, cordoned=True)], [])
    assert "the most that nodes have is 1 cores" in free_capacity.too_large("ps", {"cpu": 2000}, NodeChoice())
    assert free_capacity.too_large("ps", {"cpu": 2000}, NodeChoice(({"operator": "Exists"},))) == ""
    elsewhere = NodeChoice(selector=(("zone", "b"),))
    assert free_capacity.too_large("worker", {"cpu": 1}, elsewhere) == "there is no node that a worker may use"


def test_chosen_nodes_are_left_where_no_task_is_yet() -> None:
    chosen = ChosenNodes()
    chosen.choose("uid-1", ["a", "a", "b"])
    assert chosen.left("uid-1", ["a", "c"]) == ["a", "b"]
    assert chosen.left("uid-1", []) == ["a", "a", "b"], "until the next decision"
    assert chosen.left("uid-2", []) == []
    chosen.forget({"uid-2"})
    assert chosen.left("uid-1", []) == []


@given(
    nodes=st.lists(st.integers(0, 100), max_size=4),
    gangs=st.lists(st.lists(st.integers(0, 60), max_size=4), max_size=6),
)
def test_never_more_is_given_than_there_is(nodes: list[int], gangs: list[list[int]]) -> None:
    free_capacity = ClusterCapacity([node(str(number), cpu) for number, cpu in enumerate(nodes)], [])
    given_away = sum(sum(gang) for gang in gangs if free_capacity.take([PodNeed({"cpu": cpu}) for cpu in gang]))
    assert given_away <= sum(nodes)


def test_a_task_has_a_node_of_its_own_role_that_no_other_has_yet() -> None:
    chosen = ChosenNodes()
    chosen.choose("job", [("worker", "a"), ("worker", "a"), ("ps", "b")])
    assert chosen.left("job", [("worker", "a"), ("ps", "a")]) == [("worker", "a"), ("ps", "b")]
    assert chosen.left("other", []) == []
