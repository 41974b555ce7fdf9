"""Identity of a caller: the name in the certificate, never one in a field.

Three ways. With the learner's own authority a certificate counts if it is one that was issued and not revoked since,
looked up at every call: a revocation holds on open connections too. With certificates made elsewhere the common name
(or a DNS name among the alternative names) is the cluster. Without certificates the settings allow loopback addresses
only, and there a cluster's bare name is believed, but nobody is one of the people of `roles`: these come by a socket of
their own, which only the learner's user can open. A name in the request must be the certificate's, or empty.

People are viewers, operators or admins: each may do what those before it may. A cluster's agent is no person, and may
do nothing of theirs. A certificate says which of the three its holder is, by a URI among its alternative names; one
without such a URI is a cluster's, or an admin's of before there were roles. A new method of fleet.proto needs a line in
`NEEDS`: without one nobody may call it, and a test fails.
"""

from __future__ import annotations

import functools
import re
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from types import MappingProxyType
from typing import Protocol

from cryptography import x509
from cryptography.exceptions import UnsupportedAlgorithm

from global_learner.errors import BadRequest, IdentityRefusal, IdentityRefused
from policy_net.exchange.identity_file import fingerprint

_NAME = re.compile(r"[a-z0-9]([a-z0-9.-]{0,61}[a-z0-9])?")

OPERATOR = "operator"
"""Who acts at the operators' socket, in the audit log."""

AuthContext = Mapping[str, Iterable[bytes]]
"""What gRPC knows about the peer: property name to values."""
FIRST_ADMIN = "policyctl"
"""Name in the identity file that the learner makes for its owner."""
URI_PREFIX = "fedl2:role:"
"""Of the URI in a certificate; the role's word follows."""


class CallerRole(StrEnum):
    """What a caller is; never two at once."""

    UNCERTIFIED = "uncertified"
    """It showed no certificate, where none are asked for: on loopback, and to enroll. Its word for a name is taken."""
    CLUSTER = "cluster"
    VIEWER = "viewer"
    OPERATOR = "operator"
    ADMIN = "admin"


PEOPLE = (CallerRole.VIEWER, CallerRole.OPERATOR, CallerRole.ADMIN)
"""Each may do what those before it may."""


@dataclass(frozen=True, slots=True)
class RequiredRole:
    """What one must be to call a method.

    Attributes:
        least: of people; None: none of them may.
        cluster: whether clusters may, and who showed no certificate and says that it is one.
        newcomer: whether who showed no certificate may, as there is none yet.
    """

    least: CallerRole | None = None
    cluster: bool = False
    newcomer: bool = False

    def allows(self, role: CallerRole) -> bool:
        """Whether this is enough."""
        if role is CallerRole.UNCERTIFIED:
            return self.cluster or self.newcomer
        if role is CallerRole.CLUSTER:
            return self.cluster
        return self.least is not None and PEOPLE.index(role) >= PEOPLE.index(self.least)


_CLUSTER = RequiredRole(cluster=True)
_VIEWER, _OPERATOR, _ADMIN = (RequiredRole(role) for role in PEOPLE)

