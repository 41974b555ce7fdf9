"""Room for pods that are about to be made: all of them or none, and never more than there is."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from cluster_agent.backends.kubernetes.training.room import Room
from cluster_agent.kubernetes.capacity import NodeFacts, PodFacts, Taint
from cluster_agent.kubernetes.node_choice import NodeChoice


def node(name: str, cpu: int, *taints: Taint, cordoned: bool = False) -> NodeFacts:
    return NodeFacts(name, (("cpu", cpu), ("pods", 10)), taints, cordoned, "")


def pod(cpu: int, where: str = "") -> PodFacts:
    return PodFacts(where, {"cpu": cpu, "pods": 1}, "", "Pending", False)


def test_all_or_nothing() -> None:
    room = Room([node("a", 1000), node("b", 1000)], [])
    assert not room.take([{"cpu": 600}] * 3)
    assert room.take([{"cpu": 600}] * 2), "what did not fit took nothing"
    assert not room.take([{"cpu": 600}])


def test_what_waits_for_a_node_has_its_room_somewhere() -> None:
    assert not Room([node("a", 1000)], [pod(600)]).take([{"cpu": 600}])
    assert not Room([node("a", 1000)], [pod(600, "a")]).take([{"cpu": 600}])
    assert Room([node("a", 1000)], [pod(6000)]).take([{"cpu": 600}]), "what fits nowhere takes nothing"


def test_nothing_of_a_resource_that_a_node_has_not() -> None:
    assert Room([node("a", 1000)], []).take([{"cpu": 100, "nvidia.com/gpu": 0}])
    assert not Room([node("a", 1000)], []).take([{"cpu": 100, "nvidia.com/gpu": 1}])


def test_cordons_and_taints() -> None:
    taint = Taint("gpu", "", "NoSchedule")
    assert not Room([node("a", 1000, cordoned=True)], []).take([{"cpu": 1}])
    room = Room([node("a", 1000, taint)], [])
    assert not room.take([{"cpu": 1}])
    assert room.take([{"cpu": 1}], [{"key": "gpu", "operator": "Exists"}])


def test_whoever_is_larger_than_any_node_is_told_so_and_whoever_waits_for_others_is_not() -> None:
    room = Room([node("a", 1000), node("b", 2000)], [pod(1900, "b")])
    assert room.too_large("worker", {"cpu": 2000, "pods": 1}, NodeChoice()) == "", "others' pods will end"
    line = room.too_large("worker", {"cpu": 2500, "memory": 2**31, "nvidia.com/gpu": 1}, NodeChoice())
    assert "no node is as large as a worker of it, which takes 2.5 cores, 2 GiB of memory, 1 nvidia.com/gpu" in line
    assert "the most that nodes have is 2 cores, 0 GiB of memory, 0 nvidia.com/gpu" in line


def test_a_large_node_that_a_pod_may_not_use_is_none() -> None:
    large = node("large", 9000, Taint("gpu", "", "NoSchedule"))
    room = Room([node("a", 1000), large, node("c", 9000, cordoned=True)], [])
    assert "the most that nodes have is 1 cores" in room.too_large("ps", {"cpu": 2000}, NodeChoice())
    assert room.too_large("ps", {"cpu": 2000}, NodeChoice(({"operator": "Exists"},))) == ""
    elsewhere = NodeChoice(selector=(("zone", "b"),))
    assert room.too_large("worker", {"cpu": 1}, elsewhere) == "there is no node that a worker may use"


@given(
    nodes=st.lists(st.integers(0, 100), max_size=4),
    gangs=st.lists(st.lists(st.integers(0, 60), max_size=4), max_size=6),
)
def test_never_more_is_given_than_there_is(nodes: list[int], gangs: list[list[int]]) -> None:
    room = Room([node(str(number), cpu) for number, cpu in enumerate(nodes)], [])
    given_away = sum(sum(gang) for gang in gangs if room.take([{"cpu": cpu} for cpu in gang]))
    assert given_away <= sum(nodes)
