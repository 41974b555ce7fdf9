"""Assigning, pinning and looking back, over the real service."""

import asyncio
from itertools import pairwise
from pathlib import Path

import grpc
import numpy as np
import pytest
import structlog.testing
from learner_in_process import serving, versions_until
from learner_makers import SPEC, policy

from global_learner.policyctl.views import fleet_facts, fleet_table
from global_learner.report.content import report_content
from global_learner.storage.audit import KEEPER
from policy_net.exchange.generated import fleet_pb2 as pb
from policy_net.exchange.policy_file import digest_of, parse_policy_file
from policy_net.exchange.spec import PolicySpec, weights_from_bytes


async def assign(caller, version: int, *clusters: str):
    request = pb.AssignVersionRequest(version=version, clusters=clusters, all=not clusters)
    return list((await caller.call("AssignVersion", request)).assignments)


async def assigned(caller, cluster: str = "north", incarnation: int = 1) -> int:
    return (
        await caller.call("Heartbeat", pb.HeartbeatRequest(cluster=cluster, incarnation=incarnation))
    ).assigned_version


async def with_versions(caller, count: int, *clusters: str) -> None:
    for cluster in clusters:
        await caller.register(cluster)
    for number in range(1, count):
        await caller.push(number, cluster=clusters[0], base_step=number - 1)
    await versions_until(caller, count)


async def test_a_cluster_acts_on_what_it_was_assigned_from_its_next_heartbeat_on(tmp_path: Path) -> None:
    async with serving(tmp_path, publish={"every_steps": 1}) as caller:
        await with_versions(caller, 3, "north", "south")
        (done,) = await assign(caller, 2, "north")
        assert (done.cluster, done.from_version, done.to_version, done.held) == ("north", 1, 2, True)
        assert await assigned(caller, "north") == 2
        assert await assigned(caller, "south") == 1
        assert [entry.from_version for entry in await assign(caller, 3)] == [2, 1]
        assert (await caller.register("south")).assigned_version == 3
        views = (await caller.fleet()).clusters
        assert [(view.assigned_version, view.held) for view in views] == [(3, True), (3, True)]
    async with serving(tmp_path) as again:
        assert [view.assigned_version for view in (await again.fleet()).clusters] == [3, 3]
        await assign(again, 0, "north")
        assert [(v.assigned_version, v.held) for v in (await again.fleet()).clusters] == [(1, False), (3, True)]
        lines = [
            (line.actor, line.action, line.subject, line.detail)
            for line in (await again.call("ListAudit", pb.ListAuditRequest())).entries
        ]
        assert lines == [
            ("operator", "assigned", "north", "v1 to v2"),
            ("operator", "assigned", "north", "v2 to v3"),
            ("operator", "assigned", "south", "v1 to v3"),
            ("operator", "unassigned", "north", "v3 to v1"),
        ]
        last = (await again.call("ListAudit", pb.ListAuditRequest())).entries[-1].unix_seconds
        late = await again.call("ListAudit", pb.ListAuditRequest(since_unix_seconds=last))
        assert [line.action for line in late.entries] == ["unassigned"]


@pytest.mark.parametrize("auto_assign", [False, True])
async def test_who_goes_back_is_held_only_where_auto_assign_would_move_it_on(tmp_path: Path, auto_assign: bool) -> None:
    async with serving(tmp_path, publish={"every_steps": 1}) as caller:
        await with_versions(caller, 3, "north", "south")
        await assign(caller, 2, "north")
        await assign(caller, 3, "north")
        await assign(caller, 0, "north")
    async with serving(tmp_path, publish={"every_steps": 1, "auto_assign": auto_assign}) as again:
        request = pb.RollBackRequest(all=True, reason="v1 knows too little")
        north, south = (await again.call("RollBack", request)).assignments
        assert (north.from_version, north.to_version, north.held) == (1, 3, auto_assign)
        assert (south.from_version, south.to_version, south.held) == (1, 1, False)
        assert [(v.assigned_version, v.held) for v in (await again.fleet()).clusters] == [(3, auto_assign), (1, False)]
        entries = (await again.call("ListAudit", pb.ListAuditRequest())).entries
        assert (entries[-1].action, entries[-1].detail) == ("rolled-back", "v1 to v3: v1 knows too little")
        assert (await again.register("north")).assigned_version == 3


