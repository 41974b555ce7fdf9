"""A Workload of Kueue: how a TrainingJob asks for quota, and what is kept of the answer; pure.

A Workload states how many pods of each kind (`podSets`) a job is to have. Kueue answers with conditions, and with the
flavors of nodes whose quota each kind takes; pods have to go to such nodes. A Workload with more pods that names the
one it replaces is a slice: Kueue admits the difference, and finishes the one before.
Source: Kueue 0.18, API v1beta2, its concepts "Workload" and "Elastic Workloads".
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final

from cluster_agent.kubernetes.resources import Json, Resource, condition, condition_of, controller_of, dicts_in
from cluster_agent.kubernetes.training import manifests
from cluster_agent.kubernetes.training.manifests import COORDINATOR, JOB_LABEL
from cluster_agent.kubernetes.training.training_job import TrainingJob
from policy_net.domain import Allocation

WORKLOADS: Final = Resource("kueue.x-k8s.io", "v1beta2", "workloads", "Workload")
FLAVORS: Final = Resource("kueue.x-k8s.io", "v1beta2", "resourceflavors", "ResourceFlavor", namespaced=False)
REPLACES: Final = "kueue.x-k8s.io/workload-slice-replacement-for"
_ELASTIC: Final = "kueue.x-k8s.io/elastic-job"
_SLICES_OF: Final = "kueue.x-k8s.io/workload-slice-name"
_JOB_UID: Final = "kueue.x-k8s.io/job-uid"
_NUMBER = re.compile(r".*-(0|[1-9][0-9]{0,8})")


class WorkloadState(StrEnum):
    """Where a Workload is with Kueue.

    PENDING: without quota. RESERVED: with quota, while other checks are not done. EVICTED: it has to give its quota
    back, and has it until its pods are gone.
    """

    PENDING = "Pending"
    RESERVED = "Reserved"
    ADMITTED = "Admitted"
    EVICTED = "Evicted"
    FINISHED = "Finished"


@dataclass(frozen=True, slots=True)
class KueueWorkload:
    """What is kept of one.

    Attributes:
        owner: uid of its TrainingJob.
        number: later slices have higher ones; -1 of a name that is not ours.
        size: the pods that it asks for, besides the coordinator's.
        order: names of its podSets, as they stand in its spec.
        line: what Kueue says of it.
        replaces: the name of the slice before; empty of a first one.
        flavors: of each podSet; `updates`: what admission checks add to its pods.
    """

    namespace: str
    name: str
    uid: str
    version: str
    owner: str
    number: int
    size: Allocation
    state: WorkloadState
    deleting: bool = False
    order: tuple[str, ...] = ()
    line: str = ""
    is_ready: bool = False
    replaces: str = ""
    flavors: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    updates: Mapping[str, tuple[Json, ...]] = field(default_factory=dict)


def workload_facts(found: Json) -> KueueWorkload | None:
    """What is kept of a Workload as the API gives it; None of one that is no TrainingJob's."""
    metadata, spec, status = found["metadata"], found.get("spec") or {}, found.get("status") or {}
    owner = controller_of(metadata)
    if owner.get("kind") != "TrainingJob":
        return None
    counts = {str(each.get("name")): each.get("count", 1) for each in dicts_in(spec.get("podSets"))}
    state, line = _state(spec, status)
    numbered = _NUMBER.fullmatch(str(metadata["name"]))
    flavors = {
        str(each.get("name")): tuple(dict.fromkeys((each.get("flavors") or {}).values()))
        for each in (status.get("admission") or {}).get("podSetAssignments") or ()
    }
    updates: dict[str, tuple[Json, ...]] = {}
    for check in status.get("admissionChecks") or ():
        for update in (check.get("podSetUpdates") or ()) if check.get("state") == "Ready" else ():
            updates[str(update.get("name"))] = (*updates.get(str(update.get("name")), ()), update)
    return KueueWorkload(
        namespace=str(metadata.get("namespace") or ""),
        name=str(metadata["name"]),
        uid=str(metadata.get("uid") or ""),
        version=str(metadata.get("resourceVersion") or ""),
        owner=str(owner.get("uid") or ""),
        number=int(numbered[1]) if numbered else -1,
        size=Allocation(int(counts.get("worker", 0)), int(counts.get("ps", 0))),
        state=state,
        deleting="deletionTimestamp" in metadata,
        order=tuple(counts),
        line=line,
        is_ready=condition_of(status, "PodsReady").get("status") == "True",
        replaces=str((metadata.get("annotations") or {}).get(REPLACES) or "").rpartition("/")[2],
        flavors=flavors,
        updates=updates,
    )


