"""The lines of a decision log: sealed, so that a changed byte is noticed, and told apart when read.

A line is one JSON object that ends with the CRC-32 of everything before it. One without a seal was left torn by a dying
agent: the next agent goes on with a checkpoint, so a torn line may only stand at the end of a file or before a
checkpoint. Anything else is damage, and named by its number.
"""

from __future__ import annotations

import re
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

from foundation.text import parse_json
from policy_net.errors import BadInput
from policy_net.exchange.state_codec import JsonObject

CHECKPOINT_START = '{"checkpoint":'
DECISION_START = '{"state":'
LONGEST_LINE_BYTES = 64_000_000
"""Ten thousand jobs make ten megabytes."""
_SEAL = re.compile(rb',"crc32":"([0-9a-f]{8})"\}$')
_SEAL_BYTES = len(b',"crc32":"00000000"}')


@dataclass(frozen=True, slots=True)
class LogLine:
    """One line of a log, counted from 1, and the object in it without its seal; None of a line that was cut short."""

    number: int
    content: JsonObject | None

    @property
    def is_checkpoint(self) -> bool:
        """Whether it says how things stood, and not what was decided."""
        return self.content is not None and "checkpoint" in self.content


def sealed(text: str) -> bytes:
    """A JSON object's text with its seal, and the line's end."""
    body = text[:-1].encode()
    return body + b',"crc32":"%08x"}\n' % zlib.crc32(body)


def numbered_lines(stream: BinaryIO, path: Path) -> Iterator[tuple[int, bytes]]:
    """A file's lines and their numbers, from 1, without ever holding more than one that any log could have.

    Raises:
        BadInput: a line is longer than that.
    """
    number = 0
    while raw := stream.readline(LONGEST_LINE_BYTES + 1):
        number += 1
        if len(raw) > LONGEST_LINE_BYTES:
            raise BadInput(f"{path}, line {number}: longer than {LONGEST_LINE_BYTES} bytes; this is no decision log")
        yield number, raw


def read_lines(path: Path) -> Iterator[LogLine]:
    """The lines of one file, in order, one in memory at a time.

    Raises:
        BadInput: the file cannot be read, or a line was changed or is something else than a log's; it names the line.
    """
    torn: int | None = None
    try:
        with path.open("rb") as stream:
            for number, raw in numbered_lines(stream, path):
                line = _parse(path, number, raw)
                if torn is not None and not line.is_checkpoint:
                    raise BadInput(f"{path}, line {torn}: damaged in the middle of the log; restore it from a copy")
                torn = number if line.content is None else None
                yield line
    except OSError as error:
        raise BadInput(f"{path}: cannot be read ({error.strerror})") from error


def _parse(path: Path, number: int, raw: bytes) -> LogLine:
    text = raw.removesuffix(b"\n")
    seal = _SEAL.search(text[-_SEAL_BYTES:])
    if seal is None:
        return _unsealed(path, number, text)
    body = text[:-_SEAL_BYTES]
    if zlib.crc32(body) != int(seal[1], 16):
        raise BadInput(f"{path}, line {number}: damaged (its checksum is another); restore it from a copy")
    try:
        content = parse_json(body + b"}")
    except ValueError as error:
        raise BadInput(f"{path}, line {number}: no JSON under a good checksum; no agent wrote this") from error
    return LogLine(number, content)


def _unsealed(path: Path, number: int, text: bytes) -> LogLine:
    try:
        parse_json(text)
    except ValueError:
        starts = (CHECKPOINT_START.encode(), DECISION_START.encode())
        if any(text.startswith(start) or start.startswith(text) for start in starts):
            return LogLine(number, None)
        raise BadInput(f"{path}, line {number}: damaged, or no decision log; restore it from a copy") from None
    raise BadInput(f"{path}, line {number}: has no checksum; an earlier version wrote it, or it is no decision log")
