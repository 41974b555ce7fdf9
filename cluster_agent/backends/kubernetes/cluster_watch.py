"""View of a cluster: what is kept of its objects, who follows them, and whether that is fresh enough to decide by."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, TypeVar

import structlog
from prometheus_client import Gauge

from cluster_agent.backend_settings import KubernetesBackendSettings, OwnNodes
from cluster_agent.backends.base import AgentParts
from cluster_agent.backends.kubernetes.limits import NamespaceFacts, namespace_facts
from cluster_agent.backends.kubernetes.observation import SeenCluster
from cluster_agent.backends.kubernetes.scrapes import Reading
from cluster_agent.errors import BackendUnavailable
from cluster_agent.kubernetes.api_server import ApiServer, Query
from cluster_agent.kubernetes.cache import Cache, CacheEntry, Key
from cluster_agent.kubernetes.capacity import NodeFacts, PodFacts, amounts, node_facts, pod_facts
from cluster_agent.kubernetes.device_claims import ClaimedDevices
from cluster_agent.kubernetes.list_watch import STALE_SECONDS, Following, unread_in
from cluster_agent.kubernetes.resources import JOBS, NAMESPACES, NODES, PODS, Json, Resource
from cluster_agent.kubernetes.targets import (
    ELASTIC_TARGETS,
    ElasticTarget,
    TargetFacts,
    TargetUpdateMode,
    elastic_target,
    is_frozen,
    job_facts,
)

_log = structlog.get_logger()


def namespaces_of(settings: KubernetesBackendSettings) -> tuple[str, ...]:
    """Those that are followed, each by itself; an empty name stands for all there are."""
    return settings.namespaces or ("",)


class NamespaceNews:
    """Logs what is new of namespaces that cannot be read; from any thread.

    Args:
        names: of all that are looked after.
        gauge: of those that cannot be read, with their names.
    """

    def __init__(self, names: Sequence[str], gauge: Gauge) -> None:
        self._gauge = gauge
        self._lock = threading.Lock()
        self._unread: dict[str, dict[str, str]] = {name: {} for name in names if name}
        for name in self._unread:
            gauge.labels(name).set(0)

    def poll(self, whose: str, unread: Mapping[str, str]) -> None:
        """Take note why namespaces cannot be read, by their names; `whose` says of which objects."""
        with self._lock:
            for name, reasons in self._unread.items():
                before, now = reasons.get(whose, ""), unread.get(name, "")
                if now and not before:
                    _log.warning(
                        "namespace-left-out",
                        namespace=name,
                        objects=whose,
                        error=now,
                        hint="is there such a namespace, and the agent's Role in it? The others go on",
                    )
                elif before and not now:
                    _log.info("namespace-looked-after", namespace=name, objects=whose)
                if now:
                    reasons[whose] = now
                else:
                    reasons.pop(whose, None)
                self._gauge.labels(name).set(1 if reasons else 0)


# Nodes of an agent's own: what is free there is known without a look at the pods of others.
#
# Pods of namespaces that the agent has no rights in cannot be seen, neither one by one nor in sum. On nodes that are
# kept for the namespaces that it looks after there are none, but for daemons, whose part an operator states.


def selector_of(own: OwnNodes | None) -> Query | None:
    """The nodes to follow; None: all."""
    return None if own is None else {"labelSelector": own.selector}


def facts_of(node: Json, own: OwnNodes | None) -> NodeFacts:
    """What is kept of a node; of one of its own, less what daemons take."""
    facts = node_facts(node)
    if own is None or facts.allocatable is None:
        return facts
    reserved = amounts(dict(own.reserved))
    left = tuple((name, max(0, amount - reserved.get(name, 0))) for name, amount in facts.allocatable)
    return replace(facts, allocatable=left)


def meant_by_free(own: OwnNodes | None, namespaces: tuple[str, ...]) -> str:
    """What counts as free, in a line; empty where that needs no words."""
    if own is None:
        return ""
    reserved = ", ".join(f"{name} {amount}" for name, amount in sorted(own.reserved.items()))
    less = f" and {reserved} for daemons on each" if reserved else ""
    return (
        f"free is what nodes with {own.selector} have, less the pods of {', '.join(namespaces)}{less}: pods of other"
        " namespaces are not seen"
    )


POLL_SECONDS = 0.1
"""Between two looks of whoever waits."""
_END_SECONDS = 5.0
_Kept = TypeVar("_Kept")


class ClusterWatch:
    """Follows a cluster from `start` to `close`.

    Attributes:
        names: namespaces whose objects these are, each followed by itself; an empty one stands for all.
        news: of those that cannot be read.
        changed: set where something has changed that a decision may be about.
        pods_changed: set where pods have, which come and go with every decision, for whoever waits for capacity.
        pods_moved: the same for whoever checks whether a decision is due.
    """

    def __init__(
        self,
        api: ApiServer,
        parts: AgentParts,
        settings: KubernetesBackendSettings,
    ) -> None:
        self._api, self._parts, self._patience_seconds = api, parts, settings.request_seconds
        self._stopping = threading.Event()
        self._threads: list[threading.Thread] = []
        self._is_started = False
        self.names = namespaces_of(settings)
        self.news = NamespaceNews(self.names, parts.telemetry.namespace_unread)
        self.changed, self.pods_changed, self.pods_moved = threading.Event(), threading.Event(), threading.Event()
        everywhere, own = ("",), settings.own_nodes
        self._own = own
        facts = partial(facts_of, own=own)
        of_pods = everywhere if own is None else self.names
        self.followed = {
            NODES.plural: self._follow(NODES, facts, everywhere, selectors=selector_of(own)),
            PODS.plural: self._follow(PODS, pod_facts, of_pods, self._on_pods),
            ELASTIC_TARGETS.plural: self._follow(ELASTIC_TARGETS, elastic_target, self.names),
            JOBS.plural: self._follow(JOBS, job_facts, self.names),
        }
        self.nodes: Cache[NodeFacts] = self.followed[NODES.plural].cache
        self.pods: Cache[PodFacts] = self.followed[PODS.plural].cache
        self.targets: Cache[ElasticTarget] = self.followed[ELASTIC_TARGETS.plural].cache
        self.jobs: Cache[TargetFacts] = self.followed[JOBS.plural].cache
        self.opted_in: dict[str, Following[NamespaceFacts]] = {}
        # On nodes of its own nobody else's pods hold devices, and no right to look everywhere is needed.
        self._devices = None if own is not None else ClaimedDevices(api, parts.clock, self._on_pods)
        for name, follow in self._devices.followings.items() if self._devices is not None else ():
            self._begin(threading.Thread(target=follow, args=(self._stopping.wait,), name=name, daemon=True))

    @property
    def is_stopping(self) -> bool:
        """Whether it was closed."""
        return self._stopping.is_set()

    def start(self) -> None:
        """Begin to follow."""
        self._is_started = True
        if meaning := meant_by_free(self._own, self.names):
            _log.info("free-capacity", meaning=meaning)
        for thread in self._threads:
            thread.start()

    def run(self, work: Callable[[], None], name: str) -> None:
        """Run something in a thread of its own, which ends by itself once this is closed."""
        self._begin(threading.Thread(target=work, name=name, daemon=True))

    def wait(self, seconds: float) -> bool:
        """Wait; True at once when closed."""
        return self._stopping.wait(seconds)

    def close(self) -> None:
        """Follow no longer."""
        self._stopping.set()
        for following in [*self.followed.values(), *self.opted_in.values()]:
            following.stop()
        if self._devices is not None:
            self._devices.stop()
        for thread in self._threads:
            if thread.is_alive():
                thread.join(_END_SECONDS)

    def check_fresh(self) -> None:
        """Refuse to decide by what is not known, or no longer; a namespace of several that cannot be read is left out.

        Namespaces themselves, which only targets with sizes to set need, and claims of devices, which many servers do
        not have, are waited for, and may stay unknown.

        Raises:
            BackendUnavailable: something could not be read yet, or has not been heard of for too long.
        """
        began = self._parts.clock()
        for name, following in self.followed.items():
            while not following.has_read:
                late = self._parts.clock() - began > self._patience_seconds
                if late or self._parts.wait(POLL_SECONDS):
                    raise BackendUnavailable(self._unread(name, following))
            if following.is_stale:
                line = f"nothing was heard of {name} for {following.cache.age_seconds:.0f} s"
                raise BackendUnavailable(f"{line}{_why(following)}")
        while self._devices is not None and not self._devices.has_read:
            if self._parts.clock() - began > self._patience_seconds or self._parts.wait(POLL_SECONDS):
                break
        unread = self.unread_namespaces()
        if unread.keys() >= set(self.names):
            raise BackendUnavailable(f"none of the namespaces can be read: {next(iter(unread.values()))}")
        if any(entry.kept.mode is not TargetUpdateMode.OFF for entry in self.targets.entries().values()):
            self.namespaces()

    @property
    def unread(self) -> str:
        """What could not be read even once, in a line; empty where a decision can be about everything."""
        for name, following in self.followed.items():
            if not following.has_read:
                return self._unread(name, following)
        return ""

    def unread_namespaces(self) -> dict[str, str]:
        """Namespaces of several in which something cannot be read, and why: nothing is decided about them."""
        unread = unread_in(self.followed.values())
        self.news.poll("ElasticTargets", unread)
        return unread

    @property
    def is_fresh(self) -> bool:
        """Whether everything that a decision is about was heard of lately."""
        return not any(following.is_stale for following in self.followed.values())

    def found(self) -> dict[tuple[str, str, str], TargetFacts]:
        """Objects that targets may point at, by kind, namespace and name."""
        return {(JOBS.kind, namespace, name): entry.kept for (namespace, name), entry in self._of_readable(self.jobs)}

    def seen(self, readings: Mapping[str, Reading] | None = None) -> SeenCluster:
        """All that is kept, as it stands now; `readings` are of jobs' own metrics, by their uids."""
        nodes = [entry.kept for entry in self.nodes.entries().values()]
        if self._devices is not None:
            nodes = self._devices.less(nodes)
        return SeenCluster(
            sorted(nodes, key=lambda node: node.name),
            [entry.kept for entry in self.pods.entries().values()],
            [entry.kept for _, entry in self._of_readable(self.targets)],
            self.found(),
            readings or {},
        )

    def by_id(self) -> dict[str, ElasticTarget]:
        """Targets by namespace and name."""
        return {entry.kept.job_id: entry.kept for _, entry in self._of_readable(self.targets)}

    def object_of(self, target: ElasticTarget) -> CacheEntry[TargetFacts] | None:
        """What a target points at; None where it is not there."""
        return self.jobs.get((target.namespace, target.ref.name)) if target.ref.kind == JOBS.kind else None

    def uids(self) -> frozenset[str]:
        """Of all objects that targets may point at."""
        return frozenset(entry.uid for entry in self.jobs.entries().values())

    def shape(self) -> frozenset[object]:
        """What a decision would be about, without the progress and sizes of jobs."""
        targets = [
            (key, entry.uid, entry.kept.generation, entry.kept.is_frozen)
            for key, entry in self._of_readable(self.targets)
        ]
        jobs = [
            (key, entry.uid, kept.is_over, kept.obstacle, kept.delay, is_frozen(kept.annotations))
            for key, entry in self._of_readable(self.jobs)
            for kept in [entry.kept]
        ]
        followings = list(self.opted_in.values())
        namespaces = [(key, entry.kept) for each in followings for key, entry in each.cache.entries().items()]
        nodes = [entry.kept for entry in self.nodes.entries().values()]
        return frozenset([*targets, *jobs, *nodes, *namespaces])

    def namespaces(self) -> tuple[Mapping[str, NamespaceFacts], str]:
        """What is kept of namespaces that can be read, and why others cannot, in a line.

        They are followed from the first call on: whoever only advises may not read them.
        """
        if not self.opted_in:
            self.opted_in = {name: self._follow_namespace(name) for name in self.names}
        began = self._parts.clock()
        found: dict[str, NamespaceFacts] = {}
        unread = ""
        for following in self.opted_in.values():
            cache = following.cache
            while not (cache.is_synced or following.trouble) and self._parts.clock() - began < self._patience_seconds:
                if self._parts.wait(POLL_SECONDS):
                    break
            if cache.is_synced and cache.age_seconds <= STALE_SECONDS:
                found |= {name: entry.kept for (_, name), entry in cache.entries().items()}
            else:
                unread = f"namespaces cannot be read{_why(following)}"
        return found, unread

    def _on_pods(self) -> None:
        self.pods_changed.set()
        self.pods_moved.set()

    def _unread(self, name: str, following: Following[Any]) -> str:
        return f"{name} could not be read yet from {self._api.address}{_why(following)}"

    def _of_readable(self, cache: Cache[_Kept]) -> Iterable[tuple[Key, CacheEntry[_Kept]]]:
        unread = self.unread_namespaces()
        return [(key, entry) for key, entry in cache.entries().items() if key[0] not in unread]

    def _follow_namespace(self, name: str) -> Following[NamespaceFacts]:
        """One by its name alone, which is a right that can be granted of one alone."""
        selectors = {"fieldSelector": f"metadata.name={name}"} if name else None
        return self._follow(NAMESPACES, namespace_facts, ("",), selectors=selectors)

    def _follow(
        self,
        resource: Resource,
        keep: Callable[[Json], Any],
        namespaces: tuple[str, ...],
        on_change: Callable[[], None] | None = None,
        selectors: Query | None = None,
    ) -> Following[Any]:
        following: Following[Any] = Following(
            self._api, resource, keep, self._parts.clock, on_change or self.changed.set, namespaces, selectors
        )
        for thread in following.threads(self._stopping.wait):
            self._begin(thread)
        return following

    def _begin(self, thread: threading.Thread) -> None:
        self._threads.append(thread)
        if self._is_started:
            thread.start()


def _why(following: Following[Any]) -> str:
    return f": {following.trouble}" if following.trouble else ""
