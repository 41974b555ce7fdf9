"""Sight of a cluster: what is kept of its objects, who follows them, and whether that is fresh enough to decide by."""

from __future__ import annotations

import os
import socket
import threading
from collections.abc import Callable, Mapping
from typing import Any

from cluster_agent.backends.base import AgentParts
from cluster_agent.backends.kubernetes.claimed_devices import ClaimedDevices
from cluster_agent.backends.kubernetes.limits import NamespaceFacts, namespace_facts
from cluster_agent.backends.kubernetes.observation import Seen
from cluster_agent.backends.kubernetes.scrapes import Reading
from cluster_agent.errors import BackendUnavailable
from cluster_agent.kubernetes.api_server import ApiServer, Json, Query
from cluster_agent.kubernetes.cache import Cache, Entry
from cluster_agent.kubernetes.capacity import NodeFacts, PodFacts, node_facts, pod_facts
from cluster_agent.kubernetes.list_watch import ListWatch
from cluster_agent.kubernetes.resources import NAMESPACES, NODES, PODS, Resource
from cluster_agent.kubernetes.targets.elastic_target import (
    ELASTIC_TARGETS,
    ElasticTarget,
    UpdateMode,
    elastic_target,
    is_frozen,
)
from cluster_agent.kubernetes.targets.target_kind import TargetFacts, TargetKind

LOOK_SECONDS = 0.1
"""Between two looks of whoever waits."""
_STALE_SECONDS = 180.0
"""What was heard longer ago is nothing to decide by; bookmarks come every minute."""
_END_SECONDS = 5.0


