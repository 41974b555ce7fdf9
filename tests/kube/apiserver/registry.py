"""Resources that the test API server serves: those that are built in, and those that CRDs bring."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from apiserver.store import Refused

Json = dict[str, Any]
_ALL = ("create", "delete", "deletecollection", "get", "list", "patch", "update", "watch")


@dataclass(frozen=True, slots=True)
class Served:
    """A resource.

    Attributes:
        fields: beyond name and namespace, that can be selected by.
        columns: of tables, as a CRD prints them.
        verbs: fewer where it is no stored object but a question.
    """

    group: str
    version: str
    plural: str
    kind: str
    namespaced: bool = True
    has_status: bool = True
    short: tuple[str, ...] = ()
    fields: tuple[str, ...] = ()
    categories: tuple[str, ...] = ()
    columns: tuple[Json, ...] = ()
    is_custom: bool = False
    verbs: tuple[str, ...] = _ALL

    @property
    def table(self) -> str:
        """Its name in the store and in Roles."""
        return f"{self.plural}.{self.group}" if self.group else self.plural

    @property
    def api_version(self) -> str:
        return f"{self.group}/{self.version}" if self.group else self.version


BUILT_IN = (
    Served("", "v1", "namespaces", "Namespace", namespaced=False, short=("ns",)),
    Served("", "v1", "nodes", "Node", namespaced=False, short=("no",)),
    Served("", "v1", "pods", "Pod", short=("po",), categories=("all",)),
    Served("", "v1", "events", "Event", has_status=False, short=("ev",)),
    Served("", "v1", "configmaps", "ConfigMap", has_status=False, short=("cm",)),
    Served("", "v1", "secrets", "Secret", has_status=False),
    Served("", "v1", "persistentvolumeclaims", "PersistentVolumeClaim", short=("pvc",)),
    Served("", "v1", "serviceaccounts", "ServiceAccount", has_status=False, short=("sa",)),
    Served("", "v1", "services", "Service", short=("svc",), categories=("all",)),
    Served("", "v1", "resourcequotas", "ResourceQuota", short=("quota",)),
    Served("apps", "v1", "deployments", "Deployment", short=("deploy",), categories=("all",)),
    Served("apps", "v1", "statefulsets", "StatefulSet", short=("sts",), categories=("all",)),
    Served("batch", "v1", "jobs", "Job", categories=("all",)),
    Served(
        "admissionregistration.k8s.io",
        "v1",
        "validatingadmissionpolicies",
        "ValidatingAdmissionPolicy",
        namespaced=False,
    ),
    Served(
        "admissionregistration.k8s.io",
        "v1",
        "validatingadmissionpolicybindings",
        "ValidatingAdmissionPolicyBinding",
        namespaced=False,
        has_status=False,
    ),
    Served("networking.k8s.io", "v1", "networkpolicies", "NetworkPolicy", has_status=False, short=("netpol",)),
    Served("policy", "v1", "poddisruptionbudgets", "PodDisruptionBudget", short=("pdb",)),
    *(
        Served("rbac.authorization.k8s.io", "v1", f"{kind.lower()}s", kind, kind.startswith("Role"), has_status=False)
        for kind in ("Role", "RoleBinding", "ClusterRole", "ClusterRoleBinding")
    ),
    Served("coordination.k8s.io", "v1", "leases", "Lease", has_status=False),
    Served("resource.k8s.io", "v1", "resourceclaims", "ResourceClaim"),
    Served("resource.k8s.io", "v1", "resourceslices", "ResourceSlice", namespaced=False, has_status=False),
    Served(
        "authentication.k8s.io",
        "v1",
        "selfsubjectreviews",
        "SelfSubjectReview",
        namespaced=False,
        has_status=False,
        verbs=("create",),
    ),
    Served(
        "authorization.k8s.io",
        "v1",
        "selfsubjectaccessreviews",
        "SelfSubjectAccessReview",
        namespaced=False,
        has_status=False,
        verbs=("create",),
    ),
    Served(
        "apiextensions.k8s.io",
        "v1",
        "customresourcedefinitions",
        "CustomResourceDefinition",
        namespaced=False,
        short=("crd",),
    ),
)


@dataclass(slots=True)
class Registry:
    """What is served now."""

    served: dict[tuple[str, str, str], Served] = field(
        default_factory=lambda: {(each.group, each.version, each.plural): each for each in BUILT_IN}
    )

    def find(self, group: str, version: str, plural: str) -> Served:
        found = self.served.get((group, version, plural))
        if found is None:
            raise Refused(404, "NotFound", "the server could not find the requested resource")
        return found

    def groups(self) -> dict[str, list[str]]:
        """Versions of each group."""
        found: dict[str, list[str]] = {}
        for each in self.served.values():
            versions = found.setdefault(each.group, [])
            if each.version not in versions:
                versions.append(each.version)
        return found

    def of(self, group: str, version: str) -> list[Served]:
        return [each for each in self.served.values() if (each.group, each.version) == (group, version)]
