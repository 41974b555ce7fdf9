"""The whole learner on a loopback port, in this process."""

import asyncio
import errno
from pathlib import Path

import grpc
import numpy as np
import pytest
import structlog
from folding_clock import FoldingClock
from learner_in_process import CALL_SECONDS, serving, versions_until
from learner_makers import SPEC, policy, update, vector

from global_learner.policyctl.views import fleet_facts, fleet_table
from global_learner.storage.receipts import read_receipts
from policy_net.exchange.generated import fleet_pb2 as pb
from policy_net.exchange.policy_file import digest_of, parse_policy_file
from policy_net.exchange.spec import PolicySpec, weights_from_bytes
from policy_net.exchange.wire import push_request

OF_TWO_JOBS = SPEC.model_copy(update={"jobs_per_batch": 2})
"""A spec of another J."""


async def test_a_cluster_registers_and_gets_spec_and_first_version(tmp_path: Path) -> None:
    async with serving(tmp_path) as caller:
        reply = await caller.register()
        assert (reply.incarnation, reply.head_step, reply.assigned_version, reply.learning) == (1, 0, 1, True)
        assert PolicySpec.from_json(reply.spec_json).digest == reply.spec_digest == SPEC.digest
        assert (await caller.register(spec_digest=SPEC.digest)).incarnation == 2


async def test_two_agents_of_one_name_are_said_once_in_the_log_and_shown_while_it_lasts(tmp_path: Path) -> None:
    async with serving(tmp_path) as caller:
        clock = FoldingClock()
        caller.learner.fleet.clock = clock
        agents = [(await caller.register()).incarnation, (await caller.register()).incarnation]
        with structlog.testing.capture_logs() as lines:
            for number in range(8):
                clock.now += 2.0
                asked = pb.HeartbeatRequest(cluster="north", incarnation=agents[number % 2], status=pb.ClusterStatus())
                assert (await caller.call("Heartbeat", asked)).reregister
                agents[number % 2] = (await caller.register()).incarnation
        (said,) = [line for line in lines if line["event"] == "cluster-name-contested"]
        assert said["error"] == "two agents call themselves north, and take the name from each other"
        count = "fedl2_learner_contested_clusters_count"
        for passes, remark in ((0.0, "two agents call themselves north"), (700.0, "")):
            clock.now += passes
            row = fleet_table(fleet_facts(await caller.fleet())).rows[0]
            assert ("two agents" in row[-1]) == bool(remark)
            assert remark in row[-1]
            assert caller.learner.telemetry.registry.get_sample_value(count) == float(bool(remark))


async def test_the_head_is_pulled_whole_and_not_again_while_unchanged(tmp_path: Path) -> None:
    async with serving(tmp_path) as caller:
        await caller.register()
        first = await caller.call("PullHead", pb.PullHeadRequest(cluster="north", incarnation=1))
        assert np.array_equal(weights_from_bytes(first.weights, SPEC), policy().weights)
        again = await caller.call(
            "PullHead", pb.PullHeadRequest(cluster="north", incarnation=1, have=True, have_step=0)
        )
        assert again.unchanged
        assert again.weights == b""


async def test_a_push_moves_the_head_once_however_often_it_is_offered(tmp_path: Path) -> None:
    async with serving(tmp_path) as caller:
        await caller.register()
        first = await caller.push(1, want_weights=True)
        assert (first.outcome, first.head_step, first.staleness) == (pb.PushReply.APPLIED, 1, 0)
        for _ in range(3):
            again = await caller.push(1, want_weights=True)
            assert (again.outcome, again.head_step) == (pb.PushReply.DUPLICATE, 1)
            assert again.weights == first.weights
        (view,) = (await caller.fleet()).clusters
        assert (view.updates_accepted, view.updates_duplicate) == (1, 3)


async def test_pushes_at_the_same_time_are_all_applied_in_one_order(tmp_path: Path) -> None:
    async with serving(tmp_path) as caller:
        for name in ("north", "south", "east"):
            await caller.register(name)
        replies = await asyncio.gather(
            *(caller.push(n, cluster=name) for name in ("north", "south", "east") for n in range(1, 11))
        )
        assert sorted(reply.head_step for reply in replies) == list(range(1, 31))
        assert (await caller.fleet()).updates_accepted == 30


