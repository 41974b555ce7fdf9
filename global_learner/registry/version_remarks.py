"""Remarks of operators on versions: pins, notes and aliases; each with its line in the audit log, in one transaction.

A version's file, digest and signature stay as they were. A version has one note at a time, and the log the earlier
ones; an alias is one version's at a time, and a version may have several.
"""

from __future__ import annotations

from sqlalchemy import select
from sqlalchemy.orm import Session

from global_learner.errors import BadRequest, UnknownPolicyVersion
from global_learner.registry.assignments import AUDIT, kept_row, version_row
from global_learner.registry.tables import VersionRow
from global_learner.registry.version_words import check_alias
from global_learner.storage.audit import Order
from global_learner.storage.database import Database

_MOST_ALIASES = 1_000
"""Of a fleet: who looks one up reads all cards."""


class VersionRemarks:
    """Remarks in the registry's database; every method blocks, on the registry's thread."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def pin(self, version: int, pinned: bool, order: Order) -> bool:
        """Keep a version whatever its age, or no longer; False if it was so already.

        Raises:
            UnknownPolicyVersion: there is none of this number, or its file is no longer kept.
        """
        with self._database.transaction() as session:
            row = kept_row(session, version)
            if row.pinned == pinned:
                return False
            row.pinned = pinned
            _note(session, order, "pinned" if pinned else "unpinned", version, order.why)
            return True

    def note(self, version: int, text: str, order: Order) -> bool:
        """Replace a version's note by a text of one line; an empty one removes it. False if it was so already.

        A note stays also when the version's file is removed.

        Raises:
            UnknownPolicyVersion: there is none of this number.
        """
        with self._database.transaction() as session:
            row = version_row(session, version)
            before = row.note["text"] if row.note else ""
            if text == before:
                return False
            row.note = {"text": text, "actor": order.actor, "unix_seconds": order.unix_seconds} if text else None
            _note(session, order, "noted" if text else "note-removed", version, text or before)
            return True

    def give_alias(self, alias: str, version: int, move: bool, order: Order) -> int:
        """Give a version an alias, which keeps it whatever its age; the version that had it before, 0: none.

        Args:
            move: whether it may be taken from another version.

        Raises:
            UnknownPolicyVersion: there is none of this number, or its file is no longer kept.
            BadRequest: it cannot be an alias, is another version's, or there are too many.
        """
        check_alias(alias)
        with self._database.transaction() as session:
            row = kept_row(session, version)
            named = [other for other in session.scalars(select(VersionRow)) if other.aliases]
            owner = next((other for other in named if alias in other.aliases), None)
            if owner is row:
                return version
            if owner is not None and not move:
                remedy = f"`policyctl version alias v{version} {alias} --move` takes it from that one"
                raise BadRequest(f"{alias!r} is v{owner.version}'s: {remedy}")
            if owner is None and sum(len(other.aliases) for other in named) >= _MOST_ALIASES:
                raise BadRequest(
                    f"there are {_MOST_ALIASES:,} aliases already; `policyctl version unalias` takes one away"
                )
            before = 0
            if owner is not None:
                before = owner.version
                owner.aliases = [name for name in owner.aliases if name != alias]
            row.aliases = sorted([*row.aliases, alias])
            moved = f"{alias}, which was v{before}'s" if before else alias
            _note(session, order, "alias-given", version, order.words(moved))
            return before

    def take_alias(self, alias: str, order: Order) -> int:
        """Remove an alias; the version that had it.

        Raises:
            UnknownPolicyVersion: no version has it.
        """
        with self._database.transaction() as session:
            for row in session.scalars(select(VersionRow)):
                if alias in row.aliases:
                    row.aliases = [name for name in row.aliases if name != alias]
                    _note(session, order, "alias-removed", row.version, order.words(alias))
                    return row.version
        raise UnknownPolicyVersion(f"no version has the alias {alias[:63]!r}; see `policyctl version list`")


def _note(session: Session, order: Order, action: str, version: int, detail: str) -> None:
    AUDIT.record(session, order.unix_seconds, order.actor, action, f"v{version}", detail)
