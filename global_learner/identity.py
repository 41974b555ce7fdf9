"""Identity of a caller: the name in the certificate, never one in a field.

Three ways. With the learner's own authority a certificate counts if it is one that was issued and not revoked since,
looked up at every call: a revocation holds on open connections too. With certificates made elsewhere the common name
(or a DNS name among the alternative names) is the cluster. Without certificates the settings allow loopback addresses
only, and there a cluster's bare name is believed, but nobody is an administrator: these come by a socket of their own,
which only the learner's user can open. A name in the request must be the certificate's, or empty.
"""

from __future__ import annotations

import functools
import re
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum
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


class Role(StrEnum):
    """What a certificate is good for; never both."""

    CLUSTER = "cluster"
    ADMIN = "admin"


@dataclass(frozen=True, slots=True)
class KnownCertificate:
    """A certificate that the learner issued."""

    name: str
    role: Role
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


@dataclass(frozen=True, slots=True)
class Caller:
    """Who makes a call: a certificate's name and what it is good for, or a connection where there are none."""

    name: str
    role: Role


class Identity:
    """Tells callers apart.

    Args:
        authenticated: whether they must show a certificate.
        admin_names: names of administrators, where certificates are made elsewhere; no cluster may bear one.
        certificates: what is known of them; `issuing` is whether only known ones count.
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
        self._certificates = certificates
        self._issuing = issuing
        self._clock = clock

    def caller(self, context: AuthContext, peer: str) -> Caller:
        """Who calls, before anything of the request is known; without certificates the connection.

        Raises:
            IdentityRefused: its certificate counts no longer.
        """
        if not self._authenticated:
            return Caller(peer, Role.CLUSTER)
        names = self._names(context, None)
        name = names[0] if names else "without a name"
        if not self._issuing:
            return Caller(name, Role.ADMIN if self._admin_names.intersection(names) else Role.CLUSTER)
        presented = _presented(context)
        known = self._certificates.known.get(presented.fingerprint) if self._certificates and presented else None
        return Caller(name, known.role if known is not None else Role.CLUSTER)

    def cluster(self, claimed: str, context: AuthContext) -> str:
        """The calling cluster.

        Raises:
            IdentityRefused: it is not the one that it says, or its certificate counts no longer.
            BadRequest: the name is no cluster name.
        """
        if self._authenticated:
            names = self._names(context, Role.CLUSTER)
            if claimed and claimed not in names:
                raise IdentityRefused(
                    f"the request says cluster {claimed[:63]!r}, its certificate {', '.join(names) or 'no name'}; "
                    "set the agent's cluster to the name that it was enrolled with",
                    IdentityRefusal.WRONG_NAME,
                )
            claimed = claimed or next(iter(names), "")
            if claimed in self._admin_names:
                raise IdentityRefused(
                    f"{claimed} is an administrator's name, and no cluster's", IdentityRefusal.WRONG_ROLE
                )
        return checked_name(claimed)

    def administrator(self, context: AuthContext) -> str:
        """The calling administrator's name.

        Raises:
            IdentityRefused: its certificate is not an administrator's, or counts no longer.
        """
        if not self._authenticated:
            raise IdentityRefused(
                "without certificates only the learner's own user may ask this, at the socket in its state directory: "
                "policyctl --learner unix:STATE_DIR/operator.sock",
                IdentityRefusal.WRONG_ROLE,
            )
        names = self._names(context, Role.ADMIN)
        allowed = names if self._issuing else [name for name in names if name in self._admin_names]
        if not allowed:
            raise IdentityRefused(
                f"certificate {', '.join(names) or 'without a name'} may not ask about the "
                "fleet; use one of tls.admin_names",
                IdentityRefusal.WRONG_ROLE,
            )
        return allowed[0]

    def anybody(self, context: AuthContext) -> None:
        """Check that the caller's certificate still counts, whoever it is.

        Raises:
            IdentityRefused: it does not.
        """
        if self._authenticated:
            self._names(context, None)

    def fingerprint(self, context: AuthContext) -> str:
        """What names the caller's certificate for ever; empty without one."""
        presented = _presented(context)
        return presented.fingerprint if presented is not None else ""

    def _names(self, context: AuthContext, role: Role | None) -> list[str]:
        """The names that the caller may go by; none for a certificate without a name."""
        presented = _presented(context)
        if presented is not None and presented.ends_unix_seconds <= self._clock():
            # The handshake looked at this too, but a connection may last longer than its certificate.
            raise IdentityRefused("this certificate has expired; enroll again", IdentityRefusal.EXPIRED)
        names = _certificate_names(context)
        if not self._issuing:
            self._check_revocations(names, presented)
            return names
        known = None
        if self._certificates is not None and presented is not None:
            known = self._certificates.known.get(presented.fingerprint)
        shown = ", ".join(names) or "without a name"
        if known is None:
            raise IdentityRefused(
                f"certificate {shown} is none that this learner issued, or was replaced; enroll again",
                IdentityRefusal.UNKNOWN_CERTIFICATE,
            )
        if known.revoked:
            raise IdentityRefused(
                f"certificate {shown} was revoked; ask the platform owner to enroll it again", IdentityRefusal.REVOKED
            )
        if role is not None and known.role is not role:
            raise IdentityRefused(
                f"certificate {shown} is a cluster's, and may not ask about the fleet; use an administrator's"
                if role is Role.ADMIN
                else f"certificate {shown} is an administrator's, and no cluster's",
                IdentityRefusal.WRONG_ROLE,
            )
        return [known.name]

    def _check_revocations(self, names: Iterable[str], presented: Presented | None) -> None:
        if self._certificates is None:
            return
        for name in names:
            moment = self._certificates.revocations.get(name)
            # Without the certificate itself its age is not known, and a revoked name is refused.
            if moment is not None and (presented is None or presented.begins_unix_seconds <= moment):
                raise IdentityRefused(
                    f"certificates of {name} that were made before it was revoked are refused; use a newer one",
                    IdentityRefusal.REVOKED,
                )


