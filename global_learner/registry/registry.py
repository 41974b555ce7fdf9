"""Registry of versions with their files, of clusters' assignments, and of incarnations: durable before it answers.

A commit survives a crash of the process and of the machine. Every method blocks; the learner calls them on one thread
of their own.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import structlog
from sqlalchemy import select, update
from sqlalchemy.orm import Session

from global_learner.errors import BadRequest, StateUnusable
from global_learner.registry import assignments
from global_learner.registry.assignments import AUDIT, AssignmentChange, ClusterRegistration, moves_of, version_before
from global_learner.registry.cards import FIRST_VERSION, VersionCard, VersionDetails, VersionOrigin
from global_learner.registry.policy_store import LostFile, PolicyStore, find_lost, superfluous
from global_learner.registry.signing import Signing
from global_learner.registry.tables import ClusterRow, RegistryTables, RolloutRow, VersionRow
from global_learner.registry.version_remarks import VersionRemarks
from global_learner.storage.audit import Order
from global_learner.storage.audit_chain import AuditLine
from global_learner.storage.commits import VERSIONS, VERSIONS_LOST, Commits
from global_learner.storage.database import usable
from global_learner.storage.databases import SharedDatabase, open_database
from policy_net.exchange.policy_file import PolicyFile, digest_of, parse_policy_file, spec_from_json
from policy_net.exchange.spec import Spec
from policy_net.exchange.statistics import SpeedStatistic

_log = structlog.get_logger()

STORE = "registry"
"""Its name in the commit record."""


class Registry:
    """Versions, assignments and incarnations in one database, policy files in folders."""

    def __init__(
        self,
        state_dir: Path,
        commits: Commits | None = None,
        signing: Signing | None = None,
        shared: SharedDatabase | None = None,
    ) -> None:
        """Open or create.

        Args:
            commits: the state directory's record, against which it is checked.
            signing: signs every version as it is published; may be set later.
            shared: database of its tables; unless given, an SQLite file beside its folders.

        Raises:
            StateUnusable: the database is no registry, cannot be opened, or fell back to an older state.
            DatabaseAway: its server cannot be asked.
        """
        self.signing = signing
        path = state_dir / "registry.sqlite"
        self.commits = commits
        self.shared = shared
        self.policies = PolicyStore(state_dir / "policies")
        self.heads = PolicyStore(state_dir / "heads", ".head")
        known = shared is None and commits is not None and commits.count(STORE)
        if known and not (path.exists() and path.stat().st_size):
            raise StateUnusable(
                f"{path}: gone or emptied, and with it all versions and who acts on which: restore the state "
                "directory from a backup; without one, begin in an empty state_dir"
            )
        self.database = open_database(path, STORE, "registry", RegistryTables.metadata, commits, shared)
        self.where = self.database.where
        self.damaged: dict[tuple[int, bool], str] = {}
        """Digests of files that were found damaged or gone, by version and whether it is the head's."""
        self.remarks = VersionRemarks(self.database)
        with usable(self.where, "registry"):
            AUDIT.check(self.database)
            newest = self.newest()
        if commits is not None:
            commits.found(VERSIONS, newest.version if newest else 0, self.where)

    def close(self) -> None:
        """Close the database."""
        self.database.close()

    def session(self) -> Session:
        """A session to read in, for other tables in the same database."""
        return self.database.session()

    def transaction(self) -> AbstractContextManager[Session]:
        """A session whose changes are durable when the block is left."""
        return self.database.transaction()

    def publish(
        self,
        policy: PolicyFile,
        head_step: int,
        created_unix_seconds: float,
        contributions: dict[str, int],
        staleness_p50: float,
        assign_all: bool,
        details: VersionDetails | None = None,
        head: bytes | None = None,
        parent: int = 0,
    ) -> VersionCard:
        """Add the next version, v1 if there is none; numbers of lost versions are never given again.

        Args:
            assign_all: whether all clusters act on it that no operator holds and no rollout decides of.
            head: content for `head_bytes`, by which the head can be reset to this version.
            parent: 0 is the newest version that was not published by hand: the head does not descend from such a one.
        """
        data = policy.to_bytes()
        digest = self.policies.add(data)
        head_digest = "" if head is None else self.heads.add(head)
        with self.database.transaction() as session:
            newest = session.scalars(select(VersionRow).order_by(VersionRow.version.desc()).limit(1)).first()
            row = VersionRow(
                version=max(newest.version, self.newest_ever) + 1 if newest else FIRST_VERSION,
                head_step=head_step,
                parent=parent or _newest_of_the_head(session),
                digest=digest,
                spec_digest=policy.spec.digest,
                spec_json=policy.spec.to_json(),
                created_unix_seconds=created_unix_seconds,
                size_bytes=len(data),
                updates=sum(contributions.values()),
                contributions=contributions,
                staleness_p50=staleness_p50,
                details=(details or VersionDetails()).to_json(),
                head_digest=head_digest,
                head_size_bytes=len(head or b""),
            )
            if self.signing is not None:
                self.signing.sign(row)
            session.add(row)
            session.flush()
            if assign_all:
                free = update(ClusterRow).where(ClusterRow.held.is_(False), ClusterRow.rollout == 0)
                session.execute(free.values(assigned_version=row.version))
            card = VersionCard.of(row)
        if self.commits is not None:
            self.commits.committed(VERSIONS, card.version)
        return card

    def versions(self) -> list[VersionCard]:
        """All cards, oldest first."""
        with self.database.session() as session:
            return [VersionCard.of(row) for row in session.scalars(select(VersionRow).order_by(VersionRow.version))]

    def newest(self) -> VersionCard | None:
        """The newest version's card; None in a new registry."""
        with self.database.session() as session:
            row = session.scalars(select(VersionRow).order_by(VersionRow.version.desc()).limit(1)).first()
            return VersionCard.of(row) if row else None

    def version(self, version: int) -> tuple[VersionCard, Spec]:
        """One version's card and spec.

        Raises:
            UnknownPolicyVersion: there is none of this number.
        """
        with self.database.session() as session:
            row = assignments.version_row(session, version)
            return VersionCard.of(row), spec_from_json(row.spec_json)

    def policy_bytes(self, version: int) -> tuple[VersionCard, bytes]:
        """A version's policy file, checked against its digest.

        Raises:
            UnknownPolicyVersion: there is none of this number, or its file is no longer kept.
            StateUnusable: the file is damaged.
        """
        with self.database.session() as session:
            card = VersionCard.of(assignments.kept_row(session, version))
        return card, self._read(self.policies, card.digest, (version, False))

    def first_priors(self) -> tuple[SpeedStatistic, ...]:
        """Speeds of v1; raises what `policy_bytes` does."""
        _, data = self.policy_bytes(FIRST_VERSION)
        return parse_policy_file(data, f"v{FIRST_VERSION}").priors

    def first_card(self) -> Mapping[str, Any]:
        """What v1's file says of itself; nothing where it cannot be read, which the next start repairs or refuses."""
        try:
            return parse_policy_file(self.policy_bytes(FIRST_VERSION)[1], f"v{FIRST_VERSION}").card
        except StateUnusable as error:
            _log.error("version-unreadable", version=FIRST_VERSION, reason=str(error))
            return {}

    def newest_priors(self) -> tuple[SpeedStatistic, ...] | None:
        """Speeds of the newest version whose file can be read; None if there is none."""
        with self.database.session() as session:
            kept = select(VersionRow.version, VersionRow.digest).where(VersionRow.kept)
            for version, digest in session.execute(kept.order_by(VersionRow.version.desc())).all():
                try:
                    return parse_policy_file(self.policies.read(digest), f"v{version}").priors
                except StateUnusable as error:
                    _log.error("version-unreadable", version=version, reason=str(error))
        return None

    def policy_path(self, version: int) -> Path:
        """Path of a version's policy file.

        Raises:
            UnknownPolicyVersion: there is none of this number, or its file is no longer kept.
        """
        with self.database.session() as session:
            return self.policies.path(assignments.kept_row(session, version).digest)

    def head_bytes(self, version: int) -> bytes | None:
        """The head that a version was published from, checked against its digest; None if it is not kept.

        Raises:
            UnknownPolicyVersion: there is none of this number, or its file is no longer kept.
            StateUnusable: the file is damaged.
        """
        with self.database.session() as session:
            digest = assignments.kept_row(session, version).head_digest
        return self._read(self.heads, digest, (version, True)) if digest else None

    def _read(self, store: PolicyStore, digest: str, whose: tuple[int, bool]) -> bytes:
        try:
            data = store.read(digest)
        except StateUnusable:
            self.damaged[whose] = digest
            raise
        self.damaged.pop(whose, None)
        return data

    def restore(self, version: int, data: bytes, order: Order) -> bool:
        """Put a version's policy file or head back; False if it was there and whole.

        A version whose file was given up is kept again.

        Raises:
            UnknownPolicyVersion: there is none of this number.
            BadRequest: these bytes are none of its files.
        """
        found = digest_of(data)
        with self.database.transaction() as session:
            row = assignments.version_row(session, version)
            if found not in (row.digest, row.head_digest):
                raise BadRequest(
                    f"the file is not v{version}'s: its digest is {found[:12]}, and that of v{version} is "
                    f"{row.digest[:12]}; nothing was changed"
                )
            is_head = found != row.digest
            store = self.heads if is_head else self.policies
            try:
                whole = store.read(found) == data and (row.kept or is_head)
            except StateUnusable:
                whole = False
            if not whole:
                store.add(data)
                row.kept = row.kept or not is_head
                detail = order.words("moments" if is_head else "policy file")
                AUDIT.record(session, order.unix_seconds, order.actor, "restored", f"v{version}", detail)
        self.damaged = {whose: digest for whose, digest in self.damaged.items() if digest != found}
        return not whole

    def register(
        self, cluster: str, on_newest: bool, job_types: Sequence[str], registered_unix_seconds: float
    ) -> ClusterRegistration:
        """Give a cluster its next incarnation; see `assignments.register`."""
        with self.database.transaction() as session:
            return assignments.register(session, cluster, on_newest, job_types, registered_unix_seconds)

    def lost_files(self) -> list[LostFile]:
        """Files of kept versions that are gone or damaged; versions that clusters act on first, then the newest."""
        with self.database.session() as session:
            assigned = set(session.scalars(select(ClusterRow.assigned_version)))
            rows = session.scalars(select(VersionRow).where(VersionRow.kept).order_by(VersionRow.version.desc())).all()
        lost = find_lost(sorted(rows, key=lambda row: row.version not in assigned), self.policies, self.heads)
        self.damaged = {(entry.version, entry.is_head): entry.digest for entry in lost}
        return lost

    def give_up(self, lost: Sequence[LostFile], actor: str, now: float) -> None:
        """Keep only the cards of versions without their files; clusters that act on one go to the newest before it."""
        with self.database.transaction() as session:
            for entry in lost:
                row = session.get_one(VersionRow, entry.version)
                row.head_digest, row.head_size_bytes = "", 0
                row.kept = row.kept and entry.is_head
            session.flush()
            kept = list(session.scalars(select(VersionRow.version).where(VersionRow.kept)))
            gone = {entry.version for entry in lost if not entry.is_head}
            for cluster in session.scalars(select(ClusterRow).where(ClusterRow.assigned_version.in_(gone))):
                earlier = (version for version in kept if version < cluster.assigned_version)
                version = max(earlier, default=FIRST_VERSION)
                detail = f"v{cluster.assigned_version} to v{version}, as its file is lost"
                AUDIT.record(session, now, actor, "loss-accepted", cluster.cluster, detail)
                cluster.assigned_version = version

    def chain_audit_anew(self) -> None:
        """Chain the audit log as it is, after a loss was accepted and written down in it."""
        AUDIT.chain_anew(self.database)

    def renew_incarnations(self, applied: Mapping[str, int]) -> None:
        """Make every cluster register again, beyond the incarnations of which updates were applied."""
        with self.database.transaction() as session:
            assignments.renew_incarnations(session, applied)

    def registrations(self) -> list[ClusterRegistration]:
        """All clusters that ever registered, by name."""
        with self.database.session() as session:
            return assignments.all_registrations(session)

    def bring(self, version: int, order: Order) -> list[AssignmentChange]:
        """Assign a version to every cluster of which no operator and no rollout decides; see `assignments.bring`."""
        with self.database.transaction() as session:
            return assignments.bring(session, version, order)

    def is_whole(self, version: int) -> bool:
        """Whether a version's policy file is there, of the right size, and was not found damaged; it is not read.

        Raises:
            UnknownPolicyVersion: there is none of this number, or its file is no longer kept.
        """
        with self.database.session() as session:
            card = VersionCard.of(assignments.kept_row(session, version))
        try:
            self.policies.check_size(card.digest, card.size_bytes)
        except StateUnusable:
            self.damaged[version, False] = card.digest
        return (version, False) not in self.damaged

    def note_reset(self, version: int, from_step: int, head_step: int, actor: str, now: float) -> None:
        """Log that the head was reset to a version; once for each step at which it was reset."""
        detail = f"from step {from_step} to v{version}, now step {head_step}"
        with self.database.transaction() as session:
            session.execute(update(VersionRow).values(reset_base=VersionRow.version == version))
            if not AUDIT.holds(session, "head-reset", f"v{version}", detail):
                AUDIT.record(session, now, actor, "head-reset", f"v{version}", detail)

    def note(self, actor: str, action: str, subject: str, detail: str, now: float) -> None:
        """Log an act that is kept elsewhere."""
        with self.database.transaction() as session:
            AUDIT.record(session, now, actor, action, subject, detail)

    def note_refusal(self, cluster: str, version: int, reason: str, now: float) -> None:
        """Log that a cluster does not act on a version; once for each reason, of versions that there are."""
        with self.database.transaction() as session:
            assignments.note_refusal(session, cluster, version, reason, now)

    def audit(self, since_unix_seconds: float = 0.0) -> list[AuditLine]:
        """The audit log of versions and of the head from a moment on, oldest first."""
        with self.database.session() as session:
            return AUDIT.entries(session, since_unix_seconds)

    def acts(self, actions: Collection[str], most: int) -> list[AuditLine]:
        """The newest lines with these actions, newest first; without digests."""
        with self.database.session() as session:
            return AUDIT.acts(session, actions, most)

    def audit_head(self) -> tuple[int, str]:
        """How many lines the audit log has, and the digest of the last one."""
        with self.database.session() as session:
            return AUDIT.head(session)

    def sign_versions(self) -> tuple[int, list[int]]:
        """Sign versions from before there were signatures, or before a rotation; how many, and which are not sound.

        A version whose file is damaged, or whose signature does not hold, is left as it is.
        """
        if self.signing is None:
            return 0, []
        with self.database.transaction() as session:
            return self.signing.sign_due(session, self.policies)

    def forget_signatures(self) -> None:
        """Have every version signed anew with the next keys."""
        with self.database.transaction() as session:
            session.execute(update(VersionRow).values(signed=None))

    def set_score(self, version: int, score: Mapping[str, Any]) -> None:
        """Keep a version's score on the fixed replays."""
        with self.database.transaction() as session:
            assignments.version_row(session, version).score = dict(score)

    def prune(self, keep: int) -> int:
        """Remove the files of versions that nobody needs (see `superfluous`); how many. Cards stay."""
        with self.database.transaction() as session:
            kept = select(VersionRow).where(VersionRow.kept).order_by(VersionRow.version.desc())
            rows, used = session.scalars(kept).all(), _in_use(session)
            stale = superfluous(rows, used, keep)
            if stale:  # the log is long, and is read only where something would go
                moves = moves_of(AUDIT.entries(session))
                clusters = session.scalars(select(ClusterRow))
                before = (version_before(moves.get(row.cluster, ()), row.assigned_version) for row in clusters)
                used |= {version for version in before if version is not None}
                stale = superfluous(rows, used, keep)
            for row in stale:
                row.kept = False
                row.head_digest, row.head_size_bytes = "", 0
        if stale:
            self.collect_orphans()
        return len(stale)

    def accept_lost_versions(self) -> None:
        """Miss the versions no longer that others knew; they keep their numbers."""
        newest = self.newest()
        if newest is not None and newest.version < self.newest_ever:
            self.pass_over(self.newest_ever)

    def pass_over(self, number: int) -> None:
        """Give no version a number up to this one, as others know versions by them."""
        if self.commits is not None:  # in this order: of versions that nobody may know, none is missed
            self.commits.committed(VERSIONS_LOST, number)
            self.commits.committed(VERSIONS, number)

    @property
    def newest_ever(self) -> int:
        """The highest known number of a version, also of lost ones."""
        return 0 if self.commits is None else self.commits.count(VERSIONS)

    def orphans(self) -> list[Path]:
        """Files that no version refers to, as a crash may leave them, or as lost versions do."""
        with self.database.session() as session:
            rows = session.execute(select(VersionRow.digest, VersionRow.head_digest).where(VersionRow.kept)).all()
        return self.policies.others({digest for digest, _ in rows}) + self.heads.others({head for _, head in rows})

    def collect_orphans(self) -> int:
        """Remove files that no version refers to; how many. Only the learner may do this."""
        orphans = self.orphans()
        for path in orphans:
            path.unlink(missing_ok=True)
        return len(orphans)


def _newest_of_the_head(session: Session) -> int:
    """The newest version that was not published by hand; 0 without any."""
    rows = session.execute(select(VersionRow.version, VersionRow.details).order_by(VersionRow.version.desc()))
    return next((version for version, details in rows if details.get("origin") != VersionOrigin.PUBLISHED), 0)


def _in_use(session: Session) -> set[int]:
    """Versions that clusters act on, or may act on next: a running rollout's, and what the latest one brought."""
    used = set(session.scalars(select(ClusterRow.assigned_version)))
    for versions in session.scalars(select(RolloutRow.versions).where(RolloutRow.over.is_(False))):
        used.update(versions)
    done = assignments.latest_done(session)
    return used if done is None else {*used, done}
