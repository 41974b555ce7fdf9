"""Kubernetes backend: follows a cluster, asks what to do at each change, and writes down what it would have done.

So far it advises: nothing of the cluster changes but the status of its ElasticTargets.
"""

from __future__ import annotations

import os
import socket
import threading
import time
import uuid
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import structlog

from cluster_agent.backend_settings import BackendSettings, KubernetesBackendSettings
from cluster_agent.backends.base import AgentParts, BackendStatus
from cluster_agent.backends.kubernetes.advice import Adviser
from cluster_agent.backends.kubernetes.observation import Member, Observed, Seen, ended_since, observed, said_progress
from cluster_agent.backends.kubernetes.scrapes import Scraped, Scrapes, jobs_to_scrape, seconds_between
from cluster_agent.errors import BackendUnavailable, BadConfig
from cluster_agent.kubernetes.access import Access, open_client
from cluster_agent.kubernetes.api_server import ApiServer, Json
from cluster_agent.kubernetes.cache import Cache
from cluster_agent.kubernetes.capacity import NodeFacts, PodFacts, node_facts, pod_facts
from cluster_agent.kubernetes.elector import Elector, LeaseTimes
from cluster_agent.kubernetes.list_watch import ListWatch
from cluster_agent.kubernetes.resources import NODES, PODS, Resource
from cluster_agent.kubernetes.targets.batch_job import BatchJob
from cluster_agent.kubernetes.targets.elastic_target import ELASTIC_TARGETS, ElasticTarget, elastic_target
from cluster_agent.kubernetes.targets.target_kind import TargetFacts, TargetKind
from cluster_agent.recording.reasons import asked_about
from policy_net.domain import SUSPENDED, ClusterState, Decision, Progress, Trigger
from policy_net.errors import InvalidAllocation

_log = structlog.get_logger()

KINDS: tuple[TargetKind, ...] = (BatchJob(),)
"""What targets may point at."""
_LOOK_SECONDS = 0.1
_STALE_SECONDS = 180.0
"""What was heard longer ago is nothing to decide by; bookmarks come every minute."""
_END_SECONDS = 5.0


def resolve_paths(settings: KubernetesBackendSettings, folder: Path) -> KubernetesBackendSettings:
    """The settings with the kubeconfig's path taken from the folder; see `BackendModule`."""
    if settings.kubeconfig is None:
        return settings
    return settings.model_copy(update={"kubeconfig": folder / settings.kubeconfig})


def open_backend(settings: BackendSettings, parts: AgentParts) -> KubernetesBackend:
    """The cluster that the kubeconfig or the pod's service account names; see `BackendModule`."""
    if not isinstance(settings, KubernetesBackendSettings):
        raise BadConfig(f"setting backend.kind = {settings.kind}: is no Kubernetes cluster")
    client = open_client(Access(settings.kubeconfig, settings.context))
    elector = None
    if settings.lease_namespace:
        times = LeaseTimes()
        elector = Elector(
            # A renewal that takes longer than this is of no use.
            ApiServer(client, times.renew_deadline_seconds / 2),
            settings.lease_namespace,
            settings.lease_name,
            f"{socket.gethostname()}_{uuid.uuid4()}",
            lambda: time.clock_gettime(time.CLOCK_BOOTTIME),
            time.time,
            times,
        )
    return KubernetesBackend(settings, parts, ApiServer(client, settings.request_seconds), time.time, elector)


