"""Rollouts that went somewhere: the learner's own driver and registry; clusters made of numbers on a clock."""

from __future__ import annotations

import asyncio
import contextlib
import json
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from learner_makers import SPEC, policy
from verdict_makers import blocks_of

from global_learner.fleet import Fleet
from global_learner.registry.registry import Registry
from global_learner.registry.registry_thread import RegistryThread
from global_learner.registry.signing import Signing
from global_learner.rollout.rollout_messages import overview_message
from global_learner.rollout.verdicts.evidence import SwitchbackBlock
from global_learner.rollout_driver import RolloutDriver
from global_learner.scores.replay_set import set_digest
from global_learner.section_settings import RolloutSettings
from global_learner.storage.audit import Order
from global_learner.storage.commits import Commits
from global_learner.telemetry import LearnerTelemetry
from global_learner.updates.parts import Process
from policy_net.exchange.generated import fleet_pb2 as pb
from policy_net.exchange.rollout_assignment import AssignmentRole

BEGAN = 1_795_000_000.0
_STEP_SECONDS = 6 * 3600.0
_MOST_STEPS = 2000
_MOST_PAIRS = 400
_STEPS_IN_WAVE = 2


def scored(seconds: float) -> dict[str, Any]:
    """A version's score, every replay of so many seconds."""
    return {
        "state": "scored",
        "replay_set_digest": set_digest(),
        "replays": [
            {
                "replay": name,
                "avg_jct_seconds": seconds * (1.0 + 0.01 * place),
                "baseline_jct_seconds": {"drf": 4000.0, "optimus": 3900.0},
            }
            for place, name in enumerate(("calm", "rush", "mixed", "large"))
        ],
    }


