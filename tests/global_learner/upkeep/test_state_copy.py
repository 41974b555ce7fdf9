"""Copies of files that a learner writes meanwhile: what was being written is left out, and nothing is cut away."""

import asyncio
from pathlib import Path

import pytest
from learner_in_process import CALL_SECONDS, Caller, serving
from learner_makers import SPEC, applied, write_segment

from foundation.locks import FolderLock
from global_learner import maintenance
from global_learner.storage.update_log import read_log, segments
from global_learner.upkeep.backup import StateCopy


def copy_of(folder: Path) -> StateCopy:
    (folder / "log").mkdir(exist_ok=True)
    return StateCopy(folder / "source", folder, {})


async def all_done(caller: Caller) -> None:
    """Wait until all is done that was queued."""
    done = asyncio.Event()

    async def tell() -> None:
        done.set()

    caller.learner.maintenance._add(tell)
    await asyncio.wait_for(done.wait(), CALL_SECONDS)


def test_a_log_that_was_written_while_it_was_copied_ends_where_it_can_be_read(tmp_path: Path) -> None:
    path = write_segment(tmp_path / "log", 1, [applied(step) for step in range(1, 9)])
    data = bytearray(path.read_bytes())
    at = len(data) * 5 // 8
    data[at : at + 20] = bytes(20)  # the end of this group was copied, and its middle not yet
    path.write_bytes(data)
    copy_of(tmp_path).drop_unfinished(SPEC.digest)
    steps = [update.step for update in read_log(tmp_path / "log", SPEC.digest)]
    assert steps == list(range(1, len(steps) + 1))
    assert 3 <= len(steps) < 8
    whole = path.read_bytes()
    copy_of(tmp_path).drop_unfinished(SPEC.digest)
    assert path.read_bytes() == whole


def test_damage_before_the_newest_segment_stays_to_be_found(tmp_path: Path) -> None:
    path = write_segment(tmp_path / "log", 1, [applied(step) for step in range(1, 5)])
    write_segment(tmp_path / "log", 5, [applied(5)])
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 0xFF
    path.write_bytes(data)
    copy_of(tmp_path).drop_unfinished(SPEC.digest)
    assert path.read_bytes() == bytes(data)


@pytest.mark.parametrize("nearly_full", [False, True])
async def test_a_learner_cuts_no_log_that_is_copied_unless_it_is_too_long(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, nearly_full: bool
) -> None:
    if nearly_full:
        monkeypatch.setattr(maintenance, "_BACKUP_PART", 1 << 40)
    async with serving(tmp_path, durability={"snapshot_every_steps": 2}) as caller:
        log = tmp_path / "state" / "log"
        await caller.register()
        copying = FolderLock(log)
        for number in range(1, 6):
            await caller.push(number)
        await all_done(caller)
        assert (segments(log)[0].name == "updates-00000000000000000001.log") is not nearly_full
        copying.release()
        for number in range(6, 9):
            await caller.push(number)
        await all_done(caller)
        assert segments(log)[0].name > "updates-00000000000000000006.log"
