"""Clusters that know what a restored learner does not: said once each, and no version gets a number that they know."""

from __future__ import annotations

import asyncio
import shutil
import time
from pathlib import Path

import structlog.testing
from learner_in_process import CALL_SECONDS, Caller, serving
from learner_makers import policy
from learner_makers import settings as learner_settings

from global_learner.errors import DiskFull
from global_learner.loss import find_losses
from global_learner.policyctl.views import fleet_facts, fleet_table
from global_learner.service.heartbeats import MOST_AHEAD, ClustersAhead
from global_learner.upkeep.backup import back_up
from policy_net.exchange.generated import fleet_pb2 as pb


class Learner:
    """Notes what clusters know while there is room, on a clock that is set by hand; at v5 and head step 50."""

    def __init__(self) -> None:
        self.now = 0.0
        self.full = False
        self.noted: list[tuple[str, int, str]] = []
        self.ahead = ClustersAhead(self._note, lambda: self.now)

    async def _note(self, cluster: str, version: int, detail: str) -> None:
        if self.full:
            raise DiskFull("no room")
        self.noted.append((cluster, version, detail))

    async def reported(self, version: int, step: int = 0, cluster: str = "north") -> None:
        await self.ahead.on_status(cluster, pb.ClusterStatus(acting_version=version, learning_step=step), 5, 50)


async def test_who_knows_no_more_than_the_learner_is_not_ahead() -> None:
    learner = Learner()
    for version, step in ((0, 0), (5, 50), (1, 49)):
        await learner.reported(version, step)
    assert learner.noted == []


async def test_what_is_told_again_and_again_is_noted_once_for_each_cluster() -> None:
    learner = Learner()
    for _ in range(50):
        await learner.reported(8, 80)
        await learner.reported(8, 81, cluster="south")
        await learner.reported(0, 82, cluster="east")
    assert [(cluster, version) for cluster, version, _ in learner.noted] == [("north", 8), ("south", 8), ("east", 0)]
    assert learner.noted[0][2] == (
        "acts on v8, and the newest here is v5; the next is v9 or above; learned at head step 80, and the head here is "
        "at 50"
    )
    assert learner.noted[2][2] == "learned at head step 82, and the head here is at 50"


async def test_what_no_fleet_can_have_published_moves_no_number() -> None:
    learner = Learner()
    await learner.reported(5 + MOST_AHEAD)
    await learner.reported(6 + MOST_AHEAD)
    await learner.reported(2**64 - 1, 2**64 - 1)
    assert [version for _, version, _ in learner.noted] == [5 + MOST_AHEAD, 0, 0]
    assert "the next number stays v6" in learner.noted[-1][2]


async def test_a_cluster_that_makes_numbers_up_fills_no_disk() -> None:
    learner = Learner()
    for number in range(1000):
        await learner.reported(6 + number)
    assert len(learner.noted) <= 20
    learner.now += 60.0
    for number in range(1000):
        await learner.reported(6 + number)
    assert len(learner.noted) <= 26


async def test_a_full_disk_costs_no_heartbeat_and_the_line_is_written_later() -> None:
    learner = Learner()
    learner.full = True
    with structlog.testing.capture_logs() as logs:
        await learner.reported(8)
    assert [line["event"] for line in logs] == ["cluster-ahead-not-noted"]
    learner.full = False
    await learner.reported(8)
    assert [version for _, version, _ in learner.noted] == [8]


async def said(caller: Caller, cluster: str, **status: int) -> None:
    request = pb.HeartbeatRequest(cluster=cluster, incarnation=1, status=pb.ClusterStatus(**status))
    await caller.call("Heartbeat", request)


async def versions_of(caller: Caller, at_least: int) -> dict[int, str]:
    """The versions and their digests, once there are so many."""
    async with asyncio.timeout(CALL_SECONDS):
        while True:
            reply = await caller.call("ListVersions", pb.ListVersionsRequest())
            if len(reply.versions) >= at_least:
                return {card.version: card.digest for card in reply.versions}
            await asyncio.sleep(0.02)


def test_after_an_older_backup_no_number_has_two_contents(tmp_path: Path) -> None:
    config = learner_settings(tmp_path)
    copy = tmp_path / "copy"

    async def lives() -> dict[int, str]:
        async with serving(tmp_path, publish={"every_steps": 1}) as caller:
            await caller.register("north")
            await caller.push(1)
            await versions_of(caller, 2)
            await asyncio.to_thread(back_up, config, policy(), copy, time.time)
            await caller.push(2)
            await caller.push(3)
            return await versions_of(caller, 4)

    async def lives_again(before: dict[int, str]) -> None:
        async with serving(tmp_path, publish={"every_steps": 1}) as caller:
            assert len(await versions_of(caller, 2)) == 2
            await said(caller, "stranger", acting_version=9)
            assert fleet_facts(await caller.fleet())["numbers_through"] is None
            with structlog.testing.capture_logs() as logs:
                await said(caller, "north", acting_version=4, learning_step=3)
            assert [line["event"] for line in logs if line["log_level"] == "error"] == ["cluster-ahead"]
            facts = fleet_facts(await caller.fleet())
            assert facts["numbers_through"] == 4
            table = fleet_table(facts)
            assert "ahead of the learner: acts on v4, learned at head step 3" in table.rows[0][-1]
            assert any("up to v4" in line for line in table.below)
            audit = await caller.call("ListAudit", pb.ListAuditRequest())
            (line,) = [entry for entry in audit.entries if entry.action == "cluster-ahead"]
            assert (line.subject, line.actor) == ("north", "global-learner")
            await caller.push(9, base_step=0)
            after = await versions_of(caller, 3)
            assert list(after) == [1, 2, 5]
            assert {number: after[number] for number in (1, 2)} == {number: before[number] for number in (1, 2)}
            assert fleet_facts(await caller.fleet())["numbers_through"] is None

    async def lives_thrice() -> None:
        async with serving(tmp_path) as caller:
            assert list(await versions_of(caller, 3)) == [1, 2, 5]

    before = asyncio.run(lives())
    shutil.rmtree(config.state_dir)
    shutil.copytree(copy, config.state_dir)
    asyncio.run(lives_again(before))
    assert find_losses(config, policy(), time.time()) == []
    asyncio.run(lives_thrice())


def test_numbers_that_were_passed_over_outlast_a_restart(tmp_path: Path) -> None:
    async def lives() -> None:
        async with serving(tmp_path) as caller:
            await caller.register("north")
            await said(caller, "north", acting_version=7)

    async def lives_again() -> None:
        async with serving(tmp_path, publish={"every_steps": 1}) as caller:
            assert fleet_facts(await caller.fleet())["numbers_through"] == 7
            await caller.register("south")
            await caller.push(1, cluster="south")
            assert list(await versions_of(caller, 2)) == [1, 8]

    asyncio.run(lives())
    asyncio.run(lives_again())
