"""Learner without its transport: registers clusters, applies their updates, hands out heads and versions.

Whatever leaves it (an acknowledgement, a head, a version) waits until what it tells is on disk.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import structlog

from foundation.clocks import AwakeClock
from global_learner.aggregation.region import RegionAggregator
from global_learner.aggregation.settings import AggregationMode
from global_learner.background_task import BackgroundTask
from global_learner.beliefs.priors import FleetBeliefs
from global_learner.errors import (
    FleetFull,
    LearnerError,
    NoRounds,
    NotNow,
    UpdateRejected,
)
from global_learner.fleet import Fleet, last_reported
from global_learner.maintenance import Maintenance
from global_learner.operator import Operator
from global_learner.pushes import Pushes
from global_learner.recovery import Recovered
from global_learner.registry.assignments import ClusterRegistration, LastHeard, keep_heard
from global_learner.registry.registry_thread import RegistryThread
from global_learner.rollout_driver import RolloutDriver
from global_learner.settings import LearnerSettings
from global_learner.storage.disk import disk_use, report_disk
from global_learner.storage.log_writer import LogEnd, LogWriter
from global_learner.storage.state_dir import StateDir
from global_learner.telemetry import LearnerTelemetry
from global_learner.updates.parts import DurableStores, Learned, Process
from global_learner.updates.quarantine import Quarantine
from global_learner.updates.rounds import Rounds
from policy_net.errors import SpecMismatch
from policy_net.exchange.generated import fleet_pb2
from policy_net.exchange.spec import Spec
from policy_net.exchange.wire import RoundAnswer, RoundTask

_log = structlog.get_logger()

_KEEP_HEARD_SECONDS = 60.0
_POLL_SECONDS = 1.0
_GAP_SECONDS = 10.0
"""Between two looks at the clock more is a time in which this process was stopped, or its loop was: it heard nobody."""
_QUARANTINED_POLL_SECONDS = 1.0
"""A quarantined cluster that polls is answered after this, so that it does not ask without pause."""


@dataclass(frozen=True, slots=True)
class Opened:
    """The state of a learner, opened: everything that outlives it."""

    state: StateDir
    registry: RegistryThread
    recovered: Recovered
    quarantine: Quarantine
    beliefs: FleetBeliefs


class Learner:
    """Owns the head, the log, the registry and the fleet; `start` it, use it, `close` it on one event loop.

    Raises of all methods that a cluster calls:
        UnknownIncarnation: it has to register (again).
        NoRounds: it polls or answers, and this learner does not work in rounds.
    """

    def __init__(
        self,
        settings: LearnerSettings,
        opened: Opened,
        telemetry: LearnerTelemetry,
        clock: Callable[[], float] | None = None,
        wall_clock: Callable[[], float] = time.time,
    ) -> None:
        self.settings = settings
        self.registry = opened.registry
        self.telemetry = telemetry
        self._wall_clock = wall_clock
        # Clusters are not silent while this process is stopped, or its loop kept from hearing them.
        clock = clock or AwakeClock(_GAP_SECONDS)
        self._state_dir = opened.state.path
        self.failed: asyncio.Future[BaseException] = asyncio.get_running_loop().create_future()
        self.beliefs = opened.beliefs
        self.quarantine = opened.quarantine
        self.spec: Spec = opened.recovered.spec
        self.head = opened.recovered.head
        self.region = self.head.aggregator if isinstance(self.head.aggregator, RegionAggregator) else None
        self.fleets_above: tuple[str, ...] = ()
        self.upstream_view: Callable[[], fleet_pb2.UpstreamView | None] = lambda: None
        self._unsettled = opened.recovered.unsettled
        registrations = opened.registry.registry.registrations()
        self.fleet = Fleet(registrations, opened.recovered.counters, clock, wall_clock)
        self._clock = clock
        self._heard_kept_seconds = clock()
        self._keeping = BackgroundTask("last-heard")
        self._looking = BackgroundTask("clock")
        self.process = process = Process(telemetry, wall_clock, self.failed)
        self._lease = opened.state.lease
        end = LogEnd(
            opened.state.log,
            self.spec.digest,
            self.head.step,
            opened.recovered.checksum,
            opened.state.commits,
            self._lease,
        )
        self.log = LogWriter(end, process.fail, on_flush=telemetry.on_flush)
        learned = Learned(self.spec, self.head, self.fleet, self.quarantine)
        stores = DurableStores(opened.state, opened.registry, self.log)
        self.maintenance = Maintenance(settings, learned, stores, process, opened.beliefs.priors)
        self.pushes = Pushes(settings, learned, self.log, self.maintenance, process, clock)
        self.rounds: Rounds | None = None
        if settings.aggregation.mode is AggregationMode.ROUNDS:
            self.rounds = Rounds(
                settings.aggregation, settings.ingest, self.spec, self.head, self.maintenance.record, process
            )
        self.rollouts = RolloutDriver(
            settings.rollouts,
            self.spec.digest,
            self.fleet,
            opened.registry,
            process,
            auto_assign=settings.publish.auto_assign or self.region is not None,
        )
        self.rollouts.versions_come_from_above = self.region is not None
        self.operator = Operator(settings.publish, learned, stores, self.maintenance, process, self.rounds)
        self._report_metrics()

    def start(self) -> None:
        """Begin to write the log, publish and snapshot."""
        self.log.start()
        self.maintenance.start()
        if self._unsettled is not None:
            self.maintenance.settle(self._unsettled)
        if self.rounds is not None:
            self.rounds.start()
        self.rollouts.start()
        self._keeping.begin(self._keep_heard_on)
        self._looking.begin(self._poll_clock)

    async def close(self) -> None:
        """Take a last snapshot and end; no update may be offered any more."""
        await self._keeping.close()
        await self._looking.close()
        await self.rollouts.close()
        if not self.failed.done():
            await self.keep_heard()
        if self.rounds is not None:
            await self.rounds.close()
        self.quarantine.keep()
        if not self.failed.done():
            self.maintenance.snapshot()
        await self.maintenance.close()
        await self.log.close()

    async def register(self, cluster: str, spec_digest: str, job_types: Sequence[str]) -> ClusterRegistration:
        """Give a cluster a new incarnation; durable when this returns.

        Raises:
            SpecMismatch: the agent runs policies of another spec.
            FleetFull: no further cluster is taken.
        """
        if spec_digest not in ("", self.spec.digest):
            raise SpecMismatch(
                f"cluster {cluster} runs policies of spec {spec_digest[:12]!r}, this learner's is "
                f"{self.spec.digest[:12]}; start the agent with a policy of this learner, or none"
            )
        limit = self.settings.ingest.max_clusters
        if self.fleet.get(cluster) is None and len(self.fleet) >= limit:
            raise FleetFull(f"{limit} clusters are registered, more are not taken (ingest.max_clusters)")
        registration = await self.registry.call(
            self.registry.registry.register,
            cluster,
            self.settings.publish.auto_assign or self.region is not None,
            job_types,
            self._wall_clock(),
        )
        self.fleet.on_registered(registration)
        self._show_silence(cluster)
        return registration

    async def keep_heard(self) -> None:
        """Keep when clusters were heard since this was done last; the learner does so by itself, once a minute."""
        since, at, now = self._heard_kept_seconds, self._clock(), self._wall_clock()
        heard = {
            entry.cluster: LastHeard(
                now - at + (at if entry.heard_seconds is None else entry.heard_seconds),
                *last_reported(entry),
            )
            for entry in self.fleet.heard_since(since)
        }
        if not heard:
            return
        try:
            await self.registry.call(self._write_heard, heard)
            self._heard_kept_seconds = at
        except LearnerError as error:
            _log.warning("last-heard-not-kept", reason=str(error), advice="tried again")

    async def _poll_clock(self) -> None:
        while not self.failed.done():
            self._clock()
            await asyncio.sleep(_POLL_SECONDS)

    async def _keep_heard_on(self) -> None:
        while not self.failed.done():
            await asyncio.sleep(_KEEP_HEARD_SECONDS)
            await self.keep_heard()

    def _write_heard(self, heard: Mapping[str, LastHeard]) -> None:
        with self.registry.registry.transaction() as session:
            keep_heard(session, heard)

    @property
    def lineage(self) -> tuple[str, ...]:
        """The names of this fleet, and of those above that are known, the nearest first; none if nothing is signed."""
        signing = self.operator.signing
        return () if signing is None else (signing.root.fleet, *self.fleets_above)

    async def poll(self, cluster: str, incarnation: int) -> RoundTask | None:
        """What a round asks of a cluster; None after a while without."""
        rounds = self._rounds_of(cluster, incarnation)
        if self.quarantine.until(cluster) is not None:
            await asyncio.sleep(_QUARANTINED_POLL_SECONDS)
            return None
        return await rounds.poll(cluster, incarnation)

    def round_answer(self, cluster: str, incarnation: int, answer: RoundAnswer) -> bool:
        """Take a cluster's answer; False if the task is over."""
        rounds = self._rounds_of(cluster, incarnation)
        try:
            self.quarantine.admit(cluster)
            taken = rounds.answer(cluster, answer)
        except UpdateRejected as rejected:
            self.pushes.on_rejected(cluster, rejected.reason)
            return True
        if taken and not answer.error:
            self.quarantine.on_judged(cluster, None)
        return taken

    def check_active(self) -> None:
        """See that this is the active learner.

        Raises:
            NotActive: another one is, or may be.
        """
        if self._lease is not None:
            self._lease.check()

    def _rounds_of(self, cluster: str, incarnation: int) -> Rounds:
        self.fleet.check_registered(cluster, incarnation)
        if self.rounds is None:
            raise NoRounds("this learner does not work in rounds; register again, and push")
        return self.rounds

    @property
    def disk_full(self) -> NotNow | None:
        """Why something waits, mostly for room on the disk, or None."""
        return self.log.full or self.maintenance.full

    @property
    def privacy(self) -> dict[str, Any]:
        """What clusters' privacy has cost up to the head; empty where no noise is added."""
        return self.head.ledger.noise_spent.statement(self.settings.privacy)

    async def disk_use(self) -> dict[str, int]:
        """Bytes on disk by part of the state directory."""
        return await asyncio.to_thread(disk_use, self._state_dir)

    def _report_metrics(self) -> None:
        """Let the metrics say how things are whenever they are asked."""
        telemetry = self.telemetry
        report_disk(telemetry, self._state_dir, self.maintenance.max_log_bytes, lambda: self.disk_full is not None)
        telemetry.head_step.set_function(lambda: self.head.step)
        telemetry.privacy_epsilon.set_function(lambda: self.privacy.get("epsilon", 0.0))
        telemetry.damaged_files.set_function(lambda: len(self.operator.damaged_files))
        telemetry.durable_step.set_function(lambda: self.log.durable_step)
        telemetry.clusters.set_function(lambda: len(self.fleet))
        telemetry.contested.set_function(lambda: sum(map(self.fleet.is_contested, self.fleet.entries())))
        telemetry.quarantined.set_function(lambda: self.quarantine.count)
        telemetry.waiting.set_function(lambda: self.head.aggregator.waiting)
        for entry in self.fleet.entries():
            self._show_silence(entry.cluster)

    def _show_silence(self, cluster: str) -> None:
        self.telemetry.cluster_silent.labels(cluster).set_function(partial(self._silence, cluster))

    def forget(self, cluster: str) -> None:
        """Show a cluster no longer, which the registry has forgotten."""
        if self.fleet.forget(cluster):
            self.telemetry.cluster_silent.remove(cluster)
            self.telemetry.on_refused_version(cluster, 0)

    def _silence(self, cluster: str) -> float:
        """Seconds since a cluster was heard that nobody waits for in vain: 0 once it has finished or was revoked."""
        entry = self.fleet.get(cluster)
        if entry is None or last_reported(entry)[1] or self.rollouts.turned_out(cluster):
            return 0.0
        kept = self.fleet.seconds_since_heard(entry)
        return kept if kept >= 0.0 else self.fleet.silent_seconds(entry)
