"""Which versions' files go: by count and age, but never one that somebody may still need."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass

from global_learner.registry.cards import FIRST_VERSION
from global_learner.registry.tables import VersionRow

_DAY_SECONDS = 86_400.0


@dataclass(frozen=True, slots=True)
class Retention:
    """How many versions are kept, and for how long.

    Attributes:
        versions: the newest so many; 0: any number.
        days: those that are younger; None: of any age.
    """

    versions: int = 0
    days: float | None = None


def superfluous(
    rows: Sequence[VersionRow], assigned: Collection[int], rule: Retention, unix_seconds: float
) -> list[VersionRow]:
    """Those of the kept versions (newest first) whose files may go.

    Never: v1, the newest, those assigned or pinned, the one that the head was reset to, and the parents of all these,
    with which they are compared and to which one goes back.
    """
    if not rows:
        return []
    needed = {FIRST_VERSION, rows[0].version, *assigned}
    needed |= {row.version for row in rows if row.pinned or row.reset_base}
    needed |= {row.parent for row in rows if row.version in needed}
    beyond = {row.version for row in rows[rule.versions :]} if rule.versions else set()
    if rule.days is not None:
        oldest = unix_seconds - rule.days * _DAY_SECONDS
        beyond |= {row.version for row in rows if row.created_unix_seconds < oldest}
    return [row for row in rows if row.version in beyond - needed]