async def test_a_rejection_names_its_reason_is_counted_and_moves_nothing(tmp_path: Path) -> None:
    async with serving(tmp_path) as caller:
        await caller.register()
        bad = vector(1)
        bad[0] = np.nan
        reply = await caller.push(1, gradient=bad, want_weights=True)
        assert (reply.outcome, reply.reason, reply.head_step) == (pb.PushReply.REJECTED, "not-finite", 0)
        assert reply.weights == policy().weights.tobytes()
        assert (await caller.push(2, incarnation=5)).reason == "unknown-incarnation"
        assert (await caller.push(3, cluster="nobody")).reason == "unknown-incarnation"
        fleet = await caller.fleet()
        assert (fleet.head_step, fleet.updates_accepted, fleet.updates_rejected) == (0, 0, 2)
        assert dict(fleet.clusters[0].updates_rejected) == {"not-finite": 1, "unknown-incarnation": 1}
        assert (await caller.push(1)).outcome == pb.PushReply.APPLIED


async def test_an_older_incarnation_is_told_to_register_again(tmp_path: Path) -> None:
    async with serving(tmp_path) as caller:
        await caller.register()
        await caller.register()
        old = await caller.call("Heartbeat", pb.HeartbeatRequest(cluster="north", incarnation=1))
        new = await caller.call("Heartbeat", pb.HeartbeatRequest(cluster="north", incarnation=2))
        assert (old.reregister, new.reregister) == (True, False)
        request = pb.PullHeadRequest(cluster="north", incarnation=1)
        assert await caller.refused("PullHead", request) is grpc.StatusCode.FAILED_PRECONDITION


async def test_a_version_appears_every_so_many_steps_and_clusters_stay_on_v1(tmp_path: Path) -> None:
    async with serving(tmp_path, publish={"every_steps": 3, "average_decay": 0.0}) as caller:
        await caller.register()
        await caller.register("south")
        for n in range(1, 8):
            last = await caller.push(n, cluster="north" if n % 2 else "south", base_step=n - 1, want_weights=n == 6)
            if n == 6:
                at_six = last.weights
        cards = await versions_until(caller, 3)
        assert [(card.version, card.head_step, card.parent, card.updates) for card in cards] == [
            (1, 0, 0, 0),
            (2, 3, 1, 3),
            (3, 6, 2, 3),
        ]
        assert dict(cards[1].contributions) == {"north": 2, "south": 1}
        fetched = await caller.call("FetchPolicy", pb.FetchPolicyRequest(cluster="north", version=3))
        assert digest_of(fetched.policy_file) == fetched.digest == cards[2].digest
        assert parse_policy_file(fetched.policy_file, "v3").weights.tobytes() == at_six
        beat = await caller.call("Heartbeat", pb.HeartbeatRequest(cluster="north", incarnation=1))
        assert beat.assigned_version == 1
        shown = await caller.call("ShowVersion", pb.ShowVersionRequest(version=2))
        assert PolicySpec.from_json(shown.spec_json) == SPEC


async def test_with_auto_assign_every_cluster_is_moved_to_the_newest(tmp_path: Path) -> None:
    async with serving(tmp_path, publish={"every_steps": 1, "auto_assign": True}) as caller:
        await caller.register()
        await caller.push(1)
        await versions_until(caller, 2)
        beat = await caller.call("Heartbeat", pb.HeartbeatRequest(cluster="north", incarnation=1))
        assert beat.assigned_version == 2
        assert (await caller.register("late")).assigned_version == 2


async def test_at_rate_zero_every_version_is_v1_bit_for_bit(tmp_path: Path) -> None:
    publish = {"every_steps": 2, "average_decay": 0.9}
    async with serving(tmp_path, optimizer={"learning_rate": 0.0}, publish=publish) as caller:
        await caller.register()
        for n in range(1, 5):
            await caller.push(n)
        await versions_until(caller, 3)
        for version in (1, 2, 3):
            fetched = await caller.call("FetchPolicy", pb.FetchPolicyRequest(version=version))
            assert parse_policy_file(fetched.policy_file, "v").weights.tobytes() == policy().weights.tobytes()


async def test_with_decay_every_step_is_shorter_than_the_one_before_and_the_log_says_so(tmp_path: Path) -> None:
    async with serving(tmp_path, optimizer={"learning_rate": 1e-3, "decay_steps": 2}) as caller:
        await caller.register()
        for n in range(1, 5):
            await caller.push(n, base_step=n - 1)
    rates = [receipt.learning_rate for receipt in read_receipts(tmp_path / "state", policy().spec.digest)]
    assert rates == pytest.approx([1e-3 / (1 + step / 2) for step in range(4)])


