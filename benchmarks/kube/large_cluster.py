"""A large cluster on the test API server: nodes, pods of others, and what an agent has asked of it."""

from __future__ import annotations

import importlib
import itertools
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import yaml

from benchmarks.kube.kubelets import Kubelets

Json = dict[str, Any]

NAMESPACE = "team"
_CHECKOUT = Path(__file__).parents[2]
_SERVER = _CHECKOUT / "tests" / "kube"
_DEFINITIONS = _CHECKOUT / "deploy" / "crds"
_GPUS = 8
_KEPT_CHANGES = 20_000
"""More than a watch is behind; all that ever changed would fill the memory."""
_ADDRESSES = 250
"""Of a byte of a loopback address."""


@dataclass(frozen=True, slots=True)
class Size:
    """How large the cluster is; `pods` are others', those of the jobs come on top."""

    nodes: int
    pods: int


class LargeCluster:
    """Changes objects as kubectl and controllers do, and sees what the agent writes."""

    def __init__(self, server: Any, size: Size) -> None:
        self._server = server
        server.store.kept_changes = _KEPT_CHANGES
        self._node_names = [f"node-{number}" for number in range(size.nodes)]
        for path in (_DEFINITIONS / "elastictargets.yaml", _DEFINITIONS / "trainingjobs.yaml"):
            self.make("customresourcedefinitions.apiextensions.k8s.io", yaml.safe_load(path.read_text("utf-8")))
        for name in self._node_names:
            has = {"cpu": "64", "memory": "256Gi", "nvidia.com/gpu": str(_GPUS), "pods": "110"}
            self.make("nodes", {"metadata": {"name": name}, "spec": {}, "status": {"allocatable": has}})
        for number in range(size.pods):
            self.make("pods", _pod(f"other-{number}", self._node_names[number % size.nodes]))

    @property
    def address(self) -> str:
        """Of the server."""
        return str(self._server.address)

    @property
    def writes(self) -> int:
        """Requests of the agent that changed something, or tried to."""
        return sum(asked.writes for asked in self._server.asked)

    @property
    def reads(self) -> int:
        """Its other requests."""
        return sum(not asked.writes for asked in self._server.asked)

    def writes_to(self, resource: str, part: str = "") -> int:
        """Requests of the agent that changed objects of a resource, or a part of them such as `status`."""
        asked = self._server.asked
        return sum(each.writes and (each.resource, each.part) == (resource, part) for each in asked)

    def make(self, table: str, found: Json) -> Json:
        """Create an object; as it is then."""
        made: Json = self.call(lambda: self._server.store.create(table, found))
        return made

    def find(self, table: str, name: str) -> Json:
        """An object as it is now; empty where there is none."""
        found: Json = self._server.store.objects.get(table, {}).get((NAMESPACE, name)) or {}
        return found

    def delete(self, table: str, name: str) -> None:
        """Delete an object."""
        self.call(lambda: self._server.store.delete(table, NAMESPACE, name, {}))

    def change(self, table: str, name: str, change: Callable[[Json], Json], namespace: str = NAMESPACE) -> None:
        """Put in an object's place what `change` makes of it."""
        store = self._server.store
        self.call(lambda: store.replace(table, namespace, name, change(store.get(table, namespace, name))))

    def call(self, do: Callable[[], Any]) -> Any:
        """Do something in the server's thread."""
        return self._server.call(do)

    def run_pods(self, begins: Callable[[Json], bool] = lambda _: True) -> Kubelets:
        """Let pods run, Jobs have pods, and what is owned go with its owner."""
        jobs = importlib.import_module("apiserver.controllers.jobs")
        collection = importlib.import_module("apiserver.controllers.collection")
        store, kubelets = self._server.store, Kubelets(self._server.store, self._node_names, _GPUS, begins)
        for controller in (collection.Collector(store), jobs.JobController(store, 0, 0.5), kubelets):
            self.call(partial(self._server.attach, controller))
        return kubelets

    def give_addresses(self) -> None:
        """Have each Service get a loopback address of its own."""
        numbers = itertools.count()

        def address() -> str:
            high, low = divmod(next(numbers), _ADDRESSES)
            return f"127.77.{high}.{1 + low}"

        self._server.writer.service_address = address


@contextmanager
def large_cluster(size: Size) -> Iterator[LargeCluster]:
    """One, on a free port of this machine."""
    if str(_SERVER) not in sys.path:
        sys.path.insert(0, str(_SERVER))
    serving = importlib.import_module("apiserver.serving")
    with serving.KubeServer(bookmark_seconds=10.0, namespaces=(NAMESPACE,)).running() as server:
        try:
            yield LargeCluster(server, size)
        finally:
            server.call(server.detach_all)


def _pod(name: str, node: str) -> Json:
    """As large as they are in life: containers, volumes, conditions."""
    requests = {"cpu": "500m", "memory": "1Gi"}
    container = {
        "name": "main",
        "image": "example.com/team/service:1",
        "resources": {"requests": requests},
        "env": [{"name": f"SETTING_{number}", "value": "x" * 40} for number in range(10)],
        "volumeMounts": [{"name": f"volume-{number}", "mountPath": f"/data/{number}"} for number in range(3)],
    }
    return {
        "metadata": {"name": name, "namespace": "default", "labels": {"app": name}},
        "spec": {
            "nodeName": node,
            "containers": [container],
            "volumes": [{"name": f"volume-{number}", "emptyDir": {}} for number in range(3)],
            "tolerations": [{"key": "node.kubernetes.io/not-ready", "operator": "Exists", "effect": "NoExecute"}],
        },
        "status": {
            "phase": "Running",
            "podIP": "10.0.0.1",
            "conditions": [{"type": kind, "status": "True"} for kind in ("PodScheduled", "Initialized", "Ready")],
        },
    }
