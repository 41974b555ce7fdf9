"""Rights of a TrainingJob's pods: what its templates ask for beyond an ordinary pod, and whether that is listed.

The agent makes pods with rights of its own. Without a limit, whoever may create a TrainingJob would have whatever a pod
can have: a service account's rights, a node's files and processes, a place before others. So an operator lists what
jobs of a namespace may ask for; in the agent's own namespace and in Kubernetes' own there are no TrainingJobs at all:
a pod there can take the rights of whoever runs there.
Source: what Kubernetes' Pod Security Standards forbid at their level `baseline`, and what they leave free: service
accounts, `nodeName` and priorities.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Final

from cluster_agent.backend_settings import HostAccessWord, TemplateRights
from cluster_agent.kubernetes.resources import Json, as_dict, dicts_in
from cluster_agent.kubernetes.training.training_job import TrainingJob
from foundation.text import plain_line

SYSTEM_NAMESPACES: Final = frozenset(("kube-system", "kube-public", "kube-node-lease"))
EVERY_NAMESPACE: Final = "*"
_DEFAULT_ACCOUNT: Final = "default"
_ORDINARY_CAPABILITIES: Final = frozenset(
    (
        *("AUDIT_WRITE", "CHOWN", "DAC_OVERRIDE", "FOWNER", "FSETID", "KILL", "MKNOD", "NET_BIND_SERVICE"),
        *("SETFCAP", "SETGID", "SETPCAP", "SETUID", "SYS_CHROOT"),
    )
)
"""Which containers have anyway."""
_ORDINARY_SELINUX_TYPES: Final = frozenset(
    ("", "container_t", "container_init_t", "container_kvm_t", "container_engine_t")
)
_NAMED: Final = 4
"""Fields that a line names."""
_LONGEST_LINE: Final = 400


@dataclass(frozen=True, slots=True)
class Rights:
    """What is listed, by namespace; an entry of `EVERY_NAMESPACE` holds in all of them, besides their own.

    Attributes:
        refused: namespaces in which there are no TrainingJobs, besides Kubernetes' own.
        enforced: whether a job that asks for more is refused; it only says so otherwise.
    """

    listed: Mapping[str, TemplateRights]
    refused: Collection[str] = ()
    enforced: bool = False

    def judged(self, job: TrainingJob) -> TrainingJob:
        """A job with what it asks for that is not listed, and as a problem where it is refused for that."""
        if job.problem:
            return job
        if job.namespace in SYSTEM_NAMESPACES or job.namespace in self.refused:
            whose = "Kubernetes' own" if job.namespace in SYSTEM_NAMESPACES else "the agent's own"
            line = f"namespace {job.namespace} is {whose}, where pods could take others' rights: use another namespace"
            return replace(job, problem=line)
        found = list(self._unlisted(job))
        if not found:
            return job
        more = f" and {len(found) - _NAMED} more" if len(found) > _NAMED else ""
        named = ", ".join(found[:_NAMED]) + more
        where = f"backend.training.rights of the agent lists for namespace {job.namespace}"
        if self.enforced:
            line = plain_line(f"{named}: more than {where}; leave it out, or ask who runs the agent", _LONGEST_LINE)
            return replace(job, problem=line, unlisted=line)
        line = f"{named}: more than {where}; the next release refuses it (refuse_unlisted: true does so now)"
        return replace(job, unlisted=plain_line(line, _LONGEST_LINE))

    def _unlisted(self, job: TrainingJob) -> Iterator[str]:
        listed = [self.listed[name] for name in (EVERY_NAMESPACE, job.namespace) if name in self.listed]
        accounts = frozenset[str]((_DEFAULT_ACCOUNT,)).union(*(each.service_accounts for each in listed))
        classes = frozenset[str]().union(*(each.priority_classes for each in listed))
        access = frozenset[HostAccessWord]().union(*(each.host_access for each in listed))
        templates = {"worker": job.worker.template, "ps": job.ps.template, "coordinator": job.coordinator}
        for role, template in templates.items():
            spec = as_dict(as_dict(template).get("spec"))
            at = f"spec.{role}.template.spec"
            for name in ("serviceAccountName", "serviceAccount"):
                if (account := spec.get(name)) and str(account) not in accounts:
                    yield f"{at}.{name} {account}"
            if (priority := spec.get("priorityClassName")) and str(priority) not in classes:
                yield f"{at}.priorityClassName {priority}"
            if spec.get("priority"):
                yield f"{at}.priority (name its priorityClassName)"
            yield from (f"{at}.{where}" for kind, where in _host_access(spec) if kind not in access)


NO_RIGHTS: Final = Rights({})
"""Nothing is listed, and nothing refused for it."""


def _host_access(spec: Json) -> Iterator[tuple[HostAccessWord, str]]:
    """Kind and field of all that a pod asks of its node."""
    words: tuple[HostAccessWord, ...] = ("hostNetwork", "hostPID", "hostIPC", "nodeName")
    yield from ((word, word) for word in words if spec.get(word))
    for number, volume in enumerate(dicts_in(spec.get("volumes"))):
        if volume.get("hostPath") is not None:
            yield "hostPath", f"volumes[{number}].hostPath"
    yield from (("privileged", f"securityContext.{field}") for field in _privileged(spec))
    if as_dict(spec.get("securityContext")).get("sysctls"):
        yield "privileged", "securityContext.sysctls"
    for group in ("initContainers", "containers", "ephemeralContainers"):
        for number, container in enumerate(dicts_in(spec.get(group))):
            at = f"{group}[{number}]"
            for port in dicts_in(container.get("ports")):
                if port.get("hostPort"):
                    yield "hostPort", f"{at}.ports.hostPort"
            yield from (("privileged", f"{at}.securityContext.{field}") for field in _privileged(container))


def _privileged(of: Json) -> Iterator[str]:
    """Fields of the security context of a pod or container that take what keeps it apart from its node away."""
    context = as_dict(of.get("securityContext"))
    if context.get("privileged"):
        yield "privileged"
    added = as_dict(context.get("capabilities")).get("add")
    words = {str(word).upper().removeprefix("CAP_") for word in (added if isinstance(added, list) else ())}
    if not words <= _ORDINARY_CAPABILITIES:
        yield "capabilities.add"
    if context.get("procMount") not in (None, "", "Default"):
        yield "procMount"
    for profile in ("seccompProfile", "appArmorProfile"):
        if as_dict(context.get(profile)).get("type") == "Unconfined":
            yield profile
    label = as_dict(context.get("seLinuxOptions"))
    if label.get("user") or label.get("role") or str(label.get("type") or "") not in _ORDINARY_SELINUX_TYPES:
        yield "seLinuxOptions"
    if as_dict(context.get("windowsOptions")).get("hostProcess"):
        yield "windowsOptions.hostProcess"
