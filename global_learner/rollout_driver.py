"""Driver of rollouts: gives the running one what clusters and operators say, judges it, and tells the fleet.

It polls every few seconds, on the learner's event loop; databases are asked on the registry's thread, verdicts are
computed beside it, replays in a process of their own (`scores`). No update waits for any of it: whatever fails here is
logged and tried again. All it is told are events, so it can be killed at any moment, and goes on where the database
says that it was. A change whose answer was lost may be on disk: it is read again before anything else.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Mapping, Sequence
from types import MappingProxyType

import structlog

from global_learner.background_task import BackgroundTask
from global_learner.errors import (
    BadRequest,
    EvidenceRefused,
    LearnerError,
    LeaseLost,
    RolloutRefused,
)
from global_learner.fleet import Fleet
from global_learner.registry.registry_thread import RegistryThread
from global_learner.rollout.evidence_store import (
    BLOCKS_AHEAD,
    Brought,
    EvidenceStore,
    KeptVerdict,
    check_assigned,
    checked_blocks,
    checked_shadow,
)
from global_learner.rollout.judging import Judge, pairs_in, reported
from global_learner.rollout.plan import plan_of
from global_learner.rollout.rollout_messages import Overview, latest_overviews, overview
from global_learner.rollout.rollout_store import RolloutStore, SeenRollout, Taken
from global_learner.rollout.state import (
    Abort,
    EventContent,
    Heard,
    Pause,
    Pin,
    Promote,
    Resume,
    RolloutPhase,
    RolloutState,
    observed,
)
from global_learner.rollout.verdicts.verdict import StageOutcome, Verdict
from global_learner.rollout_gate import GateReplays
from global_learner.rollout_queries import RolloutQueries
from global_learner.section_settings import RolloutSettings
from global_learner.storage.audit import KEEPER, Order
from global_learner.updates.parts import Process
from policy_net.exchange.generated import fleet_pb2

_log = structlog.get_logger()

_ACTIONS: Mapping[str, type[Promote | Pause | Resume | Abort]] = {
    "promote": Promote,
    "pause": Pause,
    "resume": Resume,
    "abort": Abort,
}
_PIN = "pin"
_KEEP_SECONDS = 600.0
_KEEP_GROWTH = 1.1
"""A verdict that says the same is kept once there are so many times more pairs, or this long after the one before."""


class RolloutDriver:
    """Create, `start`, use and `close` it on one event loop.

    Attributes:
        away_seconds: silence after which a cluster counts as away.
        auto_assign: whether every new version acts at once on clusters of which nobody decides.
        gate: what is replayed at the gate.
        queries: what Prometheus servers are asked.
        turned_out: whether a cluster no longer belongs to the fleet.
        versions_come_from_above: this learner is a region's, which judges no versions.
    """

    def __init__(
        self,
        settings: RolloutSettings,
        spec_digest: str,
        fleet: Fleet,
        registry: RegistryThread,
        process: Process,
        *,
        auto_assign: bool,
    ) -> None:
        self.turned_out: Callable[[str], bool] = lambda _cluster: False
        self.auto_assign = auto_assign
        self.versions_come_from_above = False
        self.store = RolloutStore(registry.registry)
        self._evidence = EvidenceStore(registry.registry)
        self._settings = settings
        self.away_seconds = settings.away_seconds
        self._spec_digest = spec_digest
        self._fleet = fleet
        self._registry = registry
        self._telemetry = process.telemetry
        self._wall_clock = process.wall_clock
        self._judge = Judge()
        self._runs = True
        """Whether one may run; unknown at the start."""
        self._unsure = False
        """Whether the database may have changed without the fleet being told."""
        self._brought: tuple[int, Brought] | None = None
        self._kept: tuple[tuple[int, int, str], int, float] | None = None
        self._reported_ahead: set[tuple[int, str]] = set()
        """Rollouts and clusters whose blocks came before there was time for them, of which the log has a line."""
        self._wake = asyncio.Event()
        self.gate = GateReplays(registry, process.wall_clock, self._wake.set)
        self.queries = RolloutQueries(settings, registry, process.telemetry, process.wall_clock, self._wake.set)
        self._task = BackgroundTask("rollouts")

    def start(self) -> None:
        """Begin to look."""
        self._task.begin(self._run)

    async def close(self) -> None:
        """Look no more; the next learner goes on."""
        await self._task.close()
        await self.gate.close()
        await self.queries.close()

    # What operators ask.

    async def begin(self, version: int, plan_json: str, order: Order) -> Taken:
        """Start a rollout, or only say what would come of it.

        Raises:
            UnknownPolicyVersion: there is none of this number, or its file is no longer kept.
            RolloutRefused, BadRequest: see `RolloutStore.start`; or the plan cannot be used.
        """
        if self.versions_come_from_above:
            raise RolloutRefused("a region's versions come from the learner above: start the rollout there")
        plan = plan_of(plan_json)
        self.queries.check(plan)
        away, gone, jcts = self._away(), self.gone(), self._jcts()
        starting = self._registry.call(self.store.start, version, plan, self._spec_digest, away, gone, jcts, order)
        return await self._carried_out(order, starting)

    async def act(self, action: str, cluster: str, order: Order, seen: SeenRollout | None = None) -> Taken:
        """Carry out an operator's word on the latest rollout, or only say what would come of it.

        Args:
            seen: where the operator saw it; None: not compared.

        Raises:
            UnknownRollout: there was none yet.
            ChangedSince: it is not where it was seen.
            RolloutRefused: it does not suit where the rollout stands.
            BadRequest: no such action, or a cluster that the rollout does not know.
        """
        if action not in (*_ACTIONS, _PIN) or bool(cluster) is not (action == _PIN):
            raise BadRequest(f"an action is one of {', '.join(_ACTIONS)}, or pin with a cluster's name")
        why = order.why
        content: EventContent = Pin(cluster=cluster, why=why) if action == _PIN else _ACTIONS[action](why=why)
        latest = await self._registry.call(self.store.record, 0)
        taken = await self._take(latest.state.number, [content], order, seen)
        if taken.record is None:
            raise RolloutRefused("another rollout was begun meanwhile; look at it, and ask again")
        return taken

    async def assign(
        self,
        version: int,
        clusters: Sequence[str] | None,
        order: Order,
        seen: Mapping[str, int] = MappingProxyType({}),
    ) -> Taken:
        """Assign by an operator's word; see `RolloutStore.assign`, of which it has the errors."""
        assigning = self._registry.call(
            self.store.assign, version, self._spec_digest, clusters, order, self.auto_assign, self.gone(), seen
        )
        return await self._carried_out(order, assigning)

    async def go_back(
        self,
        clusters: Sequence[str] | None,
        order: Order,
        *,
        seen: Mapping[str, int] = MappingProxyType({}),
        just_looked: bool = False,
    ) -> Taken:
        """Go back to the version before; see `RolloutStore.go_back`, of which it has the errors."""
        going = self._registry.call(
            self.store.go_back,
            self._spec_digest,
            clusters,
            order,
            hold=self.auto_assign or self.versions_come_from_above,
            gone=self.gone(),
            seen=seen,
            just_looked=just_looked,
        )
        return await self._carried_out(order, going)

    async def _carried_out(self, order: Order, change: Awaitable[Taken]) -> Taken:
        """Wait for a change by an order, and tell the fleet and the log of it; nothing is to tell of a dry run."""
        if order.dry_run:
            return await change
        done = await self._reported_of(change)
        for entry in done.assigned:
            _log.info(
                "assigned",
                cluster=entry.cluster,
                actor=order.actor,
                from_version=entry.from_version,
                to_version=entry.to_version,
                held=entry.held,
            )
        return done

    async def overview(self, number: int) -> Overview:
        """One rollout; 0 is the latest.

        Raises:
            UnknownRollout: there is none of this number.
        """
        return await self._registry.call(self._overview, number)

    def _overview(self, number: int) -> Overview:
        record = self.store.record(number)
        sketches = self.gate.sketches.frozen(record.state.number)
        return overview(record, self._evidence, sketches, self.queries.shown(record.state))

    async def latest_overviews(self) -> list[Overview]:
        """What the report shows, newest first."""
        return await self._registry.call(latest_overviews, self.store, self._evidence)

    # What clusters bring.

    async def on_evidence(self, cluster: str, request: fleet_pb2.ShareEvidenceRequest) -> tuple[bool, int]:
        """Keep what a registered cluster brought, on disk; whether it was asked for, and which block is next.

        Raises:
            EvidenceRefused: it cannot be true, or is too much; nothing of it is kept.
        """
        entry = self._fleet.get(cluster)
        rollout_assignment = None if entry is None else entry.rollout_assignment
        outcomes = self._telemetry.rollout_evidence
        try:
            blocks = checked_blocks(request.blocks)
            shadowed = checked_shadow(request.shadow) if request.HasField("shadow") else None
            if rollout_assignment is None or rollout_assignment.rollout != request.rollout:
                outcomes.labels("not-asked-for").inc()
                return False, 0
            check_assigned(blocks, cluster, rollout_assignment)
        except EvidenceRefused as refused:
            outcomes.labels(refused.reason).inc()
            _log.warning("evidence-refused", cluster=cluster, rollout=request.rollout, reason=str(refused))
            raise
        factor = self._settings.real_time_factor
        try:
            stored = await self._registry.call(
                self._evidence.add, rollout_assignment.rollout, cluster, blocks, shadowed, self._wall_clock(), factor
            )
        finally:
            self._brought = None  # also if the answer was lost, or the agent waits no longer
        if stored is None:
            outcomes.labels("not-asked-for").inc()
            return False, 0
        outcomes.labels("ahead-of-time" if stored.waiting else "taken").inc()
        if stored.waiting > BLOCKS_AHEAD and (rollout_assignment.rollout, cluster) not in self._reported_ahead:
            self._reported_ahead.add((rollout_assignment.rollout, cluster))
            _log.warning(
                "evidence-ahead-of-time",
                cluster=cluster,
                rollout=rollout_assignment.rollout,
                waiting=stored.waiting,
                block_seconds=rollout_assignment.block_seconds,
                advice="its blocks count once there was time for them; if it is simulated, rollouts.real_time_factor "
                "says how much faster it may live",
            )
        return True, stored.next_block

    # What it does by itself.

    async def _run(self) -> None:
        while True:
            try:
                await self.poll()
            except LeaseLost:
                return  # for good: this process ends (`LeaseKeeper`), and the next one has a driver of its own
            except LearnerError as error:
                _log.warning("rollout-waits", reason=str(error), advice="tried again")
            except Exception as error:  # a fault here must not end the learner, which goes on learning
                _log.error("rollout-failed", reason=str(error), advice="tried again", exc_info=error)
            self._wake.clear()
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._wake.wait(), self._settings.poll_seconds)

    async def poll(self) -> None:
        """Look at the running rollout once: take what it is still to be told, and judge it."""
        if self._unsure:
            await self._read_again()
        if not self._runs:
            return
        record = await self._registry.call(self.store.latest)
        phase = None if record is None else record.state.phase
        self._telemetry.on_rollout(phase, RolloutPhase, phase is not None and not phase.over)
        if record is None or record.state.phase.over:
            self._runs = False
            return
        contents = observed(record.state, self._heard(), self.gone(), self.away_seconds)
        contents += await self._registry.call(self.store.missing_versions, record.state)
        if contents:
            taken = await self._take(record.state.number, contents, Order(KEEPER, self._wall_clock()))
            record = taken.record
        if record is not None and record.state.phase in (
            RolloutPhase.RUNNING,
            RolloutPhase.ASKING,
            RolloutPhase.PAUSED,
        ):
            await self._judge_stage(record.state)

    async def _judge_stage(self, state: RolloutState) -> None:
        brought = await self._evidence_of(state.number)
        replays = await self.gate.known(state) if state.current_stage.kind == "gate" else None
        standings = await self.queries.known(state)
        now = self._wall_clock()
        verdict = await asyncio.to_thread(self._judge.judge, state, brought, replays, standings, now)
        await self._keep(state, verdict, pairs_in(brought), now)
        event = reported(state, verdict, now)
        if event is not None:
            await self._take(state.number, [event], Order(KEEPER, self._wall_clock()))

    async def _keep(self, state: RolloutState, verdict: Verdict, pairs: int, now: float) -> None:
        """Keep a verdict for people, if it says something new, or the same from more for a while."""
        key = (state.number, state.stage, verdict.outcome.value)
        if self._kept is not None and self._kept[0] == key:
            _, before, at = self._kept
            if before == pairs or (0.0 <= now - at < _KEEP_SECONDS and pairs < _KEEP_GROWTH * before):
                return
        if verdict.outcome is not StageOutcome.WAIT or pairs:
            kept = KeptVerdict.of(verdict, state.stage, pairs, now)
            await self._registry.call(self._evidence.keep, state.number, kept)
        self._kept = (key, pairs, now)

    async def _evidence_of(self, number: int) -> Brought:
        if self._brought is None or self._brought[0] != number:
            self._brought = (number, Brought())  # what comes while it is read makes it None again
            found = await self._registry.call(self._evidence.brought, number)
            if self._brought is None:
                return found
            self._brought = (number, found)
        return self._brought[1]

    async def _take(
        self, number: int, contents: Sequence[EventContent], order: Order, seen: SeenRollout | None = None
    ) -> Taken:
        taking = self._registry.call(self.store.take, number, contents, self._jcts(), order, seen=seen)
        return await self._carried_out(order, taking)

    async def _reported_of(self, change: Awaitable[Taken]) -> Taken:
        """Wait for a change, and tell the fleet of it; what may have come of one that failed is read at the next poll.

        A caller that hangs up ends the wait, and not the change.
        """
        try:
            taken = await change
        except BaseException:
            self._unsure = True
            self._wake.set()
            raise
        self._on_taken(taken)
        return taken

    async def _read_again(self) -> None:
        """Tell the fleet what the database says that clusters act on; it is asked behind all changes so far."""
        self._unsure = False
        try:
            registrations = await self._registry.call(self._registry.registry.registrations)
        except BaseException:
            self._unsure = True
            raise
        self._fleet.on_rollout_assignments(registrations)
        self._runs = True

    def _on_taken(self, taken: Taken) -> None:
        """Tell the fleet what was decided, which is on disk; and the log."""
        self._fleet.on_rollout_assignments(taken.redirected)
        for line in taken.lines:
            _log.info(line.action, actor=line.actor, subject=line.subject, detail=line.detail)
            if line.action in ("rollout-done", "rollout-rolled-back"):
                self._telemetry.rollouts.labels(line.action.removeprefix("rollout-")).inc()
        self._runs = True
        self._wake.set()

    def _heard(self) -> dict[str, Heard]:
        heard = {}
        for entry in self._fleet.entries():
            status = entry.status if entry.status_is_new else None
            heard[entry.cluster] = Heard(
                entry.assigned_version,
                entry.held,
                self._fleet.silent_seconds(entry),
                None if status is None else status.acting_version,
                0 if status is None else status.rollout,
                "" if status is None else status.rollout_role,
            )
        return heard

    def _jcts(self) -> dict[str, float]:
        return {
            entry.cluster: entry.status.avg_jct_seconds
            for entry in self._fleet.entries()
            if entry.status is not None and entry.status.avg_jct_seconds > 0.0
        }

    def _away(self) -> set[str]:
        entries = self._fleet.entries()
        return {entry.cluster for entry in entries if self._fleet.silent_seconds(entry) > self.away_seconds}

    def gone(self) -> set[str]:
        """The registered clusters that were turned out."""
        return {entry.cluster for entry in self._fleet.entries() if self.turned_out(entry.cluster)}
