import os
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

# With importlib import mode no folder is on the path by itself.
sys.path.insert(0, str(Path(__file__).parent))

from apiserver.cluster import Cluster, Waits, running_cluster
from apiserver.real import real_server
from apiserver.serving import KubeServer
from contract_client import Server
from kube_objects import Clock


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def cluster(clock: Clock) -> Iterator[Cluster]:
    """Two nodes with 4 GPUs each; nothing is due before a test moves the clock."""
    server = KubeServer(wall_clock=clock)
    with running_cluster(server=server, waits=Waits(10.0, 10.0, 40.0)) as found:
        yield found


@pytest.fixture
def real_processes() -> Iterator[Cluster]:
    """Pods are processes of this machine."""
    with running_cluster(kubelet="processes", waits=Waits(0.1, 0.1, 1.0)) as found:
        yield found


@pytest.fixture(scope="session", params=["ours", "real"])
def running(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, str]]:
    """Address and token of a server."""
    if request.param == "ours":
        with KubeServer(bookmark_seconds=0.2).running() as ours:
            yield ours.address, ""
        return
    binaries = os.environ.get("KUBEBUILDER_ASSETS")
    if not binaries:
        pytest.skip("KUBEBUILDER_ASSETS names no folder with etcd and kube-apiserver")
    with real_server(Path(binaries), tmp_path_factory.mktemp("real")) as real:
        yield real


@pytest.fixture
def server(running: tuple[str, str]) -> Server:
    return Server(*running)
