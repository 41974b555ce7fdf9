"""A learner's rollouts in this process: registry, driver and clusters, with a fault at every write if one is wanted.

Clusters act on what the fleet's memory says, which is what an answer to a heartbeat would; what they were told is held
against the audit log.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import random
import re
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from enum import StrEnum
from pathlib import Path
from typing import Any

from learner_makers import SPEC, policy
from places import NOWHERE, Place, content, place
from sqlalchemy.orm import Session

from global_learner.errors import DatabaseAway, DiskFull, LearnerError
from global_learner.fleet import Fleet
from global_learner.registry.registry import Registry
from global_learner.registry.registry_thread import RegistryThread
from global_learner.registry.signing import Signing
from global_learner.rollout_driver import RolloutDriver
from global_learner.section_settings import RolloutSettings
from global_learner.storage.audit import Order
from global_learner.storage.audit_chain import checked_chain
from global_learner.storage.commits import Commits
from global_learner.telemetry import LearnerTelemetry
from global_learner.updates.parts import Process
from policy_net.exchange.generated import fleet_pb2 as pb
from policy_net.exchange.rollout_assignment import AssignmentRole, RolloutAssignment, candidate_acts

CLUSTERS = tuple(f"cluster-{number}" for number in range(6))
VERDICT = {"margin_percent": 50, "held_loss_percent": 100, "least_pairs": 1, "shadow_decisions": 5}
BLOCKS_A_BEAT = 4
ROUND_SECONDS = 7200.0
NOW = 1_800_000_000.0

Met = tuple[str, Place]


class Fault(StrEnum):
    """What becomes of a write."""

    REFUSED = "nothing is written, and the learner told so"
    ANSWER_LOST = "it is written, and the learner told that the database is away"
    ASKER_GONE = "it is written, and whoever asked waits no longer"
    KILLED_BEFORE = "nothing is written, and the learner killed"
    KILLED_AFTER = "it is written, and the learner killed"


class Killed(BaseException):
    """The learner is no more."""


class FaultyRegistry(Registry):
    """A registry in which each kind of write meets a fault at each place of a rollout, once.

    Attributes:
        met: kinds of writes that did, and where.
        writing: the kind of what is written next.
    """

    fault: Fault | None = None
    where: Callable[[], Place]

    def __init__(self, met: set[Met], *arguments: Any) -> None:
        super().__init__(*arguments)
        self.met = met
        self.writing = ""
        self.asker_gone = False

    @contextlib.contextmanager
    def transaction(self) -> Iterator[Session]:
        meets = None if self.fault is None else (self.writing, self.where())
        if meets is None or meets in self.met:
            with super().transaction() as session:
                yield session
            return
        with super().transaction() as session:
            yield session
            session.flush()
            self.met.add(meets)
            if self.fault is Fault.REFUSED:
                raise DiskFull("a test's disk is full")
            if self.fault is Fault.KILLED_BEFORE:
                raise Killed
        if self.fault is Fault.ANSWER_LOST:
            raise DatabaseAway("a test's answer was lost")
        if self.fault is Fault.KILLED_AFTER:
            raise Killed
        self.asker_gone = True


class FaultyThread(RegistryThread):
    """Leaves whoever asked without an answer, where a write says so: as the call of somebody who hung up."""

    async def call(self, method, *arguments, **options):  # type: ignore[no-untyped-def]
        def named():  # type: ignore[no-untyped-def]
            self.registry.writing = _kind(method.__name__, arguments)  # type: ignore[attr-defined]
            return method(*arguments, **options)

        found = await super().call(named)
        if self.registry.asker_gone:  # type: ignore[attr-defined]
            self.registry.asker_gone = False  # type: ignore[attr-defined]
            raise asyncio.CancelledError
        return found


def _kind(method: str, arguments: Sequence[Any]) -> str:
    if method != "take":
        return method
    return " ".join(sorted({what.kind for what in arguments[1]}))


class Cluster:
    """One cluster, its agent included; what it found out is the same however often it is asked."""

    def __init__(self, name: str, loss: float) -> None:
        self.name, self.loss = name, loss
        self.acting, self.rollout_assignment = 1, None
        self.decisions = self.block = 0

    def reported(self) -> tuple[int, int | None]:
        return self.acting, None if self.rollout_assignment is None else self.rollout_assignment.beside_version

    def evidence(self) -> pb.ShareEvidenceRequest:
        assert self.rollout_assignment is not None
        request = pb.ShareEvidenceRequest(cluster=self.name, rollout=self.rollout_assignment.rollout)
        if self.rollout_assignment.role is AssignmentRole.SHADOW:
            self.decisions += 10
            request.shadow.CopyFrom(pb.ShadowSums(decisions=self.decisions, agreed=self.decisions))
        else:
            blocks = range(self.block, self.block + BLOCKS_A_BEAT)
            request.blocks.extend(self._block(self.rollout_assignment, number) for number in blocks)
        return request

    def _block(self, rollout_assignment: RolloutAssignment, number: int) -> pb.SwitchbackBlock:
        candidate = candidate_acts(rollout_assignment.seed, self.name, number)
        noise = random.Random(f"{self.name}:{number}").uniform(-0.01, 0.01)
        jobs = 5.0 * (1.0 + noise) * (1.0 + self.loss * candidate)
        return pb.SwitchbackBlock(number=number, candidate=candidate, jobs=jobs, usual_jobs=5.0, decisions=10)


class World:
    """A learner's rollouts over one folder, however often it is killed.

    Args:
        met: kinds of writes that the fault has met, and where; it is spared to these.
        loss: of the candidate in all clusters, as a share of the jobs in the system.
        queries: of the plan.
    """

    def __init__(
        self,
        folder: Path,
        fault: Fault | None,
        met: set[Met],
        *,
        loss: float = 0.0,
        queries: Sequence[Mapping[str, Any]] = (),
    ) -> None:
        folder.mkdir(exist_ok=True)
        self.queries = queries
        self.folder, self.fault, self.now = folder, fault, NOW
        self.clusters = [Cluster(name, loss) for name in CLUSTERS]
        self.met = met
        self.ever_told: dict[str, set[tuple[int, int | None]]] = {name: {(1, None)} for name in CLUSTERS}
        registry = self._registry()
        for number in range(2):
            registry.publish(policy(SPEC, number), number, self.now, {}, 0.0, False)
        for name in CLUSTERS:
            registry.register(name, False, [], self.now)
        self.open(registry)

    def _registry(self) -> FaultyRegistry:
        commits = Commits(self.folder)
        return FaultyRegistry(self.met, self.folder, commits, Signing(self.folder, 3600.0, time.time, commits))

    def open(self, registry: FaultyRegistry) -> None:
        self.registry = registry
        self.thread = FaultyThread(registry)
        telemetry = LearnerTelemetry()
        process = Process(telemetry, lambda: self.now, asyncio.get_running_loop().create_future())
        self.fleet = Fleet(registry.registrations(), {}, lambda: self.now)
        servers = [{"address": query["address"]} for query in self.queries]
        # Of a stage's blocks all come in its first round, as if there had been time for them.
        settings = RolloutSettings.model_validate({"prometheus": servers, "real_time_factor": 1e9})
        self.driver = RolloutDriver(settings, SPEC.digest, self.fleet, self.thread, process, auto_assign=False)
        registry.where, registry.fault = self.place, self.fault

    def place(self) -> Place:
        record = self.driver.store.latest()
        return NOWHERE if record is None else place(record.state)

    async def guarded(self, doing: Any) -> bool:
        """Whether something was done without a fault; after a kill the next learner is there."""
        try:
            await doing
        except (LearnerError, asyncio.CancelledError):
            return False
        except Killed:
            self.thread.close()
            self.open(self._registry())
            return False
        return True

    def hear(self) -> None:
        """A heartbeat of every cluster: how it is, and what it is told."""
        for cluster in self.clusters:
            entry = self.fleet.get(cluster.name)
            assert entry is not None
            status = pb.ClusterStatus(acting_version=cluster.acting, avg_jct_seconds=3600.0)
            if cluster.rollout_assignment is not None:
                status.rollout, status.rollout_role = (
                    cluster.rollout_assignment.rollout,
                    cluster.rollout_assignment.role.value,
                )
            self.fleet.on_heard(cluster.name, entry.incarnation)
            self.fleet.on_status(entry, status)
            self.fleet.on_answered(entry)
            cluster.acting, cluster.rollout_assignment = entry.assigned_version, entry.rollout_assignment
            self.ever_told[cluster.name].add(cluster.reported())

    async def round(self) -> None:
        """Heartbeats with evidence, and a look of the driver's; where that met no fault, everybody then knows all."""
        self.hear()
        for cluster in self.clusters:
            if cluster.rollout_assignment is not None:
                await self.guarded(self._share(cluster))
        well = await self.guarded(self.driver.poll())
        self.now += ROUND_SECONDS
        self.hear()
        if well:
            decided = self.decided()
            for cluster in self.clusters:
                assert cluster.reported() == decided[cluster.name][-1], cluster.name

    async def _share(self, cluster: Cluster) -> None:
        _, following = await self.driver.on_evidence(cluster.name, cluster.evidence())
        cluster.block = max(cluster.block, following)

    async def start(self) -> None:
        plan = json.dumps({"stages": content(), "verdict": VERDICT, "queries": self.queries})
        while self.place() == NOWHERE:
            await self.guarded(self.driver.begin(2, plan, Order("ada", self.now, "a test")))

    async def act(self, action: str) -> None:
        """An operator who asks once, and then looks."""
        await self.guarded(self.driver.act(action, "", Order("ada", self.now)))

    def decided(self) -> dict[str, list[tuple[int, int | None]]]:
        """What the audit log says that each cluster was to act on, the latest last."""
        reported: dict[str, list[tuple[int, int | None]]] = {name: [(1, None)] for name in CLUSTERS}
        for line in self.registry.audit():
            if line.action == "rollout-assigned":
                found = re.fullmatch(r".* to v(\d+)(?: beside v(\d+))? \([a-z]+\)", line.detail)
                assert found is not None, line.detail
                reported[line.subject].append((int(found[1]), None if found[2] is None else int(found[2])))
        return reported

    def lines(self) -> list[tuple[str, str, str]]:
        """What stands in the audit log of rollouts, without the figures of verdicts."""
        return [
            (line.action, line.subject, re.sub(r"(stage \w+: \w+|failed in stage \w+).*", r"\1", line.detail))
            for line in self.registry.audit()
            if line.action.startswith("rollout-")
        ]

    def check(self) -> None:
        """The audit log is what was written, and nobody was ever told what it does not say."""
        lines = self.registry.audit()
        assert checked_chain(lines[0].log, lines).misfit is None
        decided = self.decided()
        for name, reported in self.ever_told.items():
            assert reported <= set(decided[name]), name

    def close(self) -> None:
        self.last, self.audited = self.place(), self.lines()
        self.thread.close()
