"""Columns of tables: those that a CRD states, and those of the built-in types, as `kubectl get` prints them."""

from __future__ import annotations

import re
from calendar import timegm
from collections.abc import Callable
from dataclasses import dataclass
from time import strptime
from typing import Any

Json = dict[str, Any]
_STEP = re.compile(
    r"\.(?P<name>[A-Za-z0-9_-]+)"
    r"|\['(?P<quoted>[^']+)'\]"
    r"|\[(?P<number>\d+)\]"
    r"|\[\?\(@\.(?P<key>[A-Za-z0-9_.-]+)\s*==\s*[\"'](?P<value>[^\"']*)[\"']\)\]"
)


@dataclass(frozen=True, slots=True)
class Column:
    """A column.

    Attributes:
        cell: of an object, at a time in Unix seconds.
        priority: with 0 it is always shown, else with `-o wide`.
    """

    name: str
    cell: Callable[[Json, float], Any]
    type: str = "string"
    priority: int = 0
    text: str = ""


def columns_of(table: str, stated: tuple[Json, ...], *, is_custom: bool) -> list[Column]:
    """The columns of a resource; the first is the name."""
    name = Column("Name", lambda found, _: found["metadata"]["name"])
    if stated:
        return [name, *(_stated(each) for each in stated)]
    if is_custom:
        return [name, _AGE]
    return [name, *_BUILT_IN.get(table, (_AGE,))]


def at_path(found: Any, path: str) -> Any:
    """What a JSON path of a CRD names; None where it is not there."""
    at = 0
    while at < len(path):
        step = _STEP.match(path, at)
        if step is None:
            return None
        at = step.end()
        if step["number"] is not None:
            found = found[int(step["number"])] if isinstance(found, list) and int(step["number"]) < len(found) else None
        elif step["key"] is not None:
            items = found if isinstance(found, list) else ()
            found = next((each for each in items if str(at_path(each, "." + step["key"])) == step["value"]), None)
        else:
            found = found.get(step["name"] or step["quoted"]) if isinstance(found, dict) else None
        if found is None:
            return None
    return found


def age(stamp: str | None, now: float) -> str:
    """How long ago a time was, as kubectl says it."""
    if not stamp:
        return "<unknown>"
    seconds = int(now) - timegm(strptime(stamp[:19], "%Y-%m-%dT%H:%M:%S"))
    return duration(max(0, seconds))