class SimulatedFleet:
    """Clusters that do as they are told, one step of six hours at a time; use it within `simulated_fleet`.

    Attributes:
        losses: of the version that is rolled out, by cluster; 0 unless named.
        away: clusters that are not heard.
    """

    def __init__(self, registry: Registry, clusters: list[str]) -> None:
        self.now = BEGAN
        self.losses: Mapping[str, float] = {}
        self.away: set[str] = set()
        for cluster in clusters:
            registry.register(cluster, False, [], self.now)
        self.fleet = Fleet(registry.registrations(), {}, lambda: self.now)
        self.thread = RegistryThread(registry)
        self.telemetry = LearnerTelemetry()
        process = Process(self.telemetry, lambda: self.now, asyncio.get_running_loop().create_future())
        settings = RolloutSettings(away_seconds=10_800.0)
        self.driver = RolloutDriver(settings, SPEC.digest, self.fleet, self.thread, process, auto_assign=False)
        self.driver.gate.score = lambda _version: None  # all have theirs
        self._began: dict[tuple[str, int], float] = {}
        self._blocks: dict[tuple[str, int], list[SwitchbackBlock]] = {}

    async def step(self) -> None:
        """Six hours: every cluster that is there says what it does, and the learner looks."""
        self.now += _STEP_SECONDS
        for entry in self.fleet.entries():
            if entry.cluster in self.away:
                continue
            self.fleet.on_heard(entry.cluster, entry.incarnation)
            rollout_assignment = entry.rollout_assignment
            entry.status = pb.ClusterStatus(acting_version=entry.assigned_version, avg_jct_seconds=5400.0)
            if rollout_assignment is not None:
                entry.status.rollout, entry.status.rollout_role = (
                    rollout_assignment.rollout,
                    rollout_assignment.role.value,
                )
            entry.status_is_new = True
            if rollout_assignment is not None:
                request = pb.ShareEvidenceRequest(cluster=entry.cluster, rollout=rollout_assignment.rollout)
                key = (entry.cluster, rollout_assignment.rollout)
                if rollout_assignment.role is AssignmentRole.SHADOW:
                    hours = round(
                        (self.now - self._began.setdefault((*key[:1], -rollout_assignment.rollout), self.now)) / 3600.0
                    )
                    request.shadow.CopyFrom(pb.ShadowSums(decisions=12 * hours, agreed=11 * hours))
                else:
                    request.blocks.extend(
                        self._reported(key, rollout_assignment.seed, rollout_assignment.block_seconds)
                    )
                await self.driver.on_evidence(entry.cluster, request)
        await self.driver.poll()

    def _reported(self, key: tuple[str, int], seed: int, block_seconds: float) -> list[pb.SwitchbackBlock]:
        """The pair of blocks that ended in this step, if one did."""
        lasted = self.now - self._began.setdefault(key, self.now)
        if key not in self._blocks:
            self._blocks[key] = blocks_of(seed, _MOST_PAIRS, loss=self.losses.get(key[0], 0.0), name=key[0])
        pairs = int(lasted // (2.0 * block_seconds))
        before = int((lasted - _STEP_SECONDS) // (2.0 * block_seconds))
        if pairs == max(before, 0) or pairs == 0:
            return []
        return [_message(block) for block in self._blocks[key][2 * pairs - 2 : 2 * pairs]]

    async def until(self, *phases: str, stage: str = "") -> pb.Rollout:
        """Steps until the latest rollout is in one of these phases, or in a stage."""
        for _ in range(_MOST_STEPS):
            rollout = await self.rollout()
            if rollout.phase in phases or rollout.stages[rollout.stage] == stage:
                return rollout
            await self.step()
        raise AssertionError(f"never {phases} {stage}: {rollout}")

    async def rollout(self) -> pb.Rollout:
        """The latest one, as it stands."""
        return overview_message(await self.driver.overview(0))

    async def rollouts(self) -> list[pb.Rollout]:
        """As the report has them."""
        return [overview_message(entry) for entry in await self.driver.latest_overviews()]


@contextlib.asynccontextmanager
async def simulated_fleet(folder: Path, clusters: list[str], versions: int = 4):  # type: ignore[no-untyped-def]
    """A registry of scored versions in a folder, and clusters that act on v1."""
    registry = Registry(folder, Commits(folder))
    registry.signing = Signing(folder, 3600.0, time.time, registry.commits)
    for number in range(versions):
        card = registry.publish(policy(SPEC, number), number, BEGAN, {}, 0.0, False)
        registry.set_score(card.version, scored(3600.0))
    living = SimulatedFleet(registry, clusters)
    try:
        yield living
    finally:
        living.thread.close()


PLAN = {
    "stages": [
        {"kind": "gate"},
        {"kind": "shadow", "hours": 8},
        {"kind": "canary", "count": 3},
        {"kind": "wave", "share": 0.7},
        {"kind": "fleet"},
    ]
}
CLUSTERS = ["ams-prod", "bud-research", "fra-prod", "hel-batch", "lis-vision", "par-speech", "rom-batch", "vie-ads"]
MOST_BEHIND = "fra-prod"


async def _three(folder: Path, operator: str, reason: str) -> tuple[list[pb.Rollout], float]:
    async with simulated_fleet(folder, CLUSTERS) as fleet:
        plan = json.dumps(PLAN)
        fleet.losses = dict.fromkeys(CLUSTERS, -0.05)
        await fleet.driver.begin(2, plan, Order(operator, fleet.now, reason))
        await fleet.until(stage="canary")
        await fleet.driver.act("pause", "", Order(operator, fleet.now, reason))
        await fleet.step()
        await fleet.driver.act("pin", "par-speech", Order(operator, fleet.now, reason))
        await fleet.driver.act("resume", "", Order(operator, fleet.now))
        assert (await fleet.until("done", "rolled-back", "asking")).phase == "done"
        fleet.losses = dict.fromkeys(CLUSTERS, 0.07)
        await fleet.driver.begin(3, plan, Order(operator, fleet.now, reason))
        assert (await fleet.until("done", "rolled-back", "asking")).phase == "rolled-back"
        fleet.losses = {**dict.fromkeys(CLUSTERS, -0.02), MOST_BEHIND: 0.4}
        await fleet.driver.begin(4, plan, Order(operator, fleet.now, reason))
        await fleet.until("done", "rolled-back", "asking", stage="wave")
        fleet.away = {"vie-ads"}
        for _ in range(_STEPS_IN_WAVE):
            if (await fleet.rollout()).phase == "running":
                await fleet.step()
        return await fleet.rollouts(), fleet.now


def three_rollouts(
    folder: Path, operator: str = "ada", reason: str = "learned from the new queue"
) -> tuple[list[pb.Rollout], float]:
    """One that runs and held a cluster, one that was rolled back, one that is done, newest first; and the time."""
    return asyncio.run(_three(folder, operator, reason))


def _message(block: SwitchbackBlock) -> pb.SwitchbackBlock:
    assert block.twin is not None
    return pb.SwitchbackBlock(
        number=block.number,
        candidate=block.candidate,
        jobs=block.jobs,
        usual_jobs=block.usual_jobs,
        jobs_at_start=block.jobs_at_start,
        arrivals=block.arrivals,
        has_twin=True,
        twin_priced=block.twin.priced,
        twin_incumbent=block.twin.incumbent,
        twin_candidate=block.twin.candidate,
        decisions=10,
    )
