"""Where pods lie: bound ones on known nodes, and nothing where places make no difference."""

from typing import Any

from cluster_agent.backends.kubernetes.places import (
    JobPlacement,
    gpu_types_of,
    placement_of_targets,
    places_of,
    shares_of,
)
from cluster_agent.backends.kubernetes.training.task_pods import TaskPod, placement_of_tasks
from cluster_agent.kubernetes.capacity import NodeFacts, PodFacts, pod_facts
from policy_net.domain import Allocation, Share


def node(name: str, gpu_type: str = "", gpus: int = 4) -> NodeFacts:
    return NodeFacts(name, (("cpu", 8000), ("nvidia.com/gpu", gpus)), (), is_cordoned=False, gpu_type=gpu_type)


def pod(on: str = "", owner: str = "job", **status: Any) -> PodFacts:
    metadata = {"name": "p", "ownerReferences": [{"uid": owner, "controller": True}]}
    spec: dict[str, Any] = {"containers": [], **({"nodeName": on} if on else {})}
    found = pod_facts({"metadata": metadata, "spec": spec, "status": {"phase": "Running", **status}})
    assert found is not None
    return found


def task(name: str, on: str, **more: Any) -> TaskPod:
    return TaskPod("team", f"digits-{name}", "digits", name, f"uid-{name}", "job", "Running", on, **more)


def test_types_are_told_where_two_nodes_with_gpus_say_theirs() -> None:
    both = [node("a", "A100"), node("b", "T4")]
    assert gpu_types_of(both) == {"a": "A100", "b": "T4"}
    assert gpu_types_of([*both, node("c")]) == {"a": "A100", "b": "T4", "c": ""}
    for alone in ([node("a", "A100")], [node("a"), node("b")], [node("a", "A100"), node("b")]):
        assert gpu_types_of(alone) == {}
    assert gpu_types_of([node("a", "A100"), node("b", "T4", gpus=0)]) == {}
    assert gpu_types_of([node("a", "A100"), NodeFacts("b", None, (), is_cordoned=False, gpu_type="T4")]) == {}


def test_a_pod_lies_where_it_is_bound_and_one_that_waits_or_goes_nowhere() -> None:
    starting = pod("a", phase="Pending")
    nominated = pod(phase="Pending", nominatedNodeName="b")
    going = pod("b")
    going = PodFacts(going.node, going.requests, going.owner, going.phase, is_terminating=True)
    pods = [pod("a"), starting, nominated, pod(phase="Pending"), going, pod("a", owner="other")]
    assert placement_of_targets(pods, {"job"}) == {"job": JobPlacement({"a": 2})}


def test_tasks_lie_by_their_role_and_a_coordinator_counts_nowhere() -> None:
    pods = [
        task("worker-0", "a"),
        task("worker-1", "a"),
        task("ps-0", "b"),
        task("coordinator", "b"),
        task("worker-2", ""),
        task("worker-3", "b", deleting=True),
    ]
    (job_placements,) = placement_of_tasks(pods).values()
    assert job_placements == JobPlacement({"a": 2}, {"b": 1})
    assert shares_of(job_placements, {"a", "b"}) == (Share("a", Allocation(2, 0)), Share("b", Allocation(0, 1)))
    assert shares_of(job_placements, {"a"}) == (Share("a", Allocation(2, 0)),), "the other node is about to go"


def test_places_are_known_where_all_workers_lie_on_known_nodes() -> None:
    types = {"a": "A100", "b": ""}
    assert places_of({"b": 1, "a": 2}, 3, types) == (("A100", 2), ("", 1))
    assert places_of({"a": 2}, 3, types) == (), "one is not there"
    assert places_of({"a": 2, "gone": 1}, 3, types) == ()
    assert places_of({}, 0, types) == ()
    assert places_of({"a": 1}, 1, {}) == ()
