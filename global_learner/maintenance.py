"""Commit of updates to the log and the head, and what follows from them: versions, snapshots, cuts of the log.

A full disk is waited for: the task that met it is tried again until it succeeds. Meanwhile updates are taken for as
long as the log stays under its limit, and refused beyond it.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import TypeVar

import structlog

from global_learner.beliefs.priors import PriorsSource, priors_for
from global_learner.errors import DiskFull, LearnerError, LeaseLost, NotNow, StateUnusable
from global_learner.registry.cards import FIRST_VERSION, VersionCard, VersionOrigin, first_details
from global_learner.settings import LearnerSettings
from global_learner.storage.audit import Order
from global_learner.storage.commits import RECEIPTS
from global_learner.storage.disk import RETRY_SECONDS, is_disk_full
from global_learner.storage.receipts import cut_log
from global_learner.storage.snapshot import Snapshot, write_snapshot
from global_learner.storage.update_log import first_step, segments
from global_learner.storage.update_records import AppliedUpdate, log_limit_bytes
from global_learner.updates.head import Publication, due_publication, note_reset
from global_learner.updates.parts import DurableStores, Learned, MakeRecords, Process
from policy_net.exchange.policy_file import PolicyFile

_log = structlog.get_logger()

Found = TypeVar("Found")

_SEGMENTS_A_LOG = 8
"""A segment is closed at this part of the log's limit: one is written, two are spare, the rest wait for snapshots."""
_BACKUP_PART = 2
"""From this part of its limit on the log is cut also while a backup copies it, which then begins anew."""


# Queue of work that follows from updates but holds nobody up: versions, snapshots, cutting the log.
#
# One task at a time, in the order in which it fell due: a version is in the registry before a snapshot makes the log
# records that it could be rebuilt from unnecessary. Each waits until the updates that it contains are on disk.

BACKLOG = 8
"""Tasks that may wait; each holds a copy of the weights. Beyond it, updates wait for room."""

Work = Callable[[], Awaitable[None]]


class WorkQueue:
    """A queue with one worker; a task that fails ends it and `failed` is called once.

    `moved` is called whenever a task is taken from the queue, and when there will be no more.
    """

    def __init__(self, failed: Callable[[BaseException], None], moved: Callable[[], None] = lambda: None) -> None:
        self._failed = failed
        self._moved = moved
        self._queue: asyncio.Queue[Work | None] = asyncio.Queue()
        self._task: asyncio.Task[None] | None = None
        self._ended = False

    @property
    def has_space(self) -> bool:
        """Whether the backlog is short enough for more; after a failure nothing is held up any more."""
        return self._ended or self._queue.qsize() < BACKLOG

    def start(self) -> None:
        """Begin to work."""
        self._task = asyncio.create_task(self._work(), name="maintenance")

    def add(self, work: Work) -> None:
        """Queue a task."""
        self._queue.put_nowait(work)

    async def close(self) -> None:
        """Finish what is queued."""
        self._queue.put_nowait(None)
        if self._task is not None:
            await self._task

    async def _work(self) -> None:
        while (work := await self._queue.get()) is not None:
            self._moved()
            try:
                await work()
            except Exception as error:  # whatever it was, nothing may follow it: the caller stops the learner
                self._ended = True
                self._failed(error)
                self._moved()
                return
        self._moved()