async def test_what_an_operator_assigned_holds_against_auto_assign_until_it_is_taken_back(tmp_path: Path) -> None:
    async with serving(tmp_path, publish={"every_steps": 1, "auto_assign": True}) as caller:
        await with_versions(caller, 2, "north", "south")
        assert await assigned(caller, "north") == 2
        await assign(caller, 1, "north")
        await caller.push(2, base_step=1)
        await versions_until(caller, 3)
        assert (await assigned(caller, "north"), await assigned(caller, "south")) == (1, 3)
        assert (await caller.register("north")).assigned_version == 1
        (back,) = await assign(caller, 0, "north")
        assert (back.to_version, back.held) == (3, False)


@pytest.mark.heavy
@pytest.mark.parametrize(
    ("version", "clusters", "every", "code"),
    [
        (9, ["north"], False, grpc.StatusCode.NOT_FOUND),
        (2**64 - 1, ["north"], False, grpc.StatusCode.NOT_FOUND),
        (2, ["north", "nowhere"], False, grpc.StatusCode.NOT_FOUND),
        (2, ["NO NAME"], False, grpc.StatusCode.INVALID_ARGUMENT),
        (2, [], False, grpc.StatusCode.INVALID_ARGUMENT),
        (2, ["north"], True, grpc.StatusCode.INVALID_ARGUMENT),
    ],
)
async def test_a_bad_assignment_changes_nothing(tmp_path: Path, version, clusters, every, code) -> None:
    async with serving(tmp_path, publish={"every_steps": 1}) as caller:
        await with_versions(caller, 2, "north")
        request = pb.AssignVersionRequest(version=version, clusters=clusters, all=every)
        assert await caller.refused("AssignVersion", request) is code
        assert await assigned(caller) == 1
        assert not (await caller.call("ListAudit", pb.ListAuditRequest())).entries


async def test_a_version_that_retention_removed_meanwhile_cannot_be_assigned(tmp_path: Path) -> None:
    async with serving(tmp_path, publish={"every_steps": 1, "keep_versions": 1}) as caller:
        await with_versions(caller, 5, "north")
        cards = (await caller.call("ListVersions", pb.ListVersionsRequest())).versions
        assert [card.kept for card in cards] == [True, False, False, True, True]
        assert await caller.refused("AssignVersion", pb.AssignVersionRequest(version=3, all=True)) is (
            grpc.StatusCode.NOT_FOUND
        )
        assert await assigned(caller) == 1
        await assign(caller, 4, "north")
        await caller.push(5, base_step=4)
        await versions_until(caller, 6)
        cards = (await caller.call("ListVersions", pb.ListVersionsRequest())).versions
        assert cards[3].kept, "what is assigned stays"


async def test_a_damaged_version_cannot_be_assigned(tmp_path: Path) -> None:
    async with serving(tmp_path, publish={"every_steps": 1}) as caller:
        await with_versions(caller, 2, "north")
        card = (await caller.call("ListVersions", pb.ListVersionsRequest())).versions[1]
        path = tmp_path / "state" / "policies" / f"{card.digest}.safetensors"
        data = bytearray(path.read_bytes())
        data[-7] ^= 1
        path.write_bytes(data)
        assert (
            await caller.refused("AssignVersion", pb.AssignVersionRequest(version=2, all=True))
            is grpc.StatusCode.DATA_LOSS
        )
        assert await assigned(caller) == 1


