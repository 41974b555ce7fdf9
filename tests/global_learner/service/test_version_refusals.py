"""Refusals of versions as heartbeats tell them: one line in the audit log each, and never a flood of them."""

from __future__ import annotations

from pathlib import Path

import structlog.testing
from learner_in_process import serving

from global_learner.errors import DiskFull
from global_learner.registry.version_words import PASSING_REFUSALS, refused_words
from global_learner.service.heartbeats import VersionRefusals
from global_learner.telemetry import LearnerTelemetry
from policy_net.exchange.generated import fleet_pb2 as pb
from policy_net.exchange.signed_documents import VERSION_REFUSALS


class Learner:
    """Notes refusals while there is room, on a clock that is set by hand."""

    def __init__(self) -> None:
        self.now = 0.0
        self.full = False
        self.noted: list[tuple[str, int, str]] = []
        self.telemetry = LearnerTelemetry()
        self.refusals = VersionRefusals(self._note, self.telemetry, lambda: self.now)

    async def _note(self, cluster: str, version: int, reason: str) -> None:
        if self.full:
            raise DiskFull("no room")
        self.noted.append((cluster, version, reason))

    async def reported(self, version: int, reason: str, cluster: str = "north") -> None:
        await self.refusals.on_status(cluster, pb.ClusterStatus(refused_version=version, refused_reason=reason))

    def counted(self, word: str) -> float:
        return self.telemetry.refused_versions.labels(word)._value.get()


async def test_what_is_told_again_and_again_is_noted_and_counted_once() -> None:
    learner = Learner()
    for _ in range(50):
        await learner.reported(3, "bad-signature")
        await learner.reported(3, "bad-signature", cluster="south")
    assert learner.noted == [("north", 3, "bad-signature"), ("south", 3, "bad-signature")]
    assert learner.counted("bad-signature") == 2
    await learner.reported(3, "expired")
    await learner.reported(0, "")
    await learner.reported(3, "expired")
    assert learner.noted[2:] == [("north", 3, "expired")], "the same refusal after a pause is counted, not noted"
    assert learner.counted("expired") == 2


async def test_the_metric_says_which_cluster_refuses_what_now() -> None:
    learner = Learner()

    def shown() -> dict[tuple[str, str], float]:
        (metric,) = learner.telemetry.cluster_refused_version.collect()
        return {(sample.labels["cluster"], sample.labels["reason"]): sample.value for sample in metric.samples}

    await learner.reported(0, "")
    assert shown() == {}
    await learner.reported(16, "expired")
    await learner.reported(16, "expired", cluster="south")
    assert shown() == {("north", "expired"): 16.0, ("south", "expired"): 16.0}
    await learner.reported(17, "made-up")
    await learner.reported(0, "", cluster="south")
    assert shown() == {("north", "other"): 17.0}


def test_every_word_of_an_agent_has_advice() -> None:
    for word in VERSION_REFUSALS:
        assert refused_words(16, word).startswith(f"refused v16: {word}; ")
    assert PASSING_REFUSALS.issubset(VERSION_REFUSALS)
    assert refused_words(16, "made-up") == "refused v16: made-up"


async def test_a_full_disk_costs_no_heartbeat_and_the_line_is_written_later() -> None:
    learner = Learner()
    learner.full = True
    with structlog.testing.capture_logs() as logs:
        await learner.reported(3, "unusable")
    assert [line["event"] for line in logs] == ["version-refused", "refusal-not-noted"]
    assert learner.noted == []
    learner.full = False
    await learner.reported(3, "unusable")
    assert learner.noted == [("north", 3, "unusable")]
    assert learner.counted("unusable") == 1


async def test_a_cluster_that_makes_refusals_up_is_slowed_down_and_harms_no_other() -> None:
    learner = Learner()
    for number in range(1, 1001):
        await learner.reported(number, "unusable")
    assert len(learner.noted) == 20
    await learner.reported(7, "expired", cluster="south")
    assert learner.noted[-1] == ("south", 7, "expired")
    learner.now += 60.0
    await learner.reported(1000, "unusable")
    assert learner.noted[-1] == ("north", 1000, "unusable"), "what it still refuses is written in the end"


async def test_a_word_that_nobody_knows_is_other() -> None:
    learner = Learner()
    for word in ("made-up", "made-up-too"):
        await learner.reported(1, word)
    assert learner.noted == [("north", 1, "other")]
    assert learner.counted("other") == 2


async def test_a_refusal_in_a_heartbeat_becomes_a_line_of_the_audit_log(tmp_path: Path) -> None:
    async with serving(tmp_path) as caller:
        incarnation = (await caller.register()).incarnation
        for version, reason in (
            (1, "bad-signature"),
            (1, "bad-signature"),
            (0, ""),
            (1, "bad-signature"),
            (9, "expired"),
        ):
            status = pb.ClusterStatus(refused_version=version, refused_reason=reason)
            beat = pb.HeartbeatRequest(cluster="north", incarnation=incarnation, status=status)
            assert (await caller.call("Heartbeat", beat)).assigned_version == 1
        entries = (await caller.call("ListAudit", pb.ListAuditRequest())).entries
        assert [(line.log, line.number, line.actor, line.action, line.subject, line.detail) for line in entries] == [
            ("versions", 1, "north", "version-refused", "north", "v1: bad-signature")
        ]
        assert (await caller.fleet()).clusters[0].status.refused_version == 9
