"""Moves of a cluster from version to version, read from the audit log: on which one it acted before.

The log is the one place that keeps all of them, in order, each written with its deed. A move back to the version before
takes the move there away: after a rollout that was rolled back, the version before is what it was before the rollout,
and not what the rollout brought.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from global_learner.storage.audit_chain import AuditLine

_ACTIONS = frozenset({"assigned", "unassigned", "brought", "rollout-assigned", "rolled-back", "loss-accepted"})
"""Lines of which a cluster is the subject, and that begin with the two versions of `move_words`."""
_MOVE = re.compile(r"v(\d{1,18})(?: beside v\d{1,18})?(?: \([a-z-]+\))? to v(\d{1,18})(?![0-9])", re.ASCII)


@dataclass(frozen=True, slots=True)
class VersionMove:
    """One cluster's, from one version to another."""

    from_version: int
    to_version: int


def move_words(from_version: int, to_version: int, why: str = "") -> str:
    """A move as the audit log says it, with an operator's reason behind it."""
    said = f"v{from_version} to v{to_version}"
    return f"{said}: {why}" if why else said


def moves_of(lines: Iterable[AuditLine]) -> Mapping[str, Sequence[VersionMove]]:
    """The moves of every cluster, oldest first."""
    found: dict[str, list[VersionMove]] = {}
    for line in lines:
        match = _MOVE.match(line.detail) if line.action in _ACTIONS else None
        if match is not None and match[1] != match[2]:
            found.setdefault(line.subject, []).append(VersionMove(int(match[1]), int(match[2])))
    return found


def version_before(moves: Iterable[VersionMove], version: int) -> int | None:
    """On which version a cluster acted before it came to the one that it is on now; None if that is not known.

    Args:
        moves: oldest first.
        version: that it is on now; publishing with `auto_assign` moves clusters without a line.
    """
    before: list[int] = []
    last = None
    for move in moves:
        if move.from_version != last and last is not None:
            before.clear()  # it was moved in between, and nobody wrote down how
        if before and before[-1] == move.to_version:
            before.pop()
        else:
            before.append(move.from_version)
        last = move.to_version
    return before[-1] if before and last == version else None