async def test_a_restart_goes_on_with_head_assignments_and_counters(tmp_path: Path) -> None:
    async with serving(tmp_path, publish={"every_steps": 2, "auto_assign": True}) as caller:
        await caller.register()
        await caller.push(1)
        before = await caller.push(2, want_weights=True)
        await caller.push(3, samples=0)
        await versions_until(caller, 2)
    async with serving(tmp_path, publish={"every_steps": 2, "auto_assign": True}) as caller:
        again = await caller.push(2, want_weights=True)
        assert (again.outcome, again.head_step) == (pb.PushReply.DUPLICATE, 2)
        assert again.weights == before.weights
        (view,) = (await caller.fleet()).clusters
        assert (view.updates_accepted, dict(view.updates_rejected)) == (2, {"bad-samples": 1})
        assert (view.assigned_version, view.seconds_since_heard) == (2, pytest.approx(0, abs=CALL_SECONDS))
        assert (await caller.register()).incarnation == 2


async def test_a_heartbeat_is_shown_as_it_was_sent(tmp_path: Path) -> None:
    async with serving(tmp_path) as caller:
        await caller.register()
        status = pb.ClusterStatus(time_seconds=60.0, jobs_running=3, guard_interventions={"nan": 2}, finished=True)
        await caller.call("Heartbeat", pb.HeartbeatRequest(cluster="north", incarnation=1, status=status))
        (view,) = (await caller.fleet()).clusters
        assert view.status == status


@pytest.mark.parametrize(
    ("name", "request_", "status"),
    [
        ("Register", pb.RegisterRequest(cluster="Not A Name"), "INVALID_ARGUMENT"),
        ("Register", pb.RegisterRequest(cluster=""), "INVALID_ARGUMENT"),
        ("Register", pb.RegisterRequest(cluster="a" * 64), "INVALID_ARGUMENT"),
        ("Register", pb.RegisterRequest(cluster="north\n"), "INVALID_ARGUMENT"),
        ("Register", pb.RegisterRequest(cluster="north", job_types=["x" * 254]), "INVALID_ARGUMENT"),
        ("Register", pb.RegisterRequest(cluster="north", spec_digest="ab" * 32), "FAILED_PRECONDITION"),
        ("Register", pb.RegisterRequest(cluster="north", spec_digest=OF_TWO_JOBS.digest), "FAILED_PRECONDITION"),
        ("PullHead", pb.PullHeadRequest(cluster="north", incarnation=1), "FAILED_PRECONDITION"),
        ("Push", pb.PushRequest(cluster="north", gradient=b"12345"), "INVALID_ARGUMENT"),
        ("Push", pb.PushRequest(cluster="north", statistics={str(n): 0.0 for n in range(99)}), "INVALID_ARGUMENT"),
        (
            "Heartbeat",
            pb.HeartbeatRequest(cluster="north", status=pb.ClusterStatus(avg_jct_seconds=float("nan"))),
            "INVALID_ARGUMENT",
        ),
        ("FetchPolicy", pb.FetchPolicyRequest(cluster="north", version=9), "NOT_FOUND"),
        ("FetchPolicy", pb.FetchPolicyRequest(cluster="north", version=2**63 + 1), "NOT_FOUND"),
        ("ShowVersion", pb.ShowVersionRequest(version=0), "NOT_FOUND"),
        ("Poll", pb.PollRequest(cluster="north"), "FAILED_PRECONDITION"),
        ("Reply", pb.ReplyRequest(cluster="north"), "FAILED_PRECONDITION"),
    ],
)
async def test_a_call_that_cannot_be_answered_gets_its_status_in_one_line(
    tmp_path: Path, name: str, request_, status: str
) -> None:
    async with serving(tmp_path) as caller:
        assert (await caller.refused(name, request_)).name == status


async def test_a_full_fleet_takes_no_new_name_and_still_its_own(tmp_path: Path) -> None:
    async with serving(tmp_path, ingest={"max_clusters": 1}) as caller:
        await caller.register()
        status = await caller.refused("Register", pb.RegisterRequest(cluster="south"))
        assert status is grpc.StatusCode.RESOURCE_EXHAUSTED
        assert (await caller.register()).incarnation == 2


async def test_a_disk_that_refuses_ends_the_learner_and_loses_nothing_acknowledged(tmp_path: Path, monkeypatch) -> None:
    async with serving(tmp_path) as caller:
        await caller.register()
        await caller.push(1)

        def failing(*_arguments):
            raise OSError(errno.EIO, "Input/output error")

        monkeypatch.setattr(caller.learner.log, "_sync", failing)
        status = await caller.refused("Push", push_request(update(2), want_weights=False))
        assert status is grpc.StatusCode.UNAVAILABLE
        assert "Input/output error" in str(await asyncio.wait_for(caller.learner.failed, CALL_SECONDS))
    async with serving(tmp_path) as caller:
        assert (await caller.push(1)).outcome == pb.PushReply.DUPLICATE
