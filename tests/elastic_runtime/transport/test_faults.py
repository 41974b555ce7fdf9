"""Peers that are slow, killed, cut off or back: what the caller is told, and that nothing is sent twice."""

from __future__ import annotations

import contextlib
import errno
import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from pathlib import Path

import numpy as np
import pytest

from elastic_runtime.transport import Busy, Message, PeerLost, PeerUnreachable, PeerUp, TransportRefusal, Way

MB = 1024 * 1024


def _lost(wire, endpoint):
    return [event for event in wire.events[endpoint] if isinstance(event, PeerLost)]


def _messages(wire, endpoint):
    return [event for event in wire.events[endpoint] if isinstance(event, Message)]


@pytest.mark.parametrize("wire", ["tcp", "ipc-frames"], indirect=True)
def test_a_slow_receiver_makes_send_busy_and_memory_stays_bounded(wire):
    worker, server = wire.pair(settings={"max_in_flight_bytes": 8 * MB})
    region = worker.region("gradients", 2 * MB)
    for number in (1, 2, 3, 4):
        assert worker.send("ps-0", b"", [region.part()], timeout_seconds=0.0) == number
    with pytest.raises(Busy, match="ps-0 has 4 messages that it did not receive yet"):
        worker.send("ps-0", b"", [region.part()], timeout_seconds=0.0)
    assert wire.unacknowledged(worker, "ps-0") == range(1, 5)
    assert wire.message(server).sequence == 1
    wire.message(server)  # which acknowledges the first
    assert worker.send("ps-0", b"", [region.part()], timeout_seconds=60.0) == 5


def test_a_message_larger_than_the_window_goes_when_nothing_else_is_under_way(wire):
    worker, server = wire.pair(settings={"max_in_flight_bytes": MB})
    region = worker.region("gradients", 3 * MB)
    for number in (1, 2, 3):
        assert worker.send("ps-0", b"", [region.part()], timeout_seconds=60.0) == number
        assert len(wire.message(server).payload[0]) == 3 * MB
        server.receive(0.0)


def test_a_peer_that_comes_back_under_its_name_is_known_as_new(wire):
    worker, server = wire.pair()
    wire.connect((server, worker))
    worker.send("ps-0", b"before")
    wire.message(server)
    wire.endpoints.remove(server)
    server.close()
    wire.until(lambda: {event.way for event in _lost(wire, worker)} == {Way.OUT, Way.IN})
    with pytest.raises(PeerUnreachable, match="no connection to ps-0"):
        worker.send("ps-0", b"nobody hears this", timeout_seconds=0.0)
    back = wire.endpoint("ps-0")
    worker.connect("ps-0", back.address)
    back.connect("worker-0", worker.address)
    wire.until(lambda: PeerUp("ps-0", Way.IN, back.incarnation) in wire.events[worker] and worker.is_up("ps-0"))
    assert back.incarnation != server.incarnation
    worker.send("ps-0", b"after")
    assert wire.message(back).header == b"after"


def test_what_was_lost_with_a_connection_is_told_and_never_sent_again(wire):
    worker, server = wire.pair()
    region = worker.region("gradients", MB)
    for header in (b"1", b"2", b"3"):
        worker.send("ps-0", header, [region.part()])
    assert [wire.message(server).header, wire.message(server).header] == [b"1", b"2"]
    deadline = time.monotonic() + 60.0
    while wire.unacknowledged(worker, "ps-0") != range(2, 4):  # taking the second acknowledged the first
        assert time.monotonic() < deadline
        worker.receive(0.01)
    wire.endpoints.remove(server)
    server.close()
    wire.until(lambda: bool(_lost(wire, worker)))
    (lost,) = _lost(wire, worker)
    assert lost.way is Way.OUT
    assert lost.unacknowledged == range(2, 4)
    assert wire.losses(worker, "ps-0")[0] == 2
    assert wire.unacknowledged(worker, "ps-0") == range(0)
    back = wire.endpoint("ps-0")
    wire.connect((worker, back))
    assert worker.send("ps-0", b"again") == 1
    assert wire.message(back).header == b"again"


