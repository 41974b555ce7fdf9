"""The end of a file of records: what stands behind the last one that could be read.

A crash leaves the last record incomplete, and room that was reserved or is written over holds zeros or older records:
both are nothing that anybody was told is safe. A whole record *behind* an unreadable place is another matter: then what
stood there was damaged, and going on would lose what was acknowledged without a word. Records are looked for byte by
byte, since a damaged one does not say how long it is.
"""

from __future__ import annotations

import mmap
from collections.abc import Callable, Iterable

Data = bytes | mmap.mmap


def find_whole_record(
    data: Data,
    begin: int,
    patterns: Iterable[bytes],
    is_whole: Callable[[int], bool],
    lead_bytes: int = 0,
) -> int | None:
    """The first whole record of those that hold one of the patterns.

    Args:
        data: the file.
        begin: where the first such record may begin.
        patterns: bytes that a record holds, tried one after the other over the whole rest of the file.
        is_whole: whether a whole record (by its checksum) begins at this byte.
        lead_bytes: how far behind a record's first byte its pattern stands.

    Returns:
        Where it begins; None if there is none.
    """
    for pattern in patterns:
        found = data.find(pattern, begin + lead_bytes)
        while found >= 0:
            if is_whole(found - lead_bytes):
                return found - lead_bytes
            found = data.find(pattern, found + 1)
    return None
