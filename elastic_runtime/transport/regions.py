"""Memory that a process owns and its peers on the same host can read without a copy.

A region is an anonymous file in memory (`memfd`). It has no name in any file system, so nothing is left behind when its
owner is killed: the system frees it with the last mapping. It does not count against the size of `/dev/shm`, which is
64 MB in most containers. Its pages are allocated before it is used, so that a full machine is an error here and not a
SIGBUS later. Then it is sealed: nobody can shrink it under a reader, and nobody else can map it for writing.
"""

from __future__ import annotations

import fcntl
import itertools
import mmap
import os
import weakref
from collections.abc import Callable
from typing import NamedTuple

import structlog
import zmq

from elastic_runtime.transport.errors import BadMessage

_F_SEAL_FUTURE_WRITE = 0x10
"""Linux 5.1; Python's `fcntl` does not name it. The owner's own mapping, made before, stays writable."""
SEALS = fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW | _F_SEAL_FUTURE_WRITE | fcntl.F_SEAL_SEAL
"""What a reader insists on before it maps a peer's region."""

_MOST_FRAMES = 16384
"""Frames of one region that are kept."""

_numbers = itertools.count(1)
"""Unique in the process, so that a region of another endpoint cannot be taken for one of ours."""
_log = structlog.get_logger(__name__)

Allocate = Callable[[int, int], None]
"""Given a file descriptor and a size in bytes, makes sure that the pages exist. Raises OSError."""


def allocate_pages(descriptor: int, size_bytes: int) -> None:
    """The real `Allocate`."""
    os.posix_fallocate(descriptor, 0, size_bytes)


class Region:
    """A flat, page-aligned piece of memory, writable by this process only.

    `np.frombuffer(region.memory, …)` and `torch.frombuffer` build arrays on it. Made by `Endpoint.region`.
    """

    def __init__(
        self, name: str, size_bytes: int, *, shared: bool, allocate: Allocate, on_demand: bool = False
    ) -> None:
        self.number = next(_numbers)
        self.name = name
        self.size_bytes = size_bytes
        self.descriptor: int | None = None
        """Of the memory file; None in private memory, whose parts travel as frames."""
        mapping: mmap.mmap | None = None
        if shared:
            try:
                mapping = self._map_shared(None if on_demand else allocate)
            except OSError as error:
                _log.warning("shared-memory-refused", region=name, size_bytes=size_bytes, error=str(error))
        if mapping is None:
            mapping = mmap.mmap(-1, size_bytes, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
        self.memory = memoryview(mapping)
        """Writable, `size_bytes` of unsigned bytes, zero at first."""
        self._frames: dict[tuple[int, int], zmq.Frame] = {}

    def _map_shared(self, allocate: Allocate | None) -> mmap.mmap:
        descriptor = os.memfd_create(f"fedl2-{self.name}"[:200], os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
        try:
            os.ftruncate(descriptor, self.size_bytes)
            if allocate is not None:
                allocate(descriptor, self.size_bytes)
            mapping = mmap.mmap(descriptor, self.size_bytes, flags=mmap.MAP_SHARED)
            fcntl.fcntl(descriptor, fcntl.F_ADD_SEALS, SEALS)
        except OSError:
            os.close(descriptor)
            raise
        self.descriptor = descriptor
        self._close = weakref.finalize(self, os.close, descriptor)
        return mapping

    def reserve(self, start_byte: int, stop_byte: int) -> None:
        """Allocate the pages of some bytes, before they are first written to; for regions made `on_demand`.

        Raises:
            OSError: the machine has no memory left.
        """
        if self.descriptor is not None and stop_byte > start_byte:
            os.posix_fallocate(self.descriptor, start_byte, stop_byte - start_byte)

    @property
    def shared(self) -> bool:
        """Whether peers on this host read it in place."""
        return self.descriptor is not None

    def frame(self, start_byte: int, stop_byte: int) -> zmq.Frame:
        """These bytes, to be sent; kept, as the same ones are sent at every step.

        pyzmq would otherwise make a frame each time, and its own thread would have to be woken up to let go of it.
        """
        frame = self._frames.get((start_byte, stop_byte))
        if frame is None:
            if len(self._frames) >= _MOST_FRAMES:
                self._frames.clear()
            frame = zmq.Frame(self.memory[start_byte:stop_byte], track=False, copy=False)
            self._frames[start_byte, stop_byte] = frame
        return frame

    def part(self, start_byte: int = 0, stop_byte: int | None = None) -> RegionPart:
        """The bytes from `start_byte` up to `stop_byte`, the end unless given."""
        return RegionPart(self, start_byte, self.size_bytes if stop_byte is None else stop_byte)

    def forget_descriptor(self) -> None:
        """No new peer can map it from now on; its memory lives as long as somebody has it mapped."""
        if self.descriptor is not None:
            self._close()
            self.descriptor = None
        self._frames.clear()


class RegionPart(NamedTuple):
    """Bytes of a region, to be sent."""

    region: Region
    start_byte: int
    stop_byte: int

    @property
    def size_bytes(self) -> int:
        """How many bytes."""
        return self.stop_byte - self.start_byte

    def memory(self) -> memoryview:
        """The bytes, in place.

        Raises:
            BadMessage: they are not within the region.
        """
        if not 0 <= self.start_byte <= self.stop_byte <= self.region.size_bytes:
            raise BadMessage(
                f"part {self.start_byte}:{self.stop_byte} is not within region {self.region.name!r} "
                f"of {self.region.size_bytes} bytes"
            )
        return self.region.memory[self.start_byte : self.stop_byte]
