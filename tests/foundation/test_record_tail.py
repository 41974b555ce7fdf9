import mmap
import struct
import zlib
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from elastic_runtime.coordinator.journal import find_whole_record

MARKER = b"\xe1R"
HEAD = struct.Struct("<2sIH")


def record(body: bytes) -> bytes:
    return HEAD.pack(MARKER, zlib.crc32(body), len(body)) + body


def is_whole(data: bytes, at: int) -> bool:
    if len(data) - at < HEAD.size:
        return False
    marker, checksum, length = HEAD.unpack_from(data, at)
    body = data[at + HEAD.size : at + HEAD.size + length]
    return marker == MARKER and len(body) == length and zlib.crc32(body) == checksum


@given(st.lists(st.binary(min_size=1, max_size=40), min_size=2, max_size=12), st.data())
def test_a_whole_record_behind_damage_is_found_and_only_that(bodies: list[bytes], draw: st.DataObject) -> None:
    records = [record(body) for body in bodies]
    victim = draw.draw(st.integers(0, len(records) - 1))
    start = sum(len(part) for part in records[:victim])
    data = bytearray(b"".join(records))
    data[start : start + len(records[victim])] = bytes(len(records[victim]))  # a zeroed page
    found = find_whole_record(bytes(data), start, (MARKER,), lambda at: is_whole(bytes(data), at))
    assert found == (start + len(records[victim]) if victim + 1 < len(records) else None)


@given(st.binary(min_size=1, max_size=60), st.integers(1, 200))
def test_a_torn_record_and_reserved_room_are_nothing(body: bytes, cut: int) -> None:
    torn = record(body + b"!")[: -min(cut, len(body) + 1)] + bytes(64)  # zeros could complete what ends in zeros
    assert find_whole_record(torn, 0, (MARKER,), lambda at: is_whole(torn, at)) is None


def test_patterns_may_stand_within_their_record_and_in_a_file_on_disk(tmp_path: Path) -> None:
    data = b"\0" * 10 + record(b"step 7") + record(b"step 8")
    path = tmp_path / "log"
    path.write_bytes(data)
    with path.open("rb") as stream, mmap.mmap(stream.fileno(), 0, access=mmap.ACCESS_READ) as mapped:

        def found(*patterns: bytes) -> int | None:
            return find_whole_record(mapped, 0, patterns, lambda at: is_whole(mapped[:], at), HEAD.size)

        assert found(b"step 7") == 10
        assert found(b"step 9", b"step 8") == 10 + HEAD.size + 6
        assert found(b"step 9") is None
