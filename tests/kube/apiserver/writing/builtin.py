"""Built-in types: the defaults that the server gives them, and what it does not take.

A part of what the real server does, that which clients of ours come across: names, pods and their containers, Jobs and
what may change in them, Services, Secrets.
"""

from __future__ import annotations

import base64
import re
from typing import Any

from apiserver.registry import Served
from apiserver.writing.custom import invalid
from apiserver.writing.schema import cause

Json = dict[str, Any]
_NAME = re.compile(r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*\Z")
_RFC = (
    "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', and must start and "
    "end with an alphanumeric character"
)
_LABEL = re.compile(r"^(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?\Z")

_KEY = re.compile(r"[-._a-zA-Z0-9]+")
_KEYS = (
    "'-', '_' or '.' (e.g. 'key.name',  or 'KEY_NAME',  or 'key-name', regex used for validation is '[-._a-zA-Z0-9]+')"
)


def defaulted(table: str, found: Json) -> None:
    """Give an object the defaults of its type, in place."""
    spec = found.get("spec")
    if table == "pods" and isinstance(spec, dict):
        _pod_spec(spec)
        found.setdefault("status", {}).setdefault("phase", "Pending")
    elif table == "jobs.batch" and isinstance(spec, dict):
        _job(found)
    elif table in ("deployments.apps", "statefulsets.apps") and isinstance(spec, dict):
        _workload(table, spec)
    elif table == "services" and isinstance(spec, dict):
        spec.setdefault("type", "ClusterIP")
        spec.setdefault("sessionAffinity", "None")
        for port in spec.get("ports") or ():
            port.setdefault("protocol", "TCP")
            port.setdefault("targetPort", port["port"])
    elif table == "secrets":
        found.setdefault("type", "Opaque")
        plain = found.pop("stringData", None) or {}
        if plain:
            encoded = {name: base64.b64encode(str(text).encode()).decode() for name, text in plain.items()}
            found["data"] = {**(found.get("data") or {}), **encoded}
    elif table == "namespaces":
        labels = found.setdefault("metadata", {}).setdefault("labels", {})
        if "name" in found["metadata"]:
            labels.setdefault("kubernetes.io/metadata.name", found["metadata"]["name"])
        found.setdefault("status", {}).setdefault("phase", "Active")


def check(served: Served, found: Json, before: Json | None, part: str) -> None:
    """Hold an object against what its type takes.

    Raises:
        Refused: 422, with every field that is wrong.
    """
    causes = [] if part == "status" else _of_metadata(found["metadata"])
    if part == "" and served.table == "pods":
        causes += _of_pod(found.get("spec") or {}, "spec")
        if before is not None and not causes:
            causes += _of_changed_pod(found["spec"], before["spec"])
    elif part == "" and served.table == "jobs.batch":
        causes += _of_job(found.get("spec") or {}, None if before is None else before["spec"], before or {})
    elif part == "" and served.group == "apps":
        causes += _of_workload(served.table, found["spec"], None if before is None else before["spec"])
    elif part == "" and served.table == "services" and before is not None:
        was = (before.get("spec") or {}).get("clusterIP", "")
        if was not in ("", (found.get("spec") or {}).get("clusterIP")):
            text = f'Invalid value: "{(found.get("spec") or {}).get("clusterIP", "")}": field is immutable'
            causes.append(cause("FieldValueInvalid", text, "spec.clusterIP"))
    if part == "" and served.table in ("configmaps", "secrets"):
        causes += _of_keys(found)
    if causes:
        what = f"{served.kind}.{served.group}" if served.group else served.kind
        raise invalid(what, served.kind, found["metadata"].get("name", ""), causes)


def _workload(table: str, spec: Json) -> None:
    spec.setdefault("replicas", 1)
    spec.setdefault("revisionHistoryLimit", 10)
    _pod_spec(spec["template"].setdefault("spec", {}))
    name = "strategy" if table == "deployments.apps" else "updateStrategy"
    strategy = spec.setdefault(name, {})
    if strategy.setdefault("type", "RollingUpdate") == "RollingUpdate" and not strategy.get("rollingUpdate"):
        quarter = {"maxSurge": "25%", "maxUnavailable": "25%"}
        strategy["rollingUpdate"] = quarter if name == "strategy" else {"partition": 0}
    if strategy.get("rollingUpdate", ...) is None:
        del strategy["rollingUpdate"]


_CHANGEABLE = {
    "replicas",
    "ordinals",
    "template",
    "updateStrategy",
    "revisionHistoryLimit",
    "persistentVolumeClaimRetentionPolicy",
    "minReadySeconds",
}
"""Of a StatefulSet."""


def _of_workload(table: str, spec: Json, before: Json | None) -> list[Json]:
    strategy = spec.get("strategy") or {}
    if strategy.get("type") == "Recreate" and "rollingUpdate" in strategy:
        text = "Forbidden: may not be specified when strategy `type` is 'Recreate'"
        return [cause("FieldValueForbidden", text, "spec.strategy.rollingUpdate")]
    if before is None:
        return []
    changed = {name for name in spec.keys() | before.keys() if spec.get(name) != before.get(name)}
    if table == "statefulsets.apps" and changed - _CHANGEABLE:
        text = (
            "Forbidden: updates to statefulset spec for fields other than 'replicas', 'ordinals', 'template', "
            "'updateStrategy', 'revisionHistoryLimit', 'persistentVolumeClaimRetentionPolicy' and 'minReadySeconds' "
            "are forbidden"
        )
        return [cause("FieldValueForbidden", text, "spec")]
    if table == "deployments.apps" and "selector" in changed:
        return [cause("FieldValueInvalid", "Invalid value: field is immutable", "spec.selector")]
    return []


def _of_keys(found: Json) -> list[Json]:
    causes = []
    for name in ("data", "binaryData"):
        for key in found.get(name) or ():
            if len(key) > 253:
                text = f'Invalid value: "{key}": must be no more than 253 characters'
            elif key in (".", ".."):
                text = f"Invalid value: \"{key}\": must not be '{key}'"
            elif not _KEY.fullmatch(key):
                text = f'Invalid value: "{key}": a valid config key must consist of alphanumeric characters, {_KEYS}'
            else:
                continue
            causes.append(cause("FieldValueInvalid", text, f"{name}[{key}]"))
    return causes


def _pod_spec(spec: Json) -> None:
    for name, value in (
        ("restartPolicy", "Always"),
        ("terminationGracePeriodSeconds", 30),
        ("dnsPolicy", "ClusterFirst"),
        ("schedulerName", "default-scheduler"),
        ("securityContext", {}),
        ("enableServiceLinks", True),
        ("priority", 0),
    ):
        spec.setdefault(name, value)
    if spec.get("schedulingGates") == []:
        del spec["schedulingGates"]
    for container in (*(spec.get("containers") or ()), *(spec.get("initContainers") or ())):
        _container(container)


def _container(container: Json) -> None:
    image = str(container.get("image", ""))
    last = image.rpartition("/")[2]
    latest = ":" not in last or last.endswith(":latest")
    container.setdefault("imagePullPolicy", "Always" if latest else "IfNotPresent")
    container.setdefault("terminationMessagePath", "/dev/termination-log")
    container.setdefault("terminationMessagePolicy", "File")
    resources = container.setdefault("resources", {})
    if resources.get("limits"):  # a limit without a request is the request too
        resources["requests"] = {**resources["limits"], **(resources.get("requests") or {})}
    for port in container.get("ports") or ():
        port.setdefault("protocol", "TCP")


def _job(found: Json) -> None:
    spec = found["spec"]
    if spec.get("completions") is None and spec.get("parallelism") is None:
        spec["completions"] = 1
    for name, value in (
        ("parallelism", 1),
        ("backoffLimit", 6),
        ("completionMode", "NonIndexed"),
        ("suspend", False),
        ("podReplacementPolicy", "TerminatingOrFailed"),
        ("manualSelector", False),
    ):
        if spec.get(name) is None:
            spec[name] = value
    if spec.get("manualSelector") is False:
        del spec["manualSelector"]
    template = spec.get("template")
    if isinstance(template, dict):
        inner = template.get("spec")
        if isinstance(inner, dict):
            inner.setdefault("restartPolicy", "Always")
            _pod_spec(inner)
            inner.pop("priority", None)  # given to pods, by their class


def own_selector(found: Json) -> None:
    """Give a new Job, which has a uid now, the selector of its pods, in place."""
    spec, uid, name = found["spec"], found["metadata"]["uid"], found["metadata"]["name"]
    if spec.get("selector") or not isinstance(spec.get("template"), dict):
        return
    spec["selector"] = {"matchLabels": {"batch.kubernetes.io/controller-uid": uid}}
    labels = {
        "batch.kubernetes.io/controller-uid": uid,
        "batch.kubernetes.io/job-name": name,
        "controller-uid": uid,
        "job-name": name,
    }
    metadata = spec["template"].get("metadata") or {}
    spec["template"]["metadata"] = {**metadata, "labels": {**(metadata.get("labels") or {}), **labels}}


def _of_metadata(metadata: Json) -> list[Json]:
    found = []
    name = metadata.get("name", "")
    if name and (not _NAME.match(name) or len(name) > 253):
        found.append(cause("FieldValueInvalid", f'Invalid value: "{name}": {_RFC}', "metadata.name"))
    for key, value in (metadata.get("labels") or {}).items():
        if not isinstance(value, str) or len(value) > 63 or not _LABEL.match(value):
            text = (
                f'Invalid value: "{value}": a valid label must be an empty string or consist of alphanumeric characters'
            )
            found.append(cause("FieldValueInvalid", text, f"metadata.labels[{key}]"))
    return found


def _of_pod(spec: Json, where: str) -> list[Json]:
    found, containers = [], spec.get("containers") or []
    if not containers:
        found.append(cause("FieldValueRequired", "Required value", f"{where}.containers"))
    seen = set()
    volumes = {each.get("name") for each in spec.get("volumes") or ()}
    for number, each in enumerate(containers):
        here = f"{where}.containers[{number}]"
        if not each.get("name"):
            found.append(cause("FieldValueRequired", "Required value", f"{here}.name"))
        elif each["name"] in seen:
            found.append(cause("FieldValueDuplicate", f'Duplicate value: "{each["name"]}"', f"{here}.name"))
        seen.add(each.get("name"))
        if not each.get("image"):
            found.append(cause("FieldValueRequired", "Required value", f"{here}.image"))
        for at, mount in enumerate(each.get("volumeMounts") or ()):
            if mount.get("name") not in volumes:
                field = f"{here}.volumeMounts[{at}].name"
                found.append(cause("FieldValueNotFound", f'Not found: "{mount.get("name")}"', field))
    return found


def _of_changed_pod(spec: Json, before: Json) -> list[Json]:
    def fixed(of: Json) -> Json:
        rest = {name: value for name, value in of.items() if name not in _MAY_CHANGE}
        return {**rest, "containers": [{**each, "image": "", "resources": {}} for each in of.get("containers") or ()]}

    if fixed(spec) == fixed(before):
        return []
    text = (
        "Forbidden: pod updates may not change fields other than `spec.containers[*].image`,"
        "`spec.initContainers[*].image`,`spec.activeDeadlineSeconds`,`spec.tolerations` (only additions to existing "
        "tolerations),`spec.terminationGracePeriodSeconds` (allow it to be set to 1 if it was previously negative)"
    )
    return [cause("FieldValueForbidden", text, "spec")]


_MAY_CHANGE = (
    "containers",
    "initContainers",
    "activeDeadlineSeconds",
    "tolerations",
    "terminationGracePeriodSeconds",
    "schedulingGates",
    "nodeSelector",
    "affinity",
)


def _of_job(spec: Json, before: Json | None, job: Json) -> list[Json]:
    found = []
    template = spec.get("template") or {}
    found += _of_pod(template.get("spec") or {}, "spec.template.spec")
    policy = (template.get("spec") or {}).get("restartPolicy", "Always")
    if policy not in ("Never", "OnFailure"):
        text = f'Unsupported value: "{policy}": supported values: "OnFailure", "Never"'
        found.append(cause("FieldValueNotSupported", text, "spec.template.spec.restartPolicy"))
    for name in ("parallelism", "completions", "backoffLimit", "activeDeadlineSeconds"):
        value = spec.get(name)
        if value is not None and value < 0:
            text = f"Invalid value: {value}: must be greater than or equal to 0"
            found.append(cause("FieldValueInvalid", text, f"spec.{name}"))
    indexed = spec.get("completionMode") == "Indexed"
    if indexed and spec.get("completions") is None:
        text = "Required value: when completion mode is Indexed"
        found.append(cause("FieldValueRequired", text, "spec.completions"))
    if before is None:
        return found
    started = bool((job.get("status") or {}).get("startTime"))
    for name in ("completions", "completionMode", "selector", "template"):
        if spec.get(name) == before.get(name):
            continue
        elastic = indexed and spec.get("completions") == spec.get("parallelism")
        if name == "completions" and before.get("completionMode") == "Indexed" and elastic:
            continue
        if name == "template" and before.get("suspend") and not started:
            continue
        text = "field is immutable"
        if name == "completions" and indexed:
            text += ", or may only be changed in tandem with parallelism such that completions equals parallelism"
        shown = spec.get(name) if isinstance(spec.get(name), int | str) else f'"{name}"'
        found.append(cause("FieldValueInvalid", f"Invalid value: {shown}: {text}", f"spec.{name}"))
    return found
