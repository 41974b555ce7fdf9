"""Files of an all-reduce job: what a kill leaves is written over, and a damaged checkpoint is never gone on with."""

import errno
import os
from collections.abc import Callable
from pathlib import Path

import pytest
import structlog
import torch

from elastic_runtime.checkpoint import rank_files
from elastic_runtime.checkpoint.rank_files import RankFiles, RankProgress
from elastic_runtime.errors import CheckpointError


def test_half_a_hint_of_one_that_was_killed_does_not_stay(tmp_path: Path) -> None:
    (tmp_path / "progress.json.partial").write_text('{"step": 3, "sam', encoding="utf-8")
    files = RankFiles(tmp_path)
    files.report(RankProgress(step=4), at_once=True)
    assert files.progress() == RankProgress(step=4)
    assert [path.name for path in tmp_path.iterdir()] == ["progress.json"]


PAGE_BYTES = 4096


def content_at(step: int) -> dict[str, object]:
    model = torch.nn.Linear(64, 64)
    with torch.no_grad():
        model.weight.fill_(float(step))
    return {"step": step, "layout": "{}", "tensors": list(model.parameters()), "optimizer": {}}


def with_zeros(at: int) -> Callable[[bytes], bytes]:
    return lambda data: data[:at] + bytes(len(data[at : at + PAGE_BYTES])) + data[at + PAGE_BYTES :]


DAMAGES: dict[str, Callable[[bytes], bytes]] = {
    "first page": with_zeros(0),
    "page of weights": with_zeros(2 * PAGE_BYTES),
    "a bit": lambda data: data[:9000] + bytes([data[9000] ^ 4]) + data[9001:],
    "cut": lambda data: data[:-1000],
    "empty": lambda data: b"",
    "text": lambda data: b"no archive",
}


@pytest.mark.parametrize("damage", DAMAGES.values(), ids=DAMAGES)
def test_a_damaged_checkpoint_is_passed_over_with_a_line_and_the_one_before_stays_until_another_is_whole(
    tmp_path: Path, damage: Callable[[bytes], bytes]
) -> None:
    files = RankFiles(tmp_path)
    for step in (1, 2, 3):
        files.save(content_at(step))
    files.checkpoint_file.write_bytes(damage(files.checkpoint_file.read_bytes()))
    after = RankFiles(tmp_path)
    with structlog.testing.capture_logs() as logs:
        found = after.load()
    assert found is not None
    assert found["step"] == 2
    assert float(found["tensors"][0][0, 0].detach()) == 2.0
    (line,) = logs
    assert (line["event"], str(files.checkpoint_file) in line["reason"]) == ("checkpoint-passed-over", True)
    after.save(content_at(4))
    kept = {path.name: torch.load(path)["step"] for path in tmp_path.glob("*.pt")}
    assert kept == {"checkpoint.pt": 4, "checkpoint.before.pt": 2}, "what is damaged takes no sound one's place"


@pytest.mark.parametrize("damage", DAMAGES.values(), ids=DAMAGES)
def test_where_no_checkpoint_is_sound_the_job_is_refused(tmp_path: Path, damage: Callable[[bytes], bytes]) -> None:
    """Also the only one of a version that kept no other."""
    torch.save(content_at(1), tmp_path / "checkpoint.pt")
    files = RankFiles(tmp_path)
    found = files.load()
    assert found is not None
    assert found["step"] == 1
    files.checkpoint_file.write_bytes(damage(files.checkpoint_file.read_bytes()))
    with pytest.raises(CheckpointError, match=r"checkpoint\.pt: is .*damaged.*; no other can be used: remove it to"):
        RankFiles(tmp_path).load()


def test_a_kill_between_two_names_costs_one_checkpoint_at_most(tmp_path: Path) -> None:
    files = RankFiles(tmp_path)
    for step in (1, 2):
        files.save(content_at(step))
    files.checkpoint_file.rename(tmp_path / "checkpoint.before.pt")
    found = RankFiles(tmp_path).load()
    assert found is not None
    assert found["step"] == 2


def test_a_script_that_writes_no_checksums_of_its_own_does_not_turn_ours_off(tmp_path: Path) -> None:
    files = RankFiles(tmp_path)
    torch.serialization.set_crc32_options(False)
    try:
        files.save(content_at(1))
        assert not torch.serialization.get_crc32_options()
    finally:
        torch.serialization.set_crc32_options(True)
    assert files.load() is not None


def test_where_there_is_room_for_two_checkpoints_alone_the_older_one_makes_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    files = RankFiles(tmp_path)
    for step in (1, 2):
        files.save(content_at(step))
    size = files.checkpoint_file.stat().st_size
    write = rank_files.write_whole

    def on_a_small_disk(path: Path, data: memoryview, **how: bool) -> None:
        if len(data) + sum(each.stat().st_size for each in tmp_path.iterdir()) > 2 * size + size // 2:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        write(path, data, **how)  # type: ignore[arg-type]

    monkeypatch.setattr(rank_files, "write_whole", on_a_small_disk)
    files.save(content_at(3))
    kept = {path.name: torch.load(path)["step"] for path in tmp_path.glob("*.pt")}
    assert kept == {"checkpoint.pt": 3, "checkpoint.before.pt": 2}
