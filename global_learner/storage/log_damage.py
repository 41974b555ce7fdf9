"""Damage in an update log, told from what a crash leaves: the search behind the last record that can be read.

A crash leaves at most a part of the last group of records, in any order of its pages: nobody was told of any of them. A
file that is written over holds, behind that, records of older steps. Everything else is damage. The search goes to the
end of the file, byte by byte, as a damaged record does not say how long it is.
"""

from __future__ import annotations

import mmap
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from global_learner.storage.update_records import FORMAT, LAYOUTS, PREFIXES, Prefix

_CHUNK_BYTES = 16 << 20
_WORD_BYTES = 8


@dataclass(frozen=True, slots=True)
class Later:
    """What was found behind an unreadable place.

    Attributes:
        records: whole ones of steps that come later, or of its own step.
        acknowledged: whether one of them says that the unreadable step was on disk.
        last_step: the highest of them.
    """

    records: int = 0
    acknowledged: bool = False
    last_step: int = 0


def look_behind(data: mmap.mmap, end: int, next_step: int, form: int) -> Later:
    """Find what stands behind the last record that can be read.

    Args:
        data: a segment's file.
        end: the byte at which the readable records end.
        next_step: the step that would come there.
        form: the segment's format.
    """
    lead = PREFIXES[form]
    smallest = lead + LAYOUTS[form].size
    highest = next_step + (len(data) - end) // smallest
    records, acknowledged, last_step, behind = 0, False, 0, end
    for at, step in _numbers(data, end + lead, next_step, highest):
        if at - lead < behind:
            continue
        size = _whole_bytes(data, at - lead, form)
        if size is None:
            continue
        prefix = Prefix.parse(data[at - lead : at], form)
        records, last_step, behind = records + 1, max(last_step, step), at - lead + size
        durable = prefix.durable_step if prefix is not None else None
        # The first formats do not say it: whatever comes later was acknowledged as far as anybody knows.
        acknowledged |= form < FORMAT or (durable is not None and durable >= next_step)
    return Later(records, acknowledged, last_step)


def _whole_bytes(data: mmap.mmap, at: int, form: int) -> int | None:
    """How long the whole record at this byte is; None if there is none."""
    lead = PREFIXES[form]
    prefix = Prefix.parse(data[at : at + lead], form)
    if prefix is None or not LAYOUTS[form].size <= prefix.length <= len(data) - at - lead:
        return None
    whole = prefix.fits(data[at + lead : at + lead + prefix.length])
    return lead + prefix.length if whole else None


def _numbers(data: mmap.mmap, begin: int, lowest: int, highest: int) -> Iterator[tuple[int, int]]:
    """Where 64-bit numbers of this range stand, at any byte, in order."""
    for start in range(begin, len(data) - _WORD_BYTES + 1, _CHUNK_BYTES):
        chunk = data[start : start + _CHUNK_BYTES + _WORD_BYTES - 1]
        found: list[tuple[int, int]] = []
        for offset in range(_WORD_BYTES):
            count = (len(chunk) - offset) // _WORD_BYTES
            if count <= 0:
                continue
            words = np.frombuffer(chunk, "<u8", count, offset)
            (places,) = np.nonzero((words >= lowest) & (words <= highest))
            found += [(start + offset + _WORD_BYTES * int(place), int(words[place])) for place in places]
        yield from sorted(found)
