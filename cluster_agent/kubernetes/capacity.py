"""Free capacity, as kube-scheduler counts it: what nodes have for pods, less what all pods ask for, ours or not.

A pod asks for the most of what its containers need together and of what a step of its initialisation needs. Side-cars
count in both, requests of the pod as a whole come before those of its containers, and overhead comes on top. While a
container is resized in place, the most of what it has, was granted and wants is taken. Pods that ended count nothing;
those that are being deleted, or only nominated for a node, do.
Source: k8s.io/component-helpers/resource; KEP-753 (side-cars), KEP-1287 (resize in place), KEP-2837 (pod level).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from decimal import Decimal
from functools import lru_cache
from math import ceil
from typing import Any, Final

from kubernetes.utils.quantity import parse_quantity

from cluster_agent.kubernetes.resources import Json, as_dict, controller_of, dicts_in
from foundation.text import plain_line

Amounts = Mapping[str, int]
"""By name of the resource: CPU in millicores, all else in its own unit (bytes, devices), rounded up."""

CPU: Final = "cpu"
PODS: Final = "pods"
_POD_LEVEL = ("cpu", "memory")
_OF_NODES = ("tolerations", "nodeSelector", "affinity")
_HUGE_PAGES = "hugepages-"
_NO_SCHEDULE = ("NoSchedule", "NoExecute")
_INDEX_NAME, _INDEX = "batch.kubernetes.io/job-completion-index", "0"

LONGEST_LINE: Final = 300
"""Of what is told of a pod."""
_STUCK = frozenset(
    {
        "CrashLoopBackOff",
        "CreateContainerConfigError",
        "CreateContainerError",
        "ErrImageNeverPull",
        "ErrImagePull",
        "ImagePullBackOff",
        "InvalidImageName",
    }
)


@dataclass(frozen=True, slots=True)
class Taint:
    """Of a node: keeps away pods that do not tolerate it."""

    key: str
    value: str
    effect: str


@dataclass(frozen=True, slots=True)
class NodeFacts:
    """What is kept of a node; nothing fits on one whose resources, `allocatable`, cannot be read."""

    name: str
    allocatable: tuple[tuple[str, int], ...] | None
    taints: tuple[Taint, ...]
    is_cordoned: bool
    gpu_type: str
    labels: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True, slots=True)
class PodFacts:
    """What is kept of a pod that has not ended.

    Attributes:
        node: on which it is, or for which it is nominated; empty while it waits.
        asks: None where it cannot be read: its node counts as full.
        owner: uid of its controller; empty where it has none.
        address: IP of a running pod with completion index 0; empty of all others.
        life: of that pod, changes with every start of its containers.
        trouble: why it does not start, in a line with its name, where it does not wait for capacity; else empty.
        spec_of_nodes: what its spec says of nodes, while it has none.
        is_nominated: it may still come to another node.
    """

    node: str
    requests: Amounts | None
    owner: str
    phase: str
    is_terminating: bool
    address: str = ""
    life: str = ""
    trouble: str = ""
    spec_of_nodes: Json | None = None
    is_nominated: bool = False


@lru_cache(maxsize=4096)
def milli(quantity: str) -> int:
    """A quantity in thousandths, rounded up: `100m` is 100, `1.5Gi` 1,610,612,736,000.

    Raises:
        ValueError: it is none.
    """
    value: Decimal = parse_quantity(quantity)
    if not value.is_finite() or value < 0 or quantity != "".join(quantity.split()):
        raise ValueError(f"{quantity!r} is no quantity")
    return ceil(value * 1000)


def amounts(found: Any) -> dict[str, int]:
    """Requests or allocatable resources as whole numbers.

    Raises:
        ValueError: they cannot be read.
    """
    if found is None:
        return {}
    if not isinstance(found, dict):
        raise ValueError("resources are no mapping")  # noqa: TRY004 — input, and no argument
    return {
        name: milli(str(stated)) if name == CPU else -(-milli(str(stated)) // 1000) for name, stated in found.items()
    }


def node_facts(node: Json, gpu_type_label: str = "nvidia.com/gpu.product") -> NodeFacts:
    """What is kept of a node as the API gives it."""
    metadata, spec = node["metadata"], node.get("spec") or {}
    allocatable: tuple[tuple[str, int], ...] | None
    try:
        found = amounts((node.get("status") or {}).get("allocatable"))
        allocatable = tuple(sorted(found.items()))
    except ValueError:
        allocatable = None
    taints = tuple(
        Taint(str(each.get("key", "")), str(each.get("value") or ""), str(each.get("effect", "")))
        for each in spec.get("taints") or ()
    )
    labels = tuple(sorted((str(name), str(value)) for name, value in (metadata.get("labels") or {}).items()))
    gpu_type = dict(labels).get(gpu_type_label, "")
    return NodeFacts(metadata["name"], allocatable, taints, bool(spec.get("unschedulable")), gpu_type, labels)


def pod_facts(pod: Json) -> PodFacts | None:
    """What is kept of a pod as the API gives it; None of one that has ended."""
    metadata, spec, status = pod["metadata"], pod.get("spec") or {}, pod.get("status") or {}
    phase = str(status.get("phase") or "Pending")
    if phase in ("Succeeded", "Failed"):
        return None
    try:
        requests: dict[str, int] | None = requests_of(spec, status)
    except (ValueError, TypeError, AttributeError):
        requests = None
    node = str(spec.get("nodeName") or status.get("nominatedNodeName") or "")
    found = PodFacts(
        node, requests, str(controller_of(metadata).get("uid", "")), phase, "deletionTimestamp" in metadata
    )
    if node and not spec.get("nodeName"):
        found = replace(found, is_nominated=True)
    if not node:
        found = replace(found, spec_of_nodes={name: spec[name] for name in _OF_NODES if name in spec})
    if phase == "Pending" and (trouble := stuck(status)):
        return replace(found, trouble=f"{metadata['name']}: {trouble}")
    noted = [(metadata.get(where) or {}).get(_INDEX_NAME) for where in ("annotations", "labels")]
    if phase == "Running" and _INDEX in noted:
        starts = sum(int(each.get("restartCount") or 0) for each in status.get("containerStatuses") or ())
        life = f"{metadata.get('uid', '')}/{starts}"
        return replace(found, address=str(status.get("podIP") or ""), life=life)
    return found


def requests_of(spec: Json, status: Json) -> dict[str, int]:
    """All that a pod asks for, itself included (`pods`: 1).

    Raises:
        ValueError: a quantity cannot be read.
    """
    infeasible = any(
        each.get("type") == "PodResizePending" and each.get("reason") == "Infeasible"
        for each in status.get("conditions") or ()
    )
    statuses = {each.get("name"): each for each in status.get("containerStatuses") or ()}
    statuses |= {each.get("name"): each for each in status.get("initContainerStatuses") or ()}

    def demand_of(container: Json) -> dict[str, int]:
        return _container(container, statuses.get(container.get("name")) or {}, infeasible)

    together: dict[str, int] = {}
    for container in spec.get("containers") or ():
        _add(together, demand_of(container))
    sidecars: dict[str, int] = {}
    starting: dict[str, int] = {}
    for container in spec.get("initContainers") or ():
        requests = demand_of(container)
        if container.get("restartPolicy") == "Always":
            _add(sidecars, requests)
            step = sidecars
        else:
            step = dict(requests)
            _add(step, sidecars)
        _raise(starting, step)
    _add(together, sidecars)
    _raise(together, starting)
    for name, amount in amounts((spec.get("resources") or {}).get("requests")).items():
        if name in _POD_LEVEL or name.startswith(_HUGE_PAGES):
            together[name] = amount
    _add(together, amounts(spec.get("overhead")))
    together[PODS] = 1
    return together


def _container(container: Json, status: Json, infeasible: bool) -> dict[str, int]:
    """What a container asks for; while it is resized, the most of all that it may have or get."""
    requests = amounts((container.get("resources") or {}).get("requests"))
    now = [amounts(status.get("allocatedResources")), amounts((status.get("resources") or {}).get("requests"))]
    if not any(now):
        return requests
    found: dict[str, int] = {} if infeasible else dict(requests)
    for each in now:
        _raise(found, each)
    return {**requests, **found} if infeasible else found


def _add(to: dict[str, int], more: Amounts) -> None:
    for name, amount in more.items():
        to[name] = to.get(name, 0) + amount


def _raise(to: dict[str, int], other: Amounts) -> None:
    for name, amount in other.items():
        to[name] = max(to.get(name, 0), amount)


def tolerates(tolerations: Sequence[Json], taint: Taint) -> bool:
    """Whether a pod with these tolerations may come to a node with this taint."""
    if taint.effect not in _NO_SCHEDULE:
        return True
    for each in tolerations:
        if each.get("effect") not in (None, "", taint.effect):
            continue
        if each.get("operator", "Equal") == "Exists":
            if each.get("key") in (None, "", taint.key):
                return True
        elif each.get("key") == taint.key and str(each.get("value") or "") == taint.value:
            return True
    return False


def free_amounts(
    nodes: Iterable[NodeFacts], pods: Iterable[PodFacts], is_ours: Callable[[PodFacts], bool] = lambda _: False
) -> dict[str, dict[str, int]]:
    """What each node has left, never below zero: a pod that was put on a node by its name may have taken too much.

    Nodes with taints are among them: which of them a pod may come to, its `NodeChoice` says.

    Args:
        is_ours: pods that do not count, as their sizes are what is being decided.
    """
    left: dict[str, dict[str, int]] = {
        node.name: dict(node.allocatable) for node in nodes if not node.is_cordoned and node.allocatable is not None
    }
    for pod in pods:
        here = left.get(pod.node)
        if here is None or is_ours(pod):
            continue
        if pod.requests is None:
            here.clear()
            continue
        for name, amount in pod.requests.items():
            if name in here:
                here[name] -= amount
    return {node: {name: max(0, amount) for name, amount in here.items()} for node, here in left.items()}


def times(requests: Amounts, free: Amounts) -> int:
    """How often some requests fit in what a node has left; what a node does not offer, it has none of."""
    return min((free.get(name, 0) // amount for name, amount in requests.items() if amount > 0), default=0)


def stuck(status: Json) -> str:
    """What a container of a pod waits for that does not come by waiting, such as its image; empty where none does."""
    for each in (*(status.get("initContainerStatuses") or ()), *(status.get("containerStatuses") or ())):
        waiting = (each.get("state") or {}).get("waiting") or {}
        if waiting.get("reason") in _STUCK:
            return plain_line(f"{waiting['reason']}: {waiting.get('message') or ''}".strip(": "), LONGEST_LINE)
    return ""


@dataclass(frozen=True, slots=True)
class NodeChoice:
    """What a pod's spec says of nodes; one of the terms of its affinity has to hold, None: nothing is required."""

    tolerations: tuple[Json, ...] = ()
    selector: tuple[tuple[str, str], ...] = ()
    terms: tuple[Json, ...] | None = None

    @property
    def key(self) -> str:
        """The same of all that choose alike."""
        return repr((self.tolerations, self.selector, self.terms))

    def allows(self, node: NodeFacts) -> bool:
        """Whether a pod may come to a node; to one that is cordoned none may."""
        if node.is_cordoned or not all(tolerates(self.tolerations, taint) for taint in node.taints):
            return False
        labels = dict(node.labels)
        if any(labels.get(name) != value for name, value in self.selector):
            return False
        return self.terms is None or any(_matches(term, labels, node.name) for term in self.terms)


