"""Certificates for tests of TLS: each signs itself."""

import datetime
import ipaddress
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID


def certificate(host: str = "127.0.0.1", days: int = 1, password: bytes = b"") -> tuple[bytes, bytes]:
    """A certificate of `host` that signs itself and ends in so many days, and its key; both PEM."""
    key = ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "coordinator")])
    now = datetime.datetime.now(datetime.UTC)
    made = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(subject)
        .public_key(key.public_key())
        .serial_number(1)
        .not_valid_before(now - datetime.timedelta(days=9))
        .not_valid_after(now + datetime.timedelta(days=days))
        .add_extension(x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address(host))]), critical=False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .sign(key, hashes.SHA256())
    )
    lock = serialization.BestAvailableEncryption(password) if password else serialization.NoEncryption()
    pem = serialization.Encoding.PEM
    return made.public_bytes(pem), key.private_bytes(pem, serialization.PrivateFormat.PKCS8, lock)


def certificate_files(
    folder: Path, name: str = "", host: str = "127.0.0.1", days: int = 1, password: bytes = b""
) -> tuple[str, str, str]:
    """The same as files: CA, certificate and key."""
    certificate_pem, key_pem = certificate(host, days, password)
    certificate_file, key_file = folder / f"{name}cert.pem", folder / f"{name}key.pem"
    certificate_file.write_bytes(certificate_pem)
    key_file.write_bytes(key_pem)
    return str(certificate_file), str(certificate_file), str(key_file)
