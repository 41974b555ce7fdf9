import os
import struct
import zlib
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from learner_makers import SPEC, applied, vector, write_segment

from global_learner.errors import StateUnusable
from global_learner.storage.receipts import audit, cut_log, read_receipts
from global_learner.storage.update_log import LogDamaged, read_log, segment_header, segment_name
from global_learner.storage.update_records import AppliedUpdate, encode


def same(left: AppliedUpdate, right: AppliedUpdate) -> bool:
    unlogged = ("gradient", "statistics", "replayed")
    fields = [f for f in left.update.__dataclass_fields__ if f not in unlogged]
    return (
        (left.step, left.learning_rate, left.active_clusters, left.unix_seconds)
        == (right.step, right.learning_rate, right.active_clusters, right.unix_seconds)
        and all(getattr(left.update, f) == getattr(right.update, f) for f in fields)
        and left.update.gradient.tobytes() == right.update.gradient.tobytes()
    )


@given(
    name=st.from_regex(r"[a-z0-9]([a-z0-9.-]{0,61}[a-z0-9])?", fullmatch=True),
    numbers=st.tuples(*[st.integers(0, 2**63)] * 3),
    rate=st.floats(0.0, 1.0),
)
def test_a_record_comes_back_bit_for_bit(tmp_path_factory, name, numbers, rate) -> None:
    folder = tmp_path_factory.mktemp("log")
    incarnation, sequence, samples = numbers
    record = applied(1, cluster=name, incarnation=incarnation, sequence=sequence, samples=samples, learning_rate=rate)
    write_segment(folder, 1, [record])
    (found,) = read_log(folder, SPEC.digest)
    assert same(found, record)


def test_a_log_cut_anywhere_gives_the_whole_records_before_the_cut(tmp_path: Path) -> None:
    records = [applied(step) for step in (1, 2, 3)]
    path = write_segment(tmp_path, 1, records)
    whole = path.read_bytes()
    header = len(segment_header(SPEC.digest, 1))
    size = (len(whole) - header) // 3
    for cut in range(len(whole)):
        path.write_bytes(whole[:cut])
        assert len(list(read_log(tmp_path, SPEC.digest))) == max(0, cut - header) // size


def test_a_flipped_bit_in_the_newest_segment_ends_the_log_there(tmp_path: Path) -> None:
    path = write_segment(tmp_path, 1, [applied(1), applied(2)])
    data = bytearray(path.read_bytes())
    data[-5] ^= 1
    path.write_bytes(data)
    assert [record.step for record in read_log(tmp_path, SPEC.digest)] == [1]


@pytest.mark.parametrize("damage", [lambda data: data[:-1], lambda data: data[:10], lambda data: b"x" + data])
def test_damage_in_an_older_segment_is_an_error(tmp_path: Path, damage) -> None:
    path = write_segment(tmp_path, 1, [applied(1), applied(2)])
    write_segment(tmp_path, 3, [applied(3)])
    path.write_bytes(damage(path.read_bytes()))
    with pytest.raises(StateUnusable, match="damaged before its end"):
        list(read_log(tmp_path, SPEC.digest))