async def test_two_operators_at_once_are_one_after_the_other(tmp_path: Path) -> None:
    async with serving(tmp_path, publish={"every_steps": 1}) as caller:
        await with_versions(caller, 3, "north")
        wanted = [2, 3] * 10
        done = await asyncio.gather(*(assign(caller, version, "north") for version in wanted))
        moves = [(entry.from_version, entry.to_version) for (entry,) in done]
        lines = (await caller.call("ListAudit", pb.ListAuditRequest())).entries
        chain = [line.detail for line in lines]
        assert all(f"v{a} to v{b}" in chain for a, b in moves if a != b)
        versions = [1, *(int(line.rpartition("v")[2]) for line in chain)]
        assert chain == [f"v{a} to v{b}" for a, b in pairwise(versions)], "a chain without gaps"
        assert await assigned(caller) == versions[-1]
    async with serving(tmp_path) as again:
        assert (await again.fleet()).clusters[0].assigned_version == versions[-1]


async def test_a_card_says_where_a_version_comes_from(tmp_path: Path) -> None:
    async with serving(tmp_path, publish={"every_steps": 4}) as caller:
        await caller.register("north")
        await caller.register("south")
        await caller.push(1, base_step=0)
        await caller.push(1, cluster="south", base_step=0)
        await caller.push(2, base_step=0)
        await caller.push(3, base_step=99)
        await caller.push(2, cluster="south", base_step=3)
        first, second = await versions_until(caller, 2)
    assert (first.details.origin, first.details.policy, first.parent) == ("first policy", "dl2", 0)
    assert (second.details.origin, second.details.aggregation, second.parent) == ("trained", "async", 1)
    assert dict(second.contributions) == {"north": 2, "south": 2}
    assert (second.staleness_p50, second.details.staleness_p90, second.details.staleness_max) == (0.5, 2.0, 2)
    assert dict(second.details.rejections) == {"ahead-of-head": 1}
    assert second.spec_digest == SPEC.digest
    assert second.head_size_bytes > 3 * 4 * SPEC.parameter_count
    assert second.kept
    assert not second.pinned


async def test_a_damaged_file_of_an_idle_version_is_said_and_put_back_while_all_others_are_served(
    tmp_path: Path,
) -> None:
    async with serving(tmp_path, publish={"every_steps": 1}) as caller:
        await with_versions(caller, 4, "north")
        await assign(caller, 3, "north")
        cards = {card.version: card for card in (await caller.call("ListVersions", pb.ListVersionsRequest())).versions}
        file = tmp_path / "state" / "policies" / f"{cards[2].digest}.safetensors"
        whole = file.read_bytes()
    file.write_bytes(whole[:-3])
    registry = {"every_steps": 1}
    with structlog.testing.capture_logs() as logs:
        async with serving(tmp_path, publish=registry) as again:
            count = "fedl2_learner_damaged_version_files_count"

            def damaged() -> float | None:
                return again.learner.telemetry.registry.get_sample_value(count)

            assert damaged() == 1.0
            fleet = await again.fleet()
            assert [(entry.version, entry.is_head) for entry in fleet.damaged_files] == [(2, False)]
            said = "v2: its policy file is damaged or gone; put a copy back: `policyctl version restore v2 --from FILE`"
            report = await again.call("GetReport", pb.GetReportRequest())
            assert said in report_content(report)["attention"]
            assert said in fleet_table(fleet_facts(fleet)).below

            # What runs needs none of it.
            assert digest_of((await again.call("FetchPolicy", pb.FetchPolicyRequest(version=3))).policy_file)
            await again.register("north")
            assert await assigned(again, incarnation=2) == 3
            await again.push(1, incarnation=2, base_step=3)
            await versions_until(again, 5)
            assert await again.refused("FetchPolicy", pb.FetchPolicyRequest(version=2)) is grpc.StatusCode.DATA_LOSS
            assert await again.refused("AssignVersion", pb.AssignVersionRequest(version=2, all=True))

            other = pb.RestoreVersionRequest(version=2, file=whole + b" ")
            assert await again.refused("RestoreVersion", other) is grpc.StatusCode.INVALID_ARGUMENT
            wrong = pb.RestoreVersionRequest(version=3, file=whole)
            assert await again.refused("RestoreVersion", wrong) is grpc.StatusCode.INVALID_ARGUMENT
            assert damaged() == 1.0
            request = pb.RestoreVersionRequest(version=2, file=whole, reason="from the backup")
            assert (await again.call("RestoreVersion", request)).changed
            assert not (await again.call("RestoreVersion", request)).changed
            assert damaged() == 0.0
            assert file.read_bytes() == whole
            fetched = await again.call("FetchPolicy", pb.FetchPolicyRequest(version=2))
            assert fetched.policy_file == whole
            lines = (await again.call("ListAudit", pb.ListAuditRequest())).entries
            found = [(line.subject, line.detail) for line in lines if line.action == "restored"]
            assert found == [("v2", "policy file: from the backup")]
    assert [line["version"] for line in logs if line["event"] == "version-file-damaged"] == [2]
    async with serving(tmp_path) as healed:
        assert not (await healed.fleet()).damaged_files


