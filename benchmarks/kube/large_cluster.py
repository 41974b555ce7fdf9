"""A large cluster on the test API server: nodes, pods of others, and Jobs whose targets an agent looks after."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

Json = dict[str, Any]

CHECKOUT = Path(__file__).parents[2]
_SERVER = CHECKOUT / "tests" / "kube"
_DEFINITIONS = CHECKOUT / "deploy" / "crds"
_JOBS, _TARGETS = "jobs.batch", "elastictargets.fedl2.io"


@dataclass(frozen=True, slots=True)
class Size:
    """How large the cluster is; `pods` are others', those of the jobs come on top."""

    nodes: int
    pods: int
    jobs: int


class LargeCluster:
    """Changes objects as kubectl and controllers do, and sees what the agent writes."""

    def __init__(self, server: Any, size: Size) -> None:
        self._server, self._size = server, size
        self._made = 0
        for path in (_DEFINITIONS / "elastictargets.yaml", _DEFINITIONS / "trainingjobs.yaml"):
            self._make("customresourcedefinitions.apiextensions.k8s.io", yaml.safe_load(path.read_text("utf-8")))
        for number in range(size.nodes):
            has = {"cpu": "64", "memory": "256Gi", "nvidia.com/gpu": "8", "pods": "110"}
            self._make("nodes", {"metadata": {"name": f"node-{number}"}, "spec": {}, "status": {"allocatable": has}})
        for number in range(size.pods):
            self._make("pods", _pod(f"other-{number}", f"node-{number % size.nodes}"))
        for _ in range(size.jobs):
            self.add_job()

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

    def add_job(self) -> str:
        """A Job that waits, and its target; the name of both."""
        name = f"job-{self._made}"
        self._made += 1
        requests = {"cpu": "4", "memory": "8Gi", "nvidia.com/gpu": "1"}
        template = {
            "spec": {
                "restartPolicy": "Never",
                "containers": [
                    {"name": "main", "image": "example.com/team/train:1", "resources": {"requests": requests}}
                ],
            }
        }
        spec = {"completionMode": "Indexed", "parallelism": 1, "completions": 1, "suspend": True, "template": template}
        self._make(_JOBS, {"metadata": {"name": name, "namespace": "team"}, "spec": spec, "status": {}})
        ref = {"apiVersion": "batch/v1", "kind": "Job", "name": name}
        target = {"targetRef": ref, "min": 1, "max": 4, "updateMode": "Off", "modelType": f"type-{self._made % 8}"}
        self._make(_TARGETS, {"metadata": {"name": name, "namespace": "team"}, "spec": target})
        return name

    def end_job(self, name: str) -> None:
        """A Job and its target are gone."""
        self._server.call(lambda: self._server.store.delete(_TARGETS, "team", name, {}))
        self._server.call(lambda: self._server.store.delete(_JOBS, "team", name, {}))

    def is_advised(self, name: str) -> bool:
        """Whether the agent has said something of a job."""
        found = self._server.store.objects.get(_TARGETS, {}).get(("team", name)) or {}
        return bool((found.get("status") or {}).get("recommendation"))

    def _make(self, plural: str, found: Json) -> None:
        self._server.call(lambda: self._server.store.create(plural, found))


@contextmanager
def large_cluster(size: Size) -> Iterator[LargeCluster]:
    """One, on a free port of this machine."""
    sys.path.insert(0, str(_SERVER))
    serving = importlib.import_module("apiserver.serving")
    with serving.KubeServer(bookmark_seconds=10.0, namespaces=("team",)).running() as server:
        yield LargeCluster(server, size)


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
