"""Keys and requests for certificates: what the asking side makes, and what it keeps to itself.

P-256 keys: small, fast in a handshake, and what BoringSSL, OpenSSL and every authority take.
"""

from __future__ import annotations

from cryptography import x509
from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat

from policy_net.errors import IdentityFileError


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