NEEDS: Mapping[str, RequiredRole] = MappingProxyType(
    {
        # Fleet: agents.
        "Register": _CLUSTER,
        "PullHead": _CLUSTER,
        "Push": _CLUSTER,
        "Heartbeat": _CLUSTER,
        "FetchPolicy": RequiredRole(CallerRole.VIEWER, cluster=True),
        "Poll": _CLUSTER,
        "Reply": _CLUSTER,
        "ShareBeliefs": _CLUSTER,
        "ShareEvidence": _CLUSTER,
        "ShareSketch": _CLUSTER,
        "ReturnPolicy": _CLUSTER,
        "RenewCertificate": _CLUSTER,
        # Enrollment: agents that have a token and no certificate.
        "Enroll": RequiredRole(newcomer=True),
        # Admin: what only looks.
        "ListVersions": _VIEWER,
        "ShowVersion": _VIEWER,
        "GetFleet": _VIEWER,
        "GetReport": _VIEWER,
        "ListClusters": _VIEWER,
        "ListOperators": _VIEWER,
        "ListAudit": _VIEWER,
        "GetKeys": _VIEWER,
        "GetRollout": _VIEWER,
        "ListRollouts": _VIEWER,
        # What the fleet acts on and learns from.
        "AssignVersion": _OPERATOR,
        "RollBack": _OPERATOR,
        "PinVersion": _OPERATOR,
        "NoteVersion": _OPERATOR,
        "RestoreVersion": _OPERATOR,
        "PublishVersion": _OPERATOR,
        "AliasVersion": _OPERATOR,
        "ResetHead": _OPERATOR,
        "ReleaseCluster": _OPERATOR,
        "StartRollout": _OPERATOR,
        "ActOnRollout": _OPERATOR,
        # Who belongs to it, and whose word counts.
        "EnrollCluster": _ADMIN,
        "RevokeCluster": _ADMIN,
        "ForgetCluster": _ADMIN,
        "EnrollOperator": _ADMIN,
        "RevokeOperator": _ADMIN,
        "RotateKey": _ADMIN,
    }
)
"""By the method's name in fleet.proto."""

_SOCKET = (
    "without certificates only the learner's own user may ask this, at the socket in its state directory: "
    "policyctl --learner unix:STATE_DIR/operator.sock"
)


def check_role(method: str, name: str, role: CallerRole) -> None:
    """See that a caller may call a method.

    Raises:
        IdentityRefused: it may not; says who it is, and what is needed.
    """
    need = NEEDS.get(method)
    if need is not None and need.allows(role):
        return
    if need is None:
        why = f"{method}: no role may call it"
    elif role is CallerRole.UNCERTIFIED and need.least is not None:
        why = f"{method}: {_SOCKET}"
    elif need.least is None:
        why = f"{method}: {name} is {_a(role)}, and only clusters may; agents use their own certificate"
    elif role is CallerRole.CLUSTER:
        why = f"{method}: {name} is a cluster, and may not ask about the fleet; it takes {_a(need.least)}'s certificate"
    else:
        why = f"{method}: {name} is {_a(role)}, and it takes {_a(need.least)}; ask an admin for a certificate as one"
    raise IdentityRefused(why, IdentityRefusal.WRONG_ROLE)


def role_uri(role: CallerRole) -> str:
    """The URI that says in a certificate that its holder is a person of this role."""
    return f"{URI_PREFIX}{role.value}"


def stated_role(uris: Iterable[str]) -> CallerRole | None:
    """The role that a certificate's URIs state; None if they state none.

    Raises:
        IdentityRefused: they state more than one, or one that this learner does not know.
    """
    words = {uri.removeprefix(URI_PREFIX) for uri in uris if uri.startswith(URI_PREFIX)}
    if not words:
        return None
    found = [role for role in PEOPLE if role.value in words]
    if len(words) > 1 or not found:
        raise IdentityRefused(
            f"the certificate says role {', '.join(sorted(words))[:80]!r}; it must be one of {', '.join(PEOPLE)}",
            IdentityRefusal.WRONG_ROLE,
        )
    return found[0]


def _a(role: CallerRole) -> str:
    return f"an {role}" if role.value[0] in "aeiou" else f"a {role}"


@dataclass(frozen=True, slots=True)
class KnownCertificate:
    """A certificate that the learner issued."""

    name: str
    role: CallerRole
    expires_unix_seconds: float
    revoked: bool


class Certificates(Protocol):
    """What is known of certificates, now."""

    @property
    def known(self) -> Mapping[str, KnownCertificate]:
        """By fingerprint: those that this learner issued."""

    @property
    def revocations(self) -> Mapping[str, float]:
        """Names of certificates made elsewhere that are refused if they were made before a moment."""


@dataclass(frozen=True, slots=True)
class Presented:
    """The certificate that a caller showed in its handshake."""

    fingerprint: str
    begins_unix_seconds: float
    ends_unix_seconds: float
    uris: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Caller:
    """Who makes a call: a certificate's name and what it is good for, or a connection where there are none."""

    name: str
    role: CallerRole


