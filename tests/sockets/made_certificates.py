"""An authority, and what it signs, for tests that replace files of certificates in flight."""

from __future__ import annotations

import datetime
import ipaddress
from dataclasses import dataclass, field
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from cryptography.x509.oid import NameOID

DAY_SECONDS = 86_400.0


def _name(text: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, text)])


def _moment(unix_seconds: float) -> datetime.datetime:
    return datetime.datetime.fromtimestamp(unix_seconds, datetime.UTC)


@dataclass
class MadeAuthority:
    """Signs for servers on 127.0.0.1 and for clients."""

    name: str = "test-ca"
    key: ec.EllipticCurvePrivateKey = field(default_factory=lambda: ec.generate_private_key(ec.SECP256R1()))

    def certificate(self, begins: float, ends: float) -> bytes:
        """Its own certificate (PEM), in force between two moments in Unix seconds."""
        builder = (
            x509.CertificateBuilder(_name(self.name), _name(self.name), self.key.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(_moment(begins))
            .not_valid_after(_moment(ends))
            .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
            .add_extension(x509.SubjectKeyIdentifier.from_public_key(self.key.public_key()), critical=False)
        )
        return builder.sign(self.key, hashes.SHA256()).public_bytes(Encoding.PEM)

    def private_key(self) -> bytes:
        """Its key (PEM)."""
        return self.key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())

    def pair(self, name: str, begins: float, ends: float) -> tuple[bytes, bytes]:
        """A certificate for a name and for 127.0.0.1, and its key (PEM)."""
        key = ec.generate_private_key(ec.SECP256R1())
        alternatives = [x509.DNSName(name), x509.IPAddress(ipaddress.ip_address("127.0.0.1"))]
        builder = (
            x509.CertificateBuilder(_name(self.name), _name(name), key.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(_moment(begins))
            .not_valid_after(_moment(ends))
            .add_extension(x509.SubjectAlternativeName(alternatives), critical=False)
            .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
            .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(self.key.public_key()), critical=False)
        )
        certificate = builder.sign(self.key, hashes.SHA256()).public_bytes(Encoding.PEM)
        return certificate, key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())


class MountedSecret:
    """A folder of files as Kubernetes mounts a Secret: all of them are replaced at once, by the swap of a link."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._number = 0
        folder.mkdir()

    def put(self, **files: bytes) -> None:
        """Replace all files: `tls_crt=` is the content of `tls.crt`."""
        self._number += 1
        data = self.folder / f"..{self._number}"
        data.mkdir()
        for word, content in files.items():
            name = word.replace("_", ".")
            (data / name).write_bytes(content)
            (data / name).chmod(0o600)
            if not (self.folder / name).is_symlink():
                (self.folder / name).symlink_to(Path("..data") / name)
        (self.folder / "..next").symlink_to(data.name)
        (self.folder / "..next").replace(self.folder / "..data")
