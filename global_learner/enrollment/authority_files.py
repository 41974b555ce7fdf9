"""Files of the authority and of its administrator.

The authority is made once under the state directory, or brought along by the platform's owner. The owner's identity
file is made at the first start, looked at again at later ones and every hour between, and renewed in time.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

import structlog
from cryptography import x509
from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat
from cryptography.x509.oid import NameOID

from foundation.followed_files import Content, FollowedFiles, content_of
from global_learner.enrollment.authority import (
    DAY_SECONDS,
    SERVER_BACKDATE_SECONDS,
    Authority,
    PrivateKey,
    digest_for,
    moment,
)
from global_learner.enrollment.identity_store import IdentityStore
from global_learner.errors import BadLearnerConfig
from global_learner.roles import FIRST_ADMIN, CallerRole
from policy_net.errors import IdentityFileError
from policy_net.exchange.identity_file import check_private, new_key, parse_identity, read_identity, write_private

_log = structlog.get_logger()

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
