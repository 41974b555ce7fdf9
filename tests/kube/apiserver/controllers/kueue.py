"""A stand-in for Kueue: admits Workloads within the quota of their queue, replaces slices, preempts and evicts.

As the real one: the older first, and of higher priority; a slice needs quota for what it has more than the one it
replaces, which is then finished; an evicted Workload keeps its quota until whoever made it gives it back. Not there:
flavors to choose from, cohorts, fair sharing, topology, MultiKueue. `broken` lists what Kueue's webhooks would refuse,
and pods of a TrainingJob beyond what was admitted.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from apiserver.controllers.requests import ONE, requests_of
from apiserver.controllers.stepping import Pair, controller_of, has_ended, is_true, pair_of, with_condition
from apiserver.store import Change, Refused, Store

Json = dict[str, Any]
WORKLOADS = "workloads.kueue.x-k8s.io"
FLAVORS = "resourceflavors.kueue.x-k8s.io"
_REPLACES = "kueue.x-k8s.io/workload-slice-replacement-for"


def _crd(plural: str, kind: str, scope: str, spec: Json, has_status: bool) -> Json:
    free = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    schema = {"type": "object", "properties": {"spec": spec, **({"status": free} if has_status else {})}}
    version: Json = {"name": "v1beta2", "served": True, "storage": True, "schema": {"openAPIV3Schema": schema}}
    names = {"kind": kind, "listKind": f"{kind}List", "plural": plural, "singular": kind.lower()}
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"{plural}.kueue.x-k8s.io"},
        "spec": {
            "group": "kueue.x-k8s.io",
            "scope": scope,
            "names": names,
            "versions": [{**version, **({"subresources": {"status": {}}} if has_status else {})}],
        },
    }


def kueue_crds() -> list[Json]:
    """The CRDs that are used, with as much of their schemas as matters here."""
    free = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    pod_set = {
        "type": "object",
        "required": ["template"],
        "properties": {
            "name": {"type": "string", "default": "main"},
            "count": {"type": "integer", "minimum": 0, "default": 1},
            "template": {
                "type": "object",
                "properties": {"metadata": free, "spec": {**free, "required": ["containers"]}},
            },
        },
    }
    pod_sets = {"type": "array", "minItems": 1, "maxItems": 18, "items": pod_set}
    workload = {
        "type": "object",
        "properties": {
            "active": {"type": "boolean", "default": True},
            "priority": {"type": "integer"},
            "queueName": {"type": "string"},
            "podSets": {**pod_sets, "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["name"]},
        },
    }
    return [
        _crd("workloads", "Workload", "Namespaced", workload, has_status=True),
        _crd("resourceflavors", "ResourceFlavor", "Cluster", free, has_status=False),
    ]


class KueueStandIn:
    """Admits Workloads.

    Args:
        quotas: billionths of CPU of each LocalQueue, by its name; may be changed within `server.call`, then `wake`.
        flavor: whose quota that is.

    Attributes:
        checks: whether admission checks are satisfied.
        broken: what was done that must not be.
    """

    def __init__(self, store: Store, quotas: Mapping[str, int], flavor: str = "default") -> None:
        self._store, self.quotas, self.flavor = store, {name: cpu * ONE for name, cpu in quotas.items()}, flavor
        self.checks = True
        self.knows_slices = True
        self.broken: list[str] = []

    def note(self, change: Change) -> None:
        if change.plural == WORKLOADS:
            self._check_counts(change)
        elif change.plural == "pods" and change.before is None:
            self._check_pod(change.seen)

    def step(self) -> float | None:
        found = [each for each in self._store.all(WORKLOADS) if not is_true(each, "Finished")]
        for each in found:
            if each["spec"].get("active") is False and not is_true(each, "Evicted"):
                self.evict(pair_of(each), "Deactivated", "The workload is deactivated")
        for each in found:
            if is_true(each, "QuotaReserved") and not is_true(each, "Admitted") and self.checks:
                self._set(pair_of(each), ("Admitted", True, "Admitted", "The workload is admitted"))
        waiting = [each for each in found if not is_true(each, "QuotaReserved") and self._may_come(each)]
        for each in sorted(waiting, key=_rank):
            self._consider(pair_of(each))
        return None

    def evict(self, name: Pair, reason: str, line: str) -> None:
        """Take a Workload's quota back; within `server.call`."""
        self._set(name, ("Evicted", True, reason, line))

    def used(self, queue: str) -> int:
        """Of a queue's quota."""
        return sum(
            _takes(each)
            for each in self._store.all(WORKLOADS)
            if each["spec"].get("queueName") == queue
            and is_true(each, "QuotaReserved")
            and not is_true(each, "Finished")
        )

    def _may_come(self, workload: Json) -> bool:
        conditions = (workload.get("status") or {}).get("conditions") or ()
        held = any(each["type"] == "Requeued" and each["status"] == "False" for each in conditions)
        return (
            workload["spec"].get("active") is not False and not held and "deletionTimestamp" not in workload["metadata"]
        )

    def _consider(self, name: Pair) -> None:
        try:
            workload = self._store.get(WORKLOADS, *name)
        except Refused:
            return
        queue = workload["spec"].get("queueName", "")
        if queue not in self.quotas:
            self._wait(workload, f"LocalQueue {queue} doesn't exist")
            return
        before = self._replaced(workload)
        lacking = _takes(workload) - (_takes(before) if before else 0) - (self.quotas[queue] - self.used(queue))
        if lacking <= 0:
            self._admit(workload, before)
            return
        rank = int(workload["spec"].get("priority") or 0)
        for other in list(self._store.all(WORKLOADS)):
            spec = other["spec"]
            weaker = spec.get("queueName") == queue and int(spec.get("priority") or 0) < rank
            holds = is_true(other, "QuotaReserved") and not is_true(other, "Finished") and not is_true(other, "Evicted")
            if weaker and holds:
                self.evict(pair_of(other), "Preempted", f"Preempted to accommodate a workload ({name[1]})")
                break
        self._wait(
            workload, f"insufficient unused quota for cpu in flavor {self.flavor}, {lacking / ONE:g} more needed"
        )

    def _replaced(self, workload: Json) -> Json | None:
        stated = (workload["metadata"].get("annotations") or {}).get(_REPLACES, "") if self.knows_slices else ""
        namespace, _, name = stated.partition("/")
        found = self._store.objects.get(WORKLOADS, {}).get((namespace, name))
        holds = found is not None and is_true(found, "QuotaReserved") and not is_true(found, "Finished")
        return found if holds else None

    def _admit(self, workload: Json, before: Json | None) -> None:
        assignments = [
            {"name": each["name"], "flavors": {"cpu": self.flavor}, "count": each["count"]}
            for each in workload["spec"]["podSets"]
        ]
        changes = [("QuotaReserved", True, "QuotaReserved", "Quota reserved in ClusterQueue all")]
        if self.checks:
            changes.append(("Admitted", True, "Admitted", "The workload is admitted"))
        if is_true(workload, "Evicted"):
            changes.append(("Evicted", False, "QuotaReserved", "Previously: evicted"))
        self._set(pair_of(workload), *changes, admission={"clusterQueue": "all", "podSetAssignments": assignments})
        if before is not None:
            self._set(pair_of(before), ("Finished", True, "WorkloadSliceReplaced", "Replaced"))

    def _wait(self, workload: Json, line: str) -> None:
        self._set(pair_of(workload), ("QuotaReserved", False, "Pending", line))

    def _set(self, name: Pair, *changes: tuple[str, bool, str, str], admission: Json | None = None) -> None:
        found = self._store.get(WORKLOADS, *name)
        status = dict(found.get("status") or {})
        for kind, holds, reason, line in changes:
            value = "True" if holds else "False"
            now = self._store.now()
            status["conditions"] = with_condition(status.get("conditions"), now, kind, value, reason, line)
        if admission is not None:
            status["admission"] = admission
        if status != found.get("status"):
            self._store.replace(WORKLOADS, *name, {**found, "status": status}, "status")

    # What must not be.

    def _check_counts(self, change: Change) -> None:
        before, after = change.before, change.after
        if before is None or after is None or not is_true(before, "QuotaReserved"):
            return
        was, now = before["spec"]["podSets"], after["spec"]["podSets"]
        same = [{**each, "count": 0} for each in was] == [{**each, "count": 0} for each in now]
        more = same and any(new["count"] > old["count"] for old, new in zip(was, now, strict=True))
        if not same or more:
            self.broken.append(f"podSets of {after['metadata']['name']} were changed while it has quota")

    def _check_pod(self, pod: Json) -> None:
        """A pod of a TrainingJob with a queue has an admitted Workload with room for it."""
        uid = controller_of(pod)
        job = next((each for each in self._store.all("trainingjobs.fedl2.io") if each["metadata"]["uid"] == uid), None)
        if job is None or "kueue" not in job["spec"]:
            return
        roles: dict[str, int] = {}
        for each in self._store.all("pods"):
            if controller_of(each) == uid and not has_ended(each) and "deletionTimestamp" not in each["metadata"]:
                role = each["metadata"]["labels"]["fedl2.io/role"]
                roles[role] = roles.get(role, 0) + 1
        granted: dict[str, int] = {}
        for each in self._store.all(WORKLOADS):
            if controller_of(each) == uid and is_true(each, "Admitted") and not is_true(each, "Evicted"):
                for pod_set in each["spec"]["podSets"]:
                    granted[pod_set["name"]] = max(granted.get(pod_set["name"], 0), pod_set["count"])
        for role, count in roles.items():
            if count > granted.get(role, 0):
                name = pod["metadata"]["name"]
                self.broken.append(f"{name} was made: {count} of {role}, and {granted.get(role, 0)} admitted")


def _takes(workload: Json) -> int:
    """CPU, in billionths."""
    return sum(
        each["count"] * requests_of({"spec": each["template"]["spec"]}).get("cpu", 0)
        for each in workload["spec"]["podSets"]
    )


def _rank(workload: Json) -> Any:
    metadata = workload["metadata"]
    return -int(workload["spec"].get("priority") or 0), metadata["creationTimestamp"], metadata["uid"]
