"""Secrets in use that were read from files: until when their certificates hold, and why a replacement is not used.

Metrics and readiness look at the files now and then, so that a replacement is known before anybody needs it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:  # whose command is refused waits for no cryptography
    from cryptography import x509


class Validity(NamedTuple):
    """The time in which a certificate holds."""

    begins_unix_seconds: float = 0.0
    ends_unix_seconds: float = 0.0

    @property
    def life_seconds(self) -> float:
        """How long it holds in all."""
        return self.ends_unix_seconds - self.begins_unix_seconds


NO_CERTIFICATE = Validity()


@dataclass(frozen=True, slots=True)
class SecretInUse:
    """One secret, or a certificate that others are checked against.

    Attributes:
        validity: of its certificate now; None of a secret that is no certificate.
        refusal: why the files that are there now are not used; empty where they are.
        serves: whether callers can be served with it alone; where it has expired, the program is not ready.
    """

    name: str
    validity: Callable[[], Validity] | None = None
    refusal: Callable[[], str] = lambda: ""
    poll: Callable[[], object] = lambda: None
    serves: bool = True


def validity_of(certificate: x509.Certificate) -> Validity:
    """The time in which a certificate holds.

    Raises:
        ValueError: it says none that can be read.
    """
    return Validity(certificate.not_valid_before_utc.timestamp(), certificate.not_valid_after_utc.timestamp())


def longest_validity(certificates: Iterable[x509.Certificate]) -> Validity:
    """Of a bundle the one that holds longest: as long as that, somebody can be checked against it."""
    return max(map(validity_of, certificates), key=lambda each: each.ends_unix_seconds, default=NO_CERTIFICATE)


def what_expired(secrets: Iterable[SecretInUse], now: float) -> str:
    """Which certificate in use has expired, and why there is no other one; empty where all hold.

    Args:
        now: Unix seconds.
    """
    for secret in secrets:
        ends = 0.0 if secret.validity is None else secret.validity().ends_unix_seconds
        if 0.0 < ends <= now:
            refusal = secret.refusal()
            why = f"what was put in its place is not used ({refusal})" if refusal else "nothing newer is in its place"
            return f"certificate {secret.name} has expired, on {shown_moment(ends)}: {why}"
    return ""


def shown_moment(unix_seconds: float) -> str:
    """A moment for people, in UTC."""
    return f"{datetime.fromtimestamp(unix_seconds, UTC):%Y-%m-%d %H:%M} UTC"
