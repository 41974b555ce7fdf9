"""Receipts stay few files of bounded size, whatever was cut and however it was interrupted."""

from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from learner_makers import SPEC, applied

from global_learner.errors import StateUnusable
from global_learner.storage.receipts import (
    FILES,
    Receipt,
    append_receipts,
    audit,
    check_receipts,
    drop_unfinished,
    read_receipts,
    read_removed,
    receipt_files,
    receipt_of,
)

NO_LIMIT = 1 << 30


def receipts(first: int, last: int) -> list[Receipt]:
    return [receipt_of(applied(step)) for step in range(first, last + 1)]


def folder_of(state: Path) -> Path:
    folder = state / "receipts"
    folder.mkdir(exist_ok=True)
    return folder


def test_many_cuts_share_a_file(tmp_path: Path) -> None:
    folder = folder_of(tmp_path)
    for cut in range(20):
        append_receipts(folder, receipts(50 * cut + 1, 50 * cut + 50), NO_LIMIT)
    assert len(receipt_files(folder)) == 1
    assert [receipt.step for receipt in read_receipts(tmp_path, SPEC.digest)] == list(range(1, 1001))


def test_the_oldest_go_beyond_the_limit_and_their_number_stays(tmp_path: Path) -> None:
    folder, limit = folder_of(tmp_path), 100_000
    for cut in range(100):
        append_receipts(folder, receipts(50 * cut + 1, 50 * cut + 50), limit)
        kept = sum(path.stat().st_size for path in receipt_files(folder))
        assert kept <= limit * (1 + 1 / FILES)
    removed = read_removed(folder)
    assert removed.through_step > 4000
    kept_receipts = list(read_receipts(tmp_path, SPEC.digest))
    assert [receipt.step for receipt in kept_receipts] == list(range(removed.through_step + 1, 5001))
    assert audit(iter(kept_receipts), removed) == {("north", 1): 5000}
    with pytest.raises(StateUnusable, match="update 1 is missing"):
        audit(iter(kept_receipts))


@settings(max_examples=50)
@given(torn=st.integers(0, 3000), cuts=st.lists(st.integers(1, 12), min_size=1, max_size=6), lost=st.booleans())
def test_an_append_that_was_torn_anywhere_is_made_good_by_the_next(tmp_path_factory, torn, cuts, lost) -> None:
    state = tmp_path_factory.mktemp("state")
    folder, step = folder_of(state), 0
    for cut in cuts[:-1]:
        append_receipts(folder, receipts(step + 1, step + cut), NO_LIMIT)
        step += cut
    before = receipt_files(folder)[-1].stat().st_size if step else 0
    append_receipts(folder, receipts(step + 1, step + cuts[-1]), NO_LIMIT)
    newest = receipt_files(folder)[-1]
    data = newest.read_bytes()
    newest.write_bytes(data[: max(before, len(data) - torn)])
    if lost and not before:
        newest.unlink()
    # The segment of the torn receipts is still there, and is cut again.
    append_receipts(folder, receipts(step + 1, step + cuts[-1]), NO_LIMIT)
    found = [receipt.step for receipt in read_receipts(state, SPEC.digest)]
    assert found == list(range(1, step + cuts[-1] + 1))


@pytest.mark.parametrize("earlier", [0, 5])
def test_a_group_of_which_only_the_end_reached_the_disk_is_dropped_and_written_again(
    tmp_path: Path, earlier: int
) -> None:
    folder = folder_of(tmp_path)
    append_receipts(folder, receipts(1, earlier), NO_LIMIT)
    before = receipt_files(folder)[0].stat().st_size if earlier else 0
    append_receipts(folder, receipts(earlier + 1, earlier + 40), NO_LIMIT)
    (path,) = receipt_files(folder)
    data = bytearray(path.read_bytes())
    data[before : before + 4096] = bytes(4096)
    path.write_bytes(data)
    assert check_receipts(folder) == earlier, "and `commits` knows whether there were more"
    drop_unfinished(folder)
    assert path.stat().st_size == before
    append_receipts(folder, receipts(earlier + 1, earlier + 40), NO_LIMIT)
    assert [receipt.step for receipt in read_receipts(tmp_path, SPEC.digest)] == list(range(1, earlier + 41))
    assert check_receipts(folder) == earlier + 40


def test_a_torn_last_line_is_no_receipt_and_a_damaged_one_is_an_error(tmp_path: Path) -> None:
    folder = folder_of(tmp_path)
    append_receipts(folder, receipts(1, 3), NO_LIMIT)
    (path,) = receipt_files(folder)
    whole = path.read_text()
    path.write_text(whole[: whole.rindex('{"crc"') - 10])
    assert [receipt.step for receipt in read_receipts(tmp_path, SPEC.digest)] == [1, 2]
    path.write_text(whole.replace("north", 'no"rth', 1))
    with pytest.raises(StateUnusable, match="line 2: no receipt"):
        list(read_receipts(tmp_path, SPEC.digest))
    (folder / "removed.json").write_text("{}")
    with pytest.raises(StateUnusable, match="damaged"):
        read_removed(folder)


def test_files_of_one_cut_each_are_read_too(tmp_path: Path) -> None:
    folder = folder_of(tmp_path)
    for first in (1, 51):
        lines = "".join(receipt.to_line() for receipt in receipts(first, first + 49))
        (folder / f"updates-{first:020d}.jsonl").write_text(lines)
    append_receipts(folder, receipts(101, 150), NO_LIMIT)
    assert audit(read_receipts(tmp_path, SPEC.digest)) == {("north", 1): 150}
