"""Types of enrollment: status of a cluster or a person, what is given, why nothing is; and the messages of them."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from enum import StrEnum

from global_learner.roles import CallerRole
from policy_net.exchange.generated import fleet_pb2


class EnrollmentState(StrEnum):
    """A cluster's status."""

    INVITED = "invited"
    ENROLLED = "enrolled"
    EXPIRED = "expired"
    REVOKED = "revoked"


class EnrollmentRefusal(StrEnum):
    """Why no certificate is given; metrics know exactly these words."""

    UNKNOWN_TOKEN = "unknown-token"  # noqa: S105  (a word, no secret)
    """Made by another learner, or replaced by a newer token."""
    EXPIRED_TOKEN = "expired-token"  # noqa: S105
    """Not used within `identity.token_minutes`."""
    USED_TOKEN = "used-token"  # noqa: S105
    """Traded for a certificate already, with another key."""
    WRONG_NAME = "wrong-name"
    """Made for another cluster's name."""
    REVOKED = "revoked"
    """The present certificate was revoked, and is not renewed."""


@dataclass(frozen=True, slots=True)
class ClusterIdentity:
    """A cluster's status; seconds are 0 where there is no such moment."""

    cluster: str
    state: EnrollmentState
    issued_unix_seconds: float = 0.0
    expires_unix_seconds: float = 0.0
    fingerprint: str = ""
    revoked_unix_seconds: float = 0.0


@dataclass(frozen=True, slots=True)
class PersonIdentity:
    """A person's newest certificate; `revoked_unix_seconds` is 0 if it is not."""

    name: str
    role: CallerRole
    state: EnrollmentState
    issued_unix_seconds: float
    expires_unix_seconds: float
    fingerprint: str
    revoked_unix_seconds: float = 0.0


@dataclass(frozen=True, slots=True)
class CertificateGrant:
    """A certificate as an agent gets it; `repeated` if it had been made before and not arrived."""

    pem: bytes
    fingerprint: str
    expires_unix_seconds: float
    repeated: bool = False


@dataclass(frozen=True, slots=True)
class Invitation:
    """A token, the only time that it is seen.

    Attributes:
        voided_tokens: earlier ones of the name, still good and not used, that count no longer.
    """

    token: str
    expires_unix_seconds: float
    voided_tokens: int = 0


def identity_message(entry: ClusterIdentity) -> fleet_pb2.ClusterIdentity:
    """The status's message, which has the same fields."""
    return fleet_pb2.ClusterIdentity(**asdict(entry))


def person_message(entry: PersonIdentity) -> fleet_pb2.OperatorIdentity:
    """The message of a person's certificate, which has the same fields."""
    return fleet_pb2.OperatorIdentity(**asdict(entry))
