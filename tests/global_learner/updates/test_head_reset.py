"""`head reset`: the head goes on from a version, moments included, and what belongs to the old head is refused."""

import asyncio
import contextlib
import dataclasses
import json
from pathlib import Path

import grpc
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from learner_in_process import serving, versions_until
from learner_makers import SPEC, applied, policy, vector, write_segment
from learner_makers import settings as learner_settings

from global_learner.aggregation.modes import build_aggregator
from global_learner.aggregation.settings import AggregationSettings, OptimizerSettings
from global_learner.recovery import recover
from global_learner.registry.registry import Registry
from global_learner.storage.receipts import audit, read_receipts
from global_learner.storage.snapshot import AdamState, Snapshot, parse_snapshot, snapshot_parts
from global_learner.storage.state_dir import StateDir
from global_learner.storage.update_records import AppliedUpdate, UpdateKind
from global_learner.updates.head import Head
from global_learner.updates.ledger import Ledger
from policy_net.exchange.generated import fleet_pb2 as pb
from policy_net.exchange.policy_file import parse_policy_file
from policy_net.exchange.spec import weights_from_bytes
from policy_net.exchange.wire import GradientUpdate


async def reset(caller, version: int) -> pb.ResetHeadReply:
    return await caller.call("ResetHead", pb.ResetHeadRequest(version=version))


async def head(caller) -> tuple[int, bytes]:
    reply = await caller.call("PullHead", pb.PullHeadRequest(cluster="north", incarnation=1))
    return reply.step, reply.weights


def new_head(settings: AggregationSettings, average_decay: float = 0.5) -> Head:
    aggregator = build_aggregator(settings, OptimizerSettings(), SPEC)
    return Head(AdamState.start(policy().weights), Ledger(64), aggregator, average_decay)


def reset_record(step: int, target: bytes, version: int = 2, head_step: int = 0) -> AppliedUpdate:
    update = GradientUpdate("ada", 0, version, head_step, SPEC.digest, np.empty(0, np.float32), 0, 0.0)
    return AppliedUpdate(step, 0.0, 0, 1.0, update, UpdateKind.RESET, target)


def kept(head: Head) -> bytes:
    return b"".join(snapshot_parts(Snapshot(SPEC.digest, head.state.copy(), {}, {}, head.aggregator.kept())))


SETTINGS = {
    "async": AggregationSettings(),
    "median": AggregationSettings.model_validate({"mode": "buffered", "strategy": "FedMedian", "buffer": 2}),
    "adam": AggregationSettings.model_validate({"mode": "buffered", "strategy": "FedAdam", "buffer": 2}),
}


@pytest.mark.parametrize("name", SETTINGS)
@settings(max_examples=10)
@given(before=st.integers(0, 5), lost=st.integers(0, 5), after=st.integers(1, 6))
def test_after_a_reset_the_head_moves_as_if_what_came_since_had_never_been(name, before, lost, after) -> None:
    """At an even step no cohort waits, so that this holds for all modes."""
    before *= 2
    straight, detour = new_head(SETTINGS[name]), new_head(SETTINGS[name])

    def push(target: Head, first: int, count: int, seed: int = 0) -> None:
        for number in range(count):
            record = applied(
                target.step + 1,
                cluster=("north", "south")[number % 2],
                sequence=first + number,
                gradient=vector(seed + number),
                base_step=target.step,
            )
            kind = target.aggregator.kind_of_next(record.update.cluster)
            target.apply(AppliedUpdate(record.step, record.learning_rate, 1, record.unix_seconds, record.update, kind))

    for target in (straight, detour):
        push(target, 1, before)
    version = kept(detour)
    push(detour, 100, lost, seed=500)
    detour.apply(reset_record(detour.step + 1, version))
    assert detour.step == before + lost + 1
    assert detour.weights.tobytes() == straight.weights.tobytes()
    for target in (straight, detour):
        push(target, 200, after, seed=900)
    for mine, theirs in (
        (detour.weights, straight.weights),
        (detour.publishable, straight.publishable),
        (detour.state.first_moment, straight.state.first_moment),
        (detour.state.second_moment, straight.state.second_moment),
    ):
        assert mine.tobytes() == theirs.tobytes()
    assert detour.ledger.since_version.contributions.total() == after
    assert detour.ledger.since_version.parent == 2