class Proxy:
    """Between two endpoints on TCP; can be cut, and can swallow everything without closing."""

    def __init__(self, target: str) -> None:
        host, port = target.removeprefix("tcp://").split(":")
        self._target = (host, int(port))
        self._server = socket.create_server(("127.0.0.1", 0))
        self.address = f"tcp://127.0.0.1:{self._server.getsockname()[1]}"
        self._sockets: list[socket.socket] = []
        self.stalled = False
        self.passed_bytes = 0
        """Towards the target."""
        self.answers = 0
        """Pieces that came back from it."""
        threading.Thread(target=self._accept, daemon=True).start()

    def cut(self) -> None:
        for each in self._sockets:
            with contextlib.suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)
        self._sockets.clear()

    def close(self) -> None:
        self._server.shutdown(socket.SHUT_RDWR)
        self._server.close()
        self.cut()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                ours, _ = self._server.accept()
                theirs = socket.create_connection(self._target)
                self._sockets += [ours, theirs]
                for source, sink in ((ours, theirs), (theirs, ours)):
                    threading.Thread(target=self._pump, args=(source, sink, sink is ours), daemon=True).start()

    def _pump(self, source: socket.socket, sink: socket.socket, back: bool) -> None:
        with contextlib.suppress(OSError):
            while data := source.recv(1 << 16):
                if self.stalled:
                    continue
                sink.sendall(data)
                self.passed_bytes += 0 if back else len(data)
                self.answers += back
            sink.shutdown(socket.SHUT_RDWR)


@pytest.fixture
def behind_proxy(tcp):
    """Makes a worker that reaches its server through a proxy."""
    proxies = []

    def make(worker_settings=None, server_settings=None):
        worker, server = (
            tcp.endpoint("worker-0", settings=worker_settings),
            tcp.endpoint("ps-0", settings=server_settings),
        )
        address = json.loads(server.address)
        proxy = Proxy(address["tcp"])
        proxies.append(proxy)
        worker.connect("ps-0", json.dumps({**address, "tcp": proxy.address}))
        tcp.until(lambda: worker.is_up("ps-0") and "worker-0" in server.inbound.peers())
        return tcp, worker, server, proxy

    yield make
    for proxy in proxies:
        proxy.close()


def test_a_cut_connection_is_told_on_both_sides_and_made_again(behind_proxy):
    wire, worker, server, proxy = behind_proxy()
    worker.send("ps-0", b"before")
    assert wire.message(server).header == b"before"
    proxy.cut()
    wire.until(lambda: bool(_lost(wire, worker) and _lost(wire, server)))
    wire.until(lambda: worker.is_up("ps-0"))
    assert worker.send("ps-0", b"after") == 2
    message = wire.message(server)
    assert (message.header, message.sequence) == (b"after", 2)
    assert wire.losses(server, "worker-0") == (0, 0)


def _sent_until_it_comes(wire, worker, server, header):
    """The first message of these that came: a connection may end by itself where the machine is busy for so long."""
    while True:
        wire.until(lambda: worker.is_up("ps-0"))
        try:
            worker.send("ps-0", header, timeout_seconds=0.0)
        except PeerUnreachable:
            continue
        known = len(_lost(wire, worker))
        wire.until(lambda known=known: bool(_messages(wire, server)) or len(_lost(wire, worker)) > known)
        if _messages(wire, server):
            return _messages(wire, server)[0]


def test_a_network_that_swallows_everything_is_noticed_by_its_silence(behind_proxy):
    quick = {"heartbeat_seconds": 0.05, "heartbeat_timeout_seconds": 0.6, "handshake_seconds": 0.6}
    wire, worker, server, proxy = behind_proxy(quick, quick)
    while True:
        proxy.stalled = True
        try:
            worker.send("ps-0", b"swallowed", timeout_seconds=0.0)
            break
        except PeerUnreachable:  # the machine was busy for so long
            proxy.stalled = False
            wire.until(lambda: worker.is_up("ps-0"))
    known = len(_lost(wire, worker))
    wire.until(lambda: len(_lost(wire, worker)) > known and bool(_lost(wire, server)) and not worker.is_up("ps-0"))
    assert _lost(wire, worker)[-1].unacknowledged == range(1, 2)
    proxy.stalled = False
    message = _sent_until_it_comes(wire, worker, server, b"after")
    assert message.header == b"after"
    assert wire.losses(server, "worker-0") == (0, message.sequence - 1)  # the gap is seen by the receiver too


