"""Registrar of clusters and people: it invites, enrolls, renews, turns out; off the event loop, counted and logged."""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Callable
from dataclasses import dataclass

import structlog
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

from global_learner.enrollment.authority import DAY_SECONDS, Authority, PublicKey, requested_key
from global_learner.enrollment.identity_store import NEVER_ENROLLED, IdentityStore
from global_learner.enrollment.tables import CertificateGrant, Invitation
from global_learner.errors import BadRequest, EnrollmentRefusal, EnrollmentRefused, NoAuthority, UnknownCluster
from global_learner.identity import OPERATOR, PEOPLE, CallerRole, checked_name
from global_learner.registry.assignments import forget
from global_learner.registry.registry_thread import RegistryThread
from global_learner.section_settings import IdentitySettings
from global_learner.storage.audit import KEEPER
from global_learner.telemetry import LearnerTelemetry
from policy_net.exchange.generated import fleet_pb2
from policy_net.exchange.signed_documents import SignedDocument

_log = structlog.get_logger()

_MINUTE_SECONDS = 60.0
_MAX_TOKEN_CHARACTERS = 128
PERSON_SECONDS = 365 * DAY_SECONDS
"""As the platform owner's own identity file; who leaves before is revoked."""
_ACTORS = frozenset((OPERATOR, KEEPER, "unknown"))
"""Names that stand in the audit log for somebody else."""


@dataclass(frozen=True, slots=True)
class EnrollmentRules:
    """Who may be enrolled, under no `reserved` name; if `revocable`, certificates made elsewhere can be refused."""

    settings: IdentitySettings
    revocable: bool
    reserved: frozenset[str]