@pytest.mark.parametrize(("lessons", "left"), [({}, 0), ({"north": 2}, 2), ({"north": 900, "away": 1}, 5)])
def test_lessons_that_a_reset_gave_up_are_counted_no_more_whatever_is_replayed(lessons, left: int) -> None:
    head = new_head(SETTINGS["async"])
    target = dataclasses.replace(parse_snapshot(kept(head), SPEC.digest, "v2"), ledger={"lessons": lessons})
    for number in range(1, 6):
        head.apply(applied(number))
    head.apply(reset_record(6, b"".join(snapshot_parts(target))))
    head.apply(applied(7))
    (found,) = Ledger.from_json(json.loads(json.dumps(head.ledger.to_json())), 64).clusters.values()
    assert (found.accepted, found.lessons) == (6, left + 1)


async def test_after_a_reset_versions_count_the_lessons_of_the_version_it_went_to(tmp_path: Path, monkeypatch) -> None:
    first = dataclasses.replace(policy(), card={"taught": {"at_once": 8, "kinds": ["ps"]}})
    monkeypatch.setattr("learner_in_process.policy", lambda _spec: first)
    async with serving(tmp_path, publish={"every_steps": 2}) as caller:
        await caller.register()
        for number in range(1, 5):
            await caller.push(number, base_step=number - 1)
        await versions_until(caller, 3)
        await reset(caller, 1)
        await caller.push(5, base_step=5)
        await versions_until(caller, 4)
        await reset(caller, 3)
        await caller.push(6, base_step=7)
        await versions_until(caller, 5)
    with contextlib.closing(Registry(tmp_path / "state")) as registry:
        found = [parse_policy_file(registry.policy_bytes(number)[1], "").card["taught"] for number in range(1, 6)]
    assert [taught.get("lessons") for taught in found] == [None, *({"north": count} for count in (2, 4, 1, 5))]


async def test_the_head_goes_back_and_steps_only_grow(tmp_path: Path) -> None:
    async with serving(tmp_path, publish={"every_steps": 2, "average_decay": 0.9}) as caller:
        await caller.register()
        heads = {}
        for number in range(1, 6):
            await caller.push(number, base_step=number - 1)
            heads[number] = (await head(caller))[1]
        await versions_until(caller, 3)
        done = await reset(caller, 2)
        assert (done.from_step, done.head_step, done.moments_kept, done.changed) == (5, 6, True, True)
        assert await head(caller) == (6, heads[2])
        again = await reset(caller, 2)
        assert (again.from_step, again.head_step, again.changed) == (6, 6, False)
        late = await caller.push(6, base_step=5, want_weights=True)
        assert (late.outcome, late.reason) == (pb.PushReply.REJECTED, "head-reset")
        assert late.weights == heads[2], "the refusal brings the new head"
        assert (await caller.push(5, base_step=4)).outcome == pb.PushReply.DUPLICATE
        fresh = await caller.push(7, base_step=6)
        assert (fresh.outcome, fresh.head_step, fresh.staleness) == (pb.PushReply.APPLIED, 7, 0)
        await caller.push(8, base_step=7)
        cards = await versions_until(caller, 4)
        # Step 6 is v2 again, and no version of its own.
        assert [(card.head_step, card.parent, card.updates) for card in cards] == [
            (0, 0, 0),
            (2, 1, 2),
            (4, 2, 2),
            (8, 2, 2),
        ]
        assert cards[-1].details.notes == "after the head was reset to v2"
        (line,) = (await caller.call("ListAudit", pb.ListAuditRequest())).entries
        assert (line.actor, line.action, line.subject) == ("operator", "head-reset", "v2")
        assert line.detail == "from step 5 to v2, now step 6"
    receipts = list(read_receipts(tmp_path / "state", SPEC.digest))
    assert [(receipt.kind, receipt.step) for receipt in receipts if receipt.kind == "reset"] == [("reset", 6)]
    assert audit(iter(receipts)) == {("north", 1): 7}


async def test_the_first_version_is_gone_back_to_without_moments(tmp_path: Path) -> None:
    async with serving(tmp_path) as caller:
        await caller.register()
        assert not (await reset(caller, 1)).changed, "the head is v1's as it is"
        await caller.push(1)
        done = await reset(caller, 1)
        assert (done.head_step, done.moments_kept) == (2, True)
        _, weights = await head(caller)
        assert np.array_equal(weights_from_bytes(weights, SPEC), policy().weights)
        assert not caller.learner.head.state.first_moment.any()


