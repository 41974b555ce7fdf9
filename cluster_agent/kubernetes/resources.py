"""Resources of the API: where each has its address."""

from __future__ import annotations

from dataclasses import dataclass
from urllib.parse import quote


@dataclass(frozen=True, slots=True)
class Resource:
    """A kind of object.

    Attributes:
        group: empty for the core.
        plural: its word in addresses.
    """

    group: str
    version: str
    plural: str
    kind: str
    namespaced: bool = True

    @property
    def api_version(self) -> str:
        """As objects say it."""
        return f"{self.group}/{self.version}" if self.group else self.version

    def path(self, namespace: str = "", name: str = "", subresource: str = "") -> str:
        """Of an object, or of all of them in a namespace, or everywhere.

        Raises:
            ValueError: a namespaced object's namespace is missing.
        """
        if name and self.namespaced and not namespace:
            raise ValueError(f"{self.plural} {name}: its namespace is missing")
        parts = ["apis", self.group, self.version] if self.group else ["api", self.version]
        if namespace and self.namespaced:
            parts += ["namespaces", namespace]
        parts += [self.plural, *([name] if name else []), *([subresource] if subresource else [])]
        return "/" + "/".join(quote(part, safe="") for part in parts)


NAMESPACES = Resource("", "v1", "namespaces", "Namespace", namespaced=False)
NODES = Resource("", "v1", "nodes", "Node", namespaced=False)
PODS = Resource("", "v1", "pods", "Pod")
EVENTS = Resource("", "v1", "events", "Event")
JOBS = Resource("batch", "v1", "jobs", "Job")
LEASES = Resource("coordination.k8s.io", "v1", "leases", "Lease")
