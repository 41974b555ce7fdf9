"""Chain of an audit log: a line's digest is of its content and of the digest of the line before it.

All that is needed to check it is here, without a database and without a learner: a file of exported lines is enough.
A digest is the SHA-256, in hex, of the JSON array `[before, unix_seconds, actor, action, subject, detail]` as Python's
`json.dumps` writes it; the first line's `before` is empty. A file holds one line of JSON for each line of the log, in
the log's order, byte for byte as `to_json` writes it: nothing in it is free to be otherwise.

What a chain cannot show by itself is that its end was cut off. A digest that was noted elsewhere does: it must still
stand in the log.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from foundation.text import parse_json

IDENTITIES = "identities"
"""The log of who was let in and turned out."""
VERSIONS = "versions"
"""The log of what was done with versions and the head, and of what agents refused."""
LOGS = (IDENTITIES, VERSIONS)
_DIGEST_CHARACTERS = 64


@dataclass(frozen=True, slots=True)
class AuditLine:
    """One line of one of the logs, numbered 1, 2, 3 … within it; `before` is the digest of the line before, if any."""

    log: str
    number: int
    unix_seconds: float
    actor: str
    action: str
    subject: str
    detail: str
    before: str
    digest: str

    def to_json(self) -> str:
        """The line as a file has it, without its end."""
        return json.dumps({item.name: getattr(self, item.name) for item in dataclasses.fields(self)})


@dataclass(frozen=True, slots=True)
class Misfit:
    """The first line that is not what was written, by its number in its log, or in the file where it cannot be read."""

    log: str
    line: int
    what: str


@dataclass(frozen=True, slots=True)
class Chain:
    """One log as far as it fits: its first line's number (0: none), how many fit, and the digest of the last one."""

    log: str
    first: int
    lines: int
    head: str
    misfit: Misfit | None = None


def digest_of(before: str, unix_seconds: float, actor: str, action: str, subject: str, detail: str) -> str:
    """A line's digest; see the module."""
    content = json.dumps([before, unix_seconds, actor, action, subject, detail])
    return hashlib.sha256(content.encode()).hexdigest()


def checked_chain(log: str, lines: Sequence[AuditLine], after: Sequence[str] = ()) -> Chain:
    """Recompute the digests of one log's lines, in the order in which they stand.

    Args:
        lines: all of them, or those from some line on.
        after: digests that the first line may follow if it is not line 1, as they were noted elsewhere.
    """
    first = lines[0].number if lines else 0
    head, fitting = "", 0
    for index, line in enumerate(lines):
        wrong = _beginning(line, after) if index == 0 else _place(lines, index)
        if not wrong and index and line.before != head:
            wrong = "does not follow the line before it: one of the two is not what was written"
        content = (line.before, line.unix_seconds, line.actor, line.action, line.subject, line.detail)
        if not wrong and digest_of(*content) != line.digest:
            wrong = "was changed: its digest is not that of what it says"
        if wrong:
            number = line.number if index == 0 else lines[index - 1].number + 1
            return Chain(log, first, fitting, head, Misfit(log, number, f"log {log}, line {number}: {wrong}"))
        head, fitting = line.digest, fitting + 1
    return Chain(log, first, fitting, head)


def _beginning(line: AuditLine, after: Sequence[str]) -> str:
    if line.number == 1:
        return "" if not line.before else "is the first, and names a line before it"
    if line.before and line.before in after:
        return ""
    return (
        "stands first, and the lines before it are not there; if the export was begun there, say by --after which "
        "digest it is to follow"
    )


def _place(lines: Sequence[AuditLine], index: int) -> str:
    """Why a line does not stand where it belongs."""
    number, expected = lines[index].number, lines[index - 1].number + 1
    if number == expected:
        return ""
    if number < expected:
        same = any(line == lines[index] for line in lines[:index])
        return f"line {number} stands there a second time" if same else f"line {number} stands there, out of order"
    if any(line.number == expected for line in lines[index:]):
        return f"line {number} stands there, out of order"
    missing = "is missing" if number == expected + 1 else f"and those up to line {number - 1} are missing"
    return f"{missing}: line {number} stands there"


def parse_lines(data: bytes) -> tuple[list[AuditLine], Misfit | None]:
    """The lines of a file, up to the first that no export writes."""
    lines: list[AuditLine] = []
    *whole, rest = data.split(b"\n")
    for number, text in enumerate(whole, start=1):
        line = _parsed(text)
        if line is None:
            return lines, Misfit("", number, f"line {number} of the file is none that an export writes, byte for byte")
        lines.append(line)
    if rest:
        number = len(whole) + 1
        return lines, Misfit("", number, f"line {number} of the file has no end: it was cut off there")
    return lines, None


def _parsed(text: bytes) -> AuditLine | None:
    try:
        found = parse_json(text.decode("ascii"))
    except ValueError:
        return None
    kinds = {"number": int, "unix_seconds": float}
    names = [item.name for item in dataclasses.fields(AuditLine)]
    if not isinstance(found, dict) or list(found) != names:
        return None
    if any(type(found[name]) is not kinds.get(name, str) for name in names):
        return None
    line = AuditLine(**found)
    return line if line.log in LOGS and line.number > 0 and line.to_json().encode() == text else None


def is_digest(text: str) -> bool:
    """Whether this could be a line's digest."""
    return len(text) == _DIGEST_CHARACTERS and set(text) <= set("0123456789abcdef")


def place_of(digest: str, lines: Iterable[AuditLine]) -> AuditLine | None:
    """The line that bears a digest."""
    return next((line for line in lines if line.digest == digest), None)
