"""A cluster on the test API server: nodes, Jobs with their pods, ElasticTargets, and the agent's own rights."""

from __future__ import annotations

import contextlib
import copy
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import yaml
from apiserver.rbac import allowed_by
from apiserver.serving import KubeServer

Json = dict[str, Any]
DEPLOY = Path(__file__).parents[4] / "deploy"
JOBS, PODS, TARGETS = "jobs.batch", "pods", "elastictargets.fedl2.io"


class KubeCluster:
    """Changes objects as kubectl, controllers and kubelets do; `agent` is the token of one with the advice role, `auto`
    of one that may set sizes besides."""

    def __init__(self, server: KubeServer) -> None:
        self.server = server
        advice = _rules("base/advice-role.yaml")
        server.tokens = {"agent": "agent", "auto": "auto", "root": "root"}
        server.may = allowed_by({"agent": advice, "auto": [*advice, *_rules("overlays/auto/auto-role.yaml")]})
        (crd,) = _read("crds/elastictargets.yaml")
        self.make("customresourcedefinitions.apiextensions.k8s.io", copy.deepcopy(crd))

    def make(self, plural: str, found: Json) -> Json:
        return self.server.call(lambda: self.server.store.create(plural, found))

    def node(
        self, name: str, cpu: str = "8", gpus: int = 4, memory: str = "32Gi", product: str = "", **spec: Any
    ) -> None:
        allocatable = {"cpu": cpu, "memory": memory, "nvidia.com/gpu": str(gpus), "pods": "110"}
        labels = {"nvidia.com/gpu.product": product} if product else {}
        metadata = {"name": name, "labels": labels}
        self.make("nodes", {"metadata": metadata, "spec": spec, "status": {"allocatable": allocatable}})

    def label(self, node: str, product: str) -> None:
        """Have a node say another type of its GPUs, or none."""

        def write() -> None:
            found = self.server.store.get("nodes", "", node)
            labels = {"nvidia.com/gpu.product": product} if product else {}
            self.server.store.replace("nodes", "", node, {**found, "metadata": {**found["metadata"], "labels": labels}})

        self.server.call(write)

    def job(
        self, name: str, workers: int, gpus: int = 1, cpu: str = "1", on: str = "", pods: int | None = None, **spec: Any
    ) -> Json:
        """An Indexed Job and its pods, on a node if one is named; a suspended one has none."""
        requests = {"cpu": cpu, "memory": "1Gi", **({"nvidia.com/gpu": str(gpus)} if gpus else {})}
        containers = [{"name": "main", "image": "example.com/team/train:1", "resources": {"requests": requests}}]
        job = self.make(
            JOBS,
            {
                "metadata": {"name": name, "namespace": "team"},
                "spec": {
                    "parallelism": workers,
                    "completions": workers,
                    "completionMode": "Indexed",
                    "template": {"spec": {"restartPolicy": "Never", "containers": containers}},
                    **spec,
                },
                "status": {},
            },
        )
        for number in range(0 if spec.get("suspend") else workers if pods is None else pods):
            self._pod(job, number, on)
        return job

    def _pod(self, job: Json, number: int, on: str) -> None:
        name, uid = job["metadata"]["name"], job["metadata"]["uid"]
        owner = [{"uid": uid, "controller": True, "kind": "Job", "name": name}]
        pod = {"metadata": {"name": f"{name}-{number}", "namespace": "team", "ownerReferences": owner}}
        place = {"nodeName": on} if on else {}
        spec = {**job["spec"]["template"]["spec"], **place}
        self.make(PODS, {**pod, "spec": spec, "status": {"phase": "Running" if on else "Pending"}})

    def follow(self, name: str, on: str = "a", *, leaving: bool = False) -> None:
        """Bring a Job's pods in line with its size, as its controller does: the highest indices go first.

        Args:
            leaving: those that go are still on their way out; else whatever is on its way out is gone.
        """
        job = self.server.call(lambda: self.server.store.get(JOBS, "team", name))
        wanted = 0 if job["spec"].get("suspend") else job["spec"]["parallelism"]
        there = set()
        for found in self.server.call(lambda: list(self.server.store.all(PODS, "team"))):
            if "deletionTimestamp" in found["metadata"] and not leaving:
                self.remove_pod(found["metadata"]["name"])
            else:
                there.add(found["metadata"]["name"])
        for number in range(32):
            pod = f"{name}-{number}"
            if number < wanted and pod not in there:
                self._pod(job, number, on)
            elif number >= wanted and pod in there:
                self.server.call(
                    lambda pod=pod: self.server.store.delete(  # type: ignore[misc]
                        PODS, "team", pod, {"gracePeriodSeconds": 30 if leaving else 0}
                    )
                )

    def foreign_pod(self, name: str, on: str = "a") -> None:
        """Put a pod with a GPU on a node, that no target has to do with."""
        containers = [{"name": "main", "resources": {"requests": {"cpu": "100m", "nvidia.com/gpu": "1"}}}]
        metadata = {"name": name, "namespace": "team"}
        spec = {"containers": containers, "nodeName": on}
        self.make(PODS, {"metadata": metadata, "spec": spec, "status": {"phase": "Running"}})

    def remove_pod(self, name: str) -> None:
        self.server.call(lambda: self.server.store.delete(PODS, "team", name, {"gracePeriodSeconds": 0}))

    def size(self, name: str) -> int:
        """What a Job asks for; 0 while it is suspended."""
        spec = self.server.call(lambda: self.server.store.get(JOBS, "team", name))["spec"]
        assert spec["parallelism"] == spec["completions"]
        return 0 if spec.get("suspend") else int(spec["parallelism"])

    def opt_in(self, **annotations: str) -> None:
        """Give the namespace the label, and annotations."""

        def write() -> None:
            found = self.server.store.get("namespaces", "", "team")
            metadata = {**found["metadata"], "labels": {"fedl2.io/update-mode": "Auto"}, "annotations": annotations}
            self.server.store.replace("namespaces", "", "team", {**found, "metadata": metadata})

        self.server.call(write)

    def events(self) -> list[tuple[str, str, str]]:
        """Kind of the object, reason and message of each."""
        found = self.server.call(lambda: list(self.server.store.all("events", "team")))
        return [(each["involvedObject"]["kind"], each["reason"], each["message"]) for each in found]

    def target(self, job: str, most: int = 4, **spec: Any) -> None:
        self.make(TARGETS, pointing_at(job, most, **spec))

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

    def writes(self, user: str = "agent") -> list[tuple[str, str, str]]:
        """What an agent wrote."""
        return [
            (asked.verb, asked.resource, asked.part)
            for asked in list(self.server.asked)
            if asked.user == user and asked.writes
        ]


def pointing_at(job: str, most: int = 4, **spec: Any) -> Json:
    """An ElasticTarget for a Job."""
    ref = {"apiVersion": "batch/v1", "kind": "Job", "name": job}
    metadata = {"name": job, "namespace": "team"}
    defaults = {"min": 1, "updateMode": "Off", "modelType": "other"}
    return {"metadata": metadata, "spec": {**defaults, "targetRef": ref, "max": most, **spec}}


@cache
def _read(file: str) -> list[Json]:
    """What is in a file, of which every cluster begins; nobody changes it."""
    return list(yaml.safe_load_all((DEPLOY / file).read_text(encoding="utf-8")))


def _rules(file: str) -> list[Json]:
    rules = []
    for role in _read(f"kustomize/{file}"):
        where = {"namespace": role["metadata"]["namespace"]} if role["kind"] == "Role" else {}
        rules += [{**rule, **where} for rule in role["rules"]]
    return rules


@contextlib.contextmanager
def kube_cluster() -> Iterator[KubeCluster]:
    with KubeServer(bookmark_seconds=0.5, namespaces=("team", "fedl2")).running() as server:
        yield KubeCluster(server)
