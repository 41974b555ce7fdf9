"""An ElasticTarget: which job may have how many workers, and how its progress is seen.

The API server has checked it by the CRD's schema and rules. It is checked here once more, as a CRD may be older than
this agent, and somebody may have stored objects before it had its rules.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Final

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
    said = annotations.get(FROZEN) if isinstance(annotations, Mapping) else None
    return said is not None and str(said).strip().lower() != "false"


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
        endpoint: of the metrics; None where it is annotations.
    """

    samples: str
    total: str = ""
    endpoint: MetricsEndpoint | None = None


@dataclass(frozen=True, slots=True)
class ElasticTarget:
    """What is kept of an ElasticTarget.

    Attributes:
        created: RFC 3339.
        problem: why it cannot be used, in a line; empty where it can.
        is_frozen: by an annotation of its own.
    """

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
