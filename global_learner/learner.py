"""The learner without its transport: registers clusters, applies their updates, hands out heads and versions.

Runs on one event loop; whatever leaves the learner (an acknowledgement, a head, a version) waits until what it tells is
on disk.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Sequence
from typing import Generic

from global_learner.aggregation.settings import Mode
from global_learner.beliefs.hearing import FleetBeliefs
from global_learner.disk_use import disk_use, report_disk
from global_learner.errors import DiskFull, FleetFull, NoRounds, Rejection, UnknownIncarnation, UpdateRejected
from global_learner.fleet import Fleet, Status
from global_learner.log_writer import LogWriter
from global_learner.operator import Operator
from global_learner.push_answer import PushAnswer
from global_learner.pushes import Pushes
from global_learner.quarantine import Quarantine
from global_learner.recovery import Recovered
from global_learner.registry.registry import FIRST_VERSION, Registration
from global_learner.registry.registry_thread import RegistryThread
from global_learner.rounds import Rounds
from global_learner.settings import LearnerSettings
from global_learner.state_dir import StateDir
from global_learner.telemetry import Telemetry
from global_learner.update_log import AppliedUpdate
from global_learner.upkeep import Upkeep
from policy_net.errors import SpecMismatch
from policy_net.exchange.spec import Spec
from policy_net.exchange.wire import GradientUpdate, RoundAnswer, RoundTask

_QUARANTINED_POLL_SECONDS = 1.0
"""A quarantined cluster that polls is answered after this, so that it does not ask without pause."""


class Learner(Generic[Status]):
    """Owns the head, the log, the registry and the fleet; `start` it, use it, `close` it on one event loop."""

    def __init__(
        self,
        settings: LearnerSettings,
        state: StateDir,
        registry: RegistryThread,
        recovered: Recovered,
        telemetry: Telemetry,
        quarantine: Quarantine,
        beliefs: FleetBeliefs,
        clock: Callable[[], float] = time.monotonic,
        wall_clock: Callable[[], float] = time.time,
    ) -> None:
        self.spec: Spec = recovered.spec
        self.head = recovered.head
        self.failed: asyncio.Future[BaseException] = asyncio.get_running_loop().create_future()
        self.fleet: Fleet[Status] = Fleet(registry.registry.registrations(), recovered.counters, clock)
        self.log = LogWriter(state.log, self.spec.digest, self.head.step, self._fail, on_flush=telemetry.flushed)
        newest = registry.registry.newest()
        self.upkeep = Upkeep(
            settings,
            self.spec,
            state,
            registry,
            self.fleet,
            self.log,
            telemetry,
            self._fail,
            newest.version if newest else FIRST_VERSION,
            beliefs.priors,
        )
        self.quarantine = quarantine
        self._settings = settings
        self._registry = registry
        self._telemetry = telemetry
        self._wall_clock = wall_clock
        self.beliefs = beliefs
        self._pushes: Pushes[Status] = Pushes(
            settings,
            self.spec,
            self.head,
            self.log,
            self.fleet,
            self.upkeep,
            self.quarantine,
            telemetry,
            self._rejected,
            wall_clock,
        )
        self.rounds: Rounds | None = None
        if settings.aggregation.mode is Mode.ROUNDS:
            self.rounds = Rounds(
                settings.aggregation, settings.ingest, self.spec, self.head, self._finish_round, self._fail
            )
        self._state_dir = state.path
        report_disk(telemetry, state.path, self.upkeep.max_log_bytes, lambda: self.disk_full is not None)
        self.operator: Operator[Status] = Operator(
            settings.publish,
            self.spec,
            self.head,
            self.log,
            registry,
            self.fleet,
            self.upkeep,
            self.quarantine,
            telemetry,
            self.failed,
            self.rounds,
            wall_clock,
        )
        telemetry.head_step.set_function(lambda: self.head.step)
        telemetry.durable_step.set_function(lambda: self.log.durable_step)
        telemetry.clusters.set_function(lambda: len(self.fleet))
        telemetry.quarantined.set_function(lambda: self.quarantine.count)
        telemetry.waiting.set_function(lambda: self.head.aggregator.waiting)

    def start(self) -> None:
        """Begin to write the log, publish and snapshot."""
        self.log.start()
        self.upkeep.start()
        if self.rounds is not None:
            self.rounds.start()

    async def close(self) -> None:
        """Take a last snapshot and end; no update may be offered any more."""
        if self.rounds is not None:
            await self.rounds.close()
        if not self.failed.done():
            self.upkeep.snapshot(self.head)
        await self.upkeep.close()
        await self.log.close()

    async def register(self, cluster: str, spec_digest: str, job_types: Sequence[str]) -> Registration:
        """Give a cluster a new incarnation; durable when this returns.

        Raises:
            SpecMismatch: the agent runs policies of another spec.
            FleetFull: there is no room for another cluster.
        """
        if spec_digest not in ("", self.spec.digest):
            raise SpecMismatch(
                f"cluster {cluster} runs policies of spec {spec_digest[:12]!r}, this learner's is "
                f"{self.spec.digest[:12]}; start the agent with a policy of this learner, or none"
            )
        limit = self._settings.ingest.max_clusters
        if self.fleet.get(cluster) is None and len(self.fleet) >= limit:
            raise FleetFull(f"{limit} clusters are registered, more are not taken (ingest.max_clusters)")
        registration = await self._registry.call(
            self._registry.registry.register,
            cluster,
            self._settings.publish.auto_assign,
            job_types,
            self._wall_clock(),
        )
        self.fleet.registered(registration)
        return registration

    async def pull(self, cluster: str, incarnation: int, have_step: int | None) -> tuple[int, bytes | None]:
        """The head's step and weights; no weights if it is still at `have_step`.

        Raises:
            UnknownIncarnation: the cluster has to register (again).
        """
        self._check_registered(cluster, incarnation)
        step = self.head.step
        weights = None if have_step == step else self.head.weights_bytes()
        await self.log.durable(step)
        return step, weights

    async def push(self, update: GradientUpdate, want_weights: bool) -> PushAnswer:
        """Apply an update once, or say why not; what the answer tells is on disk.

        Raises:
            DiskFull: it cannot be kept now.
            LogBroken: it could not be kept; the learner ends.
        """
        await self.upkeep.room()
        answer = self._pushes.take(update, want_weights)
        await self.log.durable(answer.head_step)
        return answer

    async def poll(self, cluster: str, incarnation: int) -> RoundTask | None:
        """What a round asks of a cluster; None after a while without.

        Raises:
            UnknownIncarnation, NoRounds: the cluster has to register (again).
        """
        rounds = self._rounds_of(cluster, incarnation)
        if self.quarantine.until(cluster) is not None:
            await asyncio.sleep(_QUARANTINED_POLL_SECONDS)
            return None
        return await rounds.poll(cluster, incarnation)

    def round_answer(self, cluster: str, incarnation: int, answer: RoundAnswer) -> bool:
        """Take a cluster's answer; False if the task is over.

        Raises:
            UnknownIncarnation, NoRounds: the cluster has to register (again).
        """
        rounds = self._rounds_of(cluster, incarnation)
        try:
            self.quarantine.admit(cluster)
            taken = rounds.answer(cluster, answer)
        except UpdateRejected as rejected:
            self._rejected(cluster, rejected.reason)
            return True
        if taken and not answer.error:
            self.quarantine.judged(cluster, None)
        return taken

    def _rejected(self, cluster: str, reason: Rejection) -> None:
        self.fleet.rejected(cluster, reason)
        self._telemetry.rejections.labels(reason).inc()
        if self.fleet.get(cluster) is not None:
            self.quarantine.judged(cluster, reason)

    def _check_registered(self, cluster: str, incarnation: int) -> None:
        """Note that a cluster was heard."""
        if self.fleet.heard(cluster, incarnation) is None:
            raise UnknownIncarnation(f"cluster {cluster} is not registered with incarnation {incarnation}; register")

    def _rounds_of(self, cluster: str, incarnation: int) -> Rounds:
        self._check_registered(cluster, incarnation)
        if self.rounds is None:
            raise NoRounds("this learner does not work in rounds; register again, and push")
        return self.rounds

    async def _finish_round(self, records: Sequence[AppliedUpdate]) -> bool:
        """Log and apply a round in one go; it is on disk when this returns. False if the head was reset meanwhile."""
        await self.upkeep.room_at_last()
        if records[0].step != self.head.step + 1:
            return False
        for record in records:
            self.log.append(record)
            self.head.apply(record)
            self.upkeep.after_update(self.head, record.unix_seconds)
        await self.log.durable(records[-1].step)
        return True

    @property
    def disk_full(self) -> DiskFull | None:
        """Why something waits for room on the disk, or None."""
        return self.log.full or self.upkeep.full

    async def disk_use(self) -> dict[str, int]:
        """Bytes on disk by part of the state directory."""
        return await asyncio.to_thread(disk_use, self._state_dir)

    def _fail(self, error: BaseException) -> None:
        """Nothing more can be promised: whoever runs the learner has to end it."""
        if not self.failed.done():
            self.failed.set_result(error)
