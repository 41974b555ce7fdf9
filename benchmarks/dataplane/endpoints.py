"""The subject: two endpoints of the data plane, as a worker and a parameter server use them.

A message has one part, as with a server that owns adjacent blocks. Over sockets it lies in a region and lands in the
endpoint's private memory. Through shared memory the sender copies its private bytes into its region; the receiver,
which could read them there in place, copies them to its private memory too, so that both ways are two copies.
"""

from __future__ import annotations

import struct
import time
from multiprocessing.connection import Connection
from typing import Literal

import numpy as np

from benchmarks.dataplane.pair import DEADLINE_SECONDS, Bytes, own_cpu_seconds, private_memory, reported, start_other
from elastic_runtime.transport import CurveKeys, Endpoint, Message, Region, TransportSettings

_TOKEN = "of the benchmark"  # noqa: S105 -- guards nothing
Way = Literal["tcp", "tcp-curve", "ipc-frames", "shared-memory"]
_COMMAND = struct.Struct("<cQ")
_CPU = struct.Struct("<d")


class _Side:
    """What both processes have."""

    def __init__(
        self, name: str, most_bytes: int, settings: TransportSettings, keys: CurveKeys | None, *, shared: bool
    ) -> None:
        self.memory = private_memory(most_bytes)
        self.endpoint = Endpoint(
            name,
            bind="tcp://127.0.0.1:0",
            job_token=_TOKEN,
            curve=keys,
            shared_memory=shared,
            settings=settings,
        )
        self.region: Region = self.endpoint.region("bytes", most_bytes)
        self.out: Bytes = np.frombuffer(self.region.memory, np.uint8)
        self.out[:] = 1
        self.copies_in = shared

    def send(self, peer: str, command: bytes, size_bytes: int) -> None:
        """Our private memory's first bytes."""
        if self.copies_in:
            np.copyto(self.out[:size_bytes], self.memory[:size_bytes])
        self.endpoint.send(peer, command, [self.region.part(0, size_bytes)] if size_bytes else ())

    def message(self) -> Message:
        """The next one; news of connections are passed over."""
        deadline = time.monotonic() + DEADLINE_SECONDS
        while time.monotonic() < deadline:
            event = self.endpoint.receive(1.0)
            if isinstance(event, Message):
                if self.copies_in and event.payload:
                    (part,) = event.payload
                    np.copyto(self.memory[: part.nbytes], np.frombuffer(part, np.uint8))
                return event
        raise TimeoutError("the other endpoint of a benchmark does not answer")

    def await_ways(self, peer: str) -> None:
        """Until the way to `peer` stands, and memory is shared if it should be."""
        deadline = time.monotonic() + DEADLINE_SECONDS
        while not self.endpoint.is_up(peer) or self.endpoint.shares_memory(peer) != self.copies_in:
            if time.monotonic() > deadline:
                raise TimeoutError("the endpoints of a benchmark do not connect")
            self.endpoint.receive(0.01)


class Endpoints:
    """See the module."""

    def __init__(self, most_bytes: int, *, way: Way) -> None:
        shared = way == "shared-memory"
        settings = TransportSettings(local_sockets=not way.startswith("tcp"))
        ours, theirs = (CurveKeys.generate(), CurveKeys.generate()) if way == "tcp-curve" else (None, None)
        self._side = _Side("worker", most_bytes, settings, ours, shared=shared)
        if theirs is not None:
            self._side.endpoint.allow("server", theirs.public)
        self._process, connection = start_other(
            _serve, most_bytes, settings, theirs, shared, self._side.endpoint.address, ours.public if ours else None
        )
        self._side.endpoint.connect("server", reported(connection))
        self._side.await_ways("server")
        connection.send("")
        while not connection.poll(0.01):
            self._side.endpoint.receive(0.01)

    def push(self, size_bytes: int) -> None:
        """See `Pair`."""
        self._side.send("server", _COMMAND.pack(b"P", size_bytes), size_bytes)
        self._side.message()

    def pull(self, size_bytes: int) -> None:
        """See `Pair`."""
        self._side.endpoint.send("server", _COMMAND.pack(b"G", size_bytes))
        self._side.message()

    def cpu_seconds(self) -> float:
        """See `Pair`."""
        self._side.endpoint.send("server", _COMMAND.pack(b"C", 0))
        return float(_CPU.unpack(self._side.message().header)[0]) + own_cpu_seconds()

    def close(self) -> None:
        """See `Pair`."""
        self._side.endpoint.send("server", _COMMAND.pack(b"Q", 0))
        self._side.message()
        self._side.endpoint.close()
        self._process.join(DEADLINE_SECONDS)


def _serve(
    connection: Connection,
    most_bytes: int,
    settings: TransportSettings,
    keys: CurveKeys | None,
    shared: bool,
    address: str,
    public_key: str | None,
) -> None:
    side = _Side("server", most_bytes, settings, keys, shared=shared)
    side.endpoint.allow("worker", public_key)
    connection.send(side.endpoint.address)
    side.endpoint.connect("worker", address)
    while not connection.poll(0.0):
        side.endpoint.receive(0.01)
    side.await_ways("worker")
    connection.send("")
    running = True
    while running:
        what, size_bytes = _COMMAND.unpack(side.message().header)
        if what == b"P":
            side.endpoint.send("worker", b".")
        elif what == b"G":
            side.send("worker", b".", size_bytes)
        elif what == b"C":
            side.endpoint.send("worker", _CPU.pack(own_cpu_seconds()))
        else:
            side.endpoint.send("worker", b".")
            running = False
    side.endpoint.flush(DEADLINE_SECONDS)
    side.endpoint.close()
