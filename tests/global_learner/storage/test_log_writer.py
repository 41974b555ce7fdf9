import asyncio
import errno
import threading
from pathlib import Path

import pytest
from learner_makers import SPEC, applied

from global_learner.errors import LeaseLost, LogBroken, NotActive
from global_learner.postgres.lease import Lease
from global_learner.storage.log_writer import LogEnd, LogWriter
from global_learner.storage.update_log import read_log, segments

DEADLINE_SECONDS = 60.0


class HeldSync:
    """An fsync that waits until it is let go, and counts."""

    def __init__(self) -> None:
        self.calls = 0
        self.entered = threading.Semaphore(0)
        self.let_go = threading.Semaphore(0)
        self.error: OSError | None = None

    def __call__(self, descriptor: int) -> None:
        self.calls += 1
        self.entered.release()
        assert self.let_go.acquire(timeout=DEADLINE_SECONDS)
        if self.error is not None:
            raise self.error


async def entered(sync: HeldSync) -> None:
    assert await asyncio.to_thread(sync.entered.acquire, True, DEADLINE_SECONDS)


def failing(errors: list[BaseException]):
    return errors.append


async def test_updates_in_flight_share_one_sync(tmp_path: Path) -> None:
    sync, groups = HeldSync(), []
    log = LogWriter(
        LogEnd(tmp_path, SPEC.digest, 0), failing([]), sync, on_flush=lambda updates, _: groups.append(updates)
    )
    log.start()
    await entered(sync)  # the segment's header is being synced; everything below gathers meanwhile
    for step in range(1, 8):
        log.append(applied(step))
    waiting = asyncio.gather(*(log.durable(step) for step in range(1, 8)))
    for _ in range(4):
        sync.let_go.release()
    await asyncio.wait_for(waiting, DEADLINE_SECONDS)
    assert groups == [7]
    for _ in range(4):
        sync.let_go.release()
    await log.close()
    assert [record.step for record in read_log(tmp_path, SPEC.digest)] == list(range(1, 8))


async def test_nothing_is_durable_before_its_sync_returned(tmp_path: Path) -> None:
    sync = HeldSync()
    log = LogWriter(LogEnd(tmp_path, SPEC.digest, 0), failing([]), sync)
    sync.let_go.release()
    log.start()
    await entered(sync)
    log.append(applied(1))
    waiting = asyncio.create_task(log.durable(1))
    await entered(sync)  # written, and the sync is under way
    assert log.durable_step == 0
    assert not waiting.done()
    sync.let_go.release()
    await asyncio.wait_for(waiting, DEADLINE_SECONDS)
    assert log.durable_step == 1
    sync.let_go.release()
    await log.close()


async def test_a_failed_sync_breaks_the_log_for_good(tmp_path: Path) -> None:
    sync, errors = HeldSync(), []
    log = LogWriter(LogEnd(tmp_path, SPEC.digest, 0), failing(errors), sync)
    sync.let_go.release()
    log.start()
    await entered(sync)
    sync.error = OSError(errno.EIO, "Input/output error")
    log.append(applied(1))
    waiting = asyncio.create_task(log.durable(1))
    sync.let_go.release()
    with pytest.raises(LogBroken, match="Input/output error"):
        await asyncio.wait_for(waiting, DEADLINE_SECONDS)
    assert len(errors) == 1
    with pytest.raises(LogBroken):
        log.append(applied(2))
    with pytest.raises(LogBroken):
        await log.durable(2)
    await log.close()


async def test_an_abandoned_wait_does_not_disturb_the_others(tmp_path: Path) -> None:
    sync = HeldSync()
    log = LogWriter(LogEnd(tmp_path, SPEC.digest, 0), failing([]), sync)
    log.start()
    await entered(sync)
    log.append(applied(1))
    given_up, patient = asyncio.create_task(log.durable(1)), asyncio.create_task(log.durable(1))
    await asyncio.sleep(0)
    given_up.cancel()
    for _ in range(4):
        sync.let_go.release()
    await asyncio.wait_for(patient, DEADLINE_SECONDS)
    await log.close()


async def test_a_new_segment_takes_what_follows(tmp_path: Path) -> None:
    log = LogWriter(LogEnd(tmp_path, SPEC.digest, 4), failing([]))
    log.start()
    log.append(applied(5))
    log.new_segment(6)
    log.append(applied(6))
    await log.durable(6)
    await log.close()
    assert [int(path.stem.removeprefix("updates-")) for path in segments(tmp_path)] == [5, 6]
    assert [record.step for record in read_log(tmp_path, SPEC.digest)] == [5, 6]


