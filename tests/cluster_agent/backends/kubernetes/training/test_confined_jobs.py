"""TrainingJobs whose pods may use some nodes only: no pod of theirs is made for which only other nodes have room."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from apiserver.cluster import Cluster, Node, Waits, running_cluster
from pretended_coordinators import Pretended
from training_cluster import Agent, agent_of, install, pods_of, status_of, submit, wait_size
from training_objects import spec, template

from cluster_agent.kubernetes.resources import Json
from policy_net.domain import Allocation


@pytest.fixture
def cluster() -> Iterator[Cluster]:
    """The small pool has room for two workers beside the coordinator and a PS; the large one for dozens."""
    nodes = Node("a", cpu="1700m", labels={"pool": "small"}), Node("b", cpu="32", labels={"pool": "large"})
    with running_cluster(nodes=nodes, waits=Waits(0.1, 0.1, 0.2)) as found:
        install(found)
        yield found


@pytest.fixture
def agent(cluster: Cluster) -> Iterator[Agent]:
    with agent_of(cluster, connect=Pretended(cluster)) as found:
        yield found


def confined(pool: str, workers: tuple[int, int] = (1, 6), **more: object) -> Json:
    return spec(workers=workers, servers=(1, 1)) | {
        "worker": {"min": workers[0], "max": workers[1], "template": template(nodeSelector={"pool": pool})},
        **more,
    }


def places(cluster: Cluster, name: str = "digits") -> dict[str, str]:
    return {task: pod["spec"].get("nodeName", "") for task, pod in pods_of(cluster, name).items()}


def test_a_gang_and_growth_wait_for_their_own_nodes_and_others_go_on(cluster: Cluster, agent: Agent) -> None:
    submit(cluster, confined("small"))
    agent.decide(digits=Allocation(1, 1))
    wait_size(cluster, 1, 1)
    submit(cluster, confined("small", workers=(3, 6)), "late")
    submit(cluster, spec(workers=(1, 4), servers=(1, 1)), "free")
    agent.decide(late=Allocation(3, 1), free=Allocation(3, 1))
    wait_size(cluster, 3, 1, "free")
    cluster.wait(
        lambda: "waits for room for its first" in status_of(cluster, "late").get("message", ""), "why it waits"
    )
    agent.decide(digits=Allocation(4, 1))
    cluster.wait(lambda: "waits for room to grow" in status_of(cluster).get("message", ""), "why it does not grow")
    assert set(places(cluster).values()) == {"a"}
    assert pods_of(cluster, "late") == {}
    assert all(pod["spec"].get("nodeName") for pod in cluster.all("pods")), "no pod waits for a node"


def test_parameter_servers_of_another_pool_take_nothing_from_the_workers(cluster: Cluster, agent: Agent) -> None:
    elsewhere = template(nodeSelector={"pool": "large"})
    more = {"ps": {"min": 1, "max": 1, "template": elsewhere}, "coordinator": {"template": elsewhere}}
    submit(cluster, confined("small", **more))
    agent.decide(digits=Allocation(3, 1))
    wait_size(cluster, 3, 1)
    assert places(cluster) == {"coordinator": "b", "ps-0": "b", "worker-0": "a", "worker-1": "a", "worker-2": "a"}