async def test_moments_that_are_no_longer_there_begin_at_zero_and_that_is_said(tmp_path: Path) -> None:
    async with serving(tmp_path, publish={"every_steps": 1}) as caller:
        await caller.register()
        await caller.push(1)
        await caller.push(2, base_step=1)
        await versions_until(caller, 3)
        registry = Registry(tmp_path / "state")
        from sqlalchemy import text

        with registry.database.transaction() as connection:  # as in a state directory of an earlier program
            connection.execute(text("update versions set head_digest = ''"))
        registry.close()
        done = await reset(caller, 2)
        assert (done.changed, done.moments_kept) == (True, False)
        assert not caller.learner.head.state.first_moment.any()


@pytest.mark.parametrize(("version", "code"), [(9, grpc.StatusCode.NOT_FOUND), (0, grpc.StatusCode.NOT_FOUND)])
async def test_a_reset_to_what_is_not_there_changes_nothing(tmp_path: Path, version: int, code) -> None:
    async with serving(tmp_path) as caller:
        await caller.register()
        await caller.push(1)
        assert await caller.refused("ResetHead", pb.ResetHeadRequest(version=version)) is code
        assert (await head(caller))[0] == 1


@pytest.mark.parametrize("folder", ["policies", "heads"])
async def test_a_flipped_byte_is_found_before_the_head_is_touched(tmp_path: Path, folder: str) -> None:
    async with serving(tmp_path, publish={"every_steps": 1}) as caller:
        await caller.register()
        await caller.push(1)
        await versions_until(caller, 2)
        await caller.push(2, base_step=1)
        await versions_until(caller, 3)
        for path in (tmp_path / "state" / folder).iterdir():
            data = bytearray(path.read_bytes())
            data[len(data) // 2] ^= 4
            path.write_bytes(data)
        before = await head(caller)
        request = pb.ResetHeadRequest(version=2)
        assert await caller.refused("ResetHead", request) is grpc.StatusCode.DATA_LOSS
        assert await head(caller) == before


async def test_two_resets_at_once_are_one_after_the_other(tmp_path: Path) -> None:
    async with serving(tmp_path, publish={"every_steps": 1}) as caller:
        await caller.register()
        for number in range(1, 4):
            await caller.push(number, base_step=number - 1)
        await versions_until(caller, 4)
        done = await asyncio.gather(*(reset(caller, version) for version in (2, 3, 3, 2)))
        assert sorted(reply.head_step for reply in done if reply.changed) == list(
            range(4, 4 + sum(reply.changed for reply in done))
        )
        lines = (await caller.call("ListAudit", pb.ListAuditRequest())).entries
        assert len(lines) == sum(reply.changed for reply in done)


def test_a_recovery_replays_a_reset_and_enters_it_into_the_audit_log_once(tmp_path: Path) -> None:
    """Killed after the reset was acknowledged, before a snapshot: the log alone has it."""
    config = learner_settings(tmp_path, publish={"every_steps": 2})
    expected = new_head(AggregationSettings(), 0.0)
    log, target = [], b""
    for step in (1, 2, 3, 5):
        record = applied(step)
        if step == 5:
            reset = reset_record(4, target, head_step=2)
            expected.apply(reset)
            log.append(reset)
        expected.apply(record)
        log.append(record)
        target = kept(expected) if step == 2 else target
    with StateDir(config.state_dir) as state, contextlib.closing(Registry(state.path)) as registry:
        recover(state, registry, config, policy(), 0.0)
        write_segment(state.log, 1, log)
    for _ in range(2):
        with StateDir(config.state_dir) as state:
            registry = Registry(state.path)
            found = recover(state, registry, config, policy(), 0.0)
            lines = [(line.actor, line.action, line.detail) for line in registry.audit()]
            cards = [(card.head_step, card.parent) for card in registry.versions()]
            registry.close()
        assert (found.head.step, found.head.weights_bytes()) == (5, expected.weights_bytes())
        assert found.head.state.first_moment.tobytes() == expected.state.first_moment.tobytes()
        assert (found.head.ledger.reset_step, found.head.ledger.since_version.parent) == (4, 2)
        assert lines == [("ada", "head-reset", "from step 3 to v2, now step 4")]
        assert cards == [(0, 0), (2, 1)]