async def test_moments_that_are_damaged_are_put_back_too(tmp_path: Path) -> None:
    async with serving(tmp_path, publish={"every_steps": 1}) as caller:
        await with_versions(caller, 3, "north")
    (file, *_) = (tmp_path / "state" / "heads").iterdir()
    whole = file.read_bytes()
    file.unlink()
    async with serving(tmp_path) as again:
        ((version, is_head),) = [(entry.version, entry.is_head) for entry in (await again.fleet()).damaged_files]
        assert is_head
        assert await again.refused("ResetHead", pb.ResetHeadRequest(version=version)) is grpc.StatusCode.DATA_LOSS
        request = pb.RestoreVersionRequest(version=version, file=whole)
        assert (await again.call("RestoreVersion", request)).changed
        assert (await again.call("ResetHead", pb.ResetHeadRequest(version=version))).moments_kept


async def test_a_damaged_file_of_a_version_in_use_costs_no_other_cluster_anything(tmp_path: Path) -> None:
    async with serving(tmp_path, publish={"every_steps": 1}) as caller:
        await with_versions(caller, 3, "north")
        await assign(caller, 2, "north")
        cards = {card.version: card for card in (await caller.call("ListVersions", pb.ListVersionsRequest())).versions}
        head = await caller.call("PullHead", pb.PullHeadRequest(cluster="north", incarnation=1))
    file = tmp_path / "state" / "policies" / f"{cards[2].digest}.safetensors"
    whole = file.read_bytes()
    file.unlink()
    async with serving(tmp_path, publish={"every_steps": 1}) as again:
        assert [entry.version for entry in (await again.fleet()).damaged_files] == [2]
        await again.register("south")
        assert (await again.call("FetchPolicy", pb.FetchPolicyRequest(version=1))).policy_file
        await again.register("north")
        # It keeps what it is assigned, and the head is where it was, moments and all.
        assert await assigned(again, incarnation=2) == 2
        assert await again.refused("FetchPolicy", pb.FetchPolicyRequest(version=2)) is grpc.StatusCode.DATA_LOSS
        pulled = await again.call("PullHead", pb.PullHeadRequest(cluster="north", incarnation=2))
        assert (pulled.step, pulled.weights) == (head.step, head.weights)
        await again.push(1, incarnation=2, base_step=head.step)
        await versions_until(again, 4)

        # Who acts on it has the file, and is asked for it; nobody else is, and no other file is taken.
        beat = pb.HeartbeatRequest(cluster="south", incarnation=1, status=pb.ClusterStatus(acting_version=1))
        assert (await again.call("Heartbeat", beat)).lost_digest == ""
        beat = pb.HeartbeatRequest(cluster="north", incarnation=2, status=pb.ClusterStatus(acting_version=2))
        assert (await again.call("Heartbeat", beat)).lost_digest == cards[2].digest
        other = pb.ReturnPolicyRequest(cluster="north", incarnation=2, policy_file=whole + b" ")
        assert not (await again.call("ReturnPolicy", other)).taken
        stranger = pb.ReturnPolicyRequest(cluster="east", incarnation=1, policy_file=whole)
        assert await again.refused("ReturnPolicy", stranger) is grpc.StatusCode.FAILED_PRECONDITION
        assert not file.exists()
        back = pb.ReturnPolicyRequest(cluster="north", incarnation=2, policy_file=whole)
        assert (await again.call("ReturnPolicy", back)).taken
        assert file.read_bytes() == whole
        assert not (await again.fleet()).damaged_files
        assert (await again.call("Heartbeat", beat)).lost_digest == ""
        assert not (await again.call("ReturnPolicy", back)).taken
        lines = (await again.call("ListAudit", pb.ListAuditRequest())).entries
        found = [(line.actor, line.subject, line.detail) for line in lines if line.action == "restored"]
        assert found == [(KEEPER, "v2", "policy file: the copy of cluster north")]


