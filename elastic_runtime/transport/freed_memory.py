"""Keeps the memory of received frames in the process when they are freed.

glibc gives large blocks back to the system at once, and the next frame's pages have to be faulted in again: that costs
as much as receiving it. Two limits of its allocator change this, for the whole process; the price is that up to
`KEPT_BYTES` stay with it that nobody uses.
"""

from __future__ import annotations

import ctypes

_M_TRIM_THRESHOLD = -1
_M_TOP_PAD = -2
_M_MMAP_THRESHOLD = -3
_LARGEST_HEAP_BLOCK_BYTES = 32 * 1024 * 1024
"""The most that glibc takes on 64 bits."""
_HEAP_BYTES = 64 * 1024 * 1024
KEPT_BYTES = 256 * 1024 * 1024


def keep_freed_memory() -> bool:
    """Whether the limits could be set; other C libraries do not know them."""
    try:
        set_limit = ctypes.CDLL(None).mallopt
    except AttributeError:
        return False
    limits = {
        _M_MMAP_THRESHOLD: _LARGEST_HEAP_BLOCK_BYTES,
        _M_TRIM_THRESHOLD: KEPT_BYTES,
        _M_TOP_PAD: _HEAP_BYTES,
    }
    set_all = True
    for limit, value in limits.items():
        set_all = set_limit(limit, value) == 1 and set_all
    return set_all
