"""Claims of devices are followed where a server has them, and nothing breaks where it has not or does not show them."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import structlog
from kube_agents import Agent, wait_for
from kube_clients import api_of
from kube_cluster import KubeCluster, kube_cluster

from cluster_agent.backend_settings import KubernetesBackendSettings
from cluster_agent.backends.kubernetes.views import poll
from cluster_agent.kubernetes.capacity import NodeFacts
from cluster_agent.kubernetes.device_claims import ClaimedDevices
from cluster_agent.kubernetes.errors import ApiError, ApiUnanswered, Forbidden, NotFound

Json = dict[str, Any]
CLAIMS, SLICES = "resourceclaims.resource.k8s.io", "resourceslices.resource.k8s.io"
DRIVER = "gpu.nvidia.com"
SETTINGS = KubernetesBackendSettings(slot_seconds=300.0)


@pytest.fixture
def cluster() -> Iterator[KubeCluster]:
    with kube_cluster() as made:
        made.node("a", gpus=4)
        made.opt_in()
        yield made


def offer(cluster: KubeCluster) -> None:
    spec = {"driver": DRIVER, "nodeName": "a", "pool": {"name": "a", "generation": 1, "resourceSliceCount": 1}}
    devices = [{"name": f"gpu-{number}"} for number in range(4)]
    cluster.make(SLICES, {"metadata": {"name": "a-gpus"}, "spec": {**spec, "devices": devices}})


def claim(cluster: KubeCluster, name: str, *devices: str) -> None:
    """A claim, and its devices as kube-scheduler allocates them."""
    results = [{"request": "gpu", "driver": DRIVER, "pool": "a", "device": device} for device in devices]
    requests = [{"name": "gpu", "exactly": {"deviceClassName": DRIVER}}]
    cluster.make(CLAIMS, {"metadata": {"name": name, "namespace": "team"}, "spec": {"devices": {"requests": requests}}})
    cluster.change(CLAIMS, name, "status", status={"allocation": {"devices": {"results": results}}})


def gpus(agent: Agent) -> int:
    return sum(node.capacity.gpu for node in agent.backend.poll().state.nodes)


def test_a_job_grows_only_into_gpus_that_no_claim_holds(cluster: KubeCluster, tmp_path: Path) -> None:
    offer(cluster)
    claim(cluster, "notebook", "gpu-0", "gpu-3")
    cluster.job("train", 1, on="a")
    cluster.target("train", updateMode="Auto")
    agent = Agent(cluster, tmp_path, "auto")
    try:
        wait_for(lambda: gpus(agent) == 2)
        agent.decide(train=4)
        assert cluster.size("train") == 2
        cluster.server.call(lambda: cluster.server.store.delete(CLAIMS, "team", "notebook", {}))
        wait_for(lambda: gpus(agent) == 4)
        assert poll(api_of(cluster.server, "root"), "", 0.0, SETTINGS).observed.state.total.gpu == 4
        claim(cluster, "again", "gpu-1")
        wait_for(lambda: gpus(agent) == 3)
        assert poll(api_of(cluster.server, "root"), "", 0.0, SETTINGS).observed.state.total.gpu == 3
    finally:
        agent.close()


def test_without_the_right_it_says_so_once_and_goes_on(cluster: KubeCluster, tmp_path: Path) -> None:
    may = cluster.server.may
    cluster.server.may = lambda asked: asked.resource not in (CLAIMS, SLICES) and may(asked)
    claim(cluster, "notebook", "gpu-0")
    cluster.job("train", 1, on="a")
    cluster.target("train")
    with structlog.testing.capture_logs() as logs:
        agent = Agent(cluster, tmp_path)
        try:
            agent.decide(train=3)
            agent.decide(train=2)
        finally:
            agent.close()
    assert cluster.status_of("train")["recommendation"]["workers"] == 2
    said = [each for each in logs if each.get("resource") == "resourceclaims"]
    assert len(said) == 1
    assert "forbidden" in said[0]["error"].lower()


class Stub:
    """A server whose answers a test names; it has no watches."""

    def __init__(self, *answers: Json | ApiError) -> None:
        self.answers, self.asked = list(answers), list[str]()

    def get(self, path: str, query: Any = None) -> Json:
        self.asked.append(path)
        answer = self.answers.pop(0)
        if isinstance(answer, ApiError):
            raise answer
        return answer

    def watch(self, path: str, query: Any, silence_seconds: float) -> Any:
        self.asked.append(path)
        raise Forbidden("may not", 403)


def following(stub: Stub, waits: list[float], most: int) -> tuple[ClaimedDevices, Callable[[], None]]:
    devices = ClaimedDevices(stub, lambda: 0.0, lambda: None)

    def wait(seconds: float) -> bool:
        waits.append(seconds)
        return len(waits) >= most

    return devices, lambda: devices.followings["watch-resourceclaims"](wait)


def test_a_server_without_the_api_is_asked_again_much_later_and_nothing_is_said() -> None:
    waits: list[float] = []
    devices, run = following(Stub(NotFound("none", 404), NotFound("none", 404)), waits, 2)
    assert not devices.has_read
    with structlog.testing.capture_logs() as logs:
        run()
    assert waits == [600.0, 600.0]
    assert logs == []
    node = NodeFacts("a", (("nvidia.com/gpu", 4),), (), is_cordoned=False, gpu_type="")
    assert devices.less([node]) == [node]


def test_trouble_is_told_once_and_the_version_that_is_there_is_followed() -> None:
    waits: list[float] = []
    busy = ApiUnanswered("busy")
    stub = Stub(busy, busy, {"versions": [{"version": "v1alpha3"}]}, {"versions": [{"version": "v1beta1"}]})
    _, run = following(stub, waits, 4)
    with structlog.testing.capture_logs() as logs:
        run()
    assert waits[0] < 600.0 == waits[2]
    assert stub.asked[-1] == "/apis/resource.k8s.io/v1beta1/resourceclaims"
    assert [each["event"] for each in logs] == ["device-claims-not-read"] * 2 + ["kubernetes-watch"]
