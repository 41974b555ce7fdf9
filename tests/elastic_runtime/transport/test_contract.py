"""What the layer above relies on, over every way that bytes can take."""

from __future__ import annotations

import itertools
import threading

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from elastic_runtime.transport import BadMessage, Message, PeerUp, RegionPart, UnknownPeer, Way

MB = 1024 * 1024
REGION_BYTES = 12 * MB


@pytest.fixture
def joined(wire):
    worker, server = wire.pair()
    region = worker.region("gradients", REGION_BYTES)
    np.frombuffer(region.memory, np.uint32)[:] = np.random.default_rng(5).integers(
        0, 2**32, REGION_BYTES // 4, dtype=np.uint32
    )
    return wire, worker, server, region


_edge_sizes = st.sampled_from(
    [0, 1, 63, 64, 65, 32767, 32768, 32769, MB - 1, MB, MB + 1, 4 * MB - 1, 4 * MB, 4 * MB + 1]
)
_sizes = st.lists(st.one_of(_edge_sizes, st.integers(0, 3 * MB)), max_size=6)


@settings(
    max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow]
)
@given(sizes=_sizes, header=st.binary(max_size=300), seed=st.integers(0, 2**32))
def test_parts_arrive_as_they_were_sent(joined, sizes, header, seed):
    wire, worker, server, region = joined
    starts = [int(start) for start in np.random.default_rng(seed).integers(0, REGION_BYTES - 5 * MB, len(sizes))]
    parts = [RegionPart(region, start, start + size) for start, size in zip(starts, sizes, strict=True)]
    sequence = worker.send("ps-0", header, parts)
    message = wire.message(server)
    assert (message.peer, message.header, message.sequence) == ("worker-0", header, sequence)
    assert [len(view) for view in message.payload] == sizes
    assert all(view.readonly for view in message.payload)
    for view, part in zip(message.payload, parts, strict=True):
        assert view == part.memory()
    assert message.shared == (wire.shared and bool(sizes))


def test_messages_arrive_in_order_and_are_numbered_from_one(joined):
    wire, worker, server, region = joined
    for number in range(200):
        assert worker.send("ps-0", str(number).encode(), [region.part(number, number * 1000)]) == number + 1
    assert [wire.message(server).header for _ in range(200)] == [str(number).encode() for number in range(200)]


def test_a_message_is_acknowledged_when_the_application_takes_the_next_step(joined):
    wire, worker, server, region = joined
    first = worker.send("ps-0", b"one", [region.part()])
    second = worker.send("ps-0", b"two")
    assert wire.unacknowledged(worker, "ps-0") == range(first, second + 1)
    wire.message(server)
    wire.message(server)
    wire.until(lambda: wire.unacknowledged(worker, "ps-0") == range(0))
    assert wire.losses(worker, "ps-0") == (0, 0)
    assert wire.losses(server, "worker-0") == (0, 0)


def test_both_ways_count_what_went_and_by_which_means(joined):
    wire, worker, server, region = joined
    worker.send("ps-0", b"push", [region.part(0, 3 * MB), region.part(0, 10)])
    wire.message(server)
    for counters in (worker.counters.peer("ps-0").out, server.counters.peer("worker-0").into):
        assert counters.messages == 1
        assert counters.frame_bytes == (0 if wire.shared else 3 * MB + 10)
        assert counters.shared_bytes == (3 * MB + 10 if wire.shared else 0)


def test_many_peers_speak_at_once_and_each_in_order(wire):
    server = wire.endpoint("ps-0")
    workers = [wire.endpoint(f"worker-{number}") for number in range(6)]
    wire.connect(*[(worker, server) for worker in workers], *[(server, worker) for worker in workers])
    for step in range(5):
        for worker in workers:
            region = worker.region("gradients", 200_000)
            region.memory[:3] = bytes([step, int(worker.name[-1]), 7])
            worker.send("ps-0", str(step).encode(), [region.part()])
    answer = server.region("parameters", 100_000)
    seen = {worker.name: [] for worker in workers}
    for _ in range(5 * len(workers)):
        message = wire.message(server)
        assert bytes(message.payload[0][:3]) == bytes([len(seen[message.peer]), int(message.peer[-1]), 7])
        seen[message.peer].append(message.header)
        server.send(message.peer, b"pulled " + message.header, [answer.part()])
    assert set(map(tuple, seen.values())) == {(b"0", b"1", b"2", b"3", b"4")}
    for worker in workers:
        assert [wire.message(worker).header for _ in range(5)] == [f"pulled {step}".encode() for step in range(5)]


def test_parts_of_all_sizes_arrive_whole(wire):
    worker, server = wire.endpoint("worker-0"), wire.endpoint("ps-0")
    wire.connect((server, worker))
    region = server.region("parameters", 3 * MB)
    expected = np.random.default_rng(1).integers(0, 256, 3 * MB, dtype=np.uint8)
    np.frombuffer(region.memory, np.uint8)[:] = expected
    sizes = (100, 2 * MB + 5, 0, 50_000)
    stops = [0, *np.cumsum(sizes).tolist()]
    parts = [region.part(start, stop) for start, stop in itertools.pairwise(stops)]
    server.send("worker-0", b"pulled", parts)
    message = wire.message(worker)
    assert [part.nbytes for part in message.payload] == list(sizes)
    assert b"".join(message.payload) == expected[: stops[-1]].tobytes()


def test_wake_from_another_thread_ends_a_receive(wire):
    _, server = wire.pair()
    waker = threading.Timer(0.01, server.wake)
    waker.start()
    assert server.receive(60.0) is None
    waker.join()


def test_what_the_caller_does_wrong_is_said_at_once(joined):
    wire, worker, _, region = joined
    with pytest.raises(UnknownPeer, match="ps-7"):
        worker.send("ps-7", b"")
    with pytest.raises(BadMessage, match="header of 65537 bytes; at most 65536"):
        worker.send("ps-0", bytes(65537))
    with pytest.raises(BadMessage, match="is not within region 'gradients'"):
        worker.send("ps-0", b"", [RegionPart(region, 5, REGION_BYTES + 1)])
    with pytest.raises(BadMessage, match="5000 parts"):
        worker.send("ps-0", b"", [RegionPart(region, 0, 1)] * 5000)
    assert wire.unacknowledged(worker, "ps-0") == range(0)


def test_a_peer_that_connects_is_news_on_both_sides(wire):
    worker, server = wire.endpoint("worker-0"), wire.endpoint("ps-0")
    worker.connect("ps-0", server.address)
    wire.until(lambda: bool(wire.events[worker] and wire.events[server]))
    assert wire.events[worker] == [PeerUp("ps-0", Way.OUT)]
    assert wire.events[server] == [PeerUp("worker-0", Way.IN, worker.incarnation)]


def test_a_view_outlives_its_message_and_the_connection(joined):
    wire, worker, server, region = joined
    expected = bytes(region.memory)
    worker.send("ps-0", b"", [region.part()])
    (view,) = wire.message(server).payload
    worker.close()
    wire.endpoints.remove(worker)
    wire.until(lambda: "worker-0" not in server.inbound.peers())
    assert isinstance(view, memoryview)
    assert bytes(view) == expected


def test_large_parts_use_the_same_memory_again(tcp):
    worker, server = tcp.pair()
    region = worker.region("gradients", 6 * MB)
    places = set()
    for _ in range(4):
        worker.send("ps-0", b"", [region.part()])
        message = tcp.message(server)
        assert isinstance(message, Message)
        places.add(np.frombuffer(message.payload[0], np.uint8).ctypes.data)
        del message
    assert len(places) == 1
