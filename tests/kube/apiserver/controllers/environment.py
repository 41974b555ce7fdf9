"""Words and environment of a pod's process: what a kubelet makes of `command`, `args`, `env` and `envFrom`.

A process of this machine has no mount namespace and no cluster DNS. So where a container would see a folder mounted, or
a Service's name resolved, this stand-in writes the real folder and the Service's address into the words: in command,
args and values of the environment, and in the text of mounted ConfigMaps.
"""

from __future__ import annotations

import base64
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from apiserver.controllers.addresses import Addresses
from apiserver.controllers.kubelet import CannotStart
from apiserver.controllers.stepping import pair_of
from apiserver.store import Refused, Store

Json = dict[str, Any]
_REFERENCE = re.compile(r"\$\$|\$\(([A-Za-z_][A-Za-z0-9_.-]*)\)")
_SERVICE = re.compile(r"\b(?P<name>[a-z0-9]([-a-z0-9]*[a-z0-9])?)\.(?P<namespace>[a-z0-9-]+)\.svc(\.cluster\.local)?\b")
_SUBSCRIPT = re.compile(r"^metadata\.(labels|annotations)\['(.+)'\]$")


def environment_of(pod: Json, container: Json, address: str, store: Store) -> dict[str, str]:
    """The variables of a container, as they are before anything is rewritten.

    Raises:
        CannotStart: a Secret, a ConfigMap or a key that is not optional is missing.
    """
    namespace, _ = pair_of(pod)
    found: dict[str, str] = {}
    for source in container.get("envFrom") or ():
        for kind, table in (("configMapRef", "configmaps"), ("secretRef", "secrets")):
            if kind in source:
                for name, data in data_of(store, table, namespace, source[kind]).items():
                    found[source.get("prefix", "") + name] = data.decode()
    for variable in container.get("env") or ():
        name = variable["name"]
        if "valueFrom" in variable:
            value = _value_from(variable["valueFrom"], pod, address, store)
            if value is not None:
                found[name] = value
        else:
            found[name] = expanded(variable.get("value", ""), found)
    return found


def expanded(text: str, variables: Mapping[str, str]) -> str:
    """`$(NAME)` replaced; `$$` is a `$`, and what is not known stays as it is."""

    def of(found: re.Match[str]) -> str:
        return "$" if found[0] == "$$" else variables.get(found[1], found[0])

    return _REFERENCE.sub(of, text)


def data_of(store: Store, table: str, namespace: str, reference: Json) -> dict[str, bytes]:
    """All data of a Secret or a ConfigMap; of one that is optional and not there, none.

    Raises:
        CannotStart: it is not there.
    """
    try:
        found = store.get(table, namespace, reference["name"])
    except Refused as refused:
        if reference.get("optional"):
            return {}
        raise CannotStart("CreateContainerConfigError", refused.status["message"]) from refused
    data = {name: str(value) for name, value in (found.get("data") or {}).items()}
    if table == "secrets":
        plain = {name: value.encode() for name, value in (found.get("stringData") or {}).items()}
        return {**{name: base64.b64decode(value) for name, value in data.items()}, **plain}
    binary = {name: base64.b64decode(value) for name, value in (found.get("binaryData") or {}).items()}
    return {**{name: value.encode() for name, value in data.items()}, **binary}


def rewriting(
    folders: Mapping[str, Path], store: Store, addresses: Addresses, pods: Callable[[Json], str]
) -> Callable[[str], str]:
    """What replaces paths below mounts by real folders, and names of Services by addresses, in one pass.

    Args:
        folders: by the path where they are mounted.
        pods: the address of a pod, as `HOSTNAME.SERVICE.NAMESPACE.svc` names it.
    """
    paths = sorted((path.rstrip("/") for path in folders), key=len, reverse=True)
    patterns = [rf"(?<![\w./-])(?P<path>{'|'.join(map(re.escape, paths))})(?=/|$|[^\w.-])"] if paths else []
    # A host name before the Service's is one pod of it.
    patterns.append(rf"(?P<host>\b[a-z0-9][-a-z0-9]*\.)?{_SERVICE.pattern}")
    pattern = re.compile("|".join(patterns))
    by_path = {path.rstrip("/"): str(folder) for path, folder in folders.items()}

    def of(found: re.Match[str]) -> str:
        groups = found.groupdict()
        if groups.get("path"):
            return by_path[groups["path"]]
        service = store.objects.get("services", {}).get((groups["namespace"], groups["name"]))
        if service is None:
            return found[0]
        host = (groups["host"] or "").rstrip(".")
        selector = (service.get("spec") or {}).get("selector") or {}
        for pod in store.all("pods", groups["namespace"]) if host else ():
            name = (pod.get("spec") or {}).get("hostname") or pod["metadata"]["name"]
            if name == host and selector.items() <= (pod["metadata"].get("labels") or {}).items() and pods(pod):
                return pods(pod)
        return addresses.of_service(service)

    return lambda text: pattern.sub(of, text)


def field_of(pod: Json, path: str, address: str) -> str:
    """A field of a pod, as the downward API gives it.

    Raises:
        CannotStart: it gives no such field.
    """
    metadata, spec = pod["metadata"], pod["spec"]
    subscript = _SUBSCRIPT.match(path)
    if subscript:
        return str((metadata.get(subscript[1]) or {}).get(subscript[2], ""))
    found = {
        "metadata.name": metadata["name"],
        "metadata.namespace": metadata.get("namespace", ""),
        "metadata.uid": metadata["uid"],
        "spec.nodeName": spec.get("nodeName", ""),
        "spec.serviceAccountName": spec.get("serviceAccountName", "default"),
        "status.podIP": address,
        "status.podIPs": address,
        "status.hostIP": (pod.get("status") or {}).get("hostIP", ""),
    }
    if path not in found:
        raise CannotStart("CreateContainerConfigError", f"fieldRef {path} is not supported")
    return str(found[path])


def _value_from(source: Json, pod: Json, address: str, store: Store) -> str | None:
    namespace, _ = pair_of(pod)
    if "fieldRef" in source:
        return field_of(pod, source["fieldRef"]["fieldPath"], address)
    for kind, table in (("secretKeyRef", "secrets"), ("configMapKeyRef", "configmaps")):
        if kind in source:
            reference = source[kind]
            data = data_of(store, table, namespace, reference)
            if reference["key"] in data:
                return data[reference["key"]].decode()
            if reference.get("optional"):
                return None
            text = f"couldn't find key {reference['key']} in {table} {namespace}/{reference['name']}"
            raise CannotStart("CreateContainerConfigError", text)
    raise CannotStart("CreateContainerConfigError", f"no such source of a value: {', '.join(source)}")