def duration(seconds: int) -> str:
    """Seconds in one or two units."""
    minutes, hours, days = seconds // 60, seconds // 3600, seconds // 86400
    if seconds < 600:
        return f"{seconds}s" if seconds < 120 else _both(minutes, "m", seconds % 60, "s")
    if hours < 8:
        return f"{minutes}m" if hours < 3 else _both(hours, "h", minutes % 60, "m")
    if days < 8:
        return f"{hours}h" if hours < 48 else _both(days, "d", hours % 24, "h")
    return f"{days}d" if days < 730 else _both(days // 365, "y", days % 365, "d")


def _both(large: int, unit: str, small: int, small_unit: str) -> str:
    return f"{large}{unit}{small}{small_unit}" if small else f"{large}{unit}"


def _stated(column: Json) -> Column:
    path, kind = column["jsonPath"], column["type"]

    def cell(found: Json, now: float) -> Any:
        value = at_path(found, path)
        if value is None:
            return None
        if kind == "date":
            return age(str(value), now)
        return (
            str(value).lower()
            if kind == "string" and isinstance(value, bool)
            else value
            if kind != "string"
            else str(value)
        )

    return Column(column["name"], cell, kind, column.get("priority", 0), column.get("description", ""))


_AGE = Column("Age", lambda found, now: age(found["metadata"].get("creationTimestamp"), now))


def _at(path: str, missing: Any = "<none>") -> Callable[[Json, float], Any]:
    def cell(found: Json, now: float) -> Any:
        del now
        value = at_path(found, path)
        return missing if value in (None, "") else value

    return cell


def _statuses(pod: Json) -> list[Json]:
    return list((pod.get("status") or {}).get("containerStatuses") or ())


def _pod_ready(pod: Json, now: float) -> str:
    del now
    return f"{sum(bool(each.get('ready')) for each in _statuses(pod))}/{len(pod['spec'].get('containers') or ())}"


def _pod_status(pod: Json, now: float) -> str:
    del now
    status = pod.get("status") or {}
    if "deletionTimestamp" in pod["metadata"]:
        return "Terminating"
    shown = status.get("reason") or status.get("phase", "Pending")
    gated = any(each.get("reason") == "SchedulingGated" for each in status.get("conditions") or ())
    for each in _statuses(pod):
        state = each.get("state") or {}
        for kind in ("waiting", "terminated"):
            shown = (state.get(kind) or {}).get("reason") or shown
    return "SchedulingGated" if gated else str(shown)


def _job_status(job: Json, now: float) -> str:
    del now
    true = {each["type"] for each in (job.get("status") or {}).get("conditions") or () if each["status"] == "True"}
    for kind in ("Complete", "Failed", "Suspended", "FailureTarget", "SuccessCriteriaMet"):
        if kind in true:
            return kind
    return "Terminating" if "deletionTimestamp" in job["metadata"] else "Running"


def _job_completions(job: Json, now: float) -> str:
    del now
    done, wanted = (job.get("status") or {}).get("succeeded", 0), job["spec"].get("completions")
    if wanted is not None:
        return f"{done}/{wanted}"
    parallelism = job["spec"].get("parallelism", 1)
    return f"{done}/1 of {parallelism}" if parallelism > 1 else f"{done}/1"


def _job_duration(job: Json, now: float) -> str:
    status = job.get("status") or {}
    if not status.get("startTime"):
        return ""
    end = status.get("completionTime")
    return age(status["startTime"], timegm(strptime(end, "%Y-%m-%dT%H:%M:%SZ")) if end else now)


def _node_status(node: Json, now: float) -> str:
    del now
    conditions = (node.get("status") or {}).get("conditions") or ()
    ready = next((each["status"] for each in conditions if each["type"] == "Ready"), "Unknown")
    shown = {"True": "Ready", "False": "NotReady"}.get(ready, "Unknown")
    return shown + (",SchedulingDisabled" if (node.get("spec") or {}).get("unschedulable") else "")


def _quota(part: str) -> Callable[[Json, float], str]:
    def cell(quota: Json, now: float) -> str:
        del now
        status = quota.get("status") or {}
        hard, used = status.get("hard") or {}, status.get("used") or {}
        names = [name for name in sorted(hard) if name.startswith("limits.") == (part == "limits")]
        return ", ".join(f"{name}: {used.get(name, 0)}/{hard[name]}" for name in names)

    return cell


def _event_object(event: Json, now: float) -> str:
    del now
    about = event["involvedObject"]
    return f"{about['kind'].lower()}/{about['name']}"


_BUILT_IN: dict[str, tuple[Column, ...]] = {
    "pods": (
        Column("Ready", _pod_ready),
        Column("Status", _pod_status),
        Column("Restarts", lambda pod, _: str(sum(each.get("restartCount", 0) for each in _statuses(pod)))),
        _AGE,
        Column("IP", _at(".status.podIP"), priority=1),
        Column("Node", _at(".spec.nodeName"), priority=1),
        Column("Nominated Node", _at(".status.nominatedNodeName"), priority=1),
        Column("Readiness Gates", _at(".spec.readinessGates"), priority=1),
    ),
    "jobs.batch": (
        Column("Status", _job_status),
        Column("Completions", _job_completions),
        Column("Duration", _job_duration),
        _AGE,
    ),
    "nodes": (
        Column("Status", _node_status),
        Column("Roles", lambda node, _: "<none>"),
        _AGE,
        Column("Version", _at(".status.nodeInfo.kubeletVersion", "")),
    ),
    "namespaces": (Column("Status", _at(".status.phase", "")), _AGE),
    "events": (
        Column("Last Seen", lambda event, now: age(event.get("lastTimestamp") or event.get("eventTime"), now)),
        Column("Type", _at(".type", "")),
        Column("Reason", _at(".reason", "")),
        Column("Object", _event_object),
        Column("Message", lambda event, _: str(event.get("message", "")).strip()),
    ),
    "configmaps": (Column("Data", lambda found, _: str(len(found.get("data") or {}))), _AGE),
    "secrets": (
        Column("Type", _at(".type", "")),
        Column("Data", lambda found, _: str(len(found.get("data") or {}))),
        _AGE,
    ),
    "services": (
        Column("Type", _at(".spec.type", "ClusterIP")),
        Column("Cluster-IP", _at(".spec.clusterIP")),
        Column("External-IP", lambda service, _: "<none>"),
        Column(
            "Port(s)",
            lambda service, _: (
                ",".join(f"{each['port']}/{each.get('protocol', 'TCP')}" for each in service["spec"].get("ports") or ())
                or "<none>"
            ),
        ),
        _AGE,
    ),
    "persistentvolumeclaims": (
        Column("Status", _at(".status.phase", "Pending")),
        Column("Volume", _at(".spec.volumeName", "")),
        Column("Capacity", _at(".status.capacity.storage", "")),
        Column("Access Modes", lambda claim, _: ",".join((claim.get("spec") or {}).get("accessModes") or ())),
        Column("StorageClass", _at(".spec.storageClassName", "")),
        _AGE,
    ),
    "leases.coordination.k8s.io": (Column("Holder", _at(".spec.holderIdentity", "")), _AGE),
    "resourcequotas": (Column("Request", _quota("requests")), Column("Limit", _quota("limits")), _AGE),
    "customresourcedefinitions.apiextensions.k8s.io": (Column("Created At", _at(".metadata.creationTimestamp", "")),),
}
