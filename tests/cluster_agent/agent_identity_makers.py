"""What tests of an agent's identity are made of: certificates, enrollment files, an identity in a folder."""

from __future__ import annotations

import datetime
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.serialization import Encoding
from cryptography.x509.oid import NameOID

from policy_net.exchange.enrolled_identity import EnrolledIdentity, EnrollmentFile
from policy_net.exchange.identity_file import BACKDATE_SECONDS, new_key

NOON = 1_790_000_000.0
LIFE_SECONDS = 30 * 86_400.0


def certificate(key: bytes, name: str = "north") -> bytes:
    """A certificate for a key, signed by itself: the agent trusts the connection, not the signature."""
    own = serialization.load_pem_private_key(key, None)
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
    builder = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(subject)
        .public_key(own.public_key())
        .serial_number(7)
        .not_valid_before(datetime.datetime.fromtimestamp(NOON - BACKDATE_SECONDS, datetime.UTC))
        .not_valid_after(datetime.datetime.fromtimestamp(NOON + LIFE_SECONDS, datetime.UTC))
    )
    return builder.sign(own, hashes.SHA256()).public_bytes(Encoding.PEM)


def invite(folder: Path, token: str = "token", cluster: str = "north") -> Path:  # noqa: S107
    path = folder / "north.enrollment"
    EnrollmentFile(cluster, token, 7072, NOON, "authority").write(path)
    return path


def enrolled(folder: Path) -> EnrolledIdentity:
    """An agent's identity that was gained with the token `token`."""
    identity = EnrolledIdentity(folder / "identity", "north", invite(folder))
    invitation = identity.invitation()
    assert invitation is not None
    request = identity.first_request()
    identity.received(request.key, certificate(request.key), certificate(new_key(), "authority"))
    identity.on_token_used(invitation)
    return identity