class Registrar:
    """Answers everything about identities; `authority` is None where certificates are made elsewhere, if at all.

    Raises of all methods:
        BadRequest: a name, role or signing request that cannot be, or a reserved name.
        NoAuthority: this learner signs no certificates.
    """

    def __init__(
        self,
        store: IdentityStore,
        thread: RegistryThread,
        authority: Authority | None,
        rules: EnrollmentRules,
        telemetry: LearnerTelemetry,
        clock: Callable[[], float],
    ) -> None:
        self.enroll_port = 0
        self.store = store
        self._thread = thread
        self._authority = authority
        self._rules = rules
        self._telemetry = telemetry
        self._clock = clock

    @property
    def enrolls(self) -> bool:
        """Whether this learner signs certificates, so that clusters have a status."""
        return self._authority is not None

    @property
    def authority_pem(self) -> bytes:
        """What certificates are checked against."""
        return self._signer().pem

    @property
    def roots(self) -> tuple[SignedDocument, ...]:
        """Which keys sign versions, as an enrolled agent pins them."""
        signing = self._thread.registry.signing
        return () if signing is None else signing.keys.roots

    def reply(self, grant: CertificateGrant) -> fleet_pb2.CertificateReply:
        """A certificate, and what the cluster is to trust from now on."""
        roots = [root.message() for root in self.roots]
        return fleet_pb2.CertificateReply(certificate=grant.pem, authority=self.authority_pem, roots=roots)

    async def invite(self, cluster: str, actor: str) -> Invitation:
        """A one-time token for a name; NoAuthority also where nobody can be enrolled."""
        self._signer()
        if self.enroll_port == 0:
            raise NoAuthority("this learner enrolls nobody: identity.enroll_port is null; set it and start again")
        if checked_name(cluster) in self._rules.reserved:
            raise BadRequest(f"{cluster} is the learner's or an administrator's name; name the cluster otherwise")
        seconds = self._rules.settings.token_minutes * _MINUTE_SECONDS
        invitation = await self._thread.call(self.store.invite, cluster, actor, self._clock(), seconds)
        self._count("invited", cluster, actor)
        return invitation

    async def enroll(self, cluster: str, token: str, request: bytes) -> CertificateGrant:
        """Trade a token for a certificate.

        Raises:
            EnrollmentRefused: the token is not good, or not for this name.
        """
        if not 0 < len(token) <= _MAX_TOKEN_CHARACTERS:
            raise BadRequest(f"a token of {len(token)} characters; it is none of ours")
        checked_name(cluster)
        # Before anything that costs something: whoever has no token of ours gets no further.
        if not self.store.invited(token):
            raise EnrollmentRefused(EnrollmentRefusal.UNKNOWN_TOKEN)
        key = await asyncio.to_thread(requested_key, request)
        grant = await self._thread.call(
            self.store.redeem, cluster, token, _digest(key), self._clock(), lambda: self._issue(key, cluster)
        )
        self._count("repeated" if grant.repeated else "enrolled", cluster, cluster)
        return grant

    async def renew(self, cluster: str, presented: str, request: bytes) -> CertificateGrant:
        """The next certificate, for the holder of the present one.

        Raises:
            EnrollmentRefused: the present one was revoked meanwhile.
        """
        self._signer()
        key = await asyncio.to_thread(requested_key, request)
        grant = await self._thread.call(
            self.store.renew, cluster, presented, self._clock(), lambda: self._issue(key, cluster)
        )
        self._count("renewed", cluster, cluster)
        return grant

    async def clusters(self) -> list[fleet_pb2.ClusterIdentity]:
        """Every cluster that was ever invited or turned out, by name."""
        return await self._thread.call(self.store.clusters, self._clock())

    async def revoke(self, cluster: str, actor: str, why: str = "", *, dry_run: bool = False) -> tuple[int, int]:
        """Turn a cluster out, or only say what would come of it; how many certificates and tokens are good until then.

        Raises:
            UnknownCluster: it was never enrolled.
        """
        checked_name(cluster)
        counts = (0, 0)
        if self._authority is None:
            if not self._rules.revocable:
                raise NoAuthority(f"this learner signs no certificates, so that none can be revoked; {NEVER_ENROLLED}")
            if not dry_run:
                await self._thread.call(self.store.revoke_name, cluster, actor, self._clock(), why)
        else:
            counts = await self._thread.call(self.store.revoke, cluster, actor, self._clock(), why, dry_run)
        if dry_run:
            return counts
        self._count("revoked", cluster, actor)
        return counts

    async def forget(
        self, cluster: str, actor: str, why: str = "", *, dry_run: bool = False, unheard_seconds: float | None = None
    ) -> bool:
        """List a cluster no longer, or only say what would come of it; whether it had registered.

        Args:
            unheard_seconds: one that was never enrolled has to be silent for so long; None: it is.

        Raises:
            UnknownCluster: it is not listed, and has not registered.
            BadRequest: it was not turned out, is not silent, or a running rollout counts it.
        """
        checked_name(cluster)
        registered = await self._thread.call(self._forget, cluster, actor, why, dry_run, unheard_seconds)
        if not dry_run:
            self._count("forgotten", cluster, actor)
        return registered

    def _forget(self, cluster: str, actor: str, why: str, dry_run: bool, unheard_seconds: float | None) -> bool:
        enrolled = self.store.is_turned_out(cluster, self._clock())
        registry = self._thread.registry
        if not enrolled:
            if all(entry.cluster != cluster for entry in registry.registrations()):
                raise UnknownCluster(
                    f"no cluster {cluster} is listed here; see `policyctl fleet` and `policyctl cluster list`"
                )
            if unheard_seconds is not None:
                raise BadRequest(
                    f"cluster {cluster} was heard within the last {unheard_seconds:g} s, and "
                    "would register again: stop its agent, and forget it then"
                )

        def note() -> None:
            detail = "was registered" if registered else "had never registered"
            self.store.forget(cluster, actor, self._clock(), f"{detail}: {why}" if why else detail)

        # What a session changed that only reads is given up at its end. Who was killed in between asks again, and finds
        # the cluster listed: an enrolled one by the store of identities, and so that is told last; another one here.
        with registry.session() if dry_run else registry.transaction() as session:
            registered = forget(session, cluster)
            if not (dry_run or enrolled):
                note()
        if enrolled and not dry_run:
            note()
        return registered

    async def enroll_person(self, name: str, role: str, request: bytes, actor: str) -> tuple[CertificateGrant, int]:
        """A certificate for a person, in place of all of that name; how many of those were good."""
        self._signer()
        if role not in list(PEOPLE):
            raise BadRequest(f"there is no role {role[:20]!r} for people: it is {', '.join(PEOPLE)}")
        if checked_name(name, "person") in self._rules.reserved or name in _ACTORS:
            raise BadRequest(f"{name} is the learner's own name; name the person otherwise")
        key, given = await asyncio.to_thread(requested_key, request), CallerRole(role)
        grant, replaced = await self._thread.call(
            self.store.enroll_person, name, given, actor, self._clock(), lambda: self._issue(key, name, given)
        )
        self._count("operator-enrolled", name, actor)
        return grant, replaced

    async def people(self) -> list[fleet_pb2.OperatorIdentity]:
        """Everybody who was ever enrolled, by name."""
        return await self._thread.call(self.store.people, self._clock())

    async def revoke_person(self, name: str, actor: str, why: str = "", *, dry_run: bool = False) -> int:
        """Turn a person out, or only say what would come of it; how many certificates are good until then.

        Raises:
            UnknownPerson: nobody of this name was ever enrolled.
        """
        self._signer()
        if checked_name(name, "person") in self._rules.reserved:
            raise BadRequest(
                f"{name} is the name in the learner's own identity file: remove identity/admin.pem of its state "
                "directory and start it again; a new one is made, and the old one counts no more"
            )
        certificates = await self._thread.call(self.store.revoke_person, name, actor, self._clock(), why, dry_run)
        if not dry_run:
            self._count("operator-revoked", name, actor)
        return certificates

    def _issue(self, key: PublicKey, name: str, role: CallerRole = CallerRole.CLUSTER) -> CertificateGrant:
        lifetime = PERSON_SECONDS if role in PEOPLE else self._rules.settings.certificate_days * DAY_SECONDS
        return self._signer().for_client(key, name, self._clock(), lifetime, role)

    def _signer(self) -> Authority:
        if self._authority is None:
            raise NoAuthority(
                "this learner signs no certificates: set identity in its configuration, and start it again"
            )
        return self._authority

    def _count(self, outcome: str, name: str, actor: str) -> None:
        self._telemetry.enrollments.labels(outcome).inc()
        whose = "person" if outcome.startswith("operator") else "cluster"
        _log.info("identity-changed", outcome=outcome, actor=actor, **{whose: name})


def _digest(key: PublicKey) -> str:
    return hashlib.sha256(key.public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo)).hexdigest()
