"""Assembly of a message from its frames, with as few copies as its parts allow, in memory that is used again.

A part of one frame is the frame's own memory. A part of several is copied, frame by frame, to where it belongs: a frame
that has just come is in the cache, and its memory serves for the next. A part in shared memory is not touched.

Fresh pages cost more than copying into them: large parts land in a pool's memory, and the C library is told to keep the
memory of freed frames.
"""

from __future__ import annotations

import ctypes
import weakref
from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from elastic_runtime.transport.message import Message
from elastic_runtime.transport.sockets import NOT_WAITING, Socket
from elastic_runtime.transport.wire import FrameCut, Malformed, MessageHead, Reference, cut

View = Callable[[Reference], memoryview]
"""Bytes of a mapped region. Raises Malformed (or a kind of it) for what the peer did not hand over."""

_POOL_BYTES = 256 * 1024 * 1024
"""Kept for parts to come, at most."""
_M_TRIM_THRESHOLD = -1
_M_TOP_PAD = -2
_M_MMAP_THRESHOLD = -3
_LARGEST_HEAP_BLOCK_BYTES = 32 * 1024 * 1024
"""The most that glibc takes on 64 bits."""
_HEAP_BYTES = 64 * 1024 * 1024
_FREED_BYTES = 256 * 1024 * 1024
"""May stay with the process that nobody uses."""


class Assembly:
    """One message under way."""

    def __init__(self, peer: str, head: MessageHead, view: View, pool: MemoryPool, *, is_new: bool) -> None:
        """Prepare for the frames that follow `head`.

        Args:
            is_new: False for a message that was received before: its frames are taken and dropped.

        Raises:
            Malformed: a reference that leads nowhere.
        """
        self.head = head
        self.is_new = is_new
        framed = [0 if reference.region else reference.size_bytes for reference in head.references]
        self._peer = peer
        self._frames = cut(framed, head.frame_bytes)
        self._next = 0
        self._shared = any(reference.region for reference in head.references)
        self._payload = [memoryview(b"")] * len(framed)
        self._targets: list[memoryview | None] = [None] * len(framed)
        for number, reference in enumerate(head.references) if is_new else ():
            if reference.region:
                self._payload[number] = view(reference)
            elif reference.size_bytes > head.frame_bytes:
                self._targets[number] = target = pool.take(reference.size_bytes)
                self._payload[number] = target.toreadonly()

    @property
    def complete(self) -> bool:
        """Whether all frames have come."""
        return self._next == len(self._frames)

    def take_frame(self, socket: Socket) -> None:
        """Receive the next frame, which is there.

        Raises:
            Malformed: it has another size than it should.
        """
        frame = self._frames[self._next]
        self._next += 1
        if not self.is_new:
            size_bytes = socket.recv_into(bytearray(), flags=NOT_WAITING)
        elif frame.joined:
            size_bytes = self._split(frame, socket.recv(NOT_WAITING))
        else:
            (piece,) = frame.pieces
            target = self._targets[piece.part]
            if target is None:
                received = socket.recv(NOT_WAITING, copy=False).buffer
                self._payload[piece.part] = received.toreadonly()
                size_bytes = len(received)
            else:
                into = target[piece.start_byte : piece.start_byte + piece.size_bytes]
                size_bytes = socket.recv_into(into, flags=NOT_WAITING)
        if size_bytes != frame.size_bytes:
            raise Malformed(f"a frame of {size_bytes} bytes where {frame.size_bytes} were announced")

    def message(self) -> Message:
        """The message, complete."""
        return Message(self._peer, self.head.header, tuple(self._payload), self.head.sequence, self._shared)

    def _split(self, frame: FrameCut, data: bytes) -> int:
        view = memoryview(data)
        if len(view) == frame.size_bytes:
            for piece in frame.pieces:
                self._payload[piece.part] = view[piece.offset_bytes : piece.offset_bytes + piece.size_bytes]
        return len(view)


class MemoryPool:
    """Gives out flat memory and takes it back by itself, when nobody holds a view on it any more."""

    def __init__(self, kept_bytes: int = _POOL_BYTES) -> None:
        self._kept_bytes = kept_bytes
        self._free: dict[int, list[NDArray[np.uint8]]] = {}
        self.free_bytes = 0

    def take(self, size_bytes: int) -> memoryview:
        """Writable; what it holds is whatever was there before."""
        free = self._free.get(size_bytes)
        if free:
            memory = free.pop()
            self.free_bytes -= size_bytes
        else:
            memory = np.empty(size_bytes, np.uint8)
        lease = memory[:]  # of its own, so that it dies with the last view while the memory lives on
        weakref.finalize(lease, self._give_back, memory).atexit = False
        return lease.data

    def _give_back(self, memory: NDArray[np.uint8]) -> None:
        if self.free_bytes + memory.nbytes <= self._kept_bytes:
            self._free.setdefault(memory.nbytes, []).append(memory)
            self.free_bytes += memory.nbytes


def keep_freed_memory() -> bool:
    """Have the C library keep the memory of received frames in the process when they are freed.

    glibc gives large blocks back to the system at once, and the next frame's pages have to be faulted in again: that
    costs as much as receiving it. Limits of its allocator change this, for the whole process; the price is that up to
    `_FREED_BYTES` stay with it that nobody uses.

    Returns:
        Whether the limits could be set; other C libraries do not know them.
    """
    try:
        set_limit = ctypes.CDLL(None).mallopt
    except AttributeError:
        return False
    limits = {
        _M_MMAP_THRESHOLD: _LARGEST_HEAP_BLOCK_BYTES,
        _M_TRIM_THRESHOLD: _FREED_BYTES,
        _M_TOP_PAD: _HEAP_BYTES,
    }
    set_all = True
    for limit, value in limits.items():
        set_all = set_limit(limit, value) == 1 and set_all
    return set_all
