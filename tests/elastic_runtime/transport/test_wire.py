"""The rule by which both sides cut payloads, and heads that survive anything."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from elastic_runtime.transport.wire import (
    JOINED_FRAME_BYTES,
    SMALL_PART_BYTES,
    Acknowledgement,
    Hello,
    Malformed,
    MessageHead,
    Reference,
    cut,
    kind_of,
    pack_hello,
    pack_message,
    unpack_hello,
    unpack_message,
    unpack_sequence,
)

_BOUNDS = {"max_header_bytes": 65536, "max_parts": 4096, "max_message_bytes": 2**40}
_u64 = st.integers(0, 2**39)


@given(
    sizes=st.lists(st.one_of(st.integers(0, 200), st.integers(0, 3 * 10**6)), max_size=60),
    frame_bytes=st.sampled_from([SMALL_PART_BYTES, 10**6, 1 << 20, 1 << 22]),
)
def test_every_byte_travels_once_in_order_and_within_the_bounds(sizes, frame_bytes):
    seen = [0] * len(sizes)
    last = 0
    for frame in cut(sizes, frame_bytes):
        assert 0 < frame.size_bytes <= (JOINED_FRAME_BYTES if frame.joined else frame_bytes)
        filled = 0
        for piece in frame.pieces:
            assert piece.part >= last
            last = piece.part
            assert piece.start_byte == seen[piece.part]
            assert filled <= piece.offset_bytes < filled + 64
            filled = piece.offset_bytes + piece.size_bytes
            seen[piece.part] += piece.size_bytes
        assert filled == frame.size_bytes
        assert frame.joined == (sizes[last] < SMALL_PART_BYTES)
        assert frame.joined or len(frame.pieces) == 1
    assert seen == sizes


@given(
    sequence=st.integers(1, 2**63),
    parts=st.lists(st.tuples(st.integers(0, 2**32 - 1), _u64, st.integers(0, 2**30)), max_size=20),
    header=st.binary(max_size=500),
    received=st.tuples(st.binary(min_size=16, max_size=16), st.integers(0, 2**63)),
)
def test_a_message_head_is_read_as_it_was_written(sequence, parts, header, received):
    references = tuple(Reference(region, start, start + size) for region, start, size in parts)
    head = MessageHead(sequence, 1 << 20, references, header, Acknowledgement(*received))
    assert unpack_message(pack_message(head), **_BOUNDS) == head


@given(incarnation=st.binary(min_size=16, max_size=16), link=st.binary(min_size=16, max_size=16), name=st.text())
def test_a_hello_is_read_as_it_was_written(incarnation, link, name):
    name = name.encode(errors="ignore").decode()
    assert unpack_hello(pack_hello(Hello(incarnation, link, name))) == Hello(incarnation, link, name)


@given(prefix=st.sampled_from([b"", b"\xda\xf2\x01\x01", b"\xda\xf2\x01\x02", b"\xda\xf2\x01\x03"]), data=st.binary())
def test_anything_else_is_malformed_and_nothing_worse(prefix, data):
    for unpack in (unpack_hello, unpack_sequence, kind_of, lambda frame: unpack_message(frame, **_BOUNDS)):
        try:
            unpack(prefix + data)
        except Malformed:
            continue


def test_another_version_is_malformed():
    hello = bytearray(pack_hello(Hello(bytes(16), bytes(16), "worker-0")))
    hello[2] += 1
    with pytest.raises(Malformed, match="version 3"):
        unpack_hello(bytes(hello))
