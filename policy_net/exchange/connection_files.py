"""PEM files of a TLS connection that were made elsewhere, checked before gRPC sees them.

gRPC ends the whole process, without a word, over a file that holds no PEM; so whoever names one has to be told first.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from cryptography import x509
from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

from policy_net.errors import IdentityFileError

_LARGEST_BYTES = 4 << 20
"""A bundle of every public authority takes a quarter of a megabyte."""


@dataclass(frozen=True, slots=True)
class ConnectionFiles:
    """The caller's side of a connection (PEM); certificate and key are None for one that shows none."""

    authority: bytes
    certificate: bytes | None = None
    key: bytes | None = None


def read_connection_files(ca: Path, certificate: Path | None, key: Path | None) -> ConnectionFiles:
    """Read and check the files of a connection.

    Raises:
        IdentityFileError: one cannot be read, is no PEM, or key and certificate do not belong together.
    """
    if (certificate is None) is not (key is None):
        raise IdentityFileError("a certificate and its key belong together: name both, or neither")
    authority = _read(ca)
    _certificates(authority, ca)
    if certificate is None or key is None:
        return ConnectionFiles(authority)
    chain, secret = _read(certificate), _read(key)
    if _public_half(secret, key) != _bytes_of(_certificates(chain, certificate)[0].public_key()):
        raise IdentityFileError(f"{key}: is not the key of {certificate}; name a pair")
    return ConnectionFiles(authority, chain, secret)


def _read(path: Path) -> bytes:
    try:
        with path.open("rb") as stream:
            data = stream.read(_LARGEST_BYTES + 1)
    except (OSError, ValueError) as error:
        raise IdentityFileError(f"{path}: cannot be read ({getattr(error, 'strerror', error)})") from error
    if len(data) > _LARGEST_BYTES:
        raise IdentityFileError(f"{path}: is larger than {_LARGEST_BYTES} bytes; name a PEM file")
    return data


def _certificates(data: bytes, path: Path) -> list[x509.Certificate]:
    try:
        found = x509.load_pem_x509_certificates(data)
        for certificate in found:
            certificate.public_key()
    except (ValueError, UnsupportedAlgorithm, x509.InvalidVersion) as error:
        raise IdentityFileError(f"{path}: holds no whole certificate (PEM)") from error
    return found


def _public_half(data: bytes, path: Path) -> bytes:
    try:
        return _bytes_of(serialization.load_pem_private_key(data, None).public_key())
    except (ValueError, TypeError, UnsupportedAlgorithm) as error:
        raise IdentityFileError(f"{path}: holds no private key (PEM) without a password") from error


def _bytes_of(public_key: object) -> bytes:
    data: bytes = public_key.public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo)  # type: ignore[attr-defined]
    return data
