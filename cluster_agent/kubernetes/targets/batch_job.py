"""Jobs of batch/v1 that ElasticTargets point at: Indexed ones, whose parallelism and completions change together.

Kubernetes takes the pods with the highest indices away first, and lets both numbers change only together and only in
Indexed mode (elastic Indexed Jobs, stable since 1.31). Other Jobs are work queues or single pods: they keep their size.

A Job in a queue of Kueue is Kueue's to start. Kueue stops a running one whose size somebody changes, unless the Job is
marked as elastic; then each change is a workload to admit, of which the pods that are not there yet are the sign.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from cluster_agent.kubernetes.capacity import Amounts, requests_of
from cluster_agent.kubernetes.node_choice import NodeChoice, node_choice
from cluster_agent.kubernetes.resources import Json

_QUEUE = "kueue.x-k8s.io/queue-name"
_ELASTIC = "kueue.x-k8s.io/elastic-job"
WAITS_FOR_KUEUE = "WaitsForKueue"
FINISHING = "Finishing"


@dataclass(frozen=True, slots=True)
class ResizeHold:
    """Why an object's size must not be changed for now: a condition's reason, and a line."""

    reason: str
    line: str


@dataclass(frozen=True, slots=True)
class TargetFacts:
    """What is kept of an object that a target points at.

    Attributes:
        uid: also of the owner of its pods.
        created: RFC 3339.
        started: RFC 3339, when its pods were first made; empty before.
        workers: how many it asks for now; 0 while it is suspended.
        requested: how many it is to have by its own word, also while it is suspended.
        asks: what one worker takes; None where it cannot be read.
        choice: of nodes, by its pods.
        is_over: it is done, or has failed for good.
        obstacle: why its size cannot be changed, in a line; empty where it can.
        hold: why not for now, where it can.
        generation: rises with every change of what it asks for.
        sized_by: the field manager who set its size last; empty where the server does not say.
    """

    uid: str
    created: str
    started: str
    workers: int
    requested: int
    asks: Amounts | None
    choice: NodeChoice
    annotations: Mapping[str, str]
    is_over: bool
    obstacle: str = ""
    hold: ResizeHold | None = None
    generation: int = 0
    sized_by: str = ""


def job_facts(found: Json) -> TargetFacts:
    """What is kept of a Job as the API gives it."""
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
        choice=node_choice(template),
        annotations=annotations,
        is_over=bool(conditions & {"Complete", "Failed", "SuccessCriteriaMet", "FailureTarget"}),
        obstacle=_obstacle(spec, parallelism, completions),
        hold=_hold(metadata, spec, status),
        generation=metadata.get("generation") or 0,
        sized_by=_manager_of(metadata, "f:parallelism"),
    )


def resized(facts: TargetFacts, workers: int) -> Json:
    """The merge patch that gives a Job so many workers, at least one; it starts one that is suspended.

    Both numbers are in one patch: the server refuses one of them alone.
    """
    start = {} if facts.workers else {"suspend": False}
    return {"spec": {"parallelism": workers, "completions": workers, **start}}


def _asks(template: Json) -> Amounts | None:
    try:
        return requests_of(template, {})
    except (ValueError, TypeError, AttributeError):
        return None


def _manager_of(metadata: Json, field: str) -> str:
    """Who wrote a field of the spec last: whoever changes it takes it from all others, and may share it after that."""
    found = [
        (str(each.get("time") or ""), str(each.get("manager") or ""))
        for each in metadata.get("managedFields") or ()
        if field in ((each.get("fieldsV1") or {}).get("f:spec") or {})
    ]
    return max(found, default=("", ""))[1]


def _obstacle(spec: Json, parallelism: Any, completions: Any) -> str:
    if spec.get("completionMode") != "Indexed":
        return "it is no Indexed Job (spec.completionMode), so Kubernetes cannot change its size"
    if parallelism != completions:
        return f"its parallelism ({parallelism}) and completions ({completions}) differ, so it is a queue of work"
    if spec.get("managedBy") not in (None, "kubernetes.io/job-controller"):
        return f"{spec['managedBy']} manages it"
    if ((spec.get("template") or {}).get("spec") or {}).get("resourceClaims"):
        return "its pods claim devices (resourceClaims), of which only kube-scheduler knows what is left"
    return ""


def _hold(metadata: Json, spec: Json, status: Json) -> ResizeHold | None:
    queue = (metadata.get("labels") or {}).get(_QUEUE)
    if queue:
        if spec.get("suspend"):
            return ResizeHold(WAITS_FOR_KUEUE, f"Kueue starts it, when queue {queue} has room")
        if (metadata.get("annotations") or {}).get(_ELASTIC) != "true":
            line = f"Kueue (queue {queue}) would stop it if its size changed: annotate it with {_ELASTIC}=true"
            return ResizeHold(WAITS_FOR_KUEUE, line)
        if (status.get("ready") or 0) < spec.get("parallelism", 1) or status.get("terminating"):
            return ResizeHold(WAITS_FOR_KUEUE, f"Kueue (queue {queue}) has not admitted all of its pods yet")
    if status.get("succeeded"):
        # More indices would have to be done again, fewer would end it before its time.
        return ResizeHold(FINISHING, "some of its pods are done: it keeps its size to its end")
    return None
