"""Certificate authority: it signs for clusters, for administrators and for the learner itself.

A cluster's certificate is good for showing who calls, never for being called: an agent cannot pose as the learner. Of
a request for a certificate only a sound key is taken; the authority writes the rest itself.
"""

from __future__ import annotations

import datetime
import ipaddress
from collections.abc import Sequence
from dataclasses import dataclass

from cryptography import x509
from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec, ed448, ed25519, rsa
from cryptography.hazmat.primitives.serialization import Encoding
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from global_learner.errors import BadRequest
from global_learner.roles import PEOPLE, CallerRole, role_uri
from policy_net.exchange.identity_file import BACKDATE_SECONDS, fingerprint, new_key
from policy_net.exchange.secrets_in_use import Validity, validity_of

DAY_SECONDS = 86_400.0
SERVER_SECONDS = 730 * DAY_SECONDS
"""Two years. The key is made anew at each start and never written, so a shorter life would protect nothing more."""
SERVER_BACKDATE_SECONDS = DAY_SECONDS
"""Agents check the learner's certificate by their own clocks, which may be hours behind."""

_MAX_REQUEST_BYTES = 8192
_LEAST_RSA_BITS, _MOST_RSA_BITS = 2048, 4096
_RSA_EXPONENTS = (3, 65537)

PrivateKey = ec.EllipticCurvePrivateKey | rsa.RSAPrivateKey | ed25519.Ed25519PrivateKey | ed448.Ed448PrivateKey
PublicKey = ec.EllipticCurvePublicKey | rsa.RSAPublicKey


@dataclass(frozen=True, slots=True)
class CertificateGrant:
    """A certificate as its holder gets it; `repeated` if it had been made before and not arrived."""

    pem: bytes
    fingerprint: str
    expires_unix_seconds: float
    repeated: bool = False


class Authority:
    """Signs certificates."""

    def __init__(self, certificate: x509.Certificate, key: PrivateKey) -> None:
        self._certificate = certificate
        self._key = key

    @property
    def pem(self) -> bytes:
        """The authority's own certificate."""
        return self._certificate.public_bytes(Encoding.PEM)

    @property
    def validity(self) -> Validity:
        """The time in which the authority's own certificate holds."""
        return validity_of(self._certificate)

    def has_key_of(self, other: Authority) -> bool:
        """Whether what one of the two signed is the other's too."""
        return self._key.public_key() == other._key.public_key()

    def has_signed_for(self, authority_pem: bytes) -> bool:
        """Whether this is an authority's certificate of the same key, such as one before it was renewed."""
        try:
            certificate = x509.load_pem_x509_certificate(authority_pem)
            if certificate.issuer == certificate.subject:
                certificate.verify_directly_issued_by(certificate)  # else a damaged copy would pass for another one
            return certificate.public_key() == self._key.public_key()
        except (ValueError, TypeError, InvalidSignature, UnsupportedAlgorithm, x509.InvalidVersion):
            return False

    def renew(self, other: Authority) -> None:
        """Take another certificate of the same key; what was signed before stays good."""
        self._certificate = other._certificate

    @property
    def is_self_signed(self) -> bool:
        """Whether its certificate is as its own key signed it, to the last bit."""
        try:
            self._certificate.verify_directly_issued_by(self._certificate)
        except (InvalidSignature, ValueError, TypeError):
            return False
        return True

    def for_client(
        self,
        public_key: PublicKey,
        name: str,
        now: float,
        lifetime_seconds: float,
        role: CallerRole = CallerRole.CLUSTER,
    ) -> CertificateGrant:
        """A certificate with which `name` shows who it is; ends with the authority at the latest.

        A person's says the role too; one without is a cluster's.
        """
        states = [x509.UniformResourceIdentifier(role_uri(role))] if role in PEOPLE else []
        ends = min(now + lifetime_seconds, self._certificate.not_valid_after_utc.timestamp())
        certificate = self._signed(
            public_key,
            name,
            [x509.DNSName(name), *states],
            ExtendedKeyUsageOID.CLIENT_AUTH,
            max(now - BACKDATE_SECONDS, self._certificate.not_valid_before_utc.timestamp()),
            ends,
        )
        return CertificateGrant(certificate.public_bytes(Encoding.PEM), fingerprint(certificate), ends)

    def for_server(self, names: Sequence[str], now: float) -> tuple[bytes, bytes]:
        """A fresh key and the learner's own certificate for these DNS names and addresses (PEM)."""
        key_pem = new_key()
        public_key = serialization.load_pem_private_key(key_pem, None).public_key()
        assert isinstance(public_key, ec.EllipticCurvePublicKey)  # noqa: S101  (new_key makes no other)
        certificate = self._signed(
            public_key,
            "global-learner",
            [_alternative_name(name) for name in names],
            ExtendedKeyUsageOID.SERVER_AUTH,
            now - SERVER_BACKDATE_SECONDS,
            now + SERVER_SECONDS,
        )
        return key_pem, certificate.public_bytes(Encoding.PEM)

    def _signed(
        self,
        public_key: PublicKey,
        name: str,
        alternatives: Sequence[x509.GeneralName],
        purpose: x509.ObjectIdentifier,
        begins: float,
        ends: float,
    ) -> x509.Certificate:
        builder = (
            x509.CertificateBuilder()
            .subject_name(x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)]))
            .issuer_name(self._certificate.subject)
            .public_key(public_key)
            .serial_number(x509.random_serial_number())
            .not_valid_before(moment(begins))
            .not_valid_after(moment(ends))
            .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
            .add_extension(x509.ExtendedKeyUsage([purpose]), critical=False)
            .add_extension(x509.SubjectAlternativeName(alternatives), critical=False)
            .add_extension(_key_identifier(self._certificate), critical=False)
        )
        return builder.sign(self._key, digest_for(self._key))


