"""Members, states and namespaces made by hand, for what is pure."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from cluster_agent.backends.kubernetes.limits import LimitSituation, NamespaceFacts
from cluster_agent.backends.kubernetes.observation import ObservedTarget
from cluster_agent.kubernetes.capacity import NodeChoice
from cluster_agent.kubernetes.targets import ElasticTarget, TargetFacts, elastic_target
from policy_net.domain import Allocation, ClusterState, Job, JobKind, Node, Resources

NOW = 1_800_000_000.0
OPEN = NamespaceFacts(has_opted_in=True, is_frozen=False)


def target(name: str = "train", namespace: str = "team", annotations: Any = None, **spec: Any) -> ElasticTarget:
    ref = {"apiVersion": "batch/v1", "kind": "Job", "name": name}
    metadata = {"name": name, "namespace": namespace, "uid": f"target-{name}", "annotations": annotations or {}}
    return elastic_target({"metadata": metadata, "spec": {"targetRef": ref, "max": 4, "updateMode": "Auto", **spec}})


def facts(workers: int = 2, name: str = "train", gpus: int = 1, **more: Any) -> TargetFacts:
    requests = {"cpu": 1000, "nvidia.com/gpu": gpus, "pods": 1}
    found = TargetFacts(f"uid-{name}", "", "", workers, workers, requests, NodeChoice(), {}, is_over=False)
    return replace(found, **more)


def member(workers: int = 2, name: str = "train", namespace: str = "team", **spec: Any) -> ObservedTarget:
    return ObservedTarget(target(name, namespace, **spec), facts(workers, name), None, None)


def situation(**more: Any) -> LimitSituation:
    return LimitSituation(NOW, **{"namespaces": {"team": OPEN}, **more})


def job(name: str, workers: int, least: int = 1, most: int = 4, cpu: int = 1000, gpus: int = 1) -> Job:
    return Job(
        name,
        "other",
        0.0,
        Resources(cpu, gpus),
        Resources(0),
        1.0,
        100.0,
        50.0,
        max_workers=most,
        max_ps=0,
        min_workers=least,
        min_ps=0,
        current=Allocation(workers, 0),
        kind=JobKind.ALLREDUCE,
    )


def state(*jobs: Job, gpus: int = 8, cpu: int = 64_000) -> ClusterState:
    return ClusterState(NOW, (Node("a", Resources(cpu, gpus)),), jobs, 300.0)
