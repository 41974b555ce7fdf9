"""The measure for TCP: a loopback socket, `sendall` out of and `recv_into` into memory that is there already."""

from __future__ import annotations

import socket
import struct
from multiprocessing.connection import Connection

from benchmarks.dataplane.pair import DEADLINE_SECONDS, Bytes, own_cpu_seconds, private_memory, reported, start_other

_COMMAND = struct.Struct("<cQ")
_CPU = struct.Struct("<d")


class RawSocket:
    """One connection, no framing but a command of nine bytes."""

    def __init__(self, most_bytes: int) -> None:
        self._memory = private_memory(most_bytes)
        self._process, connection = start_other(_serve, most_bytes)
        self._socket = socket.create_connection(("127.0.0.1", reported(connection)), timeout=DEADLINE_SECONDS)
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def push(self, size_bytes: int) -> None:
        """See `Pair`."""
        self._socket.sendall(_COMMAND.pack(b"P", size_bytes))
        self._socket.sendall(self._memory.data[:size_bytes])
        _receive(self._socket, memoryview(bytearray(1)))

    def pull(self, size_bytes: int) -> None:
        """See `Pair`."""
        self._socket.sendall(_COMMAND.pack(b"G", size_bytes))
        _receive(self._socket, self._memory.data[:size_bytes])

    def cpu_seconds(self) -> float:
        """See `Pair`."""
        self._socket.sendall(_COMMAND.pack(b"C", 0))
        answer = bytearray(_CPU.size)
        _receive(self._socket, memoryview(answer))
        return float(_CPU.unpack(answer)[0]) + own_cpu_seconds()

    def close(self) -> None:
        """See `Pair`."""
        self._socket.close()
        self._process.join(DEADLINE_SECONDS)


def _serve(connection: Connection, most_bytes: int) -> None:
    memory = private_memory(most_bytes)
    with socket.create_server(("127.0.0.1", 0)) as server:
        connection.send(server.getsockname()[1])
        peer, _ = server.accept()
    peer.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    with peer:
        while _answer(peer, memory):
            pass


def _answer(peer: socket.socket, memory: Bytes) -> bool:
    command = bytearray(_COMMAND.size)
    if not _receive(peer, memoryview(command)):
        return False
    what, size_bytes = _COMMAND.unpack(command)
    if what == b"P":
        _receive(peer, memory.data[:size_bytes])
        peer.sendall(b".")
    elif what == b"G":
        peer.sendall(memory.data[:size_bytes])
    else:
        peer.sendall(_CPU.pack(own_cpu_seconds()))
    return True


def _receive(peer: socket.socket, into: memoryview) -> bool:
    """Fill `into`; False when the other side is gone."""
    while len(into):
        received = peer.recv_into(into)
        if not received:
            return False
        into = into[received:]
    return True
