"""Remarks of operators on versions: which are kept whatever their age, and what a note says of one, for people.

Neither changes what a version is: its file, its digest and its signature stay as they were. A remark and its line in
the audit log are one transaction. Of a version there is one note at a time; the log has those before.
"""

from __future__ import annotations

from sqlalchemy.orm import Session

from global_learner.registry.assignments import AUDIT, kept_row, version_row


def pin(session: Session, version: int, pinned: bool, actor: str, now: float, why: str = "") -> bool:
    """Keep a version whatever its age, or no longer; False if it was so already.

    Args:
        now: Unix seconds.

    Raises:
        UnknownPolicyVersion: there is none of this number, or its file is no longer kept.
    """
    row = kept_row(session, version)
    if row.pinned == pinned:
        return False
    row.pinned = pinned
    AUDIT.record(session, now, actor, "pinned" if pinned else "unpinned", f"v{version}", why)
    return True


def note(session: Session, version: int, text: str, actor: str, now: float) -> bool:
    """Put a note in the place of the one before; an empty one takes it away. False if it was so already.

    A note stays also when the version's file has gone: why it went nowhere is worth knowing then.

    Args:
        text: on one line.
        now: Unix seconds.

    Raises:
        UnknownPolicyVersion: there is none of this number.
    """
    row = version_row(session, version)
    before = row.note["text"] if row.note else ""
    if text == before:
        return False
    row.note = {"text": text, "actor": actor, "unix_seconds": now} if text else None
    AUDIT.record(session, now, actor, "noted" if text else "note-removed", f"v{version}", text or before)
    return True