def _state(spec: Json, status: Json) -> tuple[WorkloadState, str]:
    def is_true(name: str) -> bool:
        return bool(condition_of(status, name).get("status") == "True")

    def message_of(name: str, otherwise: str) -> str:
        return str(condition_of(status, name).get("message") or otherwise)

    if is_true("Finished"):
        return WorkloadState.FINISHED, message_of("Finished", "it is over")
    if spec.get("active") is False:
        line = "its Workload was deactivated (spec.active is false)"
        return (WorkloadState.EVICTED if is_true("QuotaReserved") else WorkloadState.PENDING), line
    if not is_true("QuotaReserved"):
        return WorkloadState.PENDING, message_of("QuotaReserved", "Kueue has not looked at it yet")
    if is_true("Evicted"):
        return WorkloadState.EVICTED, message_of("Evicted", "Kueue took its quota back")
    if is_true("Admitted"):
        return WorkloadState.ADMITTED, message_of("Admitted", "admitted")
    return WorkloadState.RESERVED, message_of("Admitted", "its admission checks are not done")


def workload_of(job: TrainingJob, number: int, size: Allocation, replaces: KueueWorkload | None) -> Json:
    """A Workload that asks for a job's coordinator and so many tasks, in place of another slice once it is admitted.

    Raises:
        ValueError, TypeError, KeyError, AttributeError: a template is no pod's; templates keep whatever was written.
    """
    name = f"{job.runtime_name}-{number}"
    if job.is_all_reduce:
        pods = {"worker": (size.workers, manifests.rank_pod(job, "worker-0", (0, size.workers), ""))}
    else:
        pods = {
            COORDINATOR: (1, manifests.coordinator_pod(job, size, relaunched=False)),
            "ps": (size.ps, manifests.task_pod(job, "ps-0", "")),
            "worker": (size.workers, manifests.task_pod(job, "worker-0", "")),
        }
    annotations = {_ELASTIC: "true", _SLICES_OF: f"{job.runtime_name}-0"}
    if replaces is not None:
        annotations[REPLACES] = f"{replaces.namespace}/{replaces.name}"
    return {
        "apiVersion": WORKLOADS.api_version,
        "kind": WORKLOADS.kind,
        "metadata": {
            "name": name,
            "namespace": job.namespace,
            "labels": {JOB_LABEL: job.name, _JOB_UID: job.uid, "app.kubernetes.io/managed-by": "fedl2"},
            "annotations": annotations,
            "ownerReferences": [manifests.owner_reference(job)],
        },
        "spec": {
            "queueName": job.queue,
            "podSets": [
                {"name": role, "count": count, "template": {"metadata": {}, "spec": _requests_of(pod["spec"])}}
                for role, (count, pod) in pods.items()
            ],
        },
    }


_REQUESTED: Final = (
    "affinity",
    "nodeSelector",
    "overhead",
    "priorityClassName",
    "resourceClaims",
    "resources",
    "restartPolicy",
    "runtimeClassName",
    "schedulerName",
    "tolerations",
    "topologySpreadConstraints",
)
_OF_CONTAINER: Final = ("name", "image", "resources", "restartPolicy")


def _requests_of(spec: Json) -> Json:
    """The part of a pod's spec from which quota follows: neither commands nor volumes, nor what is in variables."""
    requests: Json = {name: spec[name] for name in _REQUESTED if name in spec}
    for kind in ("initContainers", "containers"):
        if spec.get(kind):
            requests[kind] = [{name: each[name] for name in _OF_CONTAINER if name in each} for each in spec[kind]]
    return requests


