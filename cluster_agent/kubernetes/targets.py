"""ElasticTargets, and the Jobs of batch/v1 that they point at.

A target says which job may have how many workers, and where its progress stands. The API server has checked it by the
CRD's schema and rules. It is checked here once more, as a CRD may be older than this agent, and somebody may have
stored objects before it had its rules.

Jobs are Indexed ones, whose parallelism and completions change together: Kubernetes takes the pods with the highest
indices away first, and lets both numbers change only together and only in Indexed mode (elastic Indexed Jobs, stable
since 1.31). Other Jobs are work queues or single pods: they keep their size. A Job in a queue of Kueue is Kueue's to
start. Kueue stops a running one whose size somebody changes, unless the Job is marked as elastic; then each change is a
workload to admit, of which the pods that are not there yet are the sign.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Final

from cluster_agent.kubernetes.capacity import Amounts, NodeChoice, node_choice, requests_of
from cluster_agent.kubernetes.resources import Json, Resource, as_dict
from cluster_agent.kubernetes.spec_fields import LONGEST_TYPE, MOST_RANKS, OTHER_TYPE, Wrong, count, one_of

GROUP: Final = "fedl2.io"
ELASTIC_TARGETS: Final = Resource(GROUP, "v1alpha1", "elastictargets", "ElasticTarget")
_LAST_PORT = 65_535
_METRICS_PATH = "/metrics"
_PATH = re.compile(r"/[!-~]{0,252}")


FROZEN: Final = "fedl2.io/frozen"
"""An annotation of a target, its job or their namespace: sizes stay as they are."""


class TargetUpdateMode(StrEnum):
    """What is done about sizes: they are recommended only, or set."""

    OFF = "Off"
    AUTO = "Auto"


def is_frozen(annotations: Any) -> bool:
    """Whether annotations freeze what they are on. A misspelt value does: somebody wanted to be left alone."""
    frozen = annotations.get(FROZEN) if isinstance(annotations, Mapping) else None
    return frozen is not None and str(frozen).strip().lower() != "false"


@dataclass(frozen=True, slots=True)
class TargetRef:
    """The object that a target points at, in its own namespace."""

    api_version: str
    kind: str
    name: str


@dataclass(frozen=True, slots=True)
class MetricsEndpoint:
    """Where the pod with completion index 0 exports metrics."""

    port: int
    path: str


@dataclass(frozen=True, slots=True)
class ProgressSource:
    """Where a job says its progress: in annotations of the object that the target points at, or in its own metrics.

    Attributes:
        samples: name of the annotation or metric that counts samples from the job's beginning.
        total: the same of how many there will be; empty where nobody knows.
    """

    samples: str
    total: str = ""
    endpoint: MetricsEndpoint | None = None


@dataclass(frozen=True, slots=True)
class ElasticTarget:
    """What is kept of an ElasticTarget; `problem` says why it cannot be used, in a line, and is empty where it can."""

    namespace: str
    name: str
    uid: str
    generation: int
    created: str
    status: Json
    ref: TargetRef = TargetRef("", "", "")
    least: int = 0
    most: int = 0
    mode: TargetUpdateMode = TargetUpdateMode.OFF
    model_type: str = OTHER_TYPE
    progress: ProgressSource | None = None
    problem: str = ""
    is_frozen: bool = False

    @property
    def job_id(self) -> str:
        """By which policies and logs know its job."""
        return f"{self.namespace}/{self.name}"

    @property
    def object_key(self) -> tuple[str, str, str]:
        """Kind, namespace and name of the object that it points at."""
        return self.ref.kind, self.namespace, self.ref.name


def elastic_target(found: Json) -> ElasticTarget:
    """What is kept of an ElasticTarget as the API gives it; one that makes no sense says so in `problem`."""
    metadata, spec = found["metadata"], as_dict(found.get("spec"))
    read: dict[str, Any] = {}
    try:
        # First: who asked for more than advice is told by an Event what is wrong with the rest.
        read["mode"] = one_of(TargetUpdateMode, spec, "updateMode", TargetUpdateMode.OFF)
        read["ref"] = _ref(spec.get("targetRef"))
        read["least"], read["most"] = count(spec, "min", 1, MOST_RANKS), count(spec, "max", None, MOST_RANKS)
        if read["most"] < read["least"]:
            read["problem"] = f"spec.max is {read['most']}, below spec.min, which is {read['least']}"
        read["model_type"] = _model_type(spec)
        read["progress"] = _progress(spec.get("progressFrom"))
    except Wrong as wrong:
        read["problem"] = str(wrong)
    return ElasticTarget(
        namespace=str(metadata.get("namespace") or ""),
        name=str(metadata["name"]),
        uid=str(metadata.get("uid") or ""),
        generation=metadata.get("generation") if isinstance(metadata.get("generation"), int) else 0,
        created=str(metadata.get("creationTimestamp") or ""),
        status=as_dict(found.get("status")),
        is_frozen=is_frozen(metadata.get("annotations")),
        **read,
    )


def _ref(found: Any) -> TargetRef:
    if not isinstance(found, dict):
        raise Wrong("spec.targetRef is missing")
    values = [found.get(name) for name in ("apiVersion", "kind", "name")]
    for name, value in zip(("apiVersion", "kind", "name"), values, strict=True):
        if not (isinstance(value, str) and value):
            raise Wrong(f"spec.targetRef.{name} is missing")
    return TargetRef(*(str(value) for value in values))


def _model_type(spec: Json) -> str:
    value = spec.get("modelType", OTHER_TYPE)
    if not isinstance(value, str) or not value or not value.isprintable():
        raise Wrong(f"spec.modelType is {value!r}: use a word")
    return value[:LONGEST_TYPE]


def _progress(found: Any) -> ProgressSource | None:
    if found is None:
        return None
    given = {name: found.get(name) for name in ("annotations", "metrics")} if isinstance(found, dict) else {}
    given = {name: value for name, value in given.items() if value is not None}
    if len(given) != 1:
        raise Wrong("spec.progressFrom has to have annotations or metrics, one of them")
    ((name, source),) = given.items()
    if not isinstance(source, dict):
        raise Wrong(f"spec.progressFrom.{name} is {source!r}: use an object")
    samples, total = source.get("samples"), source.get("total") or ""
    if not (isinstance(samples, str) and samples and isinstance(total, str)):
        raise Wrong(f"spec.progressFrom.{name}.samples is {samples!r}, total {total!r}: use names")
    return ProgressSource(samples, total, _endpoint(source) if name == "metrics" else None)


def _endpoint(found: Json) -> MetricsEndpoint:
    port = count(found, "progressFrom.metrics.port", None, _LAST_PORT)
    path = found.get("path", _METRICS_PATH)
    if not isinstance(path, str) or not _PATH.fullmatch(path):
        raise Wrong(f"spec.progressFrom.metrics.path is {path!r}: use one such as {_METRICS_PATH}")
    return MetricsEndpoint(port, path)


_QUEUE = "kueue.x-k8s.io/queue-name"
_ELASTIC = "kueue.x-k8s.io/elastic-job"
WAITS_FOR_KUEUE = "WaitsForKueue"
FINISHING = "Finishing"


@dataclass(frozen=True, slots=True)
class StatedReason:
    """Why an object's size must not be changed for now: a condition's reason, and a line."""

    reason: str
    line: str


@dataclass(frozen=True, slots=True)
class TargetFacts:
    """What is kept of an object that a target points at; times are RFC 3339.

    Attributes:
        uid: also of the owner of its pods.
        started: when its pods were first made; empty before.
        workers: how many it asks for now; 0 while it is suspended.
        requested: how many it is to have by its own word, also while it is suspended.
        requests: what one worker takes; None where it cannot be read.
        choice: of nodes, by its pods.
        obstacle: why its size cannot be changed, in a line; empty where it can.
        delay: why not for now, where it can.
        generation: rises with every change of what it asks for.
        sized_by: the field manager who set its size last; empty where the server does not say.
    """

    uid: str
    created: str
    started: str
    workers: int
    requested: int
    requests: Amounts | None
    choice: NodeChoice
    annotations: Mapping[str, str]
    is_over: bool
    obstacle: str = ""
    delay: StatedReason | None = None
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
        requests=_pod_requests(template),
        choice=node_choice(template),
        annotations=annotations,
        is_over=bool(conditions & {"Complete", "Failed", "SuccessCriteriaMet", "FailureTarget"}),
        obstacle=_obstacle(spec, parallelism, completions),
        delay=_delay_of(metadata, spec, status),
        generation=metadata.get("generation") or 0,
        sized_by=_manager_of(metadata, "f:parallelism"),
    )


def resized(facts: TargetFacts, workers: int) -> Json:
    """The merge patch that gives a Job so many workers, and starts it; the server refuses one number alone."""
    start = {} if facts.workers else {"suspend": False}
    return {"spec": {"parallelism": workers, "completions": workers, **start}}


def _pod_requests(template: Json) -> Amounts | None:
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


def _delay_of(metadata: Json, spec: Json, status: Json) -> StatedReason | None:
    queue = (metadata.get("labels") or {}).get(_QUEUE)
    if queue:
        if spec.get("suspend"):
            return StatedReason(WAITS_FOR_KUEUE, f"Kueue starts it, when queue {queue} has room")
        if (metadata.get("annotations") or {}).get(_ELASTIC) != "true":
            line = f"Kueue (queue {queue}) would stop it if its size changed: annotate it with {_ELASTIC}=true"
            return StatedReason(WAITS_FOR_KUEUE, line)
        if (status.get("ready") or 0) < spec.get("parallelism", 1) or status.get("terminating"):
            return StatedReason(WAITS_FOR_KUEUE, f"Kueue (queue {queue}) has not admitted all of its pods yet")
    if status.get("succeeded"):
        # More indices would have to be done again, fewer would end it before its time.
        return StatedReason(FINISHING, "some of its pods are done: it keeps its size to its end")
    return None