class Maintenance:
    """Publishes and snapshots beside the updates, in order."""

    def __init__(
        self,
        settings: LearnerSettings,
        learned: Learned,
        stores: DurableStores,
        process: Process,
        priors: PriorsSource,
        retry_seconds: float = RETRY_SECONDS,
    ) -> None:
        newest = stores.registry.registry.newest()
        self.newest_version = newest.version if newest else FIRST_VERSION
        self.on_version: Callable[[int], None] = lambda _version: None
        self.max_log_bytes = log_limit_bytes(settings.durability.max_log_bytes, learned.spec.parameter_count)
        self._settings = settings
        self._spec = learned.spec
        self._head = learned.head
        self._fleet = learned.fleet
        self._state = stores.state
        self._registry = stores.registry
        self._log = stores.log
        self._telemetry = process.telemetry
        self._priors = priors
        self.retry_seconds = retry_seconds
        self.lease = stores.state.lease
        self.full: NotNow | None = None
        """Why a version or a snapshot waits, for free disk or for the database."""
        self._closing = asyncio.Event()
        self._moved = asyncio.Event()
        self._queue = WorkQueue(process.fail, self._moved.set)
        self._snapshot_step = stores.log.durable_step
        self._counted = learned.fleet.rejections_by_reason()
        self._telemetry.newest_version.set(self.newest_version)

    def start(self) -> None:
        """Begin to work."""
        self._queue.start()

    @property
    def refusal(self) -> NotNow | None:
        """Why one more update would be refused now, or None."""
        if self.lease is not None and (late := self.lease.refusal) is not None:
            return late
        if self._log.full is not None:
            return self._log.full
        return None if self._has_space else self.full

    @property
    def _has_space(self) -> bool:
        return self._queue.has_space and self._log.size_bytes < self.max_log_bytes

    async def wait_for_space(self, *, at_last: bool = False) -> None:
        """Wait until the backlog is short enough, and the log small enough, for one more update.

        Args:
            at_last: wait also until somebody frees space, or the database answers again.

        Raises:
            NotNow: there would be no space before that.
        """
        while True:
            refusal = self.refusal
            if refusal is None and self._has_space:
                return
            if refusal is None:
                self._moved.clear()
                await self._moved.wait()
            elif at_last and not isinstance(refusal, LeaseLost):
                await asyncio.sleep(self.retry_seconds)
            else:
                raise refusal

    async def record(self, make: MakeRecords) -> Sequence[AppliedUpdate]:
        """Log and apply what no cluster pushed: a round, or what passed between a region and the learner above.

        It waits for free disk and backlog; all records are on disk when this returns.
        """
        await self.wait_for_space(at_last=True)
        records = make(self._head.step + 1)
        for applied in records:
            self.commit(applied)
        if records:
            await self._log.durable(records[-1].step)
        return records

    def commit(self, applied: AppliedUpdate, then: Work | None = None) -> None:
        """Log the head's next update, apply it, and queue what is due after it; on disk once the log says so.

        Args:
            then: work that needs the update on disk, done before all that is due after it.

        Raises:
            NotNow, LogBroken: it cannot be logged; nothing was changed.
        """
        self._log.append(applied)
        head = self._head
        head.apply(applied)
        if then is not None:
            self._add(then)
        due = due_publication(head, self._settings.publish.every_steps, applied.unix_seconds)
        if due is not None:
            counted = self._fleet.rejections_by_reason()
            rejections, self._counted = counted - self._counted, counted
            self._add(lambda: self._publish(due, rejections))
        if (
            head.step % self._settings.durability.snapshot_every_steps == 0
            or _SEGMENTS_A_LOG * self._log.segment_bytes >= self.max_log_bytes
        ):
            self.snapshot()

    def _commit_and(self, applied: AppliedUpdate, work: Callable[[], Awaitable[Found]]) -> asyncio.Future[Found]:
        """Commit an update that needs some work once it is on disk; done with that work."""
        done: asyncio.Future[Found] = asyncio.get_running_loop().create_future()

        async def follow() -> None:
            await self._log.durable(applied.step)
            found = await work()
            if not done.done():
                done.set_result(found)

        self.commit(applied, then=follow)
        return done

    def settle(self, unsettled: Sequence[Publication | AppliedUpdate]) -> None:
        """Queue what a start on a full disk left: versions that fell due, resets, a snapshot in place of the log."""
        for event in unsettled:
            if isinstance(event, AppliedUpdate):
                self._add(partial(self._registry.call, note_reset, self._registry.registry, event))
            else:
                self._add(partial(self._publish, event, {}))
        self._snapshot_step = -1
        self.snapshot()

    def commit_reset(self, applied: AppliedUpdate) -> asyncio.Future[None]:
        """Commit a reset, and snapshot the head that it leads to; done when it is in the audit log."""
        registry = self._registry
        noted = self._commit_and(applied, lambda: registry.call(note_reset, registry.registry, applied))
        self.snapshot()
        return noted

    def commit_published(
        self, applied: AppliedUpdate, policy: PolicyFile, note: str, actor: str
    ) -> asyncio.Future[VersionCard]:
        """Commit a version that was trained elsewhere; done when it is in the registry, behind all that are due."""

        async def enter() -> VersionCard:
            card = await self._registry.call(self._enter, applied, policy, note, actor)
            self.announce(card)
            return card

        return self._commit_and(applied, enter)

    def _enter(self, applied: AppliedUpdate, policy: PolicyFile, note: str, actor: str) -> VersionCard:
        registry, publish, now = self._registry.registry, self._settings.publish, applied.unix_seconds
        newest = registry.newest()
        if newest is None or newest.head_step != applied.step:  # or its answer was lost
            priors = priors_for(self._spec, self._priors)
            if priors is not None:  # what the fleet has learned of speeds, as in every version
                card = {**policy.card, "priors": priors.facts()}
                policy = PolicyFile(policy.spec, policy.weights, card, priors.statistics)
            details = replace(first_details(policy), origin=VersionOrigin.PUBLISHED.value)
            newest = registry.publish(policy, applied.step, now, {}, 0.0, publish.auto_assign, details)
            registry.note(actor, "published", f"v{newest.version}", note, now)
            registry.prune(publish.keep_versions)
        if note:
            registry.remarks.note(newest.version, note, Order(actor, now))
        return registry.version(newest.version)[0]

    def snapshot(self) -> None:
        """Queue a snapshot of the head as it is now; none if the newest one is of this step."""
        head = self._head
        if head.step == self._snapshot_step:
            return
        self._snapshot_step = head.step
        self._log.new_segment(head.step + 1)
        snapshot = head.snapshot(self._spec.digest, self._fleet.counters())
        self._add(lambda: self._write(snapshot))

    async def close(self) -> None:
        """Finish what is queued. What a full disk refuses is given up: everything acknowledged is in the log."""
        self._closing.set()
        await self._queue.close()

    def _add(self, work: Work) -> None:
        self._queue.add(lambda: self._done(work))

    async def _done(self, work: Work) -> None:
        """Do it, however long the disk is full."""
        while True:
            try:
                await work()
            except LeaseLost:
                raise
            except NotNow as error:
                self._meet(error)
                if self._closing.is_set():
                    raise
                with contextlib.suppress(TimeoutError):
                    await asyncio.wait_for(self._closing.wait(), self.retry_seconds)
            else:
                self.full = None
                self._moved.set()
                return

    def _meet(self, error: NotNow) -> None:
        if self.full is None:
            _log.error("disk-full" if isinstance(error, DiskFull) else "maintenance-waits", reason=str(error))
        self.full = error
        if isinstance(error, DiskFull):
            self._log.files.remove_spares()
        self._moved.set()

    async def _publish(self, due: Publication, rejections: Mapping[str, int]) -> None:
        await self._log.durable(due.head_step)
        card = await self._registry.call(self._add_version, due, rejections)
        self.announce(card)

    def _add_version(self, due: Publication, rejections: Mapping[str, int]) -> VersionCard:
        registry = self._registry.registry
        settings = self._settings
        newest = registry.newest()
        if newest is not None and newest.head_step == due.head_step:
            return newest  # the database was lost between its commit and its answer
        priors = priors_for(self._spec, self._priors)
        assign_all = settings.publish.auto_assign
        card = due.publish(registry, self._spec, priors, settings.aggregation, rejections, assign_all, settings.privacy)
        registry.prune(settings.publish.keep_versions)
        return card

    def announce(self, card: VersionCard) -> None:
        """Say that there is a new version, which is in the registry."""
        self.newest_version = card.version
        self._telemetry.newest_version.set(card.version)
        self.on_version(card.version)
        if self._settings.publish.auto_assign:
            self._fleet.assign_all(card.version)
        _log.info(
            "version-published",
            version=card.version,
            head_step=card.head_step,
            digest=card.digest[:12],
            updates=card.updates,
            assigned=self._settings.publish.auto_assign,
        )

    async def _write(self, snapshot: Snapshot) -> None:
        await self._log.durable(snapshot.state.step)
        if self.lease is not None:
            self.lease.check()
        started = time.perf_counter()
        try:
            await asyncio.to_thread(self._write_and_cut, snapshot)
        except (OSError, StateUnusable) as error:
            if self.lease is not None:
                self.lease.check()  # who was held up amid it finds the folder renamed: no fault of the disk
            if isinstance(error, StateUnusable):
                raise
            reason = f"{self._state.path}: a snapshot cannot be written ({error.strerror or error})"
            if is_disk_full(error):
                raise DiskFull(f"{reason}; free space, and send the update again") from error
            raise LearnerError(
                f"{reason}; free space or mend the disk, then start again: everything acknowledged is kept"
            ) from error
        self._telemetry.snapshot_seconds.observe(time.perf_counter() - started)
        _log.debug("snapshot-written", step=snapshot.state.step)

    def _write_and_cut(self, snapshot: Snapshot) -> None:
        write_snapshot(self._state.snapshots, replace(snapshot, commits=self._state.commits.counts()))
        cutting = self._state.cutting()
        if cutting is None and _BACKUP_PART * self._log.size_bytes < self.max_log_bytes:
            _log.info("log-not-cut", step=snapshot.state.step, reason="a backup copies it; the next snapshot cuts it")
            return
        with contextlib.ExitStack() as stack:
            if cutting is not None:
                stack.callback(cutting.release)
            cut = cut_log(
                self._state.log,
                self._state.receipts,
                snapshot.state.step,
                give_up=self._log.files.cut,
                max_receipts_bytes=self._settings.durability.max_receipts_bytes,
            )
            if cut:
                left = segments(self._state.log)
                if not left:
                    raise FileNotFoundError(errno.ENOENT, "the log's segments have gone", str(self._state.log))
                self._state.commits.committed(RECEIPTS, first_step(left[0]) - 1)
