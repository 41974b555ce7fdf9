"""What a cluster's rows amount to: invited, enrolled, expired or revoked."""

from __future__ import annotations

from collections.abc import Sequence

from global_learner.enrollment.tables import CertificateRow, InvitationRow, RevocationRow
from global_learner.enrollment.types import ClusterIdentity, State


def standings(
    certificates: Sequence[CertificateRow],
    invitations: Sequence[InvitationRow],
    revocations: Sequence[RevocationRow],
    now: float,
) -> list[ClusterIdentity]:
    """Every cluster's standing, by name; an enrolled cluster that was invited again is still enrolled."""
    found = {row.name: _turned_out(row) for row in revocations}
    for certificate in sorted(certificates, key=lambda row: row.issued_unix_seconds):
        found[certificate.name] = _holder(certificate, now)
    for invitation in invitations:
        present = found.get(invitation.cluster)
        if present is None or present.state is not State.ENROLLED:
            found[invitation.cluster] = _invited(invitation, now)
    return [found[name] for name in sorted(found)]


def _holder(row: CertificateRow, now: float) -> ClusterIdentity:
    state = State.ENROLLED if row.expires_unix_seconds > now else State.EXPIRED
    return ClusterIdentity(
        row.name,
        State.REVOKED if row.revoked_unix_seconds is not None else state,
        row.issued_unix_seconds,
        row.expires_unix_seconds,
        row.fingerprint,
        row.revoked_unix_seconds or 0.0,
    )


def _invited(row: InvitationRow, now: float) -> ClusterIdentity:
    state = State.INVITED if row.expires_unix_seconds > now else State.EXPIRED
    return ClusterIdentity(row.cluster, state, expires_unix_seconds=row.expires_unix_seconds)


def _turned_out(row: RevocationRow) -> ClusterIdentity:
    return ClusterIdentity(row.name, State.REVOKED, revoked_unix_seconds=row.unix_seconds)
