"""The measure for shared memory: one copy in and one out, and a byte to say that it is there.

Nothing that hands bytes from private memory to private memory through shared memory can do with less. Each process
writes to shared memory of its own, as processes do that show theirs to others read-only.
"""

from __future__ import annotations

import mmap
import os
import socket
import struct
from multiprocessing.connection import Connection
from multiprocessing.reduction import DupFd

import numpy as np

from benchmarks.dataplane.pair import DEADLINE_SECONDS, Bytes, own_cpu_seconds, private_memory, reported, start_other

_COMMAND = struct.Struct("<cQ")
_CPU = struct.Struct("<d")


class TwoCopies:
    """Two copies with numpy, on two processes, one after the other."""

    def __init__(self, most_bytes: int) -> None:
        self._memory = private_memory(most_bytes)
        ours, theirs = _shared_file(most_bytes), _shared_file(most_bytes)
        self._ours, self._theirs = _mapped(ours, most_bytes), _mapped(theirs, most_bytes)
        self._socket, other = socket.socketpair()
        self._socket.settimeout(DEADLINE_SECONDS)
        self._process, connection = start_other(_serve, most_bytes)
        connection.send([DupFd(descriptor) for descriptor in (ours, theirs, other.fileno())])
        reported(connection)
        other.close()
        os.close(ours)
        os.close(theirs)

    def push(self, size_bytes: int) -> None:
        """See `Pair`."""
        np.copyto(self._ours[:size_bytes], self._memory[:size_bytes])
        self._socket.sendall(_COMMAND.pack(b"P", size_bytes))
        self._socket.recv(1)

    def pull(self, size_bytes: int) -> None:
        """See `Pair`."""
        self._socket.sendall(_COMMAND.pack(b"G", size_bytes))
        self._socket.recv(1)
        np.copyto(self._memory[:size_bytes], self._theirs[:size_bytes])

    def cpu_seconds(self) -> float:
        """See `Pair`."""
        self._socket.sendall(_COMMAND.pack(b"C", 0))
        return float(_CPU.unpack(self._socket.recv(_CPU.size))[0]) + own_cpu_seconds()

    def close(self) -> None:
        """See `Pair`."""
        self._socket.close()
        self._process.join(DEADLINE_SECONDS)


def _serve(connection: Connection, most_bytes: int) -> None:
    memory = private_memory(most_bytes)
    theirs_file, ours_file, peer_file = connection.recv()
    theirs, ours = _mapped(theirs_file.detach(), most_bytes), _mapped(ours_file.detach(), most_bytes)
    connection.send("ready")
    with socket.socket(fileno=peer_file.detach()) as peer:
        while command := peer.recv(_COMMAND.size):
            what, size_bytes = _COMMAND.unpack(command)
            if what == b"P":
                np.copyto(memory[:size_bytes], theirs[:size_bytes])
                peer.sendall(b".")
            elif what == b"G":
                np.copyto(ours[:size_bytes], memory[:size_bytes])
                peer.sendall(b".")
            else:
                peer.sendall(_CPU.pack(own_cpu_seconds()))


def _shared_file(size_bytes: int) -> int:
    descriptor = os.memfd_create("fedl2-two-copies", os.MFD_CLOEXEC)
    os.posix_fallocate(descriptor, 0, size_bytes)
    return descriptor


def _mapped(descriptor: int, size_bytes: int) -> Bytes:
    return np.frombuffer(mmap.mmap(descriptor, size_bytes, flags=mmap.MAP_SHARED | mmap.MAP_POPULATE), np.uint8)
