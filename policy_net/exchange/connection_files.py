"""PEM files of a TLS connection that were made elsewhere, checked before gRPC sees them, and followed when replaced.

gRPC ends the whole process, without a word, over a file that holds no PEM; so whoever names one has to be told first.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from cryptography import x509
from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

from foundation.errors import ExpectedError
from foundation.followed_files import Content, FollowedFiles
from policy_net.errors import IdentityFileError
from policy_net.exchange.secrets_in_use import NO_CERTIFICATE, Validity, longest_validity, shown_moment, validity_of

_LARGEST_BYTES = 4 << 20
"""A bundle of every public authority takes a quarter of a megabyte."""


def plain_content(path: Path) -> bytes:
    """The content of a file that is read once; what a command line names may be a pipe.

    Raises:
        IdentityFileError: it is far too large.
        OSError: it cannot be read.
    """
    with path.open("rb") as stream:
        data = stream.read(_LARGEST_BYTES + 1)
    if len(data) > _LARGEST_BYTES:
        raise IdentityFileError(f"{path}: is larger than {_LARGEST_BYTES} bytes; name a PEM file")
    return data


@dataclass(frozen=True, slots=True)
class ConnectionFiles:
    """One side of a connection (PEM).

    Attributes:
        authority: what the other side's certificate is checked against; None where it shows none.
        certificate: what this side shows, with its chain; None, as its key, for one that shows none.
        validity: of the certificate itself, not of its chain.
        authority_validity: of the authority that lasts longest.
    """

    authority: bytes | None
    certificate: bytes | None = None
    key: bytes | None = None
    validity: Validity = NO_CERTIFICATE
    authority_validity: Validity = NO_CERTIFICATE

    def check_in_force(self, now: float) -> None:
        """See that the certificate, and an authority, hold at a moment (Unix seconds).

        Raises:
            IdentityFileError: one holds no longer, or not yet.
        """
        begins, ends = self.validity
        if self.certificate is not None and ends <= now:
            raise IdentityFileError(f"the certificate has expired, on {shown_moment(ends)}")
        if begins > now:
            raise IdentityFileError(f"the certificate holds from {shown_moment(begins)} on")
        last = self.authority_validity.ends_unix_seconds
        if self.authority is not None and last <= now:
            raise IdentityFileError(f"the authority's certificate has expired, on {shown_moment(last)}")


def read_connection_files(
    ca: Path | None, certificate: Path | None, key: Path | None, content: Content = plain_content
) -> ConnectionFiles:
    """Read and check the files of a connection.

    Raises:
        IdentityFileError: one cannot be read, is no PEM, or key and certificate do not belong together.
    """
    if (certificate is None) is not (key is None):
        raise IdentityFileError("a certificate and its key belong together: name both, or neither")
    authority, authorities = None, NO_CERTIFICATE
    if ca is not None:
        authority = _read(ca, content)
        authorities = longest_validity(_certificates(authority, ca))
    if certificate is None or key is None:
        return ConnectionFiles(authority, authority_validity=authorities)
    chain, secret = _read(certificate, content), _read(key, content)
    own = _certificates(chain, certificate)[0]
    if _public_half(secret, key) != _bytes_of(own.public_key()):
        raise IdentityFileError(f"{key}: is not the key of {certificate}; name a pair")
    return ConnectionFiles(authority, chain, secret, validity_of(own), authorities)


def follow_connection_files(
    read: Callable[[Content], ConnectionFiles],
    on_replaced: Callable[[ConnectionFiles], None] = lambda _: None,
    on_refused: Callable[[str], None] = lambda _: None,
    clock: Callable[[], float] = time.monotonic,
    unix_clock: Callable[[], float] = time.time,
) -> FollowedFiles[ConnectionFiles]:
    """Files of a connection, read again when they change.

    What has expired, or does not hold yet, takes nobody's place; at a start there is nothing else to take.

    Args:
        unix_clock: seconds by which certificates hold.

    Raises:
        IdentityFileError: at the start: they cannot be used.
    """
    first = True

    def make(content: Content) -> ConnectionFiles:
        nonlocal first
        files = read(content)
        if not first:
            files.check_in_force(unix_clock())
        first = False
        return files

    return FollowedFiles(make, ExpectedError, on_replaced, on_refused, clock=clock)


def _read(path: Path, content: Content) -> bytes:
    try:
        return content(path)
    except (OSError, ValueError) as error:
        raise IdentityFileError(f"{path}: cannot be read ({getattr(error, 'strerror', error)})") from error


def _certificates(data: bytes, path: Path) -> list[x509.Certificate]:
    try:
        found = x509.load_pem_x509_certificates(data)
        for certificate in found:
            certificate.public_key()
            validity_of(certificate)
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
