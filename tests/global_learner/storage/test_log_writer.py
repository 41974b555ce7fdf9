import asyncio
import errno
import threading
from pathlib import Path

import pytest
from learner_makers import SPEC, applied

from global_learner.errors import LogBroken
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
