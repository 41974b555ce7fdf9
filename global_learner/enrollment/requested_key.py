"""What a request for a certificate may ask for: a sound key, and nothing else; the authority writes the rest itself."""

from __future__ import annotations

from cryptography import x509
from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm
from cryptography.hazmat.primitives.asymmetric import ec, rsa

from global_learner.enrollment.authority import PublicKey
from global_learner.errors import BadRequest

_MAX_REQUEST_BYTES = 8192
_LEAST_RSA_BITS = 2048


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
        genuine = parsed.is_signature_valid
    except (ValueError, TypeError, UnsupportedAlgorithm, InvalidSignature, x509.InvalidVersion) as error:
        raise BadRequest("the signing request cannot be read; it must be PKCS #10 in DER") from error
    if not genuine:
        raise BadRequest("the signing request is not signed with its own key")
    if isinstance(key, rsa.RSAPublicKey) and key.key_size >= _LEAST_RSA_BITS:
        return key
    if isinstance(key, ec.EllipticCurvePublicKey) and isinstance(key.curve, (ec.SECP256R1, ec.SECP384R1)):
        return key
    raise BadRequest(f"the signing request's key is taken on P-256 or P-384, or RSA of {_LEAST_RSA_BITS} bits or more")
