"""Pod Security admission: what the levels `baseline` and `restricted` of a namespace refuse of a pod.

The checks that pods of ours and of those who test come across; sysctls, SELinux, AppArmor and /proc mounts are
not looked at.
Source: kubernetes.io/docs/concepts/security/pod-security-standards, k8s.io/pod-security-admission/policy
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from apiserver.store import Refused, Store

Json = dict[str, Any]
_ENFORCE = "pod-security.kubernetes.io/enforce"
_BASELINE_CAPABILITIES = frozenset(
    {
        "AUDIT_WRITE",
        "CHOWN",
        "DAC_OVERRIDE",
        "FOWNER",
        "FSETID",
        "KILL",
        "MKNOD",
        "NET_BIND_SERVICE",
        "SETFCAP",
        "SETGID",
        "SETPCAP",
        "SETUID",
        "SYS_CHROOT",
    }
)
_VOLUMES = frozenset(
    {"configMap", "csi", "downwardAPI", "emptyDir", "ephemeral", "persistentVolumeClaim", "projected", "secret"}
)
_SECCOMP = ("RuntimeDefault", "Localhost")


def check(store: Store, pod: Json) -> None:
    """Hold a new pod against the level that its namespace enforces.

    Raises:
        Refused: 403, with all that is against it.
    """
    metadata = pod["metadata"]
    namespace = store.objects.get("namespaces", {}).get(("", metadata.get("namespace", ""))) or {"metadata": {}}
    labels = namespace["metadata"].get("labels") or {}
    level = labels.get(_ENFORCE, "privileged")
    if level not in ("baseline", "restricted"):
        return
    found = list(_baseline(pod["spec"]))
    if level == "restricted":
        found += _restricted(pod["spec"])
    if found:
        name = metadata.get("name") or metadata.get("generateName", "")
        version = labels.get(f"{_ENFORCE}-version", "latest")
        line = f'pods "{name}" is forbidden: violates PodSecurity "{level}:{version}": {", ".join(found)}'
        raise Refused(403, "Forbidden", line, {"name": name, "kind": "pods"})


def _baseline(spec: Json) -> Iterator[str]:
    host = [f"{name}=true" for name in ("hostNetwork", "hostPID", "hostIPC") if spec.get(name)]
    if host:
        yield f"host namespaces ({', '.join(host)})"
    paths = [each["name"] for each in spec.get("volumes") or () if "hostPath" in each]
    if paths:
        yield f"hostPath volumes ({_named('volume', paths)})"
    if found := [name for name, each in _containers(spec) if each.get("privileged")]:
        yield f"privileged ({_named('container', found)} must not set securityContext.privileged=true)"
    for name, each in _containers(spec):
        if more := sorted(set(_capabilities(each, "add")) - _BASELINE_CAPABILITIES):
            listed = ", ".join(f'"{one}"' for one in more)
            yield (
                f'non-default capabilities (container "{name}" must not include {listed} in '
                f"securityContext.capabilities.add)"
            )
    ports = [
        (each["name"], str(port["hostPort"]))
        for each in _all(spec)
        for port in each.get("ports") or ()
        if port.get("hostPort")
    ]
    if ports:
        yield f"hostPort ({_named('container', [name for name, _ in ports])} uses hostPort {ports[0][1]})"
    if any(
        _seccomp(each) == "Unconfined"
        for each in (spec.get("securityContext") or {}, *dict(_containers(spec)).values())
    ):
        yield 'seccompProfile (must not set securityContext.seccompProfile.type to "Unconfined")'


def _restricted(spec: Json) -> Iterator[str]:
    odd = [
        f'volume "{each["name"]}" uses restricted volume type "{kind}"'
        for each in spec.get("volumes") or ()
        for kind in each
        if kind != "name" and kind not in _VOLUMES
    ]
    if odd:
        yield f"restricted volume types ({', '.join(odd)})"
    pod, containers = spec.get("securityContext") or {}, list(_containers(spec))
    if found := [name for name, each in containers if each.get("allowPrivilegeEscalation") is not False]:
        yield (
            f"allowPrivilegeEscalation != false ({_named('container', found)} must set "
            f"securityContext.allowPrivilegeEscalation=false)"
        )
    wants = []
    if found := [name for name, each in containers if "ALL" not in _capabilities(each, "drop")]:
        wants.append(f'{_named("container", found)} must set securityContext.capabilities.drop=["ALL"]')
    if found := [name for name, each in containers if set(_capabilities(each, "add")) - {"NET_BIND_SERVICE"}]:
        added = sorted({one for _, each in containers for one in _capabilities(each, "add")} - {"NET_BIND_SERVICE"})
        listed = ", ".join(f'"{one}"' for one in added)
        wants.append(f"{_named('container', found)} must not include {listed} in securityContext.capabilities.add")
    if wants:
        yield f"unrestricted capabilities ({'; '.join(wants)})"
    if found := [name for name, each in containers if not each.get("runAsNonRoot", pod.get("runAsNonRoot"))]:
        yield f"runAsNonRoot != true ({_of_either(found)} must set securityContext.runAsNonRoot=true)"
    if pod.get("runAsUser") == 0:
        yield "runAsUser=0 (pod must not set runAsUser=0)"
    if found := [name for name, each in containers if each.get("runAsUser") == 0]:
        yield f"runAsUser=0 ({_named('container', found)} must not set runAsUser=0)"
    if found := [name for name, each in containers if (_seccomp(each) or _seccomp(pod)) not in _SECCOMP]:
        yield (
            f"seccompProfile ({_of_either(found)} must set securityContext.seccompProfile.type to "
            f'"RuntimeDefault" or "Localhost")'
        )


def _all(spec: Json) -> list[Json]:
    return [*(spec.get("initContainers") or ()), *(spec.get("containers") or ())]


def _containers(spec: Json) -> list[tuple[str, Json]]:
    """Name and securityContext of each container."""
    return [(each.get("name", ""), each.get("securityContext") or {}) for each in _all(spec)]


def _capabilities(context: Json, which: str) -> list[str]:
    return list((context.get("capabilities") or {}).get(which) or ())


def _seccomp(context: Json) -> str:
    return str((context.get("seccompProfile") or {}).get("type") or "")


def _named(kind: str, names: list[str]) -> str:
    listed = ", ".join(f'"{name}"' for name in names)
    return f"{kind}{'s' if len(names) > 1 else ''} {listed}"


def _of_either(names: list[str]) -> str:
    return f"pod or {_named('container', names)}"