class KubernetesBackend:
    """A Kubernetes cluster; a `Backend`.

    Args:
        api: of the cluster.
        unix_clock: the time of day in seconds.
        elector: says whether this agent acts; without one it does.
    """

    def __init__(
        self,
        settings: KubernetesBackendSettings,
        parts: AgentParts,
        api: ApiServer,
        unix_clock: Callable[[], float],
        elector: Elector | None = None,
    ) -> None:
        self._settings, self._parts, self._api, self._elector = settings, parts, api, elector
        self._offset_seconds = unix_clock() - parts.clock()
        self._changed = threading.Event()
        self._adviser = Adviser(api, unix_clock, lambda: self._acts)
        self._stopping = threading.Event()
        self._threads: list[threading.Thread] = []
        self._followed: dict[str, tuple[Cache[Any], ListWatch[Any]]] = {}
        self._nodes = self._follow(NODES, node_facts, everywhere=True)
        # What pods do waits for the slot: they come and go with every decision.
        self._pods: Cache[PodFacts] = self._follow(PODS, pod_facts, everywhere=True, wakes=False)
        self._targets = self._follow(ELASTIC_TARGETS, elastic_target)
        self._objects: dict[str, Cache[TargetFacts]] = {
            kind.resource.kind: self._follow(kind.resource, kind.facts) for kind in KINDS
        }
        self._scrapes = Scrapes(self._to_scrape, parts.clock, unix_clock)
        scraping = threading.Thread(target=self._scrapes.run, args=(self._stopping.wait,), name="scrapes", daemon=True)
        self._threads.append(scraping)
        self._observed: Observed | None = None
        self._trigger = Trigger.SLOT
        self._known: frozenset[str] = frozenset()
        self._known_nodes: frozenset[str] = frozenset()
        self._known_shape: frozenset[object] = frozenset()
        self._decided_seconds = -float("inf")
        self._done, self._done_seconds = 0, 0.0
        self._untold: frozenset[str] = frozenset()
        self._asked_about: frozenset[tuple[str, float]] | None = asked_about(parts.state_dir)

    @property
    def finished(self) -> bool:
        """Never: somebody may always make another target."""
        return False

    @property
    def time_seconds(self) -> float:
        """Unix seconds, which never go back."""
        return self._offset_seconds + self._parts.clock()

    @property
    def baseline_policy(self) -> str:
        """None: what is recommended to a cluster is not run twice."""
        return ""

    @property
    def job_types(self) -> Sequence[str]:
        """Those of the targets that there are."""
        entries = self._targets.entries().values()
        return list(dict.fromkeys(entry.kept.model_type for entry in entries if not entry.kept.problem))

    def start(self) -> None:
        """Begin to follow the cluster."""
        if self._elector is not None:
            self._threads.append(threading.Thread(target=self._elect, args=(self._elector,), name="lease", daemon=True))
        for thread in self._threads:
            thread.start()

    def observe(self) -> tuple[ClusterState, Trigger] | None:
        """See `Backend.observe`; waits as long as there is no target that a decision could be about."""
        while self._observed is None:
            if self._parts.wait(0.0):
                return None
            if not self._acts:
                self._parts.wait(_LOOK_SECONDS)
                continue
            self._check_fresh()
            self._known_shape = self._shape()
            if self._asked_about is not None:
                self._untold = ended_since(self._asked_about, self._by_id().values(), self._found())
                self._asked_about = None
            found = self._look()
            if found.members:
                self._trigger = self._what_happened(found)
                self._observed = found
            else:
                self._adviser.advise(found, Decision({}), self._by_id())
                if self._wait_for_change():
                    return None
        return self._observed.state, self._trigger

    def apply(self, decision: Decision) -> list[Progress]:
        """See `Backend.apply`: writes recommendations, and waits until the next decision is due."""
        if self._observed is None:
            raise BackendUnavailable("nothing was observed that this decision could be about")
        about = self._observed
        unknown = [job_id for job_id in decision.allocation if job_id not in about.members]
        if unknown:
            raise InvalidAllocation(f"{unknown[0]}: no target of that name was observed")
        for job in about.state.jobs:
            if decision.of(job.job_id).workers > job.max_workers or decision.of(job.job_id).ps:
                raise InvalidAllocation(f"{job.job_id}: {decision.of(job.job_id)} is more than it may have")
        self._observed, self._decided_seconds = None, self._parts.clock()
        self._changed.clear()
        failed = self._adviser.advise(about, decision, self._by_id())
        self._wait_until_due(self._settings.debounce_seconds if failed else self._settings.slot_seconds)
        running = frozenset(pod.kept.owner for pod in self._pods.entries().values() if pod.kept.phase == "Running")
        progress = [self._progress(member, about.state, running) for member in about.members.values()]
        # Whatever ends between now and the next look is told with the interval after.
        self._untold = frozenset(
            member.facts.uid
            for member, entry in zip(about.members.values(), progress, strict=True)
            if not entry.finished
        )
        return progress

    def status(self) -> BackendStatus:
        """How the targets stand now."""
        found = self._look()
        running = sum(member.facts.workers > 0 for member in found.members.values())
        return BackendStatus(
            time_seconds=self.time_seconds,
            jobs_running=running,
            jobs_waiting=len(found.members) - running,
            jobs_done=self._done,
            jobs_total=0,
            avg_jct_seconds=self._done_seconds / self._done if self._done else 0.0,
        )

    def close(self) -> None:
        """Follow no longer; the cluster goes on as it is."""
        self._stopping.set()
        if self._elector is not None:
            self._elector.release()
        for _, following in self._followed.values():
            following.stop()
        for thread in self._threads:
            if thread.is_alive():
                thread.join(_END_SECONDS)
        self._api.close()

    @property
    def _acts(self) -> bool:
        return self._elector is None or self._elector.seconds_left > 0.0

    def _elect(self, elector: Elector) -> None:
        while not self._stopping.wait(elector.step()):
            pass

    def _follow(
        self, resource: Resource, keep: Callable[[Json], Any], *, everywhere: bool = False, wakes: bool = True
    ) -> Cache[Any]:
        cache: Cache[Any] = Cache(keep, self._parts.clock, self._changed.set if wakes else lambda: None)
        namespace = "" if everywhere else self._settings.namespace
        seed = f"{socket.gethostname()}/{os.getpid()}"
        following: ListWatch[Any] = ListWatch(self._api, resource, cache, self._parts.clock, namespace, seed=seed)
        name = f"watch-{resource.plural}"
        thread = threading.Thread(target=following.run, args=(self._stopping.wait,), name=name, daemon=True)
        self._threads.append(thread)
        self._followed[resource.plural] = (cache, following)
        return cache

    def _check_fresh(self) -> None:
        """Refuse to decide by what is not known, or no longer.

        Raises:
            BackendUnavailable: something could not be read yet, or has not been heard of for too long.
        """
        began = self._parts.clock()
        for name, (cache, following) in self._followed.items():
            while not cache.is_synced:
                late = self._parts.clock() - began > self._settings.request_seconds
                if late or self._parts.wait(_LOOK_SECONDS):
                    why = f": {following.trouble}" if following.trouble else ""
                    raise BackendUnavailable(f"{name} could not be read yet from {self._api.address}{why}")
            if cache.age_seconds > _STALE_SECONDS:
                why = f": {following.trouble}" if following.trouble else ""
                raise BackendUnavailable(f"nothing was heard of {name} for {cache.age_seconds:.0f} s{why}")

    def _look(self) -> Observed:
        nodes: list[NodeFacts] = [entry.kept for entry in self._nodes.entries().values()]
        found = self._found()
        seen = Seen(
            sorted(nodes, key=lambda node: node.name),
            [entry.kept for entry in self._pods.entries().values()],
            [entry.kept for entry in self._targets.entries().values()],
            found,
            self._scrapes.readings,
        )
        self._scrapes.keep_only(facts.uid for facts in found.values())
        kinds = frozenset(f"{kind.resource.api_version} {kind.resource.kind}" for kind in KINDS)
        return observed(seen, kinds, self.time_seconds, self._settings.slot_seconds, self._untold)

    def _found(self) -> dict[tuple[str, str, str], TargetFacts]:
        return {
            (kind, namespace, name): entry.kept
            for kind, cache in self._objects.items()
            for (namespace, name), entry in cache.entries().items()
        }

    def _to_scrape(self) -> list[Scraped]:
        if not self._acts:
            return []  # who stands by need not know
        # Copied only where they are looked through.
        pods = (entry.kept for cache in (self._pods,) for entry in cache.entries().values())
        return jobs_to_scrape(self._by_id().values(), self._found, pods)

    def _by_id(self) -> dict[str, ElasticTarget]:
        return {f"{where}/{name}": entry.kept for (where, name), entry in self._targets.entries().items()}

    def _what_happened(self, found: Observed) -> Trigger:
        jobs, nodes = frozenset(found.members), frozenset(node.node_id for node in found.state.nodes)
        come, gone, moved = jobs - self._known, self._known - jobs, nodes != self._known_nodes
        first = not self._known_nodes
        self._known, self._known_nodes = jobs, nodes
        if come:
            return Trigger.ARRIVAL
        if gone:
            return Trigger.COMPLETION
        return Trigger.NODE_CHANGE if moved and not first else Trigger.SLOT

    def _wait_until_due(self, longest_seconds: float) -> None:
        while not self._parts.wait(_LOOK_SECONDS):
            waited = self._parts.clock() - self._decided_seconds
            if waited >= longest_seconds or (waited >= self._settings.debounce_seconds and self._is_news()):
                return

    def _is_news(self) -> bool:
        """Whether there is another target, job or node than at the last decision, or one that is otherwise now."""
        if not self._changed.is_set():
            return False
        self._changed.clear()
        return self._shape() != self._known_shape

    def _shape(self) -> frozenset[object]:
        """What a decision would be about, without how far jobs are, and how large."""
        targets = [(key, entry.uid, entry.kept.generation) for key, entry in self._targets.entries().items()]
        objects = [
            (kind, key, entry.uid, entry.kept.is_over, entry.kept.obstacle)
            for kind, cache in self._objects.items()
            for key, entry in cache.entries().items()
        ]
        return frozenset([*targets, *objects, *(entry.kept for entry in self._nodes.entries().values())])

    def _wait_for_change(self) -> bool:
        """Wait until something has changed, or a slot is over; True when the agent is to stop."""
        began = self._parts.clock()
        self._changed.clear()
        while not self._parts.wait(_LOOK_SECONDS):
            if self._changed.is_set() or self._parts.clock() - began >= self._settings.slot_seconds:
                return False
        return True

    def _progress(self, before: Member, state: ClusterState, running: frozenset[str]) -> Progress:
        """What a target's job did in the interval, if it had one size at both ends of it; else nothing is known.

        Args:
            running: uids of objects of which a pod runs; others hold nothing, however large they would be.
        """
        job = next(job for job in state.jobs if job.job_id == before.job_id)
        entry = self._objects[before.target.ref.kind].get((before.target.namespace, before.target.ref.name))
        facts = None if entry is None or entry.uid != before.facts.uid else entry.kept
        finished = facts is not None and facts.is_over
        if finished:
            self._done += 1
            self._done_seconds += self.time_seconds - job.submit_time_seconds
        samples, seconds = 0.0, 0.0
        if facts is not None and facts.workers == before.facts.workers > 0 and before.target.progress is not None:
            reading = self._scrapes.readings.get(facts.uid)
            now, _ = said_progress(before.target, facts, reading)
            took = self.time_seconds - state.time_seconds
            if before.target.progress.endpoint is not None:
                took = seconds_between(before.reading, reading, facts.workers)
            if now is not None and before.samples is not None and now > before.samples and took > 0.0:
                samples, seconds = now - before.samples, took
        held = job.current if finished or before.facts.uid in running else SUSPENDED
        return Progress(job.job_id, job.job_type, held, seconds, samples, samples, job.remaining_epochs, finished)