def test_a_busy_application_is_not_taken_for_dead(behind_proxy):
    """Heartbeats are answered by the sockets' own threads, while the server's application takes nothing."""
    wire, worker, server, proxy = behind_proxy({"heartbeat_seconds": 0.05}, {"heartbeat_seconds": 3600.0})
    region = worker.region("gradients", 16 * MB)
    for _ in range(4):
        worker.send("ps-0", b"", [region.part()])
    deadline = time.monotonic() + 60.0
    heard = None
    while heard is None or proxy.answers < heard + 10:
        assert time.monotonic() < deadline, "heartbeats are not answered"
        assert not isinstance(worker.receive(0.01), PeerLost)
        if heard is None and proxy.passed_bytes >= 4 * len(region.memory):
            heard = proxy.answers
    assert [wire.message(server).sequence for _ in range(4)] == [1, 2, 3, 4]


_PEER = """
import sys
from elastic_runtime.transport import Endpoint, Message, PeerUp, TransportSettings
name, token, address = sys.argv[1:]
settings = TransportSettings(reconnect_first_seconds=0.01, reconnect_most_seconds=0.1)
endpoint = Endpoint(name, bind="tcp://127.0.0.1:0", job_token=token, settings=settings)
region = endpoint.region("gradients", 3_000_000)
region.memory[:] = bytes([7]) * 3_000_000
endpoint.connect("ps-0", address)
while not endpoint.shares_memory("ps-0"):
    endpoint.receive(0.01)
endpoint.send("ps-0", endpoint.address.encode(), [region.part()])
while True:
    event = endpoint.receive(60.0)
    if isinstance(event, Message):
        endpoint.send("ps-0", b"pong", [region.part()])
"""


def _file_of(view: memoryview) -> str:
    """Of what this memory is mapped."""
    address = np.frombuffer(view, np.uint8).ctypes.data
    for line in Path("/proc/self/maps").read_text().splitlines():
        span, _, _, _, _, *name = line.split(maxsplit=5)
        start, stop = (int(number, 16) for number in span.split("-"))
        if start <= address < stop:
            return name[0] if name else ""
    raise AssertionError("it is not mapped")


def test_a_killed_peer_leaves_nothing_behind_and_what_it_sent_stays_readable(shared_wire):
    server = shared_wire.endpoint("ps-0")
    names = []
    for _ in range(2):
        command = [sys.executable, "-c", _PEER, "worker-0", "of the job", server.address]
        with subprocess.Popen(command, env={**os.environ, "OMP_NUM_THREADS": "1"}) as process:
            message = shared_wire.message(server)
            assert message.shared
            server.connect("worker-0", message.header.decode())
            server.send("worker-0", b"ping")
            assert shared_wire.message(server).header == b"pong"
            process.send_signal(signal.SIGKILL)
        shared_wire.until(lambda: {event.way for event in _lost(shared_wire, server)} == {Way.OUT, Way.IN})
        ups = [event for event in shared_wire.events[server] if isinstance(event, PeerUp) and event.way is Way.IN]
        names += [event.incarnation for event in ups]
        assert set(message.payload[0][::1000]) == {7}  # its memory lives as long as we have it mapped
        assert _file_of(message.payload[0]).startswith("/memfd:")  # which has no name in any file system
        server.disconnect("worker-0")
        shared_wire.events[server].clear()
    assert len(set(names)) == 2


def test_without_room_for_shared_memory_parts_travel_as_frames(shared_wire, capsys):
    def full(descriptor: int, size_bytes: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    worker, server = shared_wire.endpoint("worker-0", allocate=full), shared_wire.endpoint("ps-0")
    shared_wire.connect((worker, server))
    region = worker.region("gradients", 3 * MB)
    assert not region.shared
    region.memory[:4] = b"data"
    worker.send("ps-0", b"", [region.part()])
    message = shared_wire.message(server)
    assert not message.shared
    assert message.payload[0] == region.memory
    assert server.counters.peer("worker-0").into.frame_bytes == 3 * MB


def test_a_released_region_is_unmapped_by_its_readers(shared_wire):
    worker, server = shared_wire.pair()
    region = worker.region("gradients", MB)
    worker.send("ps-0", b"", [region.part()])
    assert shared_wire.message(server).shared
    reader = next(iter(server.inbound._regions._by_link.values()))
    assert len(reader._mapped) == 1
    worker.release(region)
    shared_wire.until(lambda: not reader._mapped)
    worker.send("ps-0", b"after", [region.part()])  # still good, as a copy
    message = shared_wire.message(server)
    assert isinstance(message, Message)
    assert not message.shared
    assert server.refusals == dict.fromkeys(TransportRefusal, 0)
