"""Certificate authority: it signs for clusters, for administrators and for the learner itself; and its files.

A cluster's certificate is good for showing who calls, never for being called: an agent cannot pose as the learner. Of
a request for a certificate only a sound key is taken; the authority writes the rest itself. The authority is made once
under the state directory, or brought along by the platform's owner. The owner's identity file is made at the first
start, looked at again at later ones and every hour between, and renewed in time.
"""

from __future__ import annotations

import datetime
import ipaddress
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import structlog
from cryptography import x509
from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec, ed448, ed25519, rsa
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from foundation.followed_files import Content, FollowedFiles, content_of
from global_learner.enrollment.identity_store import IdentityStore
from global_learner.enrollment.tables import CertificateGrant
from global_learner.errors import BadLearnerConfig, BadRequest
from global_learner.identity import FIRST_ADMIN, PEOPLE, CallerRole, role_uri
from policy_net.errors import IdentityFileError
from policy_net.exchange.identity_file import (
    BACKDATE_SECONDS,
    check_private,
    fingerprint,
    new_key,
    parse_identity,
    read_identity,
    write_private,
)
from policy_net.exchange.secrets_in_use import Validity, validity_of

_log = structlog.get_logger()


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


ADMINISTRATOR = FIRST_ADMIN
ADMINISTRATOR_FILE = "admin.pem"
AUTHORITY_KEY_FILE = "ca.key"
ADMINISTRATOR_SECONDS = 365 * DAY_SECONDS
AUTHORITY_SECONDS = 3650 * DAY_SECONDS
"""Ten years: replacing an authority means enrolling every cluster again."""


def open_authority(folder: Path, now: float) -> Authority:
    """The learner's own authority in a private folder; made the first time.

    Raises:
        BadConfig: its files are damaged, or others may read the key.
        OSError: the disk refuses.
    """
    key_file, certificate_file = folder / AUTHORITY_KEY_FILE, folder / "ca.pem"
    if not certificate_file.exists():
        # A key that is there stays: what it signed is then still good, should only the certificate have been lost.
        if key_file.exists():
            meaning = "it was gone; another one of the same key is in its place, and certificates stay good"
            _log.warning("authority-certificate-renewed", file=str(certificate_file), meaning=meaning)
        else:
            write_private(key_file, new_key())
        write_private(certificate_file, _self_signed(_read_key(key_file), now))
    authority = read_authority(certificate_file, key_file, now)
    if not authority.is_self_signed:
        raise BadLearnerConfig(
            f"certificate authority: {certificate_file} is damaged: it is not what its key signed; bring it back, or "
            "remove it: another one is then made of the same key"
        )
    return authority


def follow_authority(
    certificate_file: Path,
    key_file: Path,
    clock: Callable[[], float],
    on_replaced: Callable[[], None] = lambda: None,
    poll_clock: Callable[[], float] = time.monotonic,
) -> FollowedFiles[Authority]:
    """An authority that was made elsewhere; its certificate is read again when it changes, of the same key alone.

    Agents know the learner by the authority of their enrollment: another one would shut all of them out.

    Raises:
        BadConfig, SecretExposed: at the start: the files cannot be used.
    """
    first: Authority | None = None

    def make(content: Content) -> Authority:
        nonlocal first
        found = read_authority(certificate_file, key_file, clock(), content)
        if first is None:
            first = found
        elif not first.has_key_of(found):
            raise BadLearnerConfig(
                f"certificate authority: {key_file} is another authority's key, which no enrolled cluster trusts: "
                "bring the one before back, or start the learner again with it and enroll every cluster anew"
            )
        else:
            first.renew(found)
        return first

    def replaced(authority: Authority) -> None:
        ends = round(authority.validity.ends_unix_seconds)
        _log.info("authority-replaced", file=str(certificate_file), expires_unix_seconds=ends)
        on_replaced()

    def refused(reason: str) -> None:
        _log.error("authority-not-replaced", reason=reason, meaning="the one before serves on")

    return FollowedFiles(make, (BadLearnerConfig, IdentityFileError), replaced, refused, clock=poll_clock)


