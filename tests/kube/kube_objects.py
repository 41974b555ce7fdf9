"""Objects to give to a cluster, and a clock to move."""

from __future__ import annotations

from typing import Any

Json = dict[str, Any]
PODS, JOBS = "pods", "jobs.batch"


class Clock:
    """Unix seconds that only a test moves."""

    def __init__(self) -> None:
        self.now = 1_800_000_000.0

    def __call__(self) -> float:
        return self.now


def pod(name: str, gpus: int = 1, command: list[str] | None = None, labels: Json | None = None, **spec: Any) -> Json:
    return {
        "metadata": {"name": name, "namespace": "team", "labels": labels or {}},
        "spec": pod_spec(gpus, command, **spec),
    }


def pod_spec(gpus: int = 1, command: list[str] | None = None, container: Json | None = None, **spec: Any) -> Json:
    requests = {"cpu": "1", "memory": "1Gi", **({"nvidia.com/gpu": str(gpus)} if gpus else {})}
    main: Json = {"name": "main", "image": "trainer", "resources": {"requests": requests}, **(container or {})}
    if command:
        main["command"] = command
    return {"restartPolicy": "Never", "containers": [main], **spec}


def job(name: str, pods: int, template: Json | None = None, **spec: Any) -> Json:
    """An Indexed Job."""
    numbers = {"parallelism": pods, "completions": pods, "completionMode": "Indexed"}
    body = {**numbers, "template": {"spec": template or pod_spec()}, **spec}
    return {"metadata": {"name": name, "namespace": "team"}, "spec": body}


def index_of(found: Json) -> int:
    return int(found["metadata"]["annotations"]["batch.kubernetes.io/job-completion-index"])


def phase_of(found: Json) -> str:
    return str((found.get("status") or {}).get("phase", ""))