class ClusterSight:
    """Follows a cluster from `start` to `close`.

    Args:
        kinds: of objects that targets may point at.
        namespace: whose targets and objects; everybody's where empty.
        patience_seconds: longest wait for a first sight.

    Attributes:
        changed: set where something has changed that a decision may be about.
        pods_changed: set where pods have, which come and go with every decision.
    """

    def __init__(
        self, api: ApiServer, parts: AgentParts, kinds: tuple[TargetKind, ...], namespace: str, patience_seconds: float
    ) -> None:
        self._api, self._parts, self._namespace, self._patience_seconds = api, parts, namespace, patience_seconds
        self._stopping = threading.Event()
        self._threads: list[threading.Thread] = []
        self._followed: dict[str, tuple[Cache[Any], ListWatch[Any]]] = {}
        self._is_started = False
        self.changed, self.pods_changed = threading.Event(), threading.Event()
        self.nodes: Cache[NodeFacts] = self._follow(NODES, node_facts, everywhere=True)
        self.pods: Cache[PodFacts] = self._follow(PODS, pod_facts, everywhere=True, on_change=self.pods_changed)
        self.targets: Cache[ElasticTarget] = self._follow(ELASTIC_TARGETS, elastic_target)
        self.objects: dict[str, Cache[TargetFacts]] = {
            kind.resource.kind: self._follow(kind.resource, kind.facts) for kind in kinds
        }
        self._namespaces: tuple[Cache[NamespaceFacts], ListWatch[Any]] | None = None
        self._devices = ClaimedDevices(api, parts.clock, self.pods_changed.set, _seed())
        for name, follow in self._devices.followings.items():
            self._begin(threading.Thread(target=follow, args=(self._stopping.wait,), name=name, daemon=True))

    @property
    def is_stopping(self) -> bool:
        """Whether it was closed."""
        return self._stopping.is_set()

    def start(self) -> None:
        """Begin to follow."""
        self._is_started = True
        for thread in self._threads:
            thread.start()

    def run(self, work: Callable[[], None], name: str) -> None:
        """Have something done in a thread of its own, beside the following; it ends by itself once this is closed."""
        self._begin(threading.Thread(target=work, name=name, daemon=True))

    def wait(self, seconds: float) -> bool:
        """Wait; True at once when closed."""
        return self._stopping.wait(seconds)

    def close(self) -> None:
        """Follow no longer."""
        self._stopping.set()
        for _, following in self._followed.values():
            following.stop()
        self._devices.stop()
        for thread in self._threads:
            if thread.is_alive():
                thread.join(_END_SECONDS)

    def check_fresh(self) -> None:
        """Refuse to decide by what is not known, or no longer; namespaces, which only those need whose sizes are to be
        set, and claims of devices, which many servers do not have, are waited for, and may be unknown.

        Raises:
            BackendUnavailable: something could not be read yet, or has not been heard of for too long.
        """
        began = self._parts.clock()
        for name, (cache, following) in self._decided_by().items():
            while not cache.is_synced:
                late = self._parts.clock() - began > self._patience_seconds
                if late or self._parts.wait(LOOK_SECONDS):
                    raise BackendUnavailable(self._unread(name, following))
            if cache.age_seconds > _STALE_SECONDS:
                line = f"nothing was heard of {name} for {cache.age_seconds:.0f} s"
                raise BackendUnavailable(f"{line}{_why(following)}")
        while not self._devices.is_settled and self._parts.clock() - began <= self._patience_seconds:
            if self._parts.wait(LOOK_SECONDS):
                break
        if any(entry.kept.mode is not UpdateMode.OFF for entry in self.targets.entries().values()):
            self.namespaces()

    @property
    def unread(self) -> str:
        """What could not be read even once, in a line; empty where a decision can be about everything."""
        for name, (cache, following) in self._decided_by().items():
            if not cache.is_synced:
                return self._unread(name, following)
        return ""

    @property
    def is_fresh(self) -> bool:
        """Whether everything that a decision is about was heard of lately."""
        return all(cache.age_seconds <= _STALE_SECONDS for cache, _ in self._decided_by().values())

    def found(self) -> dict[tuple[str, str, str], TargetFacts]:
        """Objects that targets may point at, by kind, namespace and name."""
        return {
            (kind, namespace, name): entry.kept
            for kind, cache in self.objects.items()
            for (namespace, name), entry in cache.entries().items()
        }

    def seen(self, readings: Mapping[str, Reading] | None = None) -> Seen:
        """All that is kept, as it stands now.

        Args:
            readings: of jobs' own metrics, by their uids.
        """
        nodes = self._devices.less(entry.kept for entry in self.nodes.entries().values())
        return Seen(
            sorted(nodes, key=lambda node: node.name),
            [entry.kept for entry in self.pods.entries().values()],
            [entry.kept for entry in self.targets.entries().values()],
            self.found(),
            readings or {},
        )

    def by_id(self) -> dict[str, ElasticTarget]:
        """Targets by namespace and name."""
        return {f"{where}/{name}": entry.kept for (where, name), entry in self.targets.entries().items()}

    def object_of(self, target: ElasticTarget) -> Entry[TargetFacts] | None:
        """What a target points at; None where it is not there."""
        cache = self.objects.get(target.ref.kind)
        return None if cache is None else cache.get((target.namespace, target.ref.name))

    def uids(self) -> frozenset[str]:
        """Of all objects that targets may point at."""
        return frozenset(entry.uid for cache in self.objects.values() for entry in cache.entries().values())

    def shape(self) -> frozenset[object]:
        """What a decision would be about, without how far jobs are, and how large."""
        targets = [
            (key, entry.uid, entry.kept.generation, entry.kept.is_frozen)
            for key, entry in self.targets.entries().items()
        ]
        objects = [
            (kind, key, entry.uid, entry.kept.is_over, entry.kept.obstacle, entry.kept.hold, _is_frozen(entry.kept))
            for kind, cache in self.objects.items()
            for key, entry in cache.entries().items()
        ]
        namespaces = [] if self._namespaces is None else list(self._namespaces[0].entries().items())
        nodes = [entry.kept for entry in self.nodes.entries().values()]
        return frozenset([*targets, *objects, *nodes, *((key, entry.kept) for key, entry in namespaces)])

    def namespaces(self) -> tuple[Mapping[str, NamespaceFacts], str]:
        """What is kept of namespaces, which are followed from the first call on: whoever only advises may not read
        them. Where they cannot be read, nothing, and why in a line.
        """
        if self._namespaces is None:
            selectors = {"fieldSelector": f"metadata.name={self._namespace}"} if self._namespace else None
            self._follow(NAMESPACES, namespace_facts, everywhere=True, selectors=selectors)
            self._namespaces = self._followed[NAMESPACES.plural]
        cache, following = self._namespaces
        began = self._parts.clock()
        while not cache.is_synced and not following.trouble and self._parts.clock() - began < self._patience_seconds:
            if self._parts.wait(LOOK_SECONDS):
                break
        if not cache.is_synced or cache.age_seconds > _STALE_SECONDS:
            return {}, f"namespaces cannot be read{_why(following)}"
        return {name: entry.kept for (_, name), entry in cache.entries().items()}, ""

    def _unread(self, name: str, following: ListWatch[Any]) -> str:
        return f"{name} could not be read yet from {self._api.address}{_why(following)}"

    def _decided_by(self) -> dict[str, tuple[Cache[Any], ListWatch[Any]]]:
        return {name: each for name, each in self._followed.items() if name != NAMESPACES.plural}

    def _follow(
        self,
        resource: Resource,
        keep: Callable[[Json], Any],
        *,
        everywhere: bool = False,
        on_change: threading.Event | None = None,
        selectors: Query | None = None,
    ) -> Cache[Any]:
        cache: Cache[Any] = Cache(keep, self._parts.clock, (on_change or self.changed).set)
        namespace = "" if everywhere else self._namespace
        following: ListWatch[Any] = ListWatch(
            self._api, resource, cache, self._parts.clock, namespace, selectors, seed=_seed()
        )
        self._followed[resource.plural] = (cache, following)
        name = f"watch-{resource.plural}"
        self._begin(threading.Thread(target=following.run, args=(self._stopping.wait,), name=name, daemon=True))
        return cache

    def _begin(self, thread: threading.Thread) -> None:
        self._threads.append(thread)
        if self._is_started:
            thread.start()


def _seed() -> str:
    return f"{socket.gethostname()}/{os.getpid()}"


def _is_frozen(facts: TargetFacts) -> bool:
    return is_frozen(facts.annotations)


def _why(following: ListWatch[Any]) -> str:
    return f": {following.trouble}" if following.trouble else ""
