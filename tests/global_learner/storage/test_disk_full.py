"""A full disk: nothing is acknowledged that is not kept, and everything goes on when there is room."""

import asyncio
import errno
from pathlib import Path

import grpc
from learner_in_process import CALL_SECONDS, serving
from learner_makers import SPEC, update, vector

from global_learner.errors import LearnerError
from global_learner.storage.disk import disk_use
from global_learner.storage.receipts import audit, read_receipts
from global_learner.storage.snapshot import Snapshot, write_snapshot
from global_learner.storage.update_records import RECORD_BYTES
from policy_net.exchange.generated import fleet_pb2 as pb
from policy_net.exchange.spec import PolicySpec
from policy_net.exchange.wire import push_request

BLOCK_BYTES = 4096


class FullDisk:
    """A sync that finds no room until it is told that there is some."""

    def __init__(self) -> None:
        self.full = True

    def __call__(self, descriptor: int) -> None:
        if self.full:
            raise OSError(errno.ENOSPC, "No space left on device")


async def test_a_full_log_refuses_pushes_and_goes_on_when_there_is_room(tmp_path: Path, monkeypatch) -> None:
    async with serving(tmp_path) as caller:
        log, disk = caller.learner.log, FullDisk()
        log.retry_seconds = 0.001
        await caller.register()
        await caller.push(1)
        monkeypatch.setattr(log, "_sync", disk)
        second = push_request(update(2), want_weights=True)
        for call, request in (
            ("Push", second),
            ("Push", push_request(update(3), want_weights=False)),
            ("PullHead", pb.PullHeadRequest(cluster="north", incarnation=1)),
        ):
            assert await caller.refused(call, request) is grpc.StatusCode.RESOURCE_EXHAUSTED
        fleet = await caller.fleet()
        assert fleet.head_step == 1  # what is on disk
        assert "no room for the update log" in fleet.disk_full
        assert caller.learner.telemetry.disk_refusals.labels("Push")._value.get() == 2
        assert caller.learner.telemetry.registry.get_sample_value("fedl2_learner_disk_full_flag") == 1
        disk.full = False
        async with asyncio.timeout(CALL_SECONDS):
            while (await caller.fleet()).disk_full:
                await asyncio.sleep(0)
        # The second was taken before the disk said no, and is kept by now; the third was never looked at.
        again = await caller.call("Push", second)
        assert (again.outcome, again.head_step) == (pb.PushReply.DUPLICATE, 2)
        assert (await caller.push(3)).outcome == pb.PushReply.APPLIED
    receipts = list(read_receipts(tmp_path / "state", SPEC.digest))
    assert [receipt.sequence for receipt in receipts] == [1, 2, 3]
    async with serving(tmp_path) as caller:
        assert caller.learner.head.step == 3


async def test_a_full_disk_at_the_end_fails_it_and_loses_nothing_acknowledged(tmp_path: Path, monkeypatch) -> None:
    async with serving(tmp_path) as caller:
        await caller.register()
        await caller.push(1)
        monkeypatch.setattr(caller.learner.log, "_sync", FullDisk())
        assert await caller.refused("Push", push_request(update(2), False)) is grpc.StatusCode.RESOURCE_EXHAUSTED
        await asyncio.wait_for(caller.learner.close(), CALL_SECONDS)
        assert isinstance(caller.learner.failed.result(), LearnerError)
    async with serving(tmp_path) as caller:
        assert (await caller.push(1)).outcome == pb.PushReply.DUPLICATE


async def test_snapshots_that_find_no_room_are_tried_again_and_pushes_go_on_under_the_logs_limit(
    tmp_path: Path, monkeypatch
) -> None:
    spec = PolicySpec(jobs_per_batch=20, type_columns=4, hidden=(32,))
    record = 4 * spec.parameter_count + RECORD_BYTES
    disk = FullDisk()

    def refuse(folder: Path, snapshot: Snapshot) -> None:
        disk(0)
        write_snapshot(folder, snapshot)

    monkeypatch.setattr("global_learner.maintenance.write_snapshot", refuse)
    durability = {"snapshot_every_steps": 4, "max_log_bytes": 16 * record}
    async with serving(tmp_path, spec, durability=durability) as caller:
        caller.learner.maintenance.retry_seconds = 0.001
        await caller.register()

        async def status_of(number: int) -> grpc.StatusCode:
            made = update(number, spec_digest=spec.digest, base_step=number - 1, gradient=vector(number, spec))
            try:
                reply = await caller.call("Push", push_request(made, want_weights=False))
            except grpc.aio.AioRpcError as error:
                return error.code()
            assert reply.outcome == pb.PushReply.APPLIED
            return grpc.StatusCode.OK

        taken = 0
        while await status_of(taken + 1) is grpc.StatusCode.OK:
            taken += 1
        assert await status_of(taken + 1) is grpc.StatusCode.RESOURCE_EXHAUSTED
        assert "snapshot cannot be written" in (await caller.fleet()).disk_full
        assert 12 <= taken <= 17
        assert disk_use(tmp_path / "state")["log"] <= 16 * record + 20 * BLOCK_BYTES
        disk.full = False
        for _ in range(50):
            async with asyncio.timeout(CALL_SECONDS):
                while (status := await status_of(taken + 1)) is not grpc.StatusCode.OK:
                    assert status is grpc.StatusCode.RESOURCE_EXHAUSTED
            taken += 1
            assert caller.learner.log.size_bytes <= 17 * record
    assert audit(read_receipts(tmp_path / "state", spec.digest)) == {("north", 1): taken}