def read_authority(certificate_file: Path, key_file: Path, now: float, content: Content = content_of) -> Authority:
    """An authority from its files (PEM), which `content` reads.

    Raises:
        BadConfig: a file cannot be read, has expired or is not what it should be.
        SecretExposed: others may read the key.
    """
    try:
        certificate = x509.load_pem_x509_certificate(content(certificate_file))
        public = _public_bytes(certificate.public_key())
        constraints = certificate.extensions.get_extension_for_class(x509.BasicConstraints).value
    except OSError as error:
        raise BadLearnerConfig(f"certificate authority: {error.filename} cannot be read ({error.strerror})") from error
    except (
        ValueError,
        UnsupportedAlgorithm,
        x509.InvalidVersion,
        x509.ExtensionNotFound,
        x509.DuplicateExtension,
    ) as error:
        raise BadLearnerConfig(
            f"certificate authority: {certificate_file} is no authority's certificate (PEM); name one, or bring it back"
        ) from error
    key = _read_key(key_file, content)
    if certificate.not_valid_after_utc.timestamp() <= now:
        raise BadLearnerConfig(
            f"certificate authority: {certificate_file} has expired; every cluster needs a new one's"
        )
    if not constraints.ca:
        raise BadLearnerConfig(f"certificate authority: {certificate_file} may sign nothing (it is no CA certificate)")
    if _public_bytes(key.public_key()) != public:
        raise BadLearnerConfig(f"certificate authority: {key_file} is not the key of {certificate_file}")
    return Authority(certificate, key)


def ensure_administrator(path: Path, authority: Authority, store: IdentityStore, now: float) -> None:
    """See that the file is there and good for a while.

    One that is renewed, or whose authority's certificate is, stays good until it expires, since its owner has copies of
    it elsewhere; one in the place of a file that is gone or damaged makes all earlier ones void.

    Raises:
        OSError: the disk refuses.
    """
    sound, first = False, not any(known.role is CallerRole.ADMIN for known in store.known.values())
    reason = "it was gone"
    try:
        present = read_identity(path)
        known = store.known.get(present.fingerprint)
        ours = known is not None and known.role is CallerRole.ADMIN and not known.revoked
        sound = ours and authority.has_signed_for(present.authority)
        if sound and present.authority == authority.pem and now < present.renewal_unix_seconds():
            return
        reason = "it is not what this learner issued"
    except IdentityFileError as error:
        if path.exists():
            reason = str(error)
    if not (sound or first):
        advice = "copies of the earlier one are void"
        _log.warning("administrator-replaced", file=str(path), reason=reason, advice=advice)
    key_pem = new_key()
    public_key = serialization.load_pem_private_key(key_pem, None).public_key()
    assert isinstance(public_key, ec.EllipticCurvePublicKey)  # noqa: S101  (new_key makes no other)
    grant = store.add_administrator(
        ADMINISTRATOR,
        now,
        lambda: authority.for_client(public_key, ADMINISTRATOR, now, ADMINISTRATOR_SECONDS, CallerRole.ADMIN),
        keep_earlier=sound,
    )
    parse_identity(key_pem + grant.pem + authority.pem).write(path)
    _log.info("administrator-written", file=str(path), expires_unix_seconds=round(grant.expires_unix_seconds))


def _read_key(key_file: Path, content: Content = content_of) -> PrivateKey:
    try:
        check_private(key_file)
        key = serialization.load_pem_private_key(content(key_file), None)
    except OSError as error:
        raise BadLearnerConfig(f"certificate authority: {key_file} cannot be read ({error.strerror})") from error
    except (ValueError, TypeError, UnsupportedAlgorithm) as error:
        raise BadLearnerConfig(
            f"certificate authority: {key_file} is no private key (PEM) without a password; name one, or bring it back"
        ) from error
    if not isinstance(key, PrivateKey):
        raise BadLearnerConfig(f"certificate authority: {key_file} is a key of a kind that signs no certificates")
    return key


def _self_signed(key: PrivateKey, now: float) -> bytes:
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "fedl2 fleet authority")])
    usage = dict.fromkeys(
        ("digital_signature", "content_commitment", "key_encipherment", "data_encipherment", "key_agreement",
         "encipher_only", "decipher_only"), False
    )  # fmt: skip
    builder = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(moment(now - SERVER_BACKDATE_SECONDS))
        .not_valid_after(moment(now + AUTHORITY_SECONDS))
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(x509.KeyUsage(key_cert_sign=True, crl_sign=True, **usage), critical=True)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
    )
    return builder.sign(key, digest_for(key)).public_bytes(Encoding.PEM)


def _public_bytes(key: object) -> bytes:
    data: bytes = key.public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo)  # type: ignore[attr-defined]
    return data
