"""Kubernetes backend: follows a cluster, asks what to do at each change, and writes it into ElasticTargets' status.

Of those that ask for it, and may, it sets the sizes of their jobs (`auto.py`); nothing else is changed.
"""

from __future__ import annotations

import socket
import time
import uuid
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path

import structlog

from cluster_agent.backend_settings import BackendSettings, KubernetesBackendSettings, KubernetesTraining
from cluster_agent.backends.base import AgentParts, BackendStatus
from cluster_agent.backends.kubernetes.advice import Adviser
from cluster_agent.backends.kubernetes.auto import Auto, Clocks
from cluster_agent.backends.kubernetes.changes import SizeWriter
from cluster_agent.backends.kubernetes.cluster_watch import POLL_SECONDS, ClusterWatch
from cluster_agent.backends.kubernetes.observation import (
    Observed,
    ObservedTarget,
    ended_since,
    observed,
    running_workers,
    stated_progress,
    targets_alone,
)
from cluster_agent.backends.kubernetes.places import gpu_types_of, in_places, progress_in_places
from cluster_agent.backends.kubernetes.pools import within_pools
from cluster_agent.backends.kubernetes.scrapes import Scraped, Scrapes, jobs_to_scrape, seconds_between
from cluster_agent.backends.kubernetes.training.free_capacity import ClusterCapacity
from cluster_agent.backends.kubernetes.training.jobs import TrainingJobs
from cluster_agent.errors import BackendUnavailable, BadAgentConfig
from cluster_agent.kubernetes.access import Access, OpenedClient, follow_client, pod_namespace, secrets_of
from cluster_agent.kubernetes.api_server import ApiServer
from cluster_agent.kubernetes.elector import Elector, LeaseTimes
from cluster_agent.kubernetes.events import EventRecorder
from cluster_agent.kubernetes.targets import TargetFacts
from cluster_agent.kubernetes.training.credentials import JobKeys, follow_agent_key, read_agent_key
from cluster_agent.kubernetes.training.pod_rights import Rights
from cluster_agent.recording.last_decision import jobs_decided_about
from foundation.clocks import UnixClock, boot_seconds
from foundation.followed_files import POLL_SECONDS as FILES_POLL_SECONDS
from foundation.followed_files import FollowedFiles
from policy_net.domain import SUSPENDED, ClusterState, Decision, Job, Progress, Trigger
from policy_net.errors import InvalidAllocation
from policy_net.exchange.secrets_in_use import SecretInUse

_log = structlog.get_logger()

_CAPACITY_SECONDS = 1.0
"""Between two polls whether pods of others have freed capacity: all pods are counted each time."""


def resolve_paths(settings: KubernetesBackendSettings, folder: Path) -> KubernetesBackendSettings:
    """The settings with the kubeconfig's path taken from the folder; see `BackendModule`."""
    training = settings.training
    if training is not None:
        key_file = None if training.key_file is None else folder / training.key_file
        earlier = tuple(folder / file for file in training.earlier_key_files)
        training = training.model_copy(update={"key_file": key_file, "earlier_key_files": earlier})
    kubeconfig = None if settings.kubeconfig is None else folder / settings.kubeconfig
    return settings.model_copy(update={"kubeconfig": kubeconfig, "training": training})


def open_backend(settings: BackendSettings, parts: AgentParts) -> KubernetesBackend:
    """The cluster that the kubeconfig or the pod's service account names; see `BackendModule`."""
    if not isinstance(settings, KubernetesBackendSettings):
        raise BadAgentConfig(f"setting backend.kind = {settings.kind}: is no Kubernetes cluster")
    telemetry = parts.telemetry

    def replaced(found: OpenedClient) -> None:
        _log.info("kubernetes-credentials-replaced", server=found.address)
        telemetry.secrets.on_replaced("kubernetes")

    def refused(reason: str) -> None:
        _log.error("kubernetes-credentials-not-replaced", reason=reason, meaning="those before serve on")

    followed = follow_client(Access(settings.kubeconfig, settings.context), replaced, refused)
    telemetry.secrets.add(*secrets_of(followed))
    elector = None
    failures = telemetry.api_failures

    def api_of(request_seconds: float, may_write: Callable[[], bool] = lambda: True) -> ApiServer:
        return ApiServer(
            lambda: followed.current().client,
            request_seconds,
            time.monotonic,
            may_write,
            lambda error: failures.labels(error.word).inc(),
        )

    api = api_of(settings.request_seconds)
    if settings.lease_namespace:
        times = LeaseTimes()
        elector = Elector(
            # A renewal that takes longer than this is of no use.
            api_of(times.renew_deadline_seconds / 2),
            settings.lease_namespace,
            settings.lease_name,
            f"{socket.gethostname()}_{uuid.uuid4()}",
            boot_seconds,
            time.time,
            times,
        )
        may_write = elector
        api = api_of(settings.request_seconds, lambda: may_write.seconds_left > 0.0)
    return KubernetesBackend(settings, parts, api, time.time, elector)