def _key_identifier(authority: x509.Certificate) -> x509.AuthorityKeyIdentifier:
    try:
        own = authority.extensions.get_extension_for_class(x509.SubjectKeyIdentifier).value
    except x509.ExtensionNotFound:
        key = authority.public_key()
        return x509.AuthorityKeyIdentifier.from_issuer_public_key(key)  # type: ignore[arg-type]  # checked when read
    return x509.AuthorityKeyIdentifier.from_issuer_subject_key_identifier(own)


def digest_for(key: PrivateKey) -> hashes.SHA256 | None:
    """The hash to sign with; EdDSA has its own."""
    return None if isinstance(key, (ed25519.Ed25519PrivateKey, ed448.Ed448PrivateKey)) else hashes.SHA256()


def _alternative_name(name: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(name))
    except ValueError:
        return x509.DNSName(name)


def moment(unix_seconds: float) -> datetime.datetime:
    """A moment as X.509 takes it."""
    return datetime.datetime.fromtimestamp(unix_seconds, datetime.UTC)


def requested_key(request: bytes) -> PublicKey:
    """The public key in a request for a certificate, of which the caller has shown to hold the private half.

    Raises:
        BadRequest: no such request, or a key that is too weak or of a kind that TLS does not take.
    """
    if len(request) > _MAX_REQUEST_BYTES:
        raise BadRequest(f"a signing request of {len(request)} bytes; {_MAX_REQUEST_BYTES} are more than any needs")
    try:
        parsed = x509.load_der_x509_csr(request)
        key = parsed.public_key()
        sound = _is_sound(key)
        # Last, and never of an odd key: a signature by a large one with a large exponent takes ten milliseconds.
        genuine = sound and parsed.is_signature_valid
    except (ValueError, TypeError, UnsupportedAlgorithm, InvalidSignature, x509.InvalidVersion) as error:
        raise BadRequest("the signing request cannot be read; it must be PKCS #10 in DER") from error
    if not sound:
        sizes = f"{_LEAST_RSA_BITS} to {_MOST_RSA_BITS} bits"
        raise BadRequest(f"the signing request's key is taken on P-256 or P-384, or RSA of {sizes}")
    if not genuine:
        raise BadRequest("the signing request is not signed with its own key")
    assert isinstance(key, PublicKey)  # noqa: S101  (a sound one is)
    return key


def _is_sound(key: object) -> bool:
    """Whether a key is strong enough, and no stranger than those that programs make."""
    if isinstance(key, rsa.RSAPublicKey):
        return _LEAST_RSA_BITS <= key.key_size <= _MOST_RSA_BITS and key.public_numbers().e in _RSA_EXPONENTS
    return isinstance(key, ec.EllipticCurvePublicKey) and isinstance(key.curve, (ec.SECP256R1, ec.SECP384R1))
