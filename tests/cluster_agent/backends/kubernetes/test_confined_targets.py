"""Targets on a cluster whose pods may use some nodes only, or do not start: what they get, and what is said."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from kube_agents import Agent, wait_for
from kube_cluster import PODS, KubeCluster, kube_cluster

from cluster_agent.backends.kubernetes.places import GpuTypes, JobPlacement
from cluster_agent.kubernetes.capacity import Amounts, NodeChoice
from policy_net.domain import Allocation, Decision, Job, JobKind, Progress, Resources

Json = dict[str, Any]
REASONS = "fedl2_agent_object_reasons_total"


@pytest.fixture
def cluster() -> Iterator[KubeCluster]:
    with kube_cluster() as made:
        made.opt_in()
        yield made


@pytest.fixture
def start(cluster: KubeCluster, tmp_path: Path) -> Iterator[Callable[..., Agent]]:
    made: list[Agent] = []

    def begin(user: str = "auto") -> Agent:
        made.append(Agent(cluster, tmp_path, user))
        return made[-1]

    yield begin
    for each in made:
        each.close()


def template(image: str = "example.com/team/train:1", **spec: Any) -> Json:
    requests = {"cpu": "1", "memory": "1Gi", "nvidia.com/gpu": "1"}
    containers = [{"name": "main", "image": image, "resources": {"requests": requests}}]
    return {"spec": {"restartPolicy": "Never", "containers": containers, **spec}}


def stick(cluster: KubeCluster, pod: str, reason: str = "ImagePullBackOff") -> None:
    """Have a pod wait for its image, as a kubelet says it; for nothing without a reason."""
    waiting = {"waiting": {"reason": reason, "message": "Back-off pulling image"}} if reason else {"running": {}}
    containers = [
        {"name": "main", "ready": not reason, "restartCount": 0, "image": "", "imageID": "", "state": waiting}
    ]
    status = {"phase": "Pending" if reason else "Running", "containerStatuses": containers}
    cluster.change(PODS, pod, "status", status=status)


def most(agent: Agent) -> dict[str, int]:
    return {each.job_id.partition("/")[2]: each.max_workers for each in agent.backend.poll().state.jobs}


def limited(cluster: KubeCluster, name: str) -> tuple[str, str, str]:
    found = cluster.status_of(name).get("conditions", ())
    return next(
        ((each["status"], each["reason"], each["message"]) for each in found if each["type"] == "Limited"), ("",) * 3
    )


def test_room_on_nodes_that_a_target_cannot_use_is_neither_given_nor_recommended(
    cluster: KubeCluster, start: Callable[..., Agent]
) -> None:
    cluster.node("small", gpus=3)
    cluster.node("large", gpus=4, taints=[{"key": "team", "value": "b", "effect": "NoSchedule"}])
    tolerant = template(tolerations=[{"key": "team", "operator": "Exists"}])
    for name, mode, spec in (("set", "Auto", template()), ("told", "Off", template()), ("free", "Off", tolerant)):
        cluster.job(name, 1, on="large" if name == "free" else "small", template=spec)
        cluster.target(name, updateMode=mode)
    agent = start()
    wait_for(lambda: most(agent) == {"set": 3, "told": 3, "free": 4})
    agent.decide(set=3, told=3, free=1)
    # Two of the small node's three are in use; the third is one of the two's.
    given, said = cluster.size("set"), cluster.status_of("told")["recommendation"]["workers"]
    assert (given, said) == (2, 1)
    assert limited(cluster, "set")[1:] == (
        "BoundsAndShares",
        "2 workers rather than 3: what is fixed and promised to others leaves no more on the nodes that it can use",
    )
    assert cluster.status_of("free")["recommendation"]["workers"] == 1


def test_a_job_that_no_node_can_have_waits_and_says_for_what(cluster: KubeCluster, start: Callable[..., Agent]) -> None:
    cluster.node("a", gpus=8)
    cluster.job("free", 1, on="a")
    cluster.job("train", 2, suspend=True, template=template(nodeSelector={"zone": "none"}))
    for name in ("free", "train"):
        cluster.target(name, updateMode="Auto")
    agent = start()
    wait_for(lambda: most(agent) == {"free": 4, "train": 0})
    agent.decide(free=2, train=0)
    assert (cluster.size("free"), cluster.size("train")) == (2, 0)
    found = next(each for each in cluster.status_of("train")["conditions"] if each["type"] == "Resized")
    assert (found["reason"], found["message"]) == (
        "WaitsForRoom",
        "the nodes that its pods may use have no room for its least",
    )


def test_a_job_whose_pod_cannot_pull_its_image_does_not_grow_and_others_do(
    cluster: KubeCluster, start: Callable[..., Agent]
) -> None:
    cluster.node("a", gpus=8)
    for name, mode in (("bad", "Auto"), ("good", "Auto"), ("told", "Off")):
        cluster.job(name, 2, on="a")
        cluster.target(name, updateMode=mode)
    stick(cluster, "bad-1")
    stick(cluster, "told-0")
    agent = start()
    wait_for(lambda: most(agent) == {"bad": 2, "good": 4, "told": 2})
    agent.decide(bad=2, good=3, told=2)
    assert (cluster.size("bad"), cluster.size("good")) == (2, 3)
    line = "it does not grow: {}: ImagePullBackOff: Back-off pulling image"
    assert limited(cluster, "bad") == ("True", "PodWaits", line.format("bad-1"))
    assert limited(cluster, "told") == ("True", "PodWaits", line.format("told-0"))
    assert limited(cluster, "good")[:2] == ("False", "WithinLimits")
    wait_for(lambda: len([each for each in cluster.events() if each[1] == "PodWaits"]) == 2)
    assert {each for each in cluster.events() if each[1] == "PodWaits"} == {
        ("ElasticTarget", "PodWaits", line.format("bad-1")),
        ("Job", "PodWaits", line.format("bad-1")),
    }
    wait_for(lambda: agent.counted(REASONS, kind="ElasticTarget", reason="PodWaits") == 2)
    before = 2  # one with an Event, and one without
    agent.decide(bad=1, good=3, told=2)
    assert cluster.size("bad") == 1, "what it has others may have"
    assert agent.counted(REASONS, kind="ElasticTarget", reason="PodWaits") == before
    # An image that comes is no obstacle any more, and one that goes again is news again.
    cluster.follow("bad")
    stick(cluster, "told-0", "")
    wait_for(lambda: most(agent) == {"bad": 4, "good": 4, "told": 4})
    agent.decide(bad=3, good=1, told=2)
    assert cluster.size("bad") == 3
    assert limited(cluster, "told") == ("", "", "")
    stick(cluster, "told-0", "ErrImagePull")
    wait_for(lambda: most(agent)["told"] == 2)
    agent.decide(bad=3, good=1, told=2)
    assert agent.counted(REASONS, kind="ElasticTarget", reason="PodWaits") == before + 1


class Training:
    """TrainingJobs, of which there is one that all-reduces, in a pool."""

    is_known, trouble, shape = True, "", frozenset[object]()

    def __init__(self) -> None:
        self.given: Decision | None = None

    def choices(self) -> dict[str, tuple[str, dict[str, NodeChoice]]]:
        return {"uid-own": ("team/trainingjob/own", {"worker": NodeChoice(selector=(("pool", "small"),))})}

    def observe(self, demand: Callable[[Amounts], Resources]) -> list[Job]:
        requests, none = demand({"cpu": 1000, "nvidia.com/gpu": 1}), Resources(0)
        bounds = {"max_workers": 8, "max_ps": 0, "kind": JobKind.ALLREDUCE}
        return [Job("team/trainingjob/own", "x", 0.0, requests, none, 1.0, 1.0, 1.0, **bounds)]

    def job_placements(self) -> dict[str, JobPlacement]:
        return {}

    def apply(self, decision: Decision, unix_seconds: float, gpu_types: GpuTypes) -> None:
        self.given = decision

    def progress(self, gpu_types: GpuTypes) -> list[Progress]:
        return []

    def poll(self) -> None: ...

    def close(self) -> None: ...


def test_training_jobs_and_targets_of_one_pool_share_what_it_has(
    cluster: KubeCluster, start: Callable[..., Agent]
) -> None:
    allocatable = {"cpu": "8", "memory": "32Gi", "nvidia.com/gpu": "4", "pods": "110"}
    cluster.make(
        "nodes", {"metadata": {"name": "a", "labels": {"pool": "small"}}, "status": {"allocatable": allocatable}}
    )
    cluster.node("b", gpus=8)
    cluster.job("free", 1, on="b")
    cluster.target("free", updateMode="Off")
    cluster.job("set", 1, on="a", template=template(nodeSelector={"pool": "small"}))
    cluster.target("set", updateMode="Auto")
    agent, training = start(), Training()
    agent.backend.training = training  # type: ignore[assignment]
    wait_for(lambda: most(agent) == {"free": 4, "set": 4, "trainingjob/own": 4}, lambda: most(agent))
    assert agent.backend.observe() is not None
    wanted = {"team/free": Allocation(1, 0), "team/set": Allocation(4, 0), "team/trainingjob/own": Allocation(4, 0)}
    agent.backend.apply(Decision(wanted))
    assert training.given is not None
    own = training.given.of("team/trainingjob/own").workers
    assert (own, cluster.size("set")) == (2, 2), "the four of the small node, and none of the large one"
