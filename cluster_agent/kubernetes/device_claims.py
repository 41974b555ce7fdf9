"""Devices that claims hold (dynamic resource allocation), counted as GPUs that are taken, and followed.

A ResourceClaim that is allocated names the devices that it holds; ResourceSlices say on which node each is. Where that
node's device plugin offers its GPUs by number too, one that a claim holds is none that a container could get: it is
taken from what the node has. GPUs that only slices offer do not count as free: which of them a request for a number of
GPUs would get is said by device classes, in expressions that only kube-scheduler evaluates.

Where a server has no claims, or they may not be read, nothing is taken by them: it is logged once, and tried again now
and then, as a server is upgraded and a right is given while an agent runs.

Deviation: a part of a GPU that a claim holds counts as one, and so do its other parts; several nodes that could reach
one device do not occur with GPUs.
Source: KEP-4381 (structured parameters), KEP-5004 (extended resources by claims).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Final, Generic, TypeVar

import structlog

from cluster_agent.kubernetes.api_server import ApiServer
from cluster_agent.kubernetes.cache import Cache
from cluster_agent.kubernetes.capacity import NodeFacts
from cluster_agent.kubernetes.errors import ApiError, NotFound
from cluster_agent.kubernetes.list_watch import ListWatch, own_seed
from cluster_agent.kubernetes.resources import Json, Resource, as_dict, dicts_in
from foundation.backoff import Backoff
from foundation.clocks import Clock
from foundation.text import plain_line

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
    allocated = {(device, places.get(device, claim.node)) for claim in found for device in claim.devices}
    taken: dict[str, Counter[str]] = {}
    for device, node in allocated:
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


_log = structlog.get_logger()

Kept = TypeVar("Kept")
_AGAIN_SECONDS = 600.0
"""Between two looks whether a server has the resource by now."""
_FIRST_WAIT_SECONDS, _LONGEST_WAIT_SECONDS = 0.5, 30.0


class _MaybeServed(Generic[Kept]):
    """Follows one resource that the server may not have; `run` is called by one thread."""

    def __init__(
        self,
        api: ApiServer,
        resource: Callable[[str], Resource],
        keep: Callable[[Json], Kept | None],
        clock: Clock,
        on_change: Callable[[], None],
    ) -> None:
        self._api, self._resource, self._clock = api, resource, clock
        self.cache: Cache[Kept] = Cache(keep, clock, on_change)
        self._trouble = ""
        self._following: ListWatch[Kept] | None = None
        self._is_stopped = False

    @property
    def has_read(self) -> bool:
        """Whether it was read, or it is known why it was not."""
        troubled = self._trouble or (self._following is not None and self._following.trouble)
        return self.cache.is_synced or bool(troubled)

    def run(self, wait: Callable[[float], bool]) -> None:
        """Follow until told to stop."""
        version = self._version(wait)
        if version:
            self._following = ListWatch(self._api, self._resource(version), self.cache, self._clock)
            if not self._is_stopped:
                self._following.run(wait)

    def stop(self) -> None:
        """End what is being followed; from any thread."""
        self._is_stopped = True
        if self._following is not None:
            self._following.stop()

    def _version(self, wait: Callable[[float], bool]) -> str:
        """The version that the server has, once it has one; empty when to stop."""
        backoff = Backoff(f"{own_seed()}/{GROUP}", _FIRST_WAIT_SECONDS, _LONGEST_WAIT_SECONDS)
        while True:
            seconds = _AGAIN_SECONDS
            try:
                version = served_version(self._api.get(f"/apis/{GROUP}"))
                if version:
                    self._trouble = ""
                    return version
                self._say("the server has no version of it that is understood")
            except NotFound:
                self._trouble = "the server does not have it"  # as most have not: nothing to tell
            except ApiError as error:
                self._say(plain_line(str(error)))
                seconds = backoff.next_seconds()
            if wait(seconds):
                return ""

    def _say(self, line: str) -> None:
        if line != self._trouble:
            _log.warning("device-claims-not-read", group=GROUP, resource=self._resource("").plural, error=line)
        self._trouble = line


class ClaimedDevices:
    """What claims hold; each of `followings` is to be run by a thread of its own."""

    def __init__(self, api: ApiServer, clock: Clock, on_change: Callable[[], None]) -> None:
        self._claims: _MaybeServed[ClaimFacts] = _MaybeServed(api, claims, claim_facts, clock, on_change)
        self._slices: _MaybeServed[SliceFacts] = _MaybeServed(api, slices, slice_facts, clock, on_change)

    @property
    def followings(self) -> dict[str, Callable[[Callable[[float], bool]], None]]:
        """What follows each resource; it takes a wait of so many seconds that returns True when to stop."""
        return {"watch-resourceclaims": self._claims.run, "watch-resourceslices": self._slices.run}

    @property
    def has_read(self) -> bool:
        """Whether all that can be known is; before that, what claims hold would be given away."""
        return self._claims.has_read and self._slices.has_read

    def less(self, nodes: Iterable[NodeFacts]) -> list[NodeFacts]:
        """Nodes without the devices that claims hold."""
        claims = (entry.kept for entry in self._claims.cache.entries().values())
        offered = (entry.kept for entry in self._slices.cache.entries().values())
        return less_taken(nodes, taken_devices(claims, offered))

    def stop(self) -> None:
        """Follow no longer; from any thread."""
        self._claims.stop()
        self._slices.stop()