def node_choice(spec: Json) -> NodeChoice:
    """What a pod's spec, or a template's, says of nodes; what makes no sense allows none."""
    tolerations = tuple(dicts_in(spec.get("tolerations")))
    selector = as_dict(spec.get("nodeSelector"))
    affinity = as_dict(as_dict(spec.get("affinity")).get("nodeAffinity"))
    required = affinity.get("requiredDuringSchedulingIgnoredDuringExecution")
    terms = None if required is None else tuple(_list(as_dict(required).get("nodeSelectorTerms")))
    return NodeChoice(tolerations, tuple(sorted((str(name), str(value)) for name, value in selector.items())), terms)


def _matches(term: Any, labels: Mapping[str, str], name: str) -> bool:
    """Whether a term of an affinity holds; an empty one does of no node."""
    of_labels = _list(as_dict(term).get("matchExpressions"))
    of_fields = _list(as_dict(term).get("matchFields"))
    if not of_labels and not of_fields:
        return False
    fields = {"metadata.name": name}
    return all(_is_met(each, labels) for each in of_labels) and all(_is_met(each, fields) for each in of_fields)


def _is_met(requirement: Any, values: Mapping[str, str]) -> bool:
    found = as_dict(requirement)
    value, stated = values.get(str(found.get("key"))), [str(each) for each in _list(found.get("values"))]
    if value is None:
        return found.get("operator") in ("NotIn", "DoesNotExist")
    rule = _RULES.get(str(found.get("operator")))
    return found.get("operator") == "Exists" or (rule is not None and rule(value, stated))


def _difference(value: str, other: Sequence[str]) -> int:
    """By how much a label is above the one number that is stated; 0 where one of them is no number."""
    try:
        (than,) = other
        return int(value) - int(than)
    except ValueError:
        return 0


_RULES: Final[Mapping[str, Callable[[str, Sequence[str]], bool]]] = {
    "In": lambda value, stated: value in stated,
    "NotIn": lambda value, stated: value not in stated,
    "Gt": lambda value, stated: _difference(value, stated) > 0,
    "Lt": lambda value, stated: _difference(value, stated) < 0,
}
"""By operator: what a label that is there has to be."""


def _list(found: Any) -> list[Any]:
    return found if isinstance(found, list) else []