async def test_v1_is_made_whole_from_the_initial_policy(tmp_path: Path) -> None:
    async with serving(tmp_path) as caller:
        first = (await caller.call("ShowVersion", pb.ShowVersionRequest(version=1))).card
    file = tmp_path / "state" / "policies" / f"{first.digest}.safetensors"
    whole = file.read_bytes()
    file.write_bytes(b"")
    async with serving(tmp_path) as again:
        assert not (await again.fleet()).damaged_files
    assert file.read_bytes() == whole


async def test_a_policy_from_elsewhere_becomes_a_version_that_nothing_acts_on(tmp_path: Path) -> None:
    offline = policy(SPEC, seed=5)
    other = policy(PolicySpec(jobs_per_batch=2, type_columns=1, hidden=(2,))).to_bytes()
    async with serving(tmp_path, publish={"every_steps": 2}) as caller:
        await caller.register("north")
        await caller.push(1)
        request = pb.PublishVersionRequest(policy_file=offline.to_bytes(), note="six weeks of the old trace")
        card = (await caller.call("PublishVersion", request)).card
        # It takes step 2, at which a version of the head would have been due: that comes two steps later.
        assert (card.version, card.head_step, card.parent, card.details.origin) == (2, 2, 1, "published by hand")
        assert (card.note.text, card.note.actor) == ("six weeks of the old trace", "operator")
        fetched = await caller.call("FetchPolicy", pb.FetchPolicyRequest(version=2))
        assert np.array_equal(parse_policy_file(fetched.policy_file, "v2").weights, offline.weights)
        assert fetched.signed.signatures
        assert await assigned(caller) == 1
        head = await caller.call("PullHead", pb.PullHeadRequest(cluster="north", incarnation=1))
        assert head.step == 2
        assert not np.array_equal(weights_from_bytes(head.weights, SPEC), offline.weights)
        for number in (2, 3):
            reply = await caller.push(number, base_step=2)
            assert reply.outcome == pb.PushReply.APPLIED
        third = (await versions_until(caller, 3))[-1]
        assert (third.head_step, third.parent) == (4, 1)  # the head does not descend from what came from elsewhere
        for bad in (
            pb.PublishVersionRequest(policy_file=b"none"),
            pb.PublishVersionRequest(),
            pb.PublishVersionRequest(policy_file=offline.to_bytes(), note="two\nlines"),
            pb.PublishVersionRequest(policy_file=other),
        ):
            assert await caller.refused("PublishVersion", bad) is grpc.StatusCode.INVALID_ARGUMENT
        learned = (await caller.call("PullHead", pb.PullHeadRequest(cluster="north", incarnation=1))).weights
    async with serving(tmp_path, publish={"every_steps": 2}) as again:
        assert [card.version for card in (await again.call("ListVersions", pb.ListVersionsRequest())).versions] == [
            1, 2, 3,
        ]  # fmt: skip
        await again.register("north")
        head = await again.call("PullHead", pb.PullHeadRequest(cluster="north", incarnation=2))
        assert (head.step, head.weights) == (4, learned)
        lines = (await again.call("ListAudit", pb.ListAuditRequest())).entries
        assert [line.action for line in lines] == ["published", "noted"]
        done = await again.call("ResetHead", pb.ResetHeadRequest(version=2))
        assert (done.head_step, done.moments_kept, done.changed) == (5, False, True)
