"""Files of versions: which of them are damaged or gone, and what becomes of versions that lost theirs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from sqlalchemy import select
from sqlalchemy.orm import Session

from global_learner.errors import StateUnusable
from global_learner.registry.assignments import AUDIT
from global_learner.registry.cards import FIRST_VERSION
from global_learner.registry.policy_store import PolicyStore
from global_learner.registry.tables import ClusterRow, VersionRow

_READ_BYTES = 1 << 30
"""So much is read at a start, a second or two; of what is beyond it only the sizes are looked at. Fifty versions of the
shipped policy, as many as are kept by default, take a quarter of this."""


@dataclass(frozen=True, slots=True)
class LostFile:
    """One file that is not what was written.

    Attributes:
        version: whose.
        is_head: it holds the moments, not the policy.
        what: the file, what is wrong with it, and whose it is.
    """

    version: int
    is_head: bool
    what: str


def find_lost(session: Session, policies: PolicyStore, heads: PolicyStore) -> list[LostFile]:
    """Look through the files of all versions that are kept: those that clusters act on, then from the newest on."""
    assigned = set(session.scalars(select(ClusterRow.assigned_version)))
    rows = session.scalars(select(VersionRow).where(VersionRow.kept).order_by(VersionRow.version.desc())).all()
    lost: list[LostFile] = []
    read = 0
    for row in sorted(rows, key=lambda row: row.version not in assigned):
        files = [(policies, row.digest, row.size_bytes, False)]
        if row.head_digest:
            files.append((heads, row.head_digest, row.head_size_bytes, True))
        for store, digest, size, is_head in files:
            read += size
            try:
                if read <= _READ_BYTES:
                    store.read(digest)
                else:
                    store.check_size(digest, size)
            except StateUnusable as error:
                whose = f"{'the moments' if is_head else 'the policy'} of v{row.version}"
                lost.append(LostFile(row.version, is_head, f"{str(error).rpartition('; ')[0] or error} ({whose})"))
    return lost


def give_up(session: Session, lost: Sequence[LostFile], actor: str, now: float) -> None:
    """Keep the cards of versions that lost their files; clusters that act on one go to the newest before it."""
    for entry in lost:
        row = session.get_one(VersionRow, entry.version)
        row.head_digest, row.head_size_bytes = "", 0
        row.kept = row.kept and entry.is_head
    session.flush()
    kept = list(session.scalars(select(VersionRow.version).where(VersionRow.kept)))
    gone = {entry.version for entry in lost if not entry.is_head}
    for cluster in session.scalars(select(ClusterRow).where(ClusterRow.assigned_version.in_(gone))):
        version = max((version for version in kept if version < cluster.assigned_version), default=FIRST_VERSION)
        detail = f"v{cluster.assigned_version} to v{version}, as its file is lost"
        AUDIT.record(session, now, actor, "loss-accepted", cluster.cluster, detail)
        cluster.assigned_version = version
