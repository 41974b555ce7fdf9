"""Flat memory of a segment: addresses for all of it, pages only where something was written.

A server owns some of a segment's blocks, and others tomorrow. With addresses for the whole segment a block lies at the
same place in every process and never moves; pages that a released block leaves behind go back to the system.
"""

from __future__ import annotations

import ctypes
import mmap
from typing import Any

import torch
from torch import Tensor

_NO_RESERVE = getattr(mmap, "MAP_NORESERVE", 0x4000)
_DO_NOT_NEED = getattr(mmap, "MADV_DONTNEED", None)
_REMOVE = getattr(mmap, "MADV_REMOVE", None)
_LIBC = ctypes.CDLL(None, use_errno=True)


class FlatMemory:
    """One segment's numbers as one 1-D tensor."""

    def __init__(self, elements: int, dtype: torch.dtype, outside: Any = None) -> None:
        """Reserve addresses, or use memory that is there.

        Args:
            elements: length of the segment.
            dtype: of its elements.
            outside: a writable buffer of exactly the segment's bytes, such as a `memoryview` of shared memory; it is
                kept alive. None reserves private memory, all zero.

        Raises:
            ValueError: `outside` is of another size, or read-only.
        """
        size_bytes = elements * dtype.itemsize
        self._private: mmap.mmap | None = None
        if outside is not None:
            view = memoryview(outside)
            if view.readonly or view.nbytes != size_bytes:
                kind = "read-only" if view.readonly else "writable"
                raise ValueError(f"a {kind} buffer of {view.nbytes} bytes for a segment of {size_bytes}, to be written")
            outside = view.cast("B") if size_bytes else None
        elif size_bytes:
            flags = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | _NO_RESERVE
            self._private = outside = mmap.mmap(-1, size_bytes, flags=flags)
        self.tensor: Tensor = torch.frombuffer(outside, dtype=dtype) if size_bytes else torch.empty(0, dtype=dtype)

    def give_back(self, start: int, stop: int) -> None:
        """Forget elements `start` to `stop` (exclusive): their whole pages go back to the system and read as zero.

        Memory handed in goes back if it is anonymous or shared memory of Linux; of another kind it stays.
        """
        base, item = self.tensor.data_ptr(), self.tensor.element_size()
        first = -(-(base + start * item) // mmap.PAGESIZE) * mmap.PAGESIZE
        after = (base + stop * item) // mmap.PAGESIZE * mmap.PAGESIZE
        if after <= first:
            return
        if self._private is not None and _DO_NOT_NEED is not None:
            self._private.madvise(_DO_NOT_NEED, first - base, after - first)
        elif _DO_NOT_NEED is not None and _REMOVE is not None:
            # Shared memory stays while it has a name or a reader, unless it is removed; private memory refuses that.
            place = ctypes.c_void_p(first), ctypes.c_size_t(after - first)
            if _LIBC.madvise(*place, _REMOVE):
                _LIBC.madvise(*place, _DO_NOT_NEED)
