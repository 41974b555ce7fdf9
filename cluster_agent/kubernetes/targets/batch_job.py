"""batch/v1 Jobs: Indexed ones, whose parallelism and completions go up and down together.

Kubernetes takes the pods with the highest indices away first, and lets both numbers change only together and only in
Indexed mode (elastic Indexed Jobs, stable since 1.31). Other Jobs are work queues or single pods: they keep their size.
"""

from __future__ import annotations

from typing import Any

from cluster_agent.kubernetes.capacity import Amounts, requests_of
from cluster_agent.kubernetes.resources import JOBS, Resource
from cluster_agent.kubernetes.targets.target_kind import TargetFacts

Json = dict[str, Any]


class BatchJob:
    """The kind Job of batch/v1."""

    @property
    def resource(self) -> Resource:
        """Jobs."""
        return JOBS

    def facts(self, found: Json) -> TargetFacts:
        """What is kept of a Job."""
        metadata, spec, status = found["metadata"], found.get("spec") or {}, found.get("status") or {}
        template = (spec.get("template") or {}).get("spec") or {}
        annotations = {str(name): str(value) for name, value in (metadata.get("annotations") or {}).items()}
        parallelism, completions = spec.get("parallelism", 1), spec.get("completions")
        conditions = {each.get("type") for each in status.get("conditions") or () if each.get("status") == "True"}
        return TargetFacts(
            uid=str(metadata.get("uid") or ""),
            created=str(metadata.get("creationTimestamp") or ""),
            started=str(status.get("startTime") or ""),
            workers=0 if spec.get("suspend") else parallelism,
            requested=parallelism,
            asks=_asks(template),
            tolerations=tuple(template.get("tolerations") or ()),
            annotations=annotations,
            is_over=bool(conditions & {"Complete", "Failed", "SuccessCriteriaMet", "FailureTarget"}),
            obstacle=_obstacle(spec, parallelism, completions),
        )


def _asks(template: Json) -> Amounts | None:
    try:
        return requests_of(template, {})
    except (ValueError, TypeError, AttributeError):
        return None


def _obstacle(spec: Json, parallelism: Any, completions: Any) -> str:
    if spec.get("completionMode") != "Indexed":
        return "it is no Indexed Job (spec.completionMode), so Kubernetes cannot change its size"
    if parallelism != completions:
        return f"its parallelism ({parallelism}) and completions ({completions}) differ, so it is a queue of work"
    if spec.get("managedBy") not in (None, "kubernetes.io/job-controller"):
        return f"{spec['managedBy']} manages it"
    return ""
