"""What a region does about every answer of the learner above, and about none; a real learner, a scripted parent."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

import grpc
import numpy as np
import pytest
from learner_in_process import Caller, serving
from learner_makers import SPEC, policy, vector
from structlog.testing import capture_logs

from global_learner.aggregation.region import RegionAggregator
from global_learner.settings import UpstreamSettings
from global_learner.telemetry import LearnerTelemetry
from global_learner.upstream.uplink import Uplink
from policy_net.domain import JobKind
from policy_net.errors import LearnerRefused, LearnerUnreachable
from policy_net.exchange.fleet_trust import FleetTrust
from policy_net.exchange.generated import fleet_pb2 as pb
from policy_net.exchange.spec import WeightSpec, weights_from_bytes
from policy_net.exchange.statistics import SpeedStatistic
from policy_net.exchange.wire import (
    Assignment,
    FetchedPolicy,
    GradientUpdate,
    LearnerHead,
    PushAnswer,
    PushOutcome,
    Registration,
    ShareAnswer,
    type_messages,
)

UPSTREAM = {"address": "127.0.0.1:7", "name": "east"}


class Parent:
    """A learner above that does what it is told; applies each push once, as the real one does."""

    def __init__(self) -> None:
        self.step = 50
        self.incarnation = 3
        self.fleets: tuple[str, ...] = ("root",)
        self.rounds = False
        self.assigned = 0
        self.registrations = 0
        self.applied: dict[tuple[int, int], GradientUpdate] = {}
        self.offered: list[tuple[int, int]] = []
        self.lose_answers = 0
        self.rejection = ""
        self.statuses: list[pb.ClusterStatus] = []
        self.reported: list[tuple[int, int, tuple[SpeedStatistic, ...]]] = []

    def close(self) -> None:
        pass

    def follow_back(self) -> None:
        pass

    def register(self, spec_digest: str, job_types: Sequence[str]) -> Registration:
        assert spec_digest == SPEC.digest
        self.registrations += 1
        self.incarnation += 1
        return Registration(self.incarnation, SPEC, self.step, 0, True, self.rounds, fleets=self.fleets)

    def pull_head(self, registration: Registration, have_step: int | None) -> LearnerHead:
        assert registration.incarnation == self.incarnation
        return self._head()

    def push(self, update: GradientUpdate, spec: WeightSpec) -> PushAnswer:
        name = (update.incarnation, update.sequence)
        self.offered.append(name)
        if self.rejection:
            return self._answer(PushOutcome.REJECTED, self.rejection)
        if name[0] != self.incarnation:
            return self._answer(PushOutcome.REJECTED, "unknown-incarnation")
        outcome = PushOutcome.DUPLICATE if name in self.applied else PushOutcome.APPLIED
        if outcome is PushOutcome.APPLIED:
            self.applied[name] = update
            self.step += 1
        if self.lose_answers:
            self.lose_answers -= 1
            raise LearnerUnreachable("Push: gone")
        return self._answer(outcome)

    def beat(self, incarnation: int, status: pb.ClusterStatus) -> Assignment:
        self.statuses.append(status)
        return Assignment(self.assigned, self.step, incarnation != self.incarnation, fleets=self.fleets)

    def share_beliefs(
        self, registration: Registration, revision: int, statistics: Sequence[SpeedStatistic]
    ) -> ShareAnswer:
        self.reported.append((registration.incarnation, revision, tuple(statistics)))
        return ShareAnswer(taken=True)

    def fetch_policy(self, version: int) -> FetchedPolicy:
        return FetchedPolicy(version, policy().to_bytes(), "")

    def _answer(self, outcome: PushOutcome, reason: str = "") -> PushAnswer:
        return PushAnswer(outcome, reason, self.step, 0, self._head())

    def _head(self) -> LearnerHead:
        return LearnerHead(self.step, vector(self.step))


class Region:
    """A region in this process, and its way up, beaten by hand."""

    def __init__(self, caller: Caller, parent: Parent, folder: Path) -> None:
        self.caller, self.parent, self.learner = caller, parent, caller.learner
        self.telemetry = LearnerTelemetry()
        self.now = 0.0
        registry = self.learner.registry
        self.uplink = Uplink(
            UpstreamSettings.model_validate({**UPSTREAM, "push_seconds": 10.0}),
            self.learner,
            registry,
            parent,  # type: ignore[arg-type]
            FleetTrust(folder, "east", allow_unsigned=False, clock=lambda: 0.0),
            self.telemetry,
            lambda: self.now,
            lambda: 1_800_000_000.0 + self.now,
            only_replays=False,
        )
        self.number = 0

    @property
    def region(self) -> RegionAggregator:
        assert self.learner.region is not None
        return self.learner.region

    async def beat(self) -> None:
        """A heartbeat at a time at which a push is due."""
        self.now += 10.0
        await self.uplink.beat()

    async def push(self, samples: int = 10, base_step: int | None = None) -> pb.PushReply:
        self.number += 1
        base = self.learner.head.step if base_step is None else base_step
        return await self.caller.push(self.number, samples=samples, base_step=base)

    def updates(self, outcome: str) -> float:
        return self.telemetry.above_updates.labels(outcome)._value.get()


@asynccontextmanager
async def region(folder: Path, parent: Parent | None = None) -> AsyncIterator[Region]:
    async with serving(folder, upstream=UPSTREAM, durability={"snapshot_every_steps": 4}) as caller:
        found = Region(caller, parent or Parent(), folder)
        yield found


def run(work: Callable[[], Awaitable[None]]) -> None:
    async def bounded() -> None:
        async with asyncio.timeout(120):
            await work()

    asyncio.run(bounded())


async def begun(found: Region) -> None:
    await found.beat()
    await found.caller.register()


def test_without_a_head_from_above_a_region_teaches_nobody(tmp_path: Path) -> None:
    async def work() -> None:
        async with region(tmp_path) as found:
            await found.caller.register()
            request = pb.PullHeadRequest(cluster="north", incarnation=1)
            assert await found.caller.refused("PullHead", request) is grpc.StatusCode.UNAVAILABLE
            await found.beat()
            reply = await found.caller.call("PullHead", request)
            assert np.array_equal(weights_from_bytes(reply.weights, SPEC), vector(50))
            stale = await found.push(base_step=0)
            assert (stale.outcome, stale.reason) == (pb.PushReply.REJECTED, "head-reset")

    run(work)


def test_what_clusters_push_goes_up_once_and_the_answers_head_is_the_new_base(tmp_path: Path) -> None:
    async def work() -> None:
        async with region(tmp_path) as found:
            await begun(found)
            for samples in (10, 30):
                assert (await found.push(samples)).outcome == pb.PushReply.APPLIED
            await found.beat()
            [update] = found.parent.applied.values()
            assert (update.samples, update.statistics["updates"], update.base_step) == (40, 2, 50)
            assert np.array_equal(found.learner.head.weights, vector(51))
            await found.beat()
            assert len(found.parent.offered) == 1
            assert found.updates("passed") == 2
            assert found.parent.statuses[-1].learning_step == 51

    run(work)


def test_a_push_whose_answer_was_lost_is_sent_again_under_its_name_also_after_a_kill(tmp_path: Path) -> None:
    parent = Parent()
    parent.lose_answers = 2

    async def before() -> None:
        async with region(tmp_path, parent) as found:
            await begun(found)
            await found.push(10)
            with pytest.raises(LearnerUnreachable):
                await found.beat()
            await found.push(20)
            with pytest.raises(LearnerUnreachable):
                await found.beat()

    async def after() -> None:
        async with region(tmp_path, parent) as found:
            assert found.region.pending is not None
            await found.beat()
            assert found.region.pending is None
            await found.beat()

    run(before)
    run(after)
    assert [update.samples for update in parent.applied.values()] == [10, 20]
    assert parent.offered == [(4, 1)] * 3 + [(4, 2)]
    assert parent.registrations == 1, "a region that registers anew could not ask what became of its push"


@pytest.mark.parametrize("reason", ["too-stale", "head-reset"])
def test_a_push_that_is_refused_is_told_as_lost_and_the_region_goes_on(tmp_path: Path, reason: str) -> None:
    async def work() -> None:
        async with region(tmp_path) as found:
            await begun(found)
            await found.push()
            old = found.learner.head.step
            found.parent.rejection = reason
            with capture_logs() as lines:
                await found.beat()
            [line] = [line for line in lines if line["event"] == "push-lost"]
            assert (line["reason"], line["updates"]) == (reason, 1)
            assert found.updates("lost") == 1
            found.parent.rejection = ""
            late = await found.push(base_step=old)
            assert (late.outcome == pb.PushReply.REJECTED) is (reason == "head-reset")
            await found.push()
            await found.beat()
            assert found.updates("passed") == (1 if reason == "head-reset" else 2)

    run(work)


def test_a_learner_above_that_was_restored_from_an_older_copy_is_told_and_followed(tmp_path: Path) -> None:
    async def work() -> None:
        async with region(tmp_path) as found:
            await begun(found)
            await found.push()
            await found.beat()
            await found.push()
            found.parent.step = 20
            with capture_logs() as lines:
                await found.beat()
            [line] = [line for line in lines if line["event"] == "learner-above-went-back"]
            assert (line["from_step"], line["to_step"], line["given_up_updates"]) == (51, 20, 1)
            assert found.region.base_step == 20
            assert (await found.push()).outcome == pb.PushReply.APPLIED
            await found.beat()
            assert found.region.base_step == 21

    run(work)


def test_a_registration_that_is_forgotten_above_is_made_anew_and_an_open_push_is_not_risked_twice(
    tmp_path: Path,
) -> None:
    async def work() -> None:
        async with region(tmp_path) as found:
            await begun(found)
            await found.push(10)
            found.parent.lose_answers = 1
            with pytest.raises(LearnerUnreachable):
                await found.beat()
            await found.push(20)
            found.parent.incarnation += 1
            with capture_logs() as lines:
                await found.beat()
            assert [line["reason"] for line in lines if line["event"] == "push-lost"] == ["unknown"]
            await found.beat()
            assert [update.samples for update in found.parent.applied.values()] == [10, 20]

    run(work)


def test_in_quarantine_above_what_was_gathered_is_kept(tmp_path: Path) -> None:
    async def work() -> None:
        async with region(tmp_path) as found:
            await begun(found)
            await found.push()
            found.parent.rejection = "quarantined"
            with pytest.raises(LearnerRefused, match="policyctl cluster release east"):
                await found.beat()
            found.parent.rejection = ""
            await found.beat()
            assert len(found.parent.applied) == 1

    run(work)


@pytest.mark.parametrize(("place", "says"), [(0, "is this learner itself"), (1, "is a region below this one")])
def test_a_loop_is_refused_before_anything_is_pushed(tmp_path: Path, place: int, says: str) -> None:
    async def work() -> None:
        async with region(tmp_path) as found:
            own = found.learner.lineage[0]
            found.parent.fleets = (own,) if place == 0 else ("other", own)
            with pytest.raises(LearnerRefused, match=says) as caught:
                await found.beat()
            assert "\n" not in str(caught.value)
            assert found.region.base_step is None

    run(work)


def test_a_learner_above_that_works_in_rounds_is_refused(tmp_path: Path) -> None:
    async def work() -> None:
        async with region(tmp_path) as found:
            found.parent.rounds = True
            with pytest.raises(LearnerRefused, match="works in rounds"):
                await found.beat()

    run(work)


def test_a_version_without_a_signature_is_not_taken_and_told_above(tmp_path: Path) -> None:
    async def work() -> None:
        async with region(tmp_path) as found:
            found.parent.assigned = 2
            with pytest.raises(LearnerRefused, match="of the learner above: v2 comes without a signature"):
                await found.beat()
            found.parent.assigned = 0
            await found.beat()
            status = found.parent.statuses[-1]
            assert (status.refused_version, status.refused_reason) == (2, "unusable")
            assert (await found.caller.fleet()).latest_version == 1

    run(work)


def test_the_head_of_a_region_is_not_reset_there_and_no_version_judged(tmp_path: Path) -> None:
    async def work() -> None:
        async with region(tmp_path) as found:
            await begun(found)
            refused = await found.caller.refused("ResetHead", pb.ResetHeadRequest(version=1))
            assert refused is grpc.StatusCode.INVALID_ARGUMENT
            refused = await found.caller.refused("StartRollout", pb.StartRolloutRequest(version=1))
            assert refused is grpc.StatusCode.FAILED_PRECONDITION

    run(work)


def test_a_learner_that_becomes_a_region_and_no_region_again_goes_on(tmp_path: Path) -> None:
    parent = Parent()

    async def alone(sequence: int) -> int:
        async with serving(tmp_path, durability={"snapshot_every_steps": 4}) as caller:
            registered = await caller.register()
            for number in range(sequence, sequence + 3):
                step = caller.learner.head.step
                reply = await caller.push(number, base_step=step, incarnation=registered.incarnation)
                assert reply.outcome == pb.PushReply.APPLIED, reply.reason
            return caller.learner.head.step

    async def below() -> None:
        async with region(tmp_path, parent) as found:
            registered = await found.caller.register()
            await found.beat()
            assert np.array_equal(found.learner.head.weights, vector(50))
            before = found.learner.head.step
            stale = await found.caller.push(1, base_step=before - 1, incarnation=registered.incarnation)
            assert stale.reason == "head-reset"
            await found.caller.push(2, base_step=before, incarnation=registered.incarnation)
            await found.beat()
            assert [update.statistics["updates"] for update in parent.applied.values()] == [1]
            assert found.learner.head.step > before

    async def work() -> None:
        assert await alone(1) == 3
        await below()
        assert await alone(10) > 6
        await below_again()

    async def below_again() -> None:
        async with region(tmp_path, parent) as found:
            await found.beat()
            assert found.region.base_step == parent.step
            assert parent.registrations == 2, "what it knew of the learner above went with the region"

    run(work)


def test_what_goes_wrong_has_one_line_and_is_tried_again(tmp_path: Path) -> None:
    async def work() -> None:
        async with region(tmp_path) as found:
            found.parent.fleets = found.learner.lineage
            with capture_logs() as lines:
                waits = [await found.uplink.attempt() for _ in range(5)]
            assert [line["event"] for line in lines if line["log_level"] == "error"] == ["learner-above-refused"]
            assert "a loop" in found.uplink.fault
            assert all(wait > 0.0 for wait in waits)
            found.parent.fleets = ("root",)
            await found.uplink.attempt()
            assert found.uplink.fault == ""

    run(work)


def test_what_clusters_saw_of_speeds_goes_up_merged_when_it_is_new(tmp_path: Path) -> None:
    def seen(mean: float) -> SpeedStatistic:
        return SpeedStatistic("bert", JobKind.PS, 1, 2, mean, 5)

    async def work() -> None:
        async with region(tmp_path) as found:
            await found.beat()
            for number, cluster in enumerate(("north", "south"), start=1):
                incarnation = (await found.caller.register(cluster)).incarnation
                report = pb.ShareBeliefsRequest(
                    cluster=cluster,
                    incarnation=incarnation,
                    revision=1,
                    types=type_messages([seen(2.0 + number / 100)]),
                )
                await found.caller.call("ShareBeliefs", report)
            for _ in range(20):
                await found.beat()
            [(incarnation, revision, statistics)] = found.parent.reported
            assert incarnation == found.parent.incarnation
            [entry] = statistics
            assert (entry.job_type, entry.ps, entry.workers) == ("bert", 1, 2)
            assert 2.0 < entry.mean_log_speed < 2.03
            empty = pb.ShareBeliefsRequest(cluster="south", incarnation=1, revision=2)
            await found.caller.call("ShareBeliefs", empty)
            for _ in range(7):
                await found.beat()
            assert len(found.parent.reported) == 2
            assert found.parent.reported[1][1] > revision, "else the learner above would take it for an old one"

    run(work)


def test_policyctl_fleet_says_how_a_region_stands(tmp_path: Path) -> None:
    async def work() -> None:
        async with region(tmp_path) as found:
            assert (await found.caller.fleet()).upstream.seconds_since_heard == -1.0
            await begun(found)
            await found.push()
            found.parent.lose_answers = 1
            with pytest.raises(LearnerUnreachable):
                await found.beat()
            await found.push()
            view = (await found.caller.fleet()).upstream
            assert (view.name, view.base_step, view.waiting_updates, view.open_push_updates) == ("east", 50, 1, 1)

    run(work)
