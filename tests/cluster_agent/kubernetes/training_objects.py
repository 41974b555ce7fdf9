"""TrainingJobs as somebody may have written them, and their CRD."""

from __future__ import annotations

import copy
from functools import cache
from pathlib import Path
from typing import Any

import yaml

from cluster_agent.kubernetes.training.training_job import TrainingJob, training_job

Json = dict[str, Any]
TABLE = "trainingjobs.fedl2.io"
CRDS = "customresourcedefinitions.apiextensions.k8s.io"
_CRD = Path(__file__).parents[3] / "deploy" / "crds" / "trainingjobs.yaml"


@cache
def _read(path: Path) -> Json:
    found: Json = yaml.safe_load(path.read_text(encoding="utf-8"))
    return found


def crd() -> Json:
    return copy.deepcopy(_read(_CRD))


def template(command: list[str] | None = None, **pod: Any) -> Json:
    container: Json = {
        "name": "main",
        "image": "trainer",
        "resources": {"requests": {"cpu": "500m", "memory": "256Mi"}},
        **({"command": command} if command else {}),
    }
    return {"spec": {"containers": [container], **pod}}


def spec(workers: tuple[int, int] = (1, 4), servers: tuple[int, int] = (1, 2), **more: Any) -> Json:
    return {
        "modelType": "digits",
        "worker": {"min": workers[0], "max": workers[1], "template": template()},
        "ps": {"min": servers[0], "max": servers[1]},
        "checkpoints": {"claimName": "shared"},
        "coordinator": {"journal": {"claimName": "journal"}},
        **more,
    }


def job_object(name: str = "digits", uid: str = "0123456789abcdef", status: Json | None = None, **more: Any) -> Json:
    metadata = {
        "name": name,
        "namespace": "team",
        "uid": uid,
        "resourceVersion": "1",
        "generation": 1,
        "creationTimestamp": "2026-01-01T00:00:00Z",
    }
    found = {"metadata": metadata, "spec": spec(**more), **({"status": status} if status is not None else {})}
    return {"apiVersion": "fedl2.io/v1alpha1", "kind": "TrainingJob", **copy.deepcopy(found)}


def job(name: str = "digits", status: Json | None = None, **more: Any) -> TrainingJob:
    return training_job(job_object(name, status=status, **more))


def all_reduce_spec(workers: tuple[int, int] = (1, 4), **more: Any) -> Json:
    """Without a coordinator and parameter servers."""
    found = spec(workers, communication="AllReduce", **more)
    for name in ("ps", "coordinator"):
        if name not in more:
            del found[name]
    return found
