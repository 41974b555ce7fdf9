"""A cluster on the test API server: nodes, Jobs with their pods, ElasticTargets, and the agent's own rights."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import yaml
from apiserver.rbac import allowed_by
from apiserver.serving import KubeServer

Json = dict[str, Any]
DEPLOY = Path(__file__).parents[4] / "deploy" / "kubernetes"
JOBS, PODS, TARGETS = "jobs.batch", "pods", "elastictargets.fedl2.io"


class KubeCluster:
    """Changes objects as kubectl, controllers and kubelets do; `agent` is the token of one with the advice role."""

    def __init__(self, server: KubeServer) -> None:
        self.server = server
        crd = yaml.safe_load((DEPLOY / "crd-elastictargets.yaml").read_text(encoding="utf-8"))
        rules = []
        for role in yaml.safe_load_all((DEPLOY / "advice-role.yaml").read_text(encoding="utf-8")):
            where = {"namespace": role["metadata"]["namespace"]} if role["kind"] == "Role" else {}
            rules += [{**rule, **where} for rule in role["rules"]]
        server.tokens = {"agent": "agent", "root": "root"}
        server.may = allowed_by({"agent": rules})
        self.make("customresourcedefinitions.apiextensions.k8s.io", crd)

    def make(self, plural: str, found: Json) -> Json:
        return self.server.call(lambda: self.server.store.create(plural, found))

    def node(self, name: str, cpu: str = "8", gpus: int = 4, memory: str = "32Gi", **spec: Any) -> None:
        allocatable = {"cpu": cpu, "memory": memory, "nvidia.com/gpu": str(gpus), "pods": "110"}
        self.make("nodes", {"metadata": {"name": name}, "spec": spec, "status": {"allocatable": allocatable}})

    def job(self, name: str, workers: int, gpus: int = 1, cpu: str = "1", on: str = "", **spec: Any) -> Json:
        """An Indexed Job and its pods, on a node if one is named."""
        requests = {"cpu": cpu, "memory": "1Gi", **({"nvidia.com/gpu": str(gpus)} if gpus else {})}
        containers = [{"name": "main", "resources": {"requests": requests}}]
        job = self.make(
            JOBS,
            {
                "metadata": {"name": name, "namespace": "team"},
                "spec": {
                    "parallelism": workers,
                    "completions": workers,
                    "completionMode": "Indexed",
                    "template": {"spec": {"containers": containers}},
                    **spec,
                },
                "status": {},
            },
        )
        owner = [{"uid": job["metadata"]["uid"], "controller": True, "kind": "Job", "name": name}]
        for number in range(workers):
            pod = {"metadata": {"name": f"{name}-{number}", "namespace": "team", "ownerReferences": owner}}
            place = {"nodeName": on} if on else {}
            phase = "Running" if on else "Pending"
            self.make(PODS, {**pod, "spec": {"containers": containers, **place}, "status": {"phase": phase}})
        return job

    def target(self, job: str, most: int = 4, **spec: Any) -> None:
        ref = {"apiVersion": "batch/v1", "kind": "Job", "name": job}
        metadata = {"name": job, "namespace": "team"}
        defaults = {"min": 1, "updateMode": "Off", "modelType": "other"}
        self.make(TARGETS, {"metadata": metadata, "spec": {**defaults, "targetRef": ref, "max": most, **spec}})

    def status_of(self, target: str) -> Json:
        found = self.server.call(lambda: self.server.store.get(TARGETS, "team", target))
        return found.get("status") or {}

    def change(self, plural: str, name: str, part: str = "", **change: Any) -> None:
        """Give an object of the namespace other fields."""

        def write() -> None:
            found = self.server.store.get(plural, "team", name)
            self.server.store.replace(plural, "team", name, {**found, **change}, part)

        self.server.call(write)

    def annotate(self, job: str, **annotations: str) -> None:
        def write() -> None:
            found = self.server.store.get(JOBS, "team", job)
            metadata = {**found["metadata"], "annotations": annotations}
            self.server.store.replace(JOBS, "team", job, {**found, "metadata": metadata})

        self.server.call(write)

    def writes(self) -> list[tuple[str, str, str]]:
        """What the agent wrote."""
        return [
            (asked.verb, asked.resource, asked.part)
            for asked in self.server.asked
            if asked.user == "agent" and asked.writes
        ]


@contextlib.contextmanager
def kube_cluster() -> Iterator[KubeCluster]:
    with KubeServer(bookmark_seconds=0.5, namespaces=("team", "fedl2")).running() as server:
        yield KubeCluster(server)
