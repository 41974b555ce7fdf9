"""Nodes that a policy chose for a TrainingJob's tasks: each is said of a pod of its role, and only preferred."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from simulated_training import World
from training_objects import job_object

from cluster_agent.backends.kubernetes.training.free_capacity import ClusterCapacity
from cluster_agent.backends.kubernetes.training.jobs import _nodes
from cluster_agent.backends.kubernetes.training.story.statuses import Granted
from policy_net.domain import Allocation, Share

UID = job_object()["metadata"]["uid"]


class TwoNodes(World):
    """A cluster of the nodes a and b."""

    def free_capacity(self) -> ClusterCapacity:
        return ClusterCapacity([self.node(), replace(self.node(), name="b")], [])

    def wishes(self) -> dict[str, str]:
        """By task, the node that its pod prefers."""
        found = {}
        for pod in (each for each in self.objects.values() if each["kind"] == "Pod"):
            affinity: dict[str, Any] = (pod["spec"].get("affinity") or {}).get("nodeAffinity") or {}
            assert "requiredDuringSchedulingIgnoredDuringExecution" not in affinity
            for term in affinity.get("preferredDuringSchedulingIgnoredDuringExecution") or ():
                (field,) = term["preference"]["matchFields"]
                found[pod["metadata"]["labels"]["fedl2.io/task"]] = field["values"][0]
        return found

    def have(self, size: Allocation, number: str, *shares: Share) -> None:
        self.controller.grant(UID, Granted(size, number, "v1", "", 7, 1e9), _nodes(shares))
        for _ in range(12):
            self.poll()
            self.now += 10.0
            self.live()


def test_each_task_prefers_a_node_that_was_chosen_for_its_role() -> None:
    world = TwoNodes(job_object())
    world.have(Allocation(2, 1), "a", Share("a", Allocation(2, 0)), Share("b", Allocation(0, 1)))
    assert world.wishes() == {"worker-0": "a", "worker-1": "a", "ps-0": "b"}


def test_without_a_choice_and_on_nodes_that_are_gone_nothing_is_preferred() -> None:
    for shares in ((), (Share("gone", Allocation(2, 1)),)):
        world = TwoNodes(job_object())
        world.have(Allocation(2, 1), "a", *shares)
        assert world.wishes() == {}
        assert {"worker-0", "worker-1", "ps-0"} <= set(world.tasks())