class KubernetesBackend:
    """A Kubernetes cluster; a `Backend`.

    Args:
        elector: says whether this agent acts; without one it does.
    """

    def __init__(
        self,
        settings: KubernetesBackendSettings,
        parts: AgentParts,
        api: ApiServer,
        unix_clock: UnixClock,
        elector: Elector | None = None,
    ) -> None:
        self._settings, self._parts, self._api, self._elector = settings, parts, api, elector
        self._offset_seconds = unix_clock() - parts.clock()
        self.watch = ClusterWatch(api, parts, settings)
        changes, reported = parts.telemetry.size_changes, parts.telemetry.reported
        self._writer = SizeWriter(
            api,
            self.watch.jobs,
            parts.clock,
            lambda: self.acts,
            lambda written: changes.labels(written.value).inc(),
        )
        self._auto = Auto(
            self.watch,
            self._writer,
            EventRecorder(api, socket.gethostname(), parts.clock, unix_clock, on_reported=reported),
            settings.limits,
            Clocks(parts.clock, unix_clock),
            lambda: 0 if elector is None else elector.epoch,
        )
        self._adviser = Adviser(api, unix_clock, lambda: self.acts, self._auto.report_unusable)
        self._key_file: FollowedFiles[bytes] | None = None
        self.training = None if settings.training is None else self._open_training(settings.training)
        self._scrapes = Scrapes(self._to_scrape, parts.clock, unix_clock)
        self._observed: Observed | None = None
        self._trigger = Trigger.SLOT
        self._known: frozenset[str] = frozenset()
        self._known_nodes: frozenset[str] = frozenset()
        self._known_shape: frozenset[object] = frozenset()
        self._decided_seconds = -float("inf")
        self._done, self._done_seconds = 0, 0.0
        self._unreported: frozenset[str] = frozenset()
        self._decided_about: frozenset[tuple[str, float]] | None = jobs_decided_about(parts.state_dir)

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
        """Types of the targets and TrainingJobs that there are."""
        entries = self.watch.targets.entries().values()
        types = [entry.kept.model_type for entry in entries if not entry.kept.problem]
        return list(dict.fromkeys([*types, *(() if self.training is None else self.training.job_types)]))

    @property
    def not_ready(self) -> str:
        """What could not be read yet: a followed resource, or who has the Lease."""
        if self.training is not None and not self.training.is_known:
            return f"TrainingJobs could not be read yet: {self.training.trouble or 'they are being read'}"
        if self._elector is None or self._elector.holder:
            return self.watch.unread
        return self.watch.unread or "nobody is known to hold the Lease"

    def start(self) -> None:
        """Begin to follow the cluster."""
        self.watch.start()
        self.watch.run(partial(self._scrapes.run, self.watch.wait), "scrapes")
        if self.training is not None:
            self.training.start()
        if self._key_file is not None:
            self.watch.run(partial(self._poll_key, self._key_file), "training-key")
        if self._elector is not None:
            self.watch.run(partial(self._elect, self._elector), "lease")

    def observe(self) -> tuple[ClusterState, Trigger] | None:
        """See `Backend.observe`; waits as long as there is no target that a decision could be about."""
        while self._observed is None:
            if self._parts.wait(0.0):
                return None
            if not self.acts:
                self._parts.wait(POLL_SECONDS)
                continue
            # First: what comes from here on is news, whether or not it is seen below.
            self.watch.changed.clear()
            self.watch.pods_moved.clear()
            self.watch.check_fresh()
            self._known_shape = self._shape()
            if self._decided_about is not None:
                self._unreported = ended_since(self._decided_about, self.watch.by_id().values(), self.watch.found())
                self._decided_about = None
            found = self.poll()
            if found.state.jobs:
                self._trigger = self._what_happened(found)
                self._observed = found
            else:
                self._adviser.advise(found, Decision({}), self.watch.by_id())
                if self._wait_for_change():
                    return None
        return self._observed.state, self._trigger

    def apply(self, decision: Decision) -> list[Progress]:
        """See `Backend.apply`: sets sizes where it may, says what it did, and waits until the next decision is due."""
        if self._observed is None:
            raise BackendUnavailable("nothing was observed that this decision could be about")
        about = self._observed
        jobs = {job.job_id: job for job in about.state.jobs}
        unknown = [job_id for job_id in decision.allocation if job_id not in jobs]
        if unknown:
            raise InvalidAllocation(f"{unknown[0]}: no job of that name was observed")
        for job_id, job in jobs.items():
            desired = decision.of(job_id)
            if desired.workers > job.max_workers or desired.ps > job.max_ps:
                raise InvalidAllocation(f"{job_id}: {desired} is more than it may have")
        self._observed, self._decided_seconds = None, self._parts.clock()
        if self.training is not None:
            pooled = within_pools(about.state, decision, about.reach, about.ps_reach)
            self.training.apply(pooled, about.state.time_seconds, about.gpu_types)
            about = targets_alone(about, pooled)
        outcomes = self._auto.begin(about, decision)
        decision = within_pools(about.state, decision, about.reach)
        failed = self._adviser.advise(about, decision, self.watch.by_id(), outcomes)
        soon = failed or self._auto.is_undone
        due_seconds = self._settings.debounce_seconds if soon else self._settings.slot_seconds
        self._wait_until_due(due_seconds, about, decision)
        pods = [entry.kept for entry in self.watch.pods.entries().values()]
        running, holders = running_workers(pods), {pod.owner for pod in pods if pod.phase == "Running"}
        progress = [
            self._progress(member, jobs[name], about.state, running if member.facts.uid in holders else None)
            for name, member in about.members.items()
        ]
        gpu_types = gpu_types_of(self.watch.seen().nodes) if about.gpu_types else {}
        progress = progress_in_places(progress, about, gpu_types, pods)
        # Whatever ends between now and the next look is told with the interval after.
        self._unreported = frozenset(
            member.facts.uid
            for member, entry in zip(about.members.values(), progress, strict=True)
            if not entry.finished
        )
        return progress if self.training is None else [*progress, *self.training.progress(gpu_types)]

    def status(self) -> BackendStatus:
        """How the targets stand now."""
        found = self._poll_one(None)
        running = sum(member.facts.workers > 0 for member in found.members.values())
        trains, waits, times = (0, 0, []) if self.training is None else self.training.counts()
        done = self._done + len(times)
        return BackendStatus(
            time_seconds=self.time_seconds,
            jobs_running=running + trains,
            jobs_waiting=len(found.members) - running + waits,
            jobs_done=done,
            jobs_total=0,
            avg_jct_seconds=(self._done_seconds + sum(times)) / done if done else 0.0,
        )

    def close(self) -> None:
        """Follow no longer; the cluster goes on as it is."""
        if self.training is not None:
            self.training.close()
        self.watch.close()
        # Last: until then what was decided may still be told.
        if self._elector is not None:
            self._elector.release()
        self._api.close()

    @property
    def acts(self) -> bool:
        """Whether this agent may change anything: it is the only one, or holds the lease."""
        return self._elector is None or self._elector.seconds_left > 0.0

    def _poll_key(self, key: FollowedFiles[bytes]) -> None:
        while not self.watch.wait(FILES_POLL_SECONDS):
            key.current()

    def _elect(self, elector: Elector) -> None:
        while not self.watch.wait(elector.step()):
            pass

    def poll(self) -> Observed:
        """What is seen of the cluster now."""
        return self._poll_one(self.training if self.training is not None and self.training.is_known else None)

    def _poll_one(self, own: TrainingJobs | None) -> Observed:
        seen = self.watch.seen(self._scrapes.readings)
        self._scrapes.keep_only(facts.uid for facts in seen.found.values())
        found = observed(seen, self.time_seconds, self._settings.slot_seconds, self._unreported, own)
        return in_places(found, seen, lambda: {} if own is None else own.job_placements())

    def _shape(self) -> frozenset[object]:
        return self.watch.shape() | (frozenset() if self.training is None else self.training.shape)

    def _to_scrape(self) -> list[Scraped]:
        if not self.acts:
            return []  # who stands by need not know
        # Copied only where they are looked through.
        pods = (entry.kept for cache in (self.watch.pods,) for entry in cache.entries().values())
        return jobs_to_scrape(self.watch.by_id().values(), self.watch.found, pods)

    def _open_training(self, settings: KubernetesTraining) -> TrainingJobs:
        key_file, elector = settings.key_file or self._parts.state_dir / "training.key", self._elector

        def refused(reason: str) -> None:
            _log.error("training-key-refused", reason=reason)

        key = self._key_file = follow_agent_key(key_file, make=settings.key_file is None, on_refused=refused)
        self._parts.telemetry.secrets.add(SecretInUse("training-key", refusal=lambda: key.refusal))

        def free_capacity() -> ClusterCapacity:
            pods = self.watch.pods.entries()
            return ClusterCapacity(self.watch.seen().nodes, [entry.kept for entry in pods.values()], pods.keys())

        return TrainingJobs(
            self._api,
            self.watch.names,
            free_capacity,
            JobKeys(key.value, tuple(read_agent_key(file, make=False) for file in settings.earlier_key_files)),
            lambda: self.acts and self.watch.is_fresh,
            lambda: 0 if elector is None else elector.epoch,
            self.watch.changed.set,
            self._parts.clock,
            time.time,
            last_checkpoint_seconds=settings.last_checkpoint_seconds,
            on_reported=self._parts.telemetry.reported,
            on_unread=partial(self.watch.news.poll, "TrainingJobs"),
            rights=Rights(settings.rights, {self._settings.lease_namespace, pod_namespace()}, settings.refuse_unlisted),
        )

    def _what_happened(self, found: Observed) -> Trigger:
        jobs = frozenset(job.job_id for job in found.state.jobs)
        nodes = frozenset(node.node_id for node in found.state.nodes)
        come, gone, moved = jobs - self._known, self._known - jobs, nodes != self._known_nodes
        first, self._known, self._known_nodes = not self._known_nodes, jobs, nodes
        if come:
            return Trigger.ARRIVAL
        if gone:
            return Trigger.COMPLETION
        return Trigger.NODE_CHANGE if moved and not first else Trigger.SLOT

    def _wait_until_due(self, longest_seconds: float, about: Observed, decision: Decision) -> None:
        """Wait until the next decision is due; jobs that wait for capacity get it meanwhile."""
        polled_seconds = -float("inf")
        while not self._parts.wait(POLL_SECONDS):
            if self.training is not None:
                self.training.poll()
            outcomes = self._auto.go_on()
            if outcomes is not None:
                self._adviser.advise(about, decision, self.watch.by_id(), outcomes)
            now = self._parts.clock()
            waited = now - self._decided_seconds
            if waited >= longest_seconds:
                return
            if waited < self._settings.debounce_seconds:
                continue
            if self._is_news():
                return
            if now - polled_seconds >= _CAPACITY_SECONDS and self.watch.pods_moved.is_set():
                polled_seconds = now
                if self._has_capacity_grown(about):
                    return

    def _is_news(self) -> bool:
        """Whether there is another target, job or node than at the last decision, or one that is otherwise now."""
        if not self.watch.changed.is_set():
            return False
        self.watch.changed.clear()
        return self._shape() != self._known_shape

    def _has_capacity_grown(self, about: Observed) -> bool:
        """Whether pods of others are gone, such as those of a deleted job, whose end was news before they were."""
        self.watch.pods_moved.clear()
        seen = self.watch.seen()
        return about.free_capacity.has_grown(seen.nodes, seen.pods)

    def _wait_for_change(self) -> bool:
        """Wait until something has changed, or a slot is over; True when the agent is to stop."""
        began = self._parts.clock()
        while not self._parts.wait(POLL_SECONDS):
            if self.watch.changed.is_set() or self._parts.clock() - began >= self._settings.slot_seconds:
                return False
        return True

    def _progress(
        self, before: ObservedTarget, job: Job, state: ClusterState, running: Mapping[str, int] | None
    ) -> Progress:
        """Progress of a target's job in the interval; none unless it had all of its workers, the same at both ends.

        Args:
            running: how many pods of each owner run; None where none of this job's does: it holds nothing.
        """
        entry = self.watch.object_of(before.target)
        facts = None if entry is None or entry.uid != before.facts.uid else entry.kept
        finished = facts is not None and facts.is_over
        if finished:
            self._done += 1
            self._done_seconds += self.time_seconds - job.submit_time_seconds
        samples, seconds = 0.0, 0.0
        if (
            facts is not None
            and before.target.progress is not None
            and self._kept_its_size(before, facts, running or {})
        ):
            reading = self._scrapes.readings.get(facts.uid)
            now, _ = stated_progress(before.target, facts, reading)
            took = self.time_seconds - state.time_seconds
            if before.target.progress.endpoint is not None:
                took = seconds_between(before.reading, reading, facts.workers)
            if now is not None and before.samples is not None and now > before.samples and took > 0.0:
                samples, seconds = now - before.samples, took
        size = job.current if finished or running is not None else SUSPENDED
        return Progress(job.job_id, job.job_type, size, seconds, samples, samples, job.remaining_epochs, finished)

    def _kept_its_size(self, before: ObservedTarget, facts: TargetFacts, running: Mapping[str, int]) -> bool:
        if not (before.is_whole and self._writer.has_seen_all(before.target)):
            return False
        same = facts.workers == before.facts.workers > 0 and facts.generation == before.facts.generation
        # Of a job that is done no pod runs any more.
        return same and (facts.is_over or running.get(facts.uid) == facts.workers)
