"""What follows from applied updates: versions that fall due, snapshots, the log cut behind them."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import Generic

import structlog

from global_learner.beliefs.priors import PriorsSource, priors_for
from global_learner.errors import LearnerError
from global_learner.fleet import Fleet, Status
from global_learner.head import Head
from global_learner.log_writer import LogWriter
from global_learner.publication import Publication, due_publication
from global_learner.receipts import cut_log
from global_learner.registry.registry import VersionCard
from global_learner.registry.registry_thread import RegistryThread
from global_learner.settings import LearnerSettings
from global_learner.snapshot import Snapshot, snapshot_of, write_snapshot
from global_learner.state_dir import StateDir
from global_learner.telemetry import Telemetry
from global_learner.work_queue import WorkQueue
from policy_net.exchange.spec import PolicySpec

_log = structlog.get_logger()


class Upkeep(Generic[Status]):
    """Publishes and snapshots beside the updates, in order."""

    def __init__(
        self,
        settings: LearnerSettings,
        spec: PolicySpec,
        state: StateDir,
        registry: RegistryThread,
        fleet: Fleet[Status],
        log: LogWriter,
        telemetry: Telemetry,
        failed: Callable[[BaseException], None],
        newest_version: int,
        priors: PriorsSource,
    ) -> None:
        self.newest_version = newest_version
        self._settings = settings
        self._spec = spec
        self._state = state
        self._registry = registry
        self._fleet = fleet
        self._log = log
        self._telemetry = telemetry
        self._priors = priors
        self._queue = WorkQueue(failed)
        self._snapshot_step = log.durable_step
        telemetry.newest_version.set(newest_version)

    def start(self) -> None:
        """Begin to work."""
        self._queue.start()

    async def room(self) -> None:
        """Wait until the backlog is short enough for more updates."""
        await self._queue.room()

    def after_update(self, head: Head, unix_seconds: float) -> None:
        """Queue what is due at the head's step."""
        due = due_publication(head, self._settings.publish.every_steps, unix_seconds)
        if due is not None:
            self._queue.add(lambda: self._publish(due))
        if head.step % self._settings.durability.snapshot_every_steps == 0:
            self.snapshot(head)

    def snapshot(self, head: Head) -> None:
        """Queue a snapshot of the head as it is now; none if the newest one is of this step."""
        if head.step == self._snapshot_step:
            return
        self._snapshot_step = head.step
        self._log.new_segment(head.step + 1)
        snapshot = snapshot_of(head, self._spec.digest, self._fleet.counters())
        self._queue.add(lambda: self._write(snapshot))

    async def close(self) -> None:
        """Finish what is queued."""
        await self._queue.close()

    async def _publish(self, due: Publication) -> None:
        await self._log.durable(due.head_step)
        card = await self._registry.call(self._add_version, due)
        self._announce(card)

    def _add_version(self, due: Publication) -> VersionCard:
        registry = self._registry.registry
        publish = self._settings.publish
        card = registry.publish(
            due.policy_file(self._spec, priors_for(self._spec, self._priors)),
            due.head_step,
            due.unix_seconds,
            dict(due.since.contributions),
            due.since.staleness_p50,
            assign_all=publish.auto_assign,
        )
        registry.prune(publish.keep_versions)
        return card

    def _announce(self, card: VersionCard) -> None:
        self.newest_version = card.version
        self._telemetry.newest_version.set(card.version)
        if self._settings.publish.auto_assign:
            self._fleet.assign_all(card.version)
        _log.info(
            "version",
            version=card.version,
            head_step=card.head_step,
            digest=card.digest[:12],
            updates=card.updates,
            assigned=self._settings.publish.auto_assign,
        )

    async def _write(self, snapshot: Snapshot) -> None:
        await self._log.durable(snapshot.state.step)
        started = time.perf_counter()
        try:
            await asyncio.to_thread(self._write_and_cut, snapshot)
        except OSError as error:
            raise LearnerError(
                f"{self._state.path}: a snapshot cannot be written ({error.strerror or error}); free space or mend the "
                "disk, then start again: everything acknowledged is kept"
            ) from error
        self._telemetry.snapshot_seconds.observe(time.perf_counter() - started)
        _log.debug("snapshot", step=snapshot.state.step)

    def _write_and_cut(self, snapshot: Snapshot) -> None:
        write_snapshot(self._state.snapshots, snapshot)
        cut_log(self._state.log, self._state.receipts, snapshot.state.step)