class Clock:
    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


async def test_what_was_synced_after_the_lease_ran_out_is_not_acknowledged_until_it_is_renewed(tmp_path: Path) -> None:
    sync, clock, errors = HeldSync(), Clock(), list[BaseException]()
    lease = Lease(1, 10.0, 0.0, clock)
    log = LogWriter(LogEnd(tmp_path, SPEC.digest, 0, lease=lease), failing(errors), sync, retry_seconds=0.01)
    sync.let_go.release()
    log.start()
    await entered(sync)
    log.append(applied(1))
    waiting = asyncio.create_task(log.durable(1))
    await entered(sync)  # written while the lease held; now the process is held up
    clock.now = 60.0
    for _ in range(100):
        sync.let_go.release()
    with pytest.raises(NotActive, match="not renewed"):
        await asyncio.wait_for(waiting, DEADLINE_SECONDS)
    with pytest.raises(NotActive):
        log.append(applied(2))
    assert log.durable_step == 0
    lease.renewed(60.0)
    while log.full is not None:  # bounded by the test's own time-out
        await asyncio.sleep(0.001)
    await asyncio.wait_for(log.durable(1), DEADLINE_SECONDS)
    await log.close()
    assert [record.step for record in read_log(tmp_path, SPEC.digest)] == [1]
    assert errors == []


async def test_once_another_learner_has_the_lease_nothing_more_is_written(tmp_path: Path) -> None:
    lease, errors = Lease(1, 10.0, 0.0, Clock()), list[BaseException]()
    log = LogWriter(LogEnd(tmp_path, SPEC.digest, 0, lease=lease), failing(errors))
    log.start()
    log.append(applied(1))
    await asyncio.wait_for(log.durable(1), DEADLINE_SECONDS)
    (segment,) = segments(tmp_path)
    before = segment.read_bytes()
    lease.lose(LeaseLost("another learner took the lease"))
    log.append(applied(2))
    with pytest.raises(LogBroken, match="another learner took the lease"):
        await asyncio.wait_for(log.durable(2), DEADLINE_SECONDS)
    await log.close()
    assert segment.read_bytes() == before
    assert len(errors) == 1


async def test_who_was_held_up_amid_a_write_and_finds_the_folder_gone_waits_and_learns_that_another_one_acts(
    tmp_path: Path,
) -> None:
    clock, errors, frozen = Clock(), list[BaseException](), threading.Event()
    lease = Lease(1, 10.0, 0.0, clock)

    def sync(_descriptor: int) -> None:
        if frozen.is_set():
            clock.now = 60.0
            raise FileNotFoundError(errno.ENOENT, "No such file or directory")

    log = LogWriter(LogEnd(tmp_path, SPEC.digest, 0, lease=lease), failing(errors), sync, retry_seconds=0.01)
    log.start()
    log.append(applied(1))
    await asyncio.wait_for(log.durable(1), DEADLINE_SECONDS)
    frozen.set()
    log.append(applied(2))
    with pytest.raises(NotActive, match="not renewed"):
        await asyncio.wait_for(log.durable(2), DEADLINE_SECONDS)
    assert not errors
    lease.lose(LeaseLost("another learner took the lease"))
    while log.broken is None:  # bounded by the test's own time-out
        await asyncio.sleep(0.001)
    assert str(log.broken) == "another learner took the lease"
    await log.close()
    assert len(errors) == 1


async def test_a_file_that_is_not_there_while_the_lease_holds_is_the_disks_fault(tmp_path: Path) -> None:
    gone, errors = threading.Event(), list[BaseException]()

    def sync(_descriptor: int) -> None:
        if gone.is_set():
            raise FileNotFoundError(errno.ENOENT, "No such file or directory")

    log = LogWriter(LogEnd(tmp_path, SPEC.digest, 0, lease=Lease(1, 10.0, 0.0, Clock())), failing(errors), sync)
    log.start()
    log.append(applied(1))
    await asyncio.wait_for(log.durable(1), DEADLINE_SECONDS)
    gone.set()
    log.append(applied(2))
    with pytest.raises(LogBroken, match="No such file or directory"):
        await asyncio.wait_for(log.durable(2), DEADLINE_SECONDS)
    await log.close()
    assert len(errors) == 1