@pytest.mark.parametrize("span", [1, 8, 60, 5000])
@pytest.mark.parametrize("fill", [b"\x00", b"\xff"])
def test_damage_before_the_last_whole_record_of_the_newest_segment_is_an_error(
    tmp_path: Path, span: int, fill: bytes
) -> None:
    path = write_segment(tmp_path, 1, [applied(step) for step in range(1, 9)])
    data = bytearray(path.read_bytes())
    start = len(write_segment(tmp_path / "short", 1, [applied(1), applied(2)]).read_bytes())
    wide = min(span, len(data) - start - len(data) // 4)  # the last record stays whole
    data[start : start + wide] = fill * wide  # from the length of the third record on
    path.write_bytes(data)
    read = read_log(tmp_path, SPEC.digest)
    assert [next(read).step, next(read).step] == [1, 2]
    with pytest.raises(StateUnusable, match=r"update 3 is damaged .* up to 8 .*accept-loss") as caught:
        next(read)
    assert (caught.value.end, caught.value.last_step) == (start, 2)
    os.truncate(path, start)
    assert [record.step for record in read_log(tmp_path, SPEC.digest)] == [1, 2]


@pytest.mark.parametrize("damage", ["a page of zeros", "a hundred records"])
def test_damage_of_any_length_is_found(tmp_path: Path, damage: str) -> None:
    path = write_segment(tmp_path, 1, [applied(step) for step in range(1, 301)])
    data = bytearray(path.read_bytes())
    size = len(data) // 300
    start, wide = (4096, 4096) if damage == "a page of zeros" else (100 * size, 100 * size)
    data[start : start + wide] = bytes(wide)
    path.write_bytes(data)
    with pytest.raises(LogDamaged, match="later ones up to 300 are whole"):
        list(read_log(tmp_path, SPEC.digest))


@given(lost=st.sets(st.integers(0, 5), min_size=1), group=st.integers(1, 6))
def test_of_a_group_that_was_never_synced_any_part_may_be_missing(
    tmp_path_factory: pytest.TempPathFactory, lost: set[int], group: int
) -> None:
    folder = tmp_path_factory.mktemp("log")
    records = [applied(step) for step in range(1, 7 + group)]
    path = write_segment(folder, 1, records[:6])
    durable = path.stat().st_size
    whole = bytearray(_with_group(records[:6], records[6:]))
    size = (len(whole) - durable) // group
    for place in lost:
        if place < group:
            whole[durable + place * size : durable + (place + 1) * size] = bytes(size)
    path.write_bytes(whole)
    first_lost = min((place for place in lost if place < group), default=group)
    assert [record.step for record in read_log(folder, SPEC.digest)] == list(range(1, 7 + first_lost))


def _with_group(synced: list[AppliedUpdate], group: list[AppliedUpdate]) -> bytes:
    """A segment whose last records were written in one go, of which nobody knows whether it was synced."""
    data, checksum = segment_header(SPEC.digest, 1), 0
    for record in (*synced, *group):
        encoded = encode(record, checksum, min(record.step - 1, len(synced)))
        data += encoded.head + bytes(encoded.gradient)
        checksum = encoded.checksum
    return data


def test_a_record_that_does_not_follow_the_one_before_it_is_damage(tmp_path: Path) -> None:
    path = write_segment(tmp_path, 1, [applied(1), applied(2), applied(3)])
    other = write_segment(tmp_path / "other", 1, [applied(1, samples=7), applied(2), applied(3)]).read_bytes()
    data = bytearray(path.read_bytes())
    size = (len(data) - len(segment_header(SPEC.digest, 1))) // 3
    data[-2 * size :] = other[-2 * size :]
    path.write_bytes(data)
    with pytest.raises(LogDamaged, match="update 2 is not the one that followed"):
        list(read_log(tmp_path, SPEC.digest))


def test_a_segment_that_does_not_follow_the_one_before_it_is_damage(tmp_path: Path) -> None:
    write_segment(tmp_path, 1, [applied(1)])
    write_segment(tmp_path, 2, [applied(2)])
    other = write_segment(tmp_path / "other", 1, [applied(1, samples=7)])
    other.replace(tmp_path / other.name)
    with pytest.raises(LogDamaged, match="does not follow the segment before it"):
        list(read_log(tmp_path, SPEC.digest))


@pytest.mark.parametrize("damage", ["zeroed header", "flipped format", "flipped link"])
def test_a_damaged_header_with_updates_behind_it_is_damage(tmp_path: Path, damage: str) -> None:
    path = write_segment(tmp_path, 1, [applied(step) for step in range(1, 20)])
    data = bytearray(path.read_bytes())
    if damage == "zeroed header":
        data[:512] = bytes(512)
    else:
        data[8 if damage == "flipped format" else 53] ^= 1
    path.write_bytes(data)
    with pytest.raises(LogDamaged, match=path.name):
        list(read_log(tmp_path, SPEC.digest))


@pytest.mark.parametrize("form", [1, 2])
def test_a_segment_of_an_earlier_program_is_read_and_its_damage_found(tmp_path: Path, form: int) -> None:
    records = [applied(step) for step in range(1, 41)]
    body = b""
    for record in records:
        update = record.update
        values = (record.step, update.incarnation, update.sequence, update.base_step, update.samples)
        more = (update.effective_samples, record.learning_rate, record.active_clusters, record.unix_seconds, 5)
        layout = struct.Struct("<QQQQQddIdH" + "B" * (form - 1))
        content = layout.pack(*values, *more, *(0,) * (form - 1)) + b"north" + update.gradient.astype("<f4").tobytes()
        body += struct.pack("<II", len(content), zlib.crc32(content)) + content
    header = struct.pack("<8sI32sQ", b"FEDL2LOG", form, bytes.fromhex(SPEC.digest), 1)
    path = tmp_path / segment_name(1)
    path.write_bytes(header + body)
    found = list(read_log(tmp_path, SPEC.digest))
    assert all(same(left, right) for left, right in zip(found, records, strict=True))
    size = len(body) // 40
    path.write_bytes(header + body[: 5 * size] + bytes(30 * size) + body[35 * size :])
    with pytest.raises(LogDamaged, match="update 6 is damaged and later ones up to 40"):
        list(read_log(tmp_path, SPEC.digest))


@given(st.integers(1, 400), st.sampled_from([b"", b"\x00", b"x"]))
def test_whatever_is_left_of_the_last_record_is_a_torn_tail(
    tmp_path_factory: pytest.TempPathFactory, lost: int, fill: bytes
) -> None:
    folder = tmp_path_factory.mktemp("log")
    path = write_segment(folder, 1, [applied(1), applied(2)])
    data = path.read_bytes()
    lost = min(lost, len(data) // 3)
    path.write_bytes(data[:-lost] + fill * lost)
    assert [record.step for record in read_log(folder, SPEC.digest)] == [1]


@pytest.mark.parametrize("torn", [0, 1, 100])
def test_what_is_left_of_a_files_former_life_is_no_part_of_the_log(tmp_path: Path, torn: int) -> None:
    former = write_segment(tmp_path, 1, [applied(step) for step in range(1, 6)]).read_bytes()
    (tmp_path / segment_name(1)).unlink()
    for first, records in ((6, [applied(6), applied(7)]), (8, [applied(8)])):
        path = write_segment(tmp_path, first, records)
        new = path.read_bytes()
        # What is written over reaches to the middle of an old record, or the newest record is torn itself.
        path.write_bytes(new + b"x" * torn + former[len(new) + torn :])
    assert [record.step for record in read_log(tmp_path, SPEC.digest)] == [6, 7, 8]


def test_a_log_of_another_spec_is_refused(tmp_path: Path) -> None:
    write_segment(tmp_path, 1, [applied(1)])
    with pytest.raises(StateUnusable, match="use another state_dir"):
        list(read_log(tmp_path, "ab" * 32))


def test_segments_are_read_in_order_of_their_steps(tmp_path: Path) -> None:
    write_segment(tmp_path, 9, [applied(9)])
    write_segment(tmp_path, 10, [applied(10)])
    assert [record.step for record in read_log(tmp_path, SPEC.digest)] == [9, 10]


def test_a_cut_log_leaves_receipts_of_the_same_updates(tmp_path: Path) -> None:
    log, receipts = tmp_path / "log", tmp_path / "receipts"
    receipts.mkdir()
    write_segment(log, 1, [applied(1), applied(2)])
    write_segment(log, 3, [applied(3, cluster="south", sequence=1)])
    before = list(read_receipts(tmp_path, SPEC.digest))
    assert cut_log(log, receipts, step=1) == 0
    assert cut_log(log, receipts, step=2) == 1
    assert [path.name for path in log.iterdir()] == [segment_name(3)]
    assert list(read_receipts(tmp_path, SPEC.digest)) == before
    assert audit(iter(before)) == {("north", 1): 2, ("south", 1): 1}


def test_receipts_written_twice_after_a_crash_count_once(tmp_path: Path) -> None:
    log, receipts = tmp_path / "log", tmp_path / "receipts"
    receipts.mkdir()
    write_segment(log, 1, [applied(1), applied(2)])
    segment = (log / segment_name(1)).read_bytes()
    cut_log(log, receipts, step=2, with_newest=True)
    (log / segment_name(1)).write_bytes(segment)
    assert [receipt.step for receipt in read_receipts(tmp_path, SPEC.digest)] == [1, 2]


def test_a_torn_tail_leaves_no_receipt(tmp_path: Path) -> None:
    log, receipts = tmp_path / "log", tmp_path / "receipts"
    receipts.mkdir()
    path = write_segment(log, 1, [applied(1), applied(2)])
    path.write_bytes(path.read_bytes()[:-3])
    assert cut_log(log, receipts, step=1, with_newest=True) == 1
    assert [receipt.step for receipt in read_receipts(tmp_path, SPEC.digest)] == [1]


def test_a_segment_that_lacks_an_update_is_not_cut(tmp_path: Path) -> None:
    log, receipts = tmp_path / "log", tmp_path / "receipts"
    receipts.mkdir()
    write_segment(log, 1, [applied(1)])
    write_segment(log, 3, [])
    with pytest.raises(StateUnusable, match="update 2 is missing"):
        cut_log(log, receipts, step=2)
    assert (log / segment_name(1)).exists()


def test_the_audit_finds_an_update_that_was_applied_twice(tmp_path: Path) -> None:
    write_segment(tmp_path / "log", 1, [applied(1, sequence=7), applied(2, sequence=7)])
    with pytest.raises(StateUnusable, match="applied twice"):
        audit(read_receipts(tmp_path, SPEC.digest))


def test_the_audit_finds_a_missing_step(tmp_path: Path) -> None:
    write_segment(tmp_path / "log", 1, [applied(1), applied(3)])
    with pytest.raises(StateUnusable, match="update 2 is missing"):
        audit(read_receipts(tmp_path, SPEC.digest))


def test_an_unaligned_gradient_is_decoded_aligned(tmp_path: Path) -> None:
    write_segment(tmp_path, 1, [applied(1, cluster="abc", gradient=vector(4))])
    (record,) = read_log(tmp_path, SPEC.digest)
    assert record.update.gradient.flags.aligned
    assert np.array_equal(record.update.gradient, vector(4))
