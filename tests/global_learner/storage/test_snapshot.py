from pathlib import Path

import pytest
from learner_makers import SPEC, vector

from global_learner.errors import StateUnusable
from global_learner.storage.snapshot import AdamState, Snapshot, read_newest_snapshot, write_snapshot


def snapshot(step: int, average: bool = False) -> Snapshot:
    state = AdamState(vector(1), vector(2), vector(3), step, vector(4) if average else None)
    return Snapshot(SPEC.digest, state, {"clusters": {}}, {"clusters": {"north": {}}})


@pytest.mark.parametrize("average", [False, True])
def test_a_snapshot_comes_back_bit_for_bit(tmp_path: Path, average: bool) -> None:
    written = snapshot(17, average)
    write_snapshot(tmp_path, written)
    read = read_newest_snapshot(tmp_path, SPEC.digest)
    assert read is not None
    for name in ("weights", "first_moment", "second_moment"):
        assert getattr(read.state, name).tobytes() == getattr(written.state, name).tobytes()
    assert (read.state.average is None) is not average
    assert (read.state.step, read.ledger, read.counters) == (17, written.ledger, written.counters)
    assert read.state.weights.flags.writeable


def test_only_the_newest_is_kept_and_read(tmp_path: Path) -> None:
    for step in (9, 10, 100):
        write_snapshot(tmp_path, snapshot(step))
    assert [path.name for path in tmp_path.glob("*.snapshot")] == ["head-00000000000000000100.snapshot"]
    assert len(list(tmp_path.iterdir())) == 2  # and the one before it, to be written over
    read = read_newest_snapshot(tmp_path, SPEC.digest)
    assert read is not None
    assert read.state.step == 100


def test_a_new_directory_has_none(tmp_path: Path) -> None:
    assert read_newest_snapshot(tmp_path, SPEC.digest) is None


@pytest.mark.parametrize("damage", [lambda data: data[:10], lambda data: data[:-1], lambda data: data[:-1] + b"x"])
def test_a_damaged_snapshot_is_refused(tmp_path: Path, damage) -> None:
    write_snapshot(tmp_path, snapshot(1))
    (path,) = tmp_path.iterdir()
    path.write_bytes(damage(path.read_bytes()))
    with pytest.raises(StateUnusable, match="restore the state directory"):
        read_newest_snapshot(tmp_path, SPEC.digest)


def test_a_snapshot_of_another_spec_is_refused(tmp_path: Path) -> None:
    write_snapshot(tmp_path, snapshot(1))
    with pytest.raises(StateUnusable, match="use another state_dir"):
        read_newest_snapshot(tmp_path, "cd" * 32)
