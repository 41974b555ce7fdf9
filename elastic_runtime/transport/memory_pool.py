"""Memory for parts that are larger than a frame, used again and again: fresh pages cost more than copying into them."""

from __future__ import annotations

import weakref

import numpy as np
from numpy.typing import NDArray

_KEPT_BYTES = 256 * 1024 * 1024


class MemoryPool:
    """Gives out flat memory and takes it back by itself, when nobody holds a view on it any more."""

    def __init__(self, kept_bytes: int = _KEPT_BYTES) -> None:
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
