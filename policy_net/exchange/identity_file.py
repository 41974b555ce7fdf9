"""Identity of a program in one file: private key, certificate, and the authority that it trusts (PEM, in this order).

One file rather than three, so that key and certificate are replaced together or not at all. Files that hold secrets are
read and written here: only their owner may read them, and they are whole or absent whenever the writer dies. Keys are
P-256: small, fast in a handshake, and what BoringSSL, OpenSSL and every authority take.
"""

from __future__ import annotations

import datetime
import os
import re
import stat
from dataclasses import dataclass
from pathlib import Path

from cryptography import x509
from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat, PublicFormat

from foundation.files import PRIVATE, check_replaceable, write_whole
from foundation.followed_files import Content
from policy_net.errors import IdentityFileError, SecretExposed
from policy_net.exchange.secrets_in_use import Validity, longest_validity

BACKDATE_SECONDS = 300.0
"""Certificates begin to hold this long before they are made, for clocks that are a little behind."""

_BLOCK = re.compile(rb"-----BEGIN ([A-Z ]+)-----.+?-----END \1-----\n?", re.DOTALL)

_OTHERS = stat.S_IRWXO | stat.S_IWGRP | stat.S_IXGRP
"""A group may read: that is how containers are handed their secrets."""


@dataclass(frozen=True, slots=True)
class IdentityFile:
    """The content of an identity file.

    Attributes:
        certificate: for its public half, PEM.
        authority: what the other side's certificate is checked against, PEM, one or more.
        begins_unix_seconds: when the certificate was made, or a little before.
    """

    key: bytes
    certificate: bytes
    authority: bytes
    name: str
    fingerprint: str
    begins_unix_seconds: float
    ends_unix_seconds: float

    @property
    def validity(self) -> Validity:
        """The time in which the certificate holds."""
        return Validity(self.begins_unix_seconds, self.ends_unix_seconds)

    @property
    def authority_validity(self) -> Validity:
        """The time in which the authority that lasts longest holds."""
        return longest_validity(x509.load_pem_x509_certificates(self.authority))

    def to_bytes(self) -> bytes:
        """The file's bytes."""
        return self.key + self.certificate + self.authority

    def write(self, path: Path) -> None:
        """Write the file, readable for its owner only.

        Raises:
            OSError: the disk refuses.
        """
        write_private(path, self.to_bytes())

    def renewal_unix_seconds(self) -> float:
        """When to ask for the next certificate: after two thirds of this one's life."""
        begins = self.begins_unix_seconds + BACKDATE_SECONDS
        return begins + (self.ends_unix_seconds - begins) * 2.0 / 3.0


def read_identity(path: Path, content: Content | None = None) -> IdentityFile:
    """Read and check an identity file.

    Args:
        content: reads a file that is followed.

    Raises:
        SecretExposed: others may read it.
        IdentityFileError: not there, cut short, damaged, or of parts that do not belong together.
    """
    try:
        if content is None:
            data = read_private(path)
        else:
            check_private(path)
            data = content(path)
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


def new_key() -> bytes:
    """A fresh private key (PEM)."""
    key = ec.generate_private_key(ec.SECP256R1())
    return key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())


def signing_request(key_pem: bytes, name: str) -> bytes:
    """A request for a certificate for this key (PKCS #10, DER); the authority decides on everything but the key.

    Raises:
        IdentityFileError: this is no such key.
    """
    try:
        key = serialization.load_pem_private_key(key_pem, None)
    except (ValueError, TypeError, UnsupportedAlgorithm) as error:
        raise IdentityFileError("the private key cannot be read: it is damaged") from error
    if not isinstance(key, ec.EllipticCurvePrivateKey):
        raise IdentityFileError("the private key is not on an elliptic curve, as all of ours are")
    builder = x509.CertificateSigningRequestBuilder().subject_name(
        x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, name)])
    )
    return builder.sign(key, hashes.SHA256()).public_bytes(Encoding.DER)


def fingerprint(certificate: x509.Certificate) -> str:
    """The certificate's SHA-256, in hex: what names it for ever."""
    return certificate.fingerprint(hashes.SHA256()).hex()


def common_name(certificate: x509.Certificate) -> str:
    """The name that the certificate was made out to; empty if there is none."""
    names = certificate.subject.get_attributes_for_oid(x509.NameOID.COMMON_NAME)
    return str(names[0].value) if names else ""


def write_private(path: Path, data: bytes) -> None:
    """Replace a file's content whole; mode 600 from its first byte on, on disk when this returns.

    Raises:
        OSError: the disk refuses.
    """
    check_replaceable(path)
    write_whole(path, data, mode=PRIVATE)


def make_private_folder(path: Path) -> None:
    """Make a folder that only its owner may enter; one that is there is closed to others.

    Raises:
        OSError: the disk refuses, or it is somebody else's.
    """
    path.mkdir(mode=0o700, parents=True, exist_ok=True)
    path.chmod(0o700)


def read_private(path: Path) -> bytes:
    """The content of a file that nobody but its owner, or its group, may read.

    Raises:
        SecretExposed: others may; whoever could read it may have done so.
        OSError: it cannot be read.
    """
    with path.open("rb") as stream:
        _check_mode(path, os.fstat(stream.fileno()))
        return stream.read()


def check_private(path: Path) -> None:
    """See that nobody but a file's owner, or its group, may read it.

    Raises:
        SecretExposed, OSError: as `read_private`.
    """
    _check_mode(path, path.stat())


def _check_mode(path: Path, found: os.stat_result) -> None:
    mode = stat.S_IMODE(found.st_mode)
    if mode & _OTHERS:
        raise SecretExposed(
            f"{path}: others on this machine may read or change it (mode {mode:o}), and it holds a secret: "
            f"run chmod 600 {path}, and replace it if somebody may have copied it"
        )


def _unix(moment: datetime.datetime) -> float:
    return moment.timestamp()


def _ended(block: bytes) -> bytes:
    return block if block.endswith(b"\n") else block + b"\n"