class CallerIdentity:
    """Tells callers apart.

    Args:
        authenticated: whether they must show a certificate.
        admin_names: of people, where certificates are made elsewhere: admins, unless their certificate states a
            lesser role. No cluster may bear one.
        certificates: what is known of them; with `issuing` only known ones count.

    Raises of all methods:
        IdentityRefused: the certificate counts no longer, or says another role than it was given.
    """

    def __init__(
        self,
        authenticated: bool,
        admin_names: Iterable[str] = (),
        certificates: Certificates | None = None,
        issuing: bool = False,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._authenticated = authenticated
        self._admin_names = frozenset(admin_names)
        self.certificates = certificates
        self._issuing = issuing
        self._clock = clock

    def caller(self, context: AuthContext, peer: str) -> Caller:
        """Who calls, before anything of the request is known; without certificates the connection."""
        if not self._authenticated:
            return Caller(peer, CallerRole.UNCERTIFIED)
        names, role = self._names(context)
        return Caller(names[0] if names else "without a name", role)

    def cluster(self, claimed: str, context: AuthContext) -> str:
        """The calling cluster.

        Raises:
            IdentityRefused: it is not the one that it says, or its certificate counts no longer.
            BadRequest: the name is no cluster name.
        """
        if self._authenticated:
            names, role = self._names(context)
            shown = ", ".join(names) or "no name"
            if role is not CallerRole.CLUSTER:
                raise IdentityRefused(
                    f"certificate {shown} says {role}, and is no cluster's", IdentityRefusal.WRONG_ROLE
                )
            if claimed and claimed not in names:
                raise IdentityRefused(
                    f"the request says cluster {claimed[:63]!r}, its certificate {shown}; "
                    "set the agent's cluster to the name that it was enrolled with",
                    IdentityRefusal.WRONG_NAME,
                )
            claimed = claimed or next(iter(names), "")
        return checked_name(claimed)

    def person(self, context: AuthContext) -> str:
        """The name of the person who calls; what its role may do was looked at before (`check_role`)."""
        names, role = self._names(context) if self._authenticated else ([], CallerRole.UNCERTIFIED)
        if role not in PEOPLE or not names:
            raise IdentityRefused(
                f"certificate {', '.join(names) or 'without a name'} may not ask about the fleet; it is "
                f"{role}, and no person's",
                IdentityRefusal.WRONG_ROLE,
            )
        return names[0]

    def anybody(self, context: AuthContext) -> None:
        """Check that the caller's certificate still counts, whoever it is."""
        if self._authenticated:
            self._names(context)

    def fingerprint(self, context: AuthContext) -> str:
        """What names the caller's certificate for ever; empty without one."""
        presented = _presented(context)
        return presented.fingerprint if presented is not None else ""

    def _names(self, context: AuthContext) -> tuple[list[str], CallerRole]:
        """The names that the caller may go by, none for a certificate without a name; and its role."""
        presented = _presented(context)
        if presented is not None and presented.ends_unix_seconds <= self._clock():
            # The handshake looked at this too, but a connection may last longer than its certificate.
            remedy = "enroll again" if self._issuing else "replace its files, which the agent reads again"
            raise IdentityRefused(f"this certificate has expired; {remedy}", IdentityRefusal.EXPIRED)
        names = _certificate_names(context)
        stated = stated_role(presented.uris) if presented is not None else None
        shown = ", ".join(names) or "without a name"
        if not self._issuing:
            self._check_revocations(names, presented)
            people = [name for name in names if name in self._admin_names]
            if people:
                return people, stated or CallerRole.ADMIN
            if stated is not None:
                raise IdentityRefused(
                    f"certificate {shown} says {stated}, and is none of tls.admin_names; name it there",
                    IdentityRefusal.WRONG_ROLE,
                )
            return names, CallerRole.CLUSTER
        known = None
        if self.certificates is not None and presented is not None:
            known = self.certificates.known.get(presented.fingerprint)
        if known is None:
            raise IdentityRefused(
                f"certificate {shown} is none that this learner issued, or was replaced; enroll again",
                IdentityRefusal.UNKNOWN_CERTIFICATE,
            )
        if known.revoked:
            raise IdentityRefused(
                f"certificate {shown} was revoked; ask the platform owner to enroll it again", IdentityRefusal.REVOKED
            )
        # An admin's of before there were roles says none; its name is one that no cluster can have.
        silent = CallerRole.ADMIN if FIRST_ADMIN in names and known.role is CallerRole.ADMIN else CallerRole.CLUSTER
        if known.role is not (stated or silent):
            raise IdentityRefused(
                f"certificate {shown} says {stated or 'no role'}, and was entered as {known.role}: one of the two was "
                "changed; enroll it again",
                IdentityRefusal.WRONG_ROLE,
            )
        return [known.name], known.role

    def _check_revocations(self, names: Iterable[str], presented: Presented | None) -> None:
        if self.certificates is None:
            return
        for name in names:
            moment = self.certificates.revocations.get(name)
            # Without the certificate itself its age is not known, and a revoked name is refused.
            if moment is not None and (presented is None or presented.begins_unix_seconds <= moment):
                raise IdentityRefused(
                    f"certificates of {name} that were made before it was revoked are refused; use a newer one",
                    IdentityRefusal.REVOKED,
                )


class OperatorIdentity(CallerIdentity):
    """The caller at the operators' socket: the learner's own user, an admin and never a cluster."""

    def __init__(self) -> None:
        super().__init__(authenticated=False)

    def caller(self, context: AuthContext, peer: str) -> Caller:
        """See `CallerIdentity.caller`."""
        del context, peer
        return Caller(OPERATOR, CallerRole.ADMIN)

    def person(self, context: AuthContext) -> str:
        """See `CallerIdentity.person`."""
        del context
        return OPERATOR

    def cluster(self, claimed: str, context: AuthContext) -> str:
        """Nobody here is a cluster.

        Raises:
            IdentityRefused: always.
        """
        del context
        raise IdentityRefused(
            f"{claimed[:63]!r} calls at the operators' socket; agents use the learner's address",
            IdentityRefusal.WRONG_ROLE,
        )


def checked_name(name: str, whose: str = "cluster") -> str:
    """A name, if it is one of a cluster or whoever else.

    Raises:
        BadRequest: it is not.
    """
    if not _NAME.fullmatch(name):
        raise BadRequest(f"{name[:63]!r} is no {whose} name: use 1 to 63 lower-case letters, digits, '-' and '.'")
    return name


def _certificate_names(context: AuthContext) -> list[str]:
    """Common name first, then the alternative names, without repeats."""
    values = [*context.get("x509_common_name", ()), *context.get("x509_subject_alternative_name", ())]
    names = dict.fromkeys(value.decode(errors="replace") for value in values)
    return [name for name in names if not name.startswith(URI_PREFIX)]


def _presented(context: AuthContext) -> Presented | None:
    pem = next(iter(context.get("x509_pem_cert", ())), None)
    return None if pem is None else _parsed(pem)


@functools.lru_cache(maxsize=4096)
def _parsed(pem: bytes) -> Presented | None:
    """Read a certificate once, not at every call of its connection."""
    try:
        certificate = x509.load_pem_x509_certificate(pem)
        uris = _uris(certificate)
    except (ValueError, UnsupportedAlgorithm, x509.InvalidVersion, x509.DuplicateExtension):
        return None
    return Presented(
        fingerprint(certificate),
        certificate.not_valid_before_utc.timestamp(),
        certificate.not_valid_after_utc.timestamp(),
        uris,
    )


def _uris(certificate: x509.Certificate) -> tuple[str, ...]:
    try:
        names = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    except x509.ExtensionNotFound:
        return ()
    except ValueError:
        return (f"{URI_PREFIX}unreadable",)  # refused, whatever else it says
    return tuple(names.get_values_for_type(x509.UniformResourceIdentifier))
