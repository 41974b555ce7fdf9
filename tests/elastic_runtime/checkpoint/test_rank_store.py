"""Checkpoints of all-reduce jobs in a store: the newest that is as it was written, or a line that says why not."""

from __future__ import annotations

import errno
import uuid
from pathlib import Path

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from structlog.testing import capture_logs

from elastic_runtime.checkpoint import place_of
from elastic_runtime.checkpoint.object_store import StorePath
from elastic_runtime.checkpoint.rank_files import FOLDER_VARIABLE, STORE_VARIABLE, RankStore, rank_files
from elastic_runtime.errors import CheckpointError


def new_place() -> StorePath:
    found = place_of(f"memory://{uuid.uuid4().hex}")
    assert isinstance(found, StorePath)
    return found


@pytest.fixture
def place() -> StorePath:
    return new_place()


def content(step: int) -> bytes:
    return f"all of the model after {step} steps".encode()


def test_the_newest_is_read_and_the_one_before_stays(place: StorePath) -> None:
    assert RankStore(place).load() is None
    for step in (5, 10, 15):
        RankStore(place).save(step, content(step))
    assert RankStore(place).load() == content(15)
    names = sorted(path.name for path in place.iterdir())
    assert [name.partition(".")[0][:16] for name in names] == ["ranks-0000000010"] * 2 + ["ranks-0000000015"] * 2


@pytest.mark.parametrize("what", ["object-short", "object-gone", "manifest-short", "manifest-other", "manifest-list"])
def test_a_torn_one_is_passed_over_with_a_line_and_goes_when_another_is_written(place: StorePath, what: str) -> None:
    for step in (5, 10):
        RankStore(place).save(step, content(step))
    ending = ".pt" if what.startswith("object") else ".json"
    (torn,) = [
        path for path in place.iterdir() if path.name.startswith("ranks-0000000010") and path.name.endswith(ending)
    ]
    change = what.partition("-")[2]
    if change == "gone":
        torn.unlink()
    else:
        found = torn.read_bytes()
        torn.write_bytes(
            {"short": found[:-3], "other": b'{"file": "../x", "format": 1, "sha256": ""}', "list": b"[]"}[change]
        )
    store = RankStore(place)
    with capture_logs() as logs:
        assert store.load() == content(5)
    assert [(log["event"], log["step"]) for log in logs] == [("checkpoint-passed-over", 10)]
    store.save(7, content(7))  # it goes on from there, at other steps
    assert store.load() == content(7)
    assert {path.name[:16] for path in place.iterdir()} == {"ranks-0000000005", "ranks-0000000007"}


def test_where_none_can_be_used_the_job_does_not_begin_anew(place: StorePath) -> None:
    store = RankStore(place)
    store.save(5, content(5))
    for path in place.iterdir():
        if path.name.endswith(".pt"):
            path.unlink()
    with pytest.raises(CheckpointError, match="no other can be used: remove them to start the job over"):
        store.load()


def test_a_store_that_does_not_answer_is_no_reason_to_take_an_older_one(
    place: StorePath, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = RankStore(place)
    for step in (5, 10):
        store.save(step, content(step))

    def refuse(path: StorePath, *_: object) -> bytes:
        raise OSError(errno.ETIMEDOUT, "it took too long")

    with monkeypatch.context() as patch:
        patch.setattr(StorePath, "read_bytes", refuse)
        with pytest.raises(CheckpointError, match="it took too long"):
            store.load()
        patch.setattr(StorePath, "write_bytes", refuse)
        with pytest.raises(CheckpointError, match=r"cannot be written \(it took too long\)"):
            store.save(15, content(15))
    assert store.load() == content(10)


@given(st.lists(st.tuples(st.integers(1, 30), st.booleans()), max_size=12))
def test_after_whatever_was_written_and_torn_the_newest_sound_one_is_read(writes: list[tuple[int, bool]]) -> None:
    place, step, sound = new_place(), 0, []
    for more, torn in writes:
        store = RankStore(place)
        step += more
        store.save(step, content(step))
        if torn:
            for path in place.iterdir():
                if path.name.startswith(f"ranks-{step:010d}") and path.name.endswith(".pt"):
                    path.write_bytes(b"torn")
        sound.append((step, torn))
    newest = sound[-2:]  # what is older has gone
    expected = next((content(at) for at, torn in reversed(newest) if not torn), None)
    if expected is not None:
        assert RankStore(place).load() == expected
    elif newest:
        with pytest.raises(CheckpointError):
            RankStore(place).load()


def test_a_process_keeps_its_model_there_and_its_progress_in_its_folder(tmp_path: Path, place: StorePath) -> None:
    files = rank_files({FOLDER_VARIABLE: str(tmp_path), STORE_VARIABLE: str(place)})
    assert files is not None
    assert files.load() is None
    files.save({"step": 3, "tensors": [torch.ones(2)]})
    kept = files.load()
    assert kept is not None
    assert kept["step"] == 3
    assert not files.checkpoint_file.exists()
    RankStore(place).save(4, b"no checkpoint of PyTorch's")
    with pytest.raises(CheckpointError, match=r"memory://.*: is no checkpoint, or damaged; remove it to start"):
        files.load()
