"""Store of identities: who is invited, who holds which certificate, who was turned out; durable before it is told.

Tokens are kept as hashes. Every change and its line in the audit log are one transaction. Methods that change something
block; the learner calls them on the registry's thread. `known`, `revocations` and the tokens are replaced whole after a
commit, so that every call that comes in later is judged by it, on whatever connection.
"""

from __future__ import annotations

import math
import secrets
from collections.abc import Callable, Collection, Mapping
from pathlib import Path

from sqlalchemy import delete, func, select
from sqlalchemy.orm import Session

from foundation.figures import counted
from global_learner.enrollment.tables import (
    CertificateGrant,
    CertificateRow,
    EnrollmentState,
    EnrollmentTables,
    ForgottenRow,
    IdentityAuditRow,
    Invitation,
    InvitationRow,
    RevocationRow,
    people,
    statuses,
)
from global_learner.errors import (
    BadRequest,
    EnrollmentRefusal,
    EnrollmentRefused,
    StateUnusable,
    UnknownCluster,
    UnknownPerson,
)
from global_learner.identity import PEOPLE, CallerRole, KnownCertificate
from global_learner.storage.audit import AuditLog
from global_learner.storage.audit_chain import IDENTITIES, AuditLine
from global_learner.storage.commits import Commits
from global_learner.storage.database import usable
from global_learner.storage.databases import SharedDatabase, open_database
from policy_net.exchange.enrolled_identity import token_digest
from policy_net.exchange.generated import fleet_pb2

NEVER_ENROLLED = (
    "a cluster that only registered is taken out of the lists by `policyctl cluster forget`, once its agent is stopped"
)
"""What to do where somebody revokes a cluster that has no certificates."""
STORE = "identities"
"""The book's name in the commit record."""
_AUDIT = AuditLog(IdentityAuditRow, IDENTITIES)

Sign = Callable[[], CertificateGrant]
"""Makes the certificate; called inside the transaction that enters it, so that there is none that is not known."""


