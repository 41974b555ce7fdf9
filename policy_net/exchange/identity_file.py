"""Who a program is, in one file: private key, certificate, and the authority that it trusts (PEM, in this order).

Agents keep theirs in the state directory; the learner writes one for the platform owner, for `policyctl --cert`. One
file rather than three, so that key and certificate are replaced together or not at all.
"""

from __future__ import annotations

import datetime
import re
from dataclasses import dataclass
from pathlib import Path

from cryptography import x509
from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

from policy_net.errors import IdentityFileError
from policy_net.exchange.private_files import read_private, write_private

BACKDATE_SECONDS = 300.0
"""Certificates begin to hold this long before they are made, for clocks that are a little behind."""

_BLOCK = re.compile(rb"-----BEGIN ([A-Z ]+)-----.+?-----END \1-----\n?", re.DOTALL)


@dataclass(frozen=True, slots=True)
class IdentityFile:
    """The content of an identity file.

    Attributes:
        key: private key, PEM.
        certificate: for its public half, PEM.
        authority: what the other side's certificate is checked against, PEM, one or more.
        begins_unix_seconds: when the certificate was made, or a little before.
        ends_unix_seconds: when it expires.
    """

    key: bytes
    certificate: bytes
    authority: bytes
    name: str
    fingerprint: str
    begins_unix_seconds: float
    ends_unix_seconds: float

    def to_bytes(self) -> bytes:
        """The file's bytes."""
        return self.key + self.certificate + self.authority

    def write(self, path: Path) -> None:
        """Write the file, for its owner's eyes only.

        Raises:
            OSError: the disk refuses.
        """
        write_private(path, self.to_bytes())

    def renewal_unix_seconds(self) -> float:
        """When to ask for the next certificate: after two thirds of this one's life."""
        begins = self.begins_unix_seconds + BACKDATE_SECONDS
        return begins + (self.ends_unix_seconds - begins) * 2.0 / 3.0


def read_identity(path: Path) -> IdentityFile:
    """Read and check an identity file.

    Raises:
        SecretExposed: others may read it.
        IdentityFileError: not there, cut short, damaged, or of parts that do not belong together.
    """
    try:
        data = read_private(path)
    except OSError as error:
        raise IdentityFileError(f"{path}: cannot be read ({error.strerror})") from error
    try:
        return parse_identity(data)
    except IdentityFileError as error:
        raise IdentityFileError(f"{path}: {error}") from error


def parse_identity(data: bytes) -> IdentityFile:
    """Check the bytes of an identity file.

    Raises:
        IdentityFileError: cut short, damaged, or of parts that do not belong together.
    """
    blocks = [(match.group(1).decode(), _ended(match.group(0))) for match in _BLOCK.finditer(data)]
    keys = [block for kind, block in blocks if kind.endswith("PRIVATE KEY")]
    certificates = [block for kind, block in blocks if kind == "CERTIFICATE"]
    if len(keys) != 1 or len(certificates) < 2:
        raise IdentityFileError(
            f"holds {len(keys)} whole private keys and {len(certificates)} whole certificates, where an identity file "
            "holds one key, its certificate and the authority's: it may be cut short"
        )
    try:
        # Parts of a certificate are read when they are first looked at, so all of that stands in here.
        key = serialization.load_pem_private_key(keys[0], None)
        certificate, *_ = (x509.load_pem_x509_certificate(block) for block in certificates)
        public, named = (
            half.public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo)
            for half in (key.public_key(), certificate.public_key())
        )
        name = common_name(certificate)
        begins, ends = _unix(certificate.not_valid_before_utc), _unix(certificate.not_valid_after_utc)
    except (ValueError, TypeError, UnsupportedAlgorithm, x509.InvalidVersion) as error:
        raise IdentityFileError("its key or a certificate cannot be read: it is damaged") from error
    if public != named:
        raise IdentityFileError("its key and its certificate do not belong together")
    return IdentityFile(
        keys[0], certificates[0], b"".join(certificates[1:]), name, fingerprint(certificate), begins, ends
    )


def fingerprint(certificate: x509.Certificate) -> str:
    """The certificate's SHA-256, in hex: what names it for ever."""
    return certificate.fingerprint(hashes.SHA256()).hex()


def common_name(certificate: x509.Certificate) -> str:
    """The name that the certificate was made out to; empty if there is none."""
    names = certificate.subject.get_attributes_for_oid(x509.NameOID.COMMON_NAME)
    return str(names[0].value) if names else ""


def _unix(moment: datetime.datetime) -> float:
    return moment.timestamp()


def _ended(block: bytes) -> bytes:
    return block if block.endswith(b"\n") else block + b"\n"
