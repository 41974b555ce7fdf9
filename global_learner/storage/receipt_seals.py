"""Seals of a file of receipts: a line behind every group of lines, with the checksum of all that stands before it.

A file begins with a seal of nothing. What stands behind the last seal was never finished: it is cut off before anything
is added, and in any file but the newest it is damage. Files of earlier programs have no seals; they get one for all of
it with the next group.
"""

from __future__ import annotations

import os
import re
import zlib
from dataclasses import dataclass
from pathlib import Path

from global_learner.errors import StateUnusable
from global_learner.storage.commits import WAY_OUT

_SEAL = re.compile(rb'^\{"crc": (\d{1,10}), "through": (\d{1,20})\}\n', re.MULTILINE)
_TAIL_BYTES = 128
"""More than a seal takes."""


@dataclass(frozen=True, slots=True)
class Sealed:
    """Where a file's last seal ends, the checksum of all bytes up to there, and the step that it names.

    Attributes:
        through: None in a file of an earlier program, which has no seal: all whole lines count.
    """

    end: int
    checksum: int
    through: int | None


def is_seal(line: str) -> bool:
    """Whether a line is a seal and no receipt."""
    return line.startswith('{"crc"')


def seal(checksum: int, through: int) -> bytes:
    """The line behind bytes of this checksum, whose last receipt is of this step."""
    return f'{{"crc": {checksum}, "through": {through}}}\n'.encode()


def read_end(path: Path) -> Sealed:
    """Where to add to a file; only its end is read if that is a seal.

    Raises:
        OSError: it cannot be read.
    """
    with path.open("rb") as stream:
        size = stream.seek(0, os.SEEK_END)
        stream.seek(max(0, size - _TAIL_BYTES))
        tail = stream.read()
    found = list(_SEAL.finditer(tail))
    if found and found[-1].end() == len(tail):
        return _sealed(found[-1], size)
    return _last_seal(path.read_bytes())


def check_seals(path: Path, newest: bool) -> Sealed:
    """Compute every checksum of a file again; where its last seal ends.

    Raises:
        StateUnusable: its bytes are not those that were written.
        OSError: it cannot be read.
    """
    data = path.read_bytes()
    checksum, at = 0, 0
    last: Sealed | None = None
    for found in _SEAL.finditer(data):
        checksum, at = zlib.crc32(data[at : found.start()], checksum), found.start()
        if checksum != int(found[1]):
            if newest and found.end() == len(data):
                # Of a group, perhaps the first, only the end reached the disk; `commits` knows if it was more.
                return last or Sealed(0, 0, 0)
            raise StateUnusable(
                f"{path}: damaged: what stands before byte {at} is not what was written (checksum {checksum:08x}, "
                f"expected {int(found[1]):08x}); {WAY_OUT}"
            )
        last = _sealed(found, found.end())
    if last is not None and last.end < len(data) and not newest:
        raise StateUnusable(f"{path}: damaged: nothing vouches for what stands behind byte {last.end}; {WAY_OUT}")
    return last or _last_seal(data)


def _sealed(found: re.Match[bytes], end: int) -> Sealed:
    return Sealed(end, zlib.crc32(found[0], int(found[1])), int(found[2]))


def _last_seal(data: bytes) -> Sealed:
    """The last seal wherever it is; without one, the end of the last whole line."""
    found = list(_SEAL.finditer(data))
    if found:
        return _sealed(found[-1], found[-1].end())
    if not data.startswith(b'{"step"'):  # its first group never reached the disk
        return Sealed(0, 0, 0)
    end = data.rfind(b"\n") + 1
    return Sealed(end, zlib.crc32(data[:end]), None)