class IdentityStore:
    """Invitations, certificates, revocations, and the audit log of them, in a database (`open_database`).

    Raises:
        StateUnusable: the database is no store of identities, cannot be opened, or fell back to an older state.

    Raises of all methods:
        BadRequest: a cluster's name for a person or the other way round: an audit log would not tell the two apart.
        EnrollmentRefused: the token or the present certificate is not good, or not for this name.
        UnknownCluster, UnknownPerson: nobody of this name was ever enrolled.
    """

    def __init__(self, folder: Path, commits: Commits | None = None, shared: SharedDatabase | None = None) -> None:
        path = folder / "identities.sqlite"
        self.known: Mapping[str, KnownCertificate] = {}
        self.revocations: Mapping[str, float] = {}
        self._tokens: frozenset[str] = frozenset()
        try:
            self._database = open_database(
                path, STORE, "book of identities", EnrollmentTables.metadata, commits, shared
            )
            with usable(self._database.where, "book of identities"):
                _AUDIT.check(self._database)
                self._reread()
        except OSError as error:
            raise StateUnusable(f"{path}: no usable book of identities ({error.strerror})") from error

    def close(self) -> None:
        """Close the database."""
        self._database.close()

    def recount(self) -> None:
        """Count on, and chain the audit log as it is, after a loss was accepted."""
        self._database.recount()
        _AUDIT.chain_anew(self._database)

    def invite(self, cluster: str, actor: str, now: float, lifetime_seconds: float) -> Invitation:
        """A fresh token for a name; tokens of it that nobody used are void from now on."""
        token = secrets.token_urlsafe(32)
        with self._database.transaction() as session:
            if _certificates_of(session, cluster, *PEOPLE):
                raise BadRequest(
                    f"{cluster} is a person's name (`policyctl operator list`); name the cluster otherwise"
                )
            unused = (InvitationRow.cluster == cluster, InvitationRow.key_digest.is_(None))
            good = select(func.count()).where(*unused, InvitationRow.expires_unix_seconds >= now)
            voided = session.scalar(good) or 0
            session.execute(delete(InvitationRow).where(*unused))
            session.execute(delete(ForgottenRow).where(ForgottenRow.name == cluster))
            session.add(
                InvitationRow(
                    token_digest=token_digest(token),
                    cluster=cluster,
                    created_unix_seconds=now,
                    expires_unix_seconds=now + lifetime_seconds,
                )
            )
            instead = f", in place of {voided} that nobody had used" if voided else ""
            _AUDIT.record(session, now, actor, "invited", cluster, f"token good for {lifetime_seconds:g} s{instead}")
        self._reread()
        return Invitation(token, now + lifetime_seconds, voided)

    def invited(self, token: str) -> bool:
        """Whether a token is one that was made here, whatever became of it; callable from any thread, and cheap."""
        return token_digest(token) in self._tokens

    def redeem(self, cluster: str, token: str, key_digest: str, now: float, sign: Sign) -> CertificateGrant:
        """Trade a token for a certificate, which takes the place of all that the cluster had.

        The same token with the same key gets the same certificate again while the token lasts: the agent may have been
        killed before the answer reached it. With another key it is refused.
        """
        refusal: EnrollmentRefusal | None = None
        grant: CertificateGrant | None = None
        with self._database.transaction() as session:
            row = session.get(InvitationRow, token_digest(token))
            if row is None:
                refusal = EnrollmentRefusal.UNKNOWN_TOKEN
            elif row.cluster != cluster:
                refusal = EnrollmentRefusal.WRONG_NAME
            elif now > row.expires_unix_seconds:
                refusal = EnrollmentRefusal.EXPIRED_TOKEN
            elif row.key_digest is None:
                _revoke(session, cluster, now, CallerRole.CLUSTER)
                grant = sign()
                self._enter(session, cluster, CallerRole.CLUSTER, now, grant)
                row.key_digest, row.fingerprint = key_digest, grant.fingerprint
                _AUDIT.record(session, now, cluster, "enrolled", cluster, f"certificate {grant.fingerprint[:16]}")
            else:
                earlier = session.get(CertificateRow, row.fingerprint)
                if earlier is None or row.key_digest != key_digest or earlier.revoked_unix_seconds is not None:
                    refusal = EnrollmentRefusal.USED_TOKEN
                else:
                    grant = CertificateGrant(
                        earlier.pem.encode(), earlier.fingerprint, earlier.expires_unix_seconds, repeated=True
                    )
            if refusal is not None and row is not None:  # an unknown token is anybody's; the log and a counter have it
                _AUDIT.record(session, now, "unknown", "refused", row.cluster, refusal.value, repeats=True)
        if grant is None:
            raise EnrollmentRefused(refusal or EnrollmentRefusal.UNKNOWN_TOKEN)
        self._reread()
        return grant

    def renew(self, cluster: str, presented: str, now: float, sign: Sign) -> CertificateGrant:
        """The next certificate of a cluster; the presented one stays good beside it, until it expires.

        Others go: they were made and never arrived, or were replaced by the presented one.
        """
        with self._database.transaction() as session:
            row = session.get(CertificateRow, presented)
            if row is None or row.revoked_unix_seconds is not None:
                raise EnrollmentRefused(EnrollmentRefusal.REVOKED)
            session.execute(
                delete(CertificateRow).where(
                    CertificateRow.name == cluster,
                    CertificateRow.role == CallerRole.CLUSTER,
                    CertificateRow.fingerprint != presented,
                    CertificateRow.revoked_unix_seconds.is_(None),
                )
            )
            grant = sign()
            self._enter(session, cluster, CallerRole.CLUSTER, now, grant)
            _AUDIT.record(session, now, cluster, "renewed", cluster, f"in place of {presented[:16]}", repeats=True)
        self._reread()
        return grant

    def add_administrator(self, name: str, now: float, sign: Sign, keep_earlier: bool = False) -> CertificateGrant:
        """A certificate for the platform's owner, in place of any earlier one, or beside those until they expire."""
        with self._database.transaction() as session:
            if not keep_earlier:
                _revoke(session, name, now, CallerRole.ADMIN)
            grant = sign()
            self._enter(session, name, CallerRole.ADMIN, now, grant)
            detail = f"certificate {grant.fingerprint[:16]}"
            _AUDIT.record(session, now, "global-learner", "administrator", name, detail)
        self._reread()
        return grant

    def enroll_person(
        self, name: str, role: CallerRole, actor: str, now: float, sign: Sign
    ) -> tuple[CertificateGrant, int]:
        """A certificate for a person, in place of all of that name; how many of those were good."""
        with self._database.transaction() as session:
            invited = session.scalars(select(InvitationRow).where(InvitationRow.cluster == name).limit(1)).first()
            if invited is not None or _certificates_of(session, name, CallerRole.CLUSTER):
                raise BadRequest(f"{name} is a cluster's name (`policyctl cluster list`); name the person otherwise")
            replaced = _revoke(session, name, now, *PEOPLE)
            grant = sign()
            self._enter(session, name, role, now, grant)
            detail = f"as {role}, certificate {grant.fingerprint[:16]}, in place of {replaced}"
            _AUDIT.record(session, now, actor, "operator-enrolled", name, detail)
        self._reread()
        return grant, replaced

    def revoke_person(self, name: str, actor: str, now: float, why: str = "", dry_run: bool = False) -> int:
        """Turn a person out, or with `dry_run` only count: all certificates of that name; how many were good."""
        with self._database.session() if dry_run else self._database.transaction() as session:
            if not _certificates_of(session, name, *PEOPLE):
                raise UnknownPerson(f"nobody called {name} was ever enrolled here; see `policyctl operator list`")
            certificates = _revoke(session, name, now, *PEOPLE)
            detail = counted(certificates, "certificate")
            _AUDIT.record(session, now, actor, "operator-revoked", name, f"{detail}: {why}" if why else detail)
        if not dry_run:
            self._reread()
        return certificates

    def people(self, now: float) -> list[fleet_pb2.OperatorIdentity]:
        """Everybody who was ever enrolled, by name."""
        with self._database.session() as session:
            return people(session.scalars(select(CertificateRow).where(CertificateRow.role.in_(PEOPLE))).all(), now)

    def revoke(self, cluster: str, actor: str, now: float, why: str = "", dry_run: bool = False) -> tuple[int, int]:
        """Turn a cluster out, or with `dry_run` only count: all its certificates and tokens; how many were good."""
        # What a session changed that only reads is given up at its end.
        with self._database.session() if dry_run else self._database.transaction() as session:
            known = session.scalars(
                select(CertificateRow.fingerprint).where(
                    CertificateRow.name == cluster, CertificateRow.role == CallerRole.CLUSTER
                )
            ).first()
            tokens = session.execute(
                delete(InvitationRow).where(InvitationRow.cluster == cluster).returning(InvitationRow.key_digest)
            ).all()
            if known is None and not tokens:
                raise UnknownCluster(f"no cluster {cluster} was ever enrolled here; {NEVER_ENROLLED}")
            certificates = _revoke(session, cluster, now, CallerRole.CLUSTER)
            open_tokens = sum(key_digest is None for (key_digest,) in tokens)
            detail = f"{counted(certificates, 'certificate')}, {counted(open_tokens, 'token')}"
            _AUDIT.record(session, now, actor, "revoked", cluster, f"{detail}: {why}" if why else detail)
        if not dry_run:
            self._reread()
        return certificates, open_tokens

    def revoke_name(self, name: str, actor: str, now: float, why: str = "") -> None:
        """Refuse all certificates of another authority that carry this name and were made before now."""
        with self._database.transaction() as session:
            session.merge(RevocationRow(name=name, unix_seconds=now))
            session.execute(delete(ForgottenRow).where(ForgottenRow.name == name))
            detail = "certificates made before now"
            _AUDIT.record(session, now, actor, "revoked", name, f"{detail}: {why}" if why else detail)
        self._reread()

    def is_turned_out(self, cluster: str, now: float) -> bool:
        """See that nothing here speaks against forgetting a cluster; False if it was never enrolled, or is forgotten.

        Raises:
            BadRequest: it was not turned out.
        """
        state = next((entry.state for entry in self.clusters(now) if entry.cluster == cluster), None)
        if state not in (None, EnrollmentState.REVOKED):
            raise BadRequest(
                f"cluster {cluster} is {state}, and only a revoked one can be forgotten: `policyctl cluster revoke "
                f"{cluster}` turns it out"
            )
        return state is not None

    def forget(self, cluster: str, actor: str, now: float, detail: str) -> None:
        """List a cluster no longer; what it has of certificates stays refused, and the audit log keeps it."""
        with self._database.transaction() as session:
            session.merge(ForgottenRow(name=cluster, unix_seconds=now))
            _AUDIT.record(session, now, actor, "forgotten", cluster, detail)

    def turned_out(self, cluster: str, unix_seconds: float) -> bool:
        """Whether a cluster has only revoked certificates, or its name was refused after a moment; from any thread."""
        if self.revocations.get(cluster, -math.inf) >= unix_seconds:
            return True
        revoked = [
            entry.revoked for entry in self.known.values() if entry.name == cluster and entry.role is CallerRole.CLUSTER
        ]
        return bool(revoked) and all(revoked)

    def clusters(self, now: float) -> list[fleet_pb2.ClusterIdentity]:
        """Every cluster that was ever invited or turned out and was not forgotten, by name."""
        with self._database.session() as session:
            forgotten = frozenset(session.scalars(select(ForgottenRow.name)))
            listed = statuses(
                session.scalars(select(CertificateRow).where(CertificateRow.role == CallerRole.CLUSTER)).all(),
                session.scalars(select(InvitationRow).where(InvitationRow.key_digest.is_(None))).all(),
                session.scalars(select(RevocationRow)).all(),
                now,
            )
        return [entry for entry in listed if entry.cluster not in forgotten]

    def audit(self, since_unix_seconds: float = 0.0) -> list[AuditLine]:
        """The audit log from a moment on, oldest first."""
        with self._database.session() as session:
            return _AUDIT.entries(session, since_unix_seconds)

    def acts(self, actions: Collection[str], most: int) -> list[AuditLine]:
        """The newest lines that people brought about, newest first; without digests."""
        with self._database.session() as session:
            return _AUDIT.acts(session, actions, most)

    def audit_head(self) -> tuple[int, str]:
        """How many lines the audit log has, and the digest of the last one."""
        with self._database.session() as session:
            return _AUDIT.head(session)

    def _enter(self, session: Session, name: str, role: CallerRole, now: float, grant: CertificateGrant) -> None:
        session.add(
            CertificateRow(
                fingerprint=grant.fingerprint,
                name=name,
                role=role,
                issued_unix_seconds=now,
                expires_unix_seconds=grant.expires_unix_seconds,
                pem=grant.pem.decode(),
            )
        )

    def _reread(self) -> None:
        with self._database.session() as session:
            self.known = {
                row.fingerprint: KnownCertificate(
                    row.name, CallerRole(row.role), row.expires_unix_seconds, row.revoked_unix_seconds is not None
                )
                for row in session.scalars(select(CertificateRow))
            }
            self._tokens = frozenset(session.scalars(select(InvitationRow.token_digest)))
            self.revocations = {row.name: row.unix_seconds for row in session.scalars(select(RevocationRow))}


def _certificates_of(session: Session, name: str, *roles: CallerRole) -> bool:
    """Whether there ever was one of this name and one of these roles."""
    found = select(CertificateRow.fingerprint).where(CertificateRow.name == name, CertificateRow.role.in_(roles))
    return session.scalars(found.limit(1)).first() is not None


def _revoke(session: Session, name: str, now: float, *roles: CallerRole) -> int:
    """Revoke a name's certificates of these roles; how many were good until now."""
    rows = session.scalars(
        select(CertificateRow).where(
            CertificateRow.name == name,
            CertificateRow.role.in_(roles),
            CertificateRow.revoked_unix_seconds.is_(None),
        )
    ).all()
    for row in rows:
        row.revoked_unix_seconds = now
    return sum(row.expires_unix_seconds > now for row in rows)
