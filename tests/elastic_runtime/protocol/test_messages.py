"""Headers of the data plane: what is packed is what is unpacked, and nothing else is."""

import itertools
import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from elastic_runtime.errors import ProtocolError
from elastic_runtime.protocol.messages import (
    Adopted,
    Confirmed,
    Current,
    Fetch,
    Handover,
    Mark,
    Missing,
    Moved,
    Norms,
    Pull,
    Push,
    State,
    Update,
    Values,
    pack,
    runs_of,
    unpack,
)

small = st.integers(0, 2**32 - 1)
large = st.integers(0, 2**64 - 1)
count = st.integers(1, 2**32 - 1)
runs = st.lists(st.tuples(small, count), max_size=5).map(tuple)
headers = st.one_of(
    st.builds(Push, small, large, small, large, small, count),
    st.builds(Values, small, large, small, count),
    st.builds(State, small, large, small, count),
    st.builds(Adopted, small, small, count),
    st.builds(Pull, small, large, runs),
    st.builds(Confirmed, small, large, runs),
    st.builds(Missing, small, large, small, runs),
    st.builds(Norms, small, large, st.lists(st.tuples(small, st.floats(allow_nan=False)), max_size=5).map(tuple)),
    st.builds(Update, small, small, large, large, large, large, small, count),
    st.builds(Fetch, small, small, large, small, count),
    st.builds(Current, small, large, large, small, count),
    st.builds(Moved, small, small, large, small, count),
    st.builds(
        Handover, small, large, large, small, count,
        st.lists(st.builds(Mark, large, large, large), max_size=5).map(tuple),
    ),
)  # fmt: skip


@given(headers)
def test_a_header_comes_out_as_it_went_in(header: Push) -> None:
    assert unpack(pack(header)) == header


@given(headers, st.integers(1, 60))
def test_a_header_cut_short_is_refused(header: Push, kept: int) -> None:
    data = pack(header)
    if kept >= len(data):
        return
    if isinstance(header, Pull | Confirmed | Missing | Norms | Handover):
        fixed = {Pull: 13, Confirmed: 13, Missing: 17, Norms: 13, Handover: 29}[type(header)]
        item = {Norms: 12, Handover: 24}.get(type(header), 8)
        if kept >= fixed and (kept - fixed) % item == 0:
            return  # the same message with fewer items
    with pytest.raises(ProtocolError):
        unpack(data[:kept])


@given(st.binary(max_size=80))
def test_any_bytes_are_a_header_or_refused(data: bytes) -> None:
    try:
        header = unpack(data)
    except ProtocolError:
        return
    assert unpack(pack(header)) == header or "nan" in repr(header)


@pytest.mark.parametrize(
    ("data", "what"),
    [
        (b"", "cannot be read"),
        (b"\x63", "unknown kind 99"),
        (pack(Values(1, 2, 3, 4))[:-4] + struct.pack("<I", 0), "of no blocks"),
        (pack(Pull(1, 2, ((0, 1),) * 4097)), "4097 runs"),
        (pack(Handover(1, 2, 3, 4, 5, (Mark(1, 1),) * 2049)), "2049 workers' marks"),
        (pack(Update(1, 2, 3, 4, 5, 6, 7, 0)), "of no blocks"),
    ],
)
def test_what_is_wrong_is_said(data: bytes, what: str) -> None:
    with pytest.raises(ProtocolError, match=what):
        unpack(data)


@given(st.sets(st.integers(0, 60)))
def test_runs_cover_exactly_the_blocks(blocks: set[int]) -> None:
    runs = runs_of(sorted(blocks))
    assert [block for first, number in runs for block in range(first, first + number)] == sorted(blocks)
    assert all(a[0] + a[1] < b[0] for a, b in itertools.pairwise(runs))
