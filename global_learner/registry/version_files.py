"""Files of versions: which of them are kept, which are damaged or gone, and what becomes of versions without theirs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import structlog
from sqlalchemy import func, select
from sqlalchemy.orm import Session

from global_learner.errors import StateUnusable
from global_learner.registry.assignments import AUDIT, moves_of, version_before
from global_learner.registry.cards import FIRST_VERSION, VersionOrigin
from global_learner.registry.policy_store import PolicyStore, superfluous
from global_learner.registry.registrations import latest_done
from global_learner.registry.tables import ClusterRow, RolloutRow, VersionRow
from global_learner.section_settings import Retention
from policy_net.exchange.policy_file import parse_policy_file
from policy_net.exchange.statistics import SpeedStatistic

_log = structlog.get_logger()

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
        digest: what it should have.
    """

    version: int
    is_head: bool
    what: str
    digest: str


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
                what = f"{str(error).rpartition('; ')[0] or error} ({whose})"
                lost.append(LostFile(row.version, is_head, what, digest))
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


def newest_of_the_head(session: Session) -> int:
    """The newest version that was not published by hand; 0 without any."""
    rows = session.execute(select(VersionRow.version, VersionRow.details).order_by(VersionRow.version.desc()))
    return next((version for version, details in rows if details.get("origin") != VersionOrigin.PUBLISHED), 0)


def newest_priors(session: Session, policies: PolicyStore) -> tuple[SpeedStatistic, ...] | None:
    """What the newest version says of speeds, of those whose files can be read; None if there is none."""
    kept = select(VersionRow.version, VersionRow.digest).where(VersionRow.kept)
    for version, digest in session.execute(kept.order_by(VersionRow.version.desc())).all():
        try:
            return parse_policy_file(policies.read(digest), f"v{version}").priors
        except StateUnusable as error:
            _log.error("version-unreadable", version=version, reason=str(error))
    return None


def retire(session: Session, rule: Retention, unix_seconds: float) -> int:
    """Keep the files of versions that nobody needs no longer (see `retention`); how many."""
    rows = session.scalars(select(VersionRow).where(VersionRow.kept).order_by(VersionRow.version.desc())).all()
    used = _in_use(session)
    stale = superfluous(rows, used, rule, unix_seconds)
    if stale:  # the log is long, and is read only where something would go
        stale = superfluous(rows, used | _before(session), rule, unix_seconds)
    for row in stale:
        row.kept = False
        row.head_digest, row.head_size_bytes = "", 0
    return len(stale)


def _in_use(session: Session) -> set[int]:
    """Versions that clusters act on, or may act on next: a running rollout's, and what the latest one brought."""
    used = set(session.scalars(select(ClusterRow.assigned_version)))
    for versions in session.scalars(select(RolloutRow.versions).where(RolloutRow.over.is_(False))):
        used.update(versions)
    done = latest_done(session)
    return used if done is None else {*used, done}


def _before(session: Session) -> set[int]:
    """Versions to which clusters would go back, each to the one on which it acted before."""
    moves = moves_of(AUDIT.entries(session))
    found = set()
    for row in session.scalars(select(ClusterRow)):
        before = version_before(moves.get(row.cluster, ()), row.assigned_version)
        if before is not None:
            found.add(before)
    return found


def forget_moments(session: Session) -> int:
    """Keep no moments but the newest version's; of how many they are forgotten."""
    newest = session.scalar(select(func.max(VersionRow.version)))
    rows = session.scalars(select(VersionRow).where(VersionRow.version != newest, VersionRow.head_digest != "")).all()
    for row in rows:
        row.head_digest, row.head_size_bytes = "", 0
    return len(rows)


def orphans(session: Session, policies: PolicyStore, heads: PolicyStore) -> list[Path]:
    """Files that no version refers to, as a crash may leave them, or as lost versions do."""
    rows = session.execute(select(VersionRow.digest, VersionRow.head_digest).where(VersionRow.kept)).all()
    return policies.others({digest for digest, _ in rows}) + heads.others({digest for _, digest in rows})