class OperatorIdentity(Identity):
    """The caller at the operators' socket: the learner's own user, an administrator and never a cluster."""

    def __init__(self) -> None:
        super().__init__(authenticated=False)

    def caller(self, context: AuthContext, peer: str) -> Caller:
        """See `Identity.caller`."""
        del context, peer
        return Caller(OPERATOR, Role.ADMIN)

    def administrator(self, context: AuthContext) -> str:
        """See `Identity.administrator`."""
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


def checked_name(name: str) -> str:
    """A cluster's name, if it is one.

    Raises:
        BadRequest: it is not.
    """
    if not _NAME.fullmatch(name):
        raise BadRequest(f"{name[:63]!r} is no cluster name: use 1 to 63 lower-case letters, digits, '-' and '.'")
    return name


def _certificate_names(context: AuthContext) -> list[str]:
    """Common name first, then the alternative names, without repeats."""
    values = [*context.get("x509_common_name", ()), *context.get("x509_subject_alternative_name", ())]
    return list(dict.fromkeys(value.decode(errors="replace") for value in values))


def _presented(context: AuthContext) -> Presented | None:
    pem = next(iter(context.get("x509_pem_cert", ())), None)
    return None if pem is None else _parsed(pem)


@functools.lru_cache(maxsize=4096)
def _parsed(pem: bytes) -> Presented | None:
    """Read a certificate once, not at every call of its connection."""
    try:
        certificate = x509.load_pem_x509_certificate(pem)
    except (ValueError, UnsupportedAlgorithm, x509.InvalidVersion):
        return None
    return Presented(
        fingerprint(certificate),
        certificate.not_valid_before_utc.timestamp(),
        certificate.not_valid_after_utc.timestamp(),
    )
