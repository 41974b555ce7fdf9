"""Resources of the API: where each has its address, and the parts that every object has."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any
from urllib.parse import quote

Json = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Resource:
    """A kind of object: its group, empty for the core, its version, and its word in addresses (`plural`)."""

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


def as_dict(found: Any) -> Json:
    """A part of an object; empty where it is missing or something else, as anybody may have written it."""
    return found if isinstance(found, dict) else {}


def dicts_in(found: Any) -> list[Json]:
    """The objects of a list; none where it is no list."""
    return [each for each in found if isinstance(each, dict)] if isinstance(found, list) else []


def controller_of(metadata: Json) -> Json:
    """The owner reference of an object's controller; empty where it has none."""
    return next((each for each in metadata.get("ownerReferences") or () if each.get("controller")), {})


def condition_of(status: Json, name: str) -> Json:
    """A condition in a status; empty where there is none."""
    return next((each for each in dicts_in(status.get("conditions")) if each.get("type") == name), {})


def condition(status: Json, stated: tuple[str, bool, str, str], now: str, generation: int) -> Json:
    """A condition (type, status, reason, message) as it is written, with since when it holds by what is there."""
    name, is_true, reason, line = stated
    value, before = "True" if is_true else "False", condition_of(status, name)
    since = before.get("lastTransitionTime", now) if before.get("status") == value else now
    return {
        "type": name,
        "status": value,
        "reason": reason,
        "message": line,
        "observedGeneration": generation,
        "lastTransitionTime": since,
    }
