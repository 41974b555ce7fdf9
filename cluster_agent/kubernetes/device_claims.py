"""Devices that claims hold (dynamic resource allocation), counted as GPUs that are taken; pure.

A ResourceClaim that is allocated names the devices that it holds; ResourceSlices say on which node each is. Where that
node's device plugin offers its GPUs by number too, one that a claim holds is none that a container could get: it is
taken from what the node has. GPUs that only slices offer do not count as free: which of them a request for a number of
GPUs would get is said by device classes, in expressions that only kube-scheduler evaluates.

Deviation: a part of a GPU that a claim holds counts as one, and so do its other parts; several nodes that could reach
one device do not occur with GPUs.
Source: KEP-4381 (structured parameters), KEP-5004 (extended resources by claims).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Final

from cluster_agent.kubernetes.capacity import NodeFacts
from cluster_agent.kubernetes.resources import Json, Resource, as_dict, dicts_in

Device = tuple[str, str, str]
"""Driver, pool and name."""

VERSIONS: Final = ("v1", "v1beta2", "v1beta1")
"""Of `resource.k8s.io` that are understood, the best first; what is read of them is the same in all."""
GROUP: Final = "resource.k8s.io"
COUNTED_AS: Final = {
    "gpu.nvidia.com": "nvidia.com/gpu",
    "gpu.amd.com": "amd.com/gpu",
    "gpu.intel.com": "gpu.intel.com/i915",
}
"""By driver, the name under which a device plugin offers the same GPUs."""
_BY_REQUEST = "resource.kubernetes.io/extended-resource-claim"
"""An annotation of kube-scheduler's own claims, for pods that requested a number of GPUs: those count by the pod."""


@dataclass(frozen=True, slots=True)
class ClaimFacts:
    """What is kept of a claim that holds GPUs; the node is empty where its allocation names none, or several."""

    devices: frozenset[Device]
    node: str


@dataclass(frozen=True, slots=True)
class SliceFacts:
    """What is kept of a slice that offers GPUs: the node of each device."""

    nodes: tuple[tuple[Device, str], ...]


def claims(version: str) -> Resource:
    """Claims, in one of the API's versions."""
    return Resource(GROUP, version, "resourceclaims", "ResourceClaim")


def slices(version: str) -> Resource:
    """Slices, in one of the API's versions."""
    return Resource(GROUP, version, "resourceslices", "ResourceSlice", namespaced=False)


def served_version(group: Json) -> str:
    """The best version that a server says it serves of the group; empty where it is none that is understood."""
    served = {each.get("version") for each in dicts_in(group.get("versions"))}
    return next((version for version in VERSIONS if version in served), "")


def claim_facts(claim: Json) -> ClaimFacts | None:
    """What is kept of a claim as the API gives it; None of one that holds no GPUs that have to be counted."""
    annotations = as_dict(as_dict(claim.get("metadata")).get("annotations"))
    allocation = as_dict(as_dict(claim.get("status")).get("allocation"))
    results = dicts_in(as_dict(allocation.get("devices")).get("results"))
    # What is looked at for administration is not held.
    devices = frozenset(_device(each, each.get("device")) for each in results if each.get("adminAccess") is not True)
    devices = frozenset(device for device in devices if device[0] in COUNTED_AS)
    if not devices or str(annotations.get(_BY_REQUEST)) == "true":
        return None
    return ClaimFacts(devices, _named_node(allocation.get("nodeSelector")))


def slice_facts(found: Json) -> SliceFacts | None:
    """What is kept of a slice as the API gives it; None of one whose devices are no GPUs, or on no one node."""
    spec = as_dict(found.get("spec"))
    if spec.get("driver") not in COUNTED_AS:
        return None
    pool = as_dict(spec.get("pool")).get("name")
    nodes = []
    for each in dicts_in(spec.get("devices")):
        # A device may have a node of its own; v1beta1 says so one level deeper.
        node = each.get("nodeName") or as_dict(each.get("basic")).get("nodeName") or spec.get("nodeName")
        if node:
            nodes.append((_device({"driver": spec["driver"], "pool": pool}, each.get("name")), str(node)))
    return SliceFacts(tuple(sorted(nodes))) if nodes else None


def taken_devices(found: Iterable[ClaimFacts], offered: Iterable[SliceFacts] = ()) -> dict[str, dict[str, int]]:
    """By node and name of the resource: how many of its devices claims hold; each counts once, however many claim it.

    Where a device is its slice says; of one that no slice has, the claim does, or nobody.
    """
    places = {device: node for each in offered for device, node in each.nodes}
    held = {(device, places.get(device, claim.node)) for claim in found for device in claim.devices}
    taken: dict[str, Counter[str]] = {}
    for device, node in held:
        if node:
            taken.setdefault(node, Counter())[COUNTED_AS[device[0]]] += 1
    return {node: dict(counts) for node, counts in taken.items()}


def less_taken(nodes: Iterable[NodeFacts], taken: Mapping[str, Mapping[str, int]]) -> list[NodeFacts]:
    """Nodes without the devices that claims hold, never below none; what a node does not offer is none of its room."""
    return [_less(node, taken[node.name]) if taken.get(node.name) else node for node in nodes]


def _less(node: NodeFacts, taken: Mapping[str, int]) -> NodeFacts:
    if node.allocatable is None:
        return node
    left = tuple((name, max(0, amount - taken.get(name, 0))) for name, amount in node.allocatable)
    return replace(node, allocatable=left)


def _device(found: Json, name: Any) -> Device:
    return str(found.get("driver") or ""), str(found.get("pool") or ""), str(name or "")


def _named_node(selector: Any) -> str:
    """The one node that an allocation's selector names: kube-scheduler writes it so for devices of a node."""
    terms = dicts_in(as_dict(selector).get("nodeSelectorTerms"))
    if len(terms) != 1:
        return ""
    for each in dicts_in(terms[0].get("matchFields")):
        values = each.get("values")
        is_name = each.get("key") == "metadata.name" and each.get("operator") == "In"
        if is_name and isinstance(values, list) and len(values) == 1:
            return str(values[0])
    return ""