def counted(workload: KueueWorkload, size: Allocation) -> list[Json]:
    """The JSON patch that gives a Workload other counts, and fails where it has changed since it was read."""
    counts = {"ps": size.ps, "worker": size.workers}
    return [
        {"op": "replace", "path": "/metadata/resourceVersion", "value": workload.version},
        *(
            {"op": "replace", "path": f"/spec/podSets/{index}/count", "value": counts[name]}
            for index, name in enumerate(workload.order)
            if name in counts
        ),
    ]


@dataclass(slots=True)
class Placement:
    """What an admission adds to the pods of one podSet, so that they use the quota that was given."""

    labels: dict[str, str] = field(default_factory=dict)
    annotations: dict[str, str] = field(default_factory=dict)
    node_selector: dict[str, str] = field(default_factory=dict)
    tolerations: list[Json] = field(default_factory=list)

    def put_into(self, pod: Json) -> None:
        """Add it to a pod.

        Raises:
            ValueError: its template says something else.
        """
        metadata, spec = pod["metadata"], pod["spec"]
        for place, name, more in (
            (metadata, "labels", self.labels),
            (metadata, "annotations", self.annotations),
            (spec, "nodeSelector", self.node_selector),
        ):
            present = place.get(name) or {}
            against = next((key for key, value in more.items() if present.get(key, value) != value), None)
            if against is not None:
                raise ValueError(f"{name} {against} is {present[against]}, and Kueue's admission has {more[against]}")
            if more:
                place[name] = {**present, **more}
        if self.tolerations:
            present = spec.get("tolerations") or []
            spec["tolerations"] = [*present, *(each for each in self.tolerations if each not in present)]


def placement(flavors: Iterable[Json], updates: Iterable[Json]) -> Placement:
    """What pods of a podSet carry: of the ResourceFlavors whose quota they take, and of admission checks."""
    found = Placement()
    for flavor in flavors:
        spec = flavor.get("spec") or {}
        found.node_selector |= spec.get("nodeLabels") or {}
        found.tolerations += spec.get("tolerations") or []
    for update in updates:
        found.labels |= update.get("labels") or {}
        found.annotations |= update.get("annotations") or {}
        found.node_selector |= update.get("nodeSelector") or {}
        found.tolerations += update.get("tolerations") or []
    return found


def ended(status: Json, outcome: str, now: str, generation: int) -> Json:
    """The status of a Workload whose job is over; an empty outcome says that another slice stands in for it."""
    reason = {"Complete": "Succeeded", "": "WorkloadSliceReplaced"}.get(outcome, outcome)
    line = "the job is over" if outcome else "a larger slice was admitted in its place"
    return {"conditions": _with(status, generation, now, ("Finished", True, reason, line))}


def ready(status: Json, now: str, generation: int) -> Json:
    """The status of a Workload whose pods all run: where Kueue waits for that, it evicts others."""
    return {"conditions": _with(status, generation, now, ("PodsReady", True, "Started", "all pods run"))}


_AT_ONCE = frozenset({"Preempted", "NodeFailures"})
"""Evictions after which a Workload may be admitted again at once; of the others Kueue says when."""


def given_back(status: Json, now: str, generation: int) -> Json:
    """The status of an evicted Workload whose pods are gone: it has no quota any more, and waits again."""
    evicted = condition_of(status, "Evicted")
    reason = str(evicted.get("reason") or "Deactivated")
    line = str(evicted.get("message") or "its pods are gone")
    changes = [
        ("QuotaReserved", False, "Pending", line),
        ("Admitted", False, "NoReservation", "the Workload has no reservation"),
        ("Requeued", reason in _AT_ONCE, reason, line),
    ]
    if condition_of(status, "PodsReady"):
        changes.append(("PodsReady", False, "WaitForStart", "its pods are gone"))
    return {"admission": None, "conditions": _with(status, generation, now, *changes)}


def _with(status: Json, generation: int, now: str, *changes: tuple[str, bool, str, str]) -> list[Json]:
    names = {name for name, *_ in changes}
    kept = [each for each in status.get("conditions") or () if each.get("type") not in names]
    return [*kept, *(condition(status, each, now, generation) for each in changes)]
