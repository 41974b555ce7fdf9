"""Credentials of a job: its token, and the certificate that its coordinator serves with.

Both follow from a key of the agent's and the job's uid: an agent never has to read a Secret, two agents make the same
ones, and one that was killed between two requests makes them once more.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import ipaddress
import secrets
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from cluster_agent.errors import BadAgentConfig
from foundation.files import PRIVATE, write_first
from foundation.followed_files import Content, FollowedFiles

_KEY_BYTES = 32
_LONGEST_KEY = 4096
_ORDER = 0xFFFFFFFF00000000FFFFFFFFFFFFFFFFBCE6FAADA7179E84F3B9CAC2FC632551
"""Of the curve P-256."""
_DAYS = 3650
"""A job does not outlive its certificate: clocks that are behind, or jobs of a year, must not end it."""


@dataclass(frozen=True, slots=True)
class ServingPair:
    """A certificate that is its own authority, and its key (PEM)."""

    certificate: str
    key: str = field(repr=False)


@dataclass(frozen=True, slots=True)
class JobKeys:
    """Keys from which tokens and certificates follow: of jobs that begin now, and earlier ones, newest first."""

    newest: bytes = field(repr=False)
    earlier: tuple[bytes, ...] = field(default=(), repr=False)

    def named(self, name: str) -> bytes | None:
        """The key of this name; None where it is not here. A job without a name began with the oldest."""
        keys = (self.newest, *self.earlier)
        return keys[-1] if not name else next((key for key in keys if name_of_key(key) == name), None)


def name_of_key(agent_key: bytes) -> str:
    """What tells one key of an agent's from another, and gives nothing of it away."""
    return hmac.new(agent_key, b"fedl2 name of key", hashlib.sha256).hexdigest()[:16]


def token_of(agent_key: bytes, uid: str) -> str:
    """The token of the job with this uid."""
    return hmac.new(agent_key, f"fedl2 training job {uid}".encode(), hashlib.sha256).hexdigest()


def serving_pair(agent_key: bytes, uid: str, hosts: Sequence[str], created: datetime) -> ServingPair:
    """The coordinator's pair for the names and addresses at which it answers, the same whenever it is made."""
    numbers = hmac.new(agent_key, f"fedl2 coordinator key {uid}".encode(), hashlib.sha512).digest()
    # Twice as many bits as the curve has: each key is as likely as any other.
    key = ec.derive_private_key(1 + int.from_bytes(numbers, "big") % (_ORDER - 1), ec.SECP256R1())
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, f"fedl2 coordinator {uid[:40]}")])
    certificate = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(subject)
        .public_key(key.public_key())
        .serial_number(1 + int.from_bytes(hashlib.sha256(uid.encode()).digest()[:16], "big"))
        .not_valid_before(created - timedelta(days=1))
        .not_valid_after(created + timedelta(days=_DAYS))
        .add_extension(x509.SubjectAlternativeName([_host(host) for host in hosts]), critical=False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .sign(key, hashes.SHA256(), ecdsa_deterministic=True)
    )
    return ServingPair(
        certificate.public_bytes(serialization.Encoding.PEM).decode(),
        key.private_bytes(
            serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
        ).decode(),
    )


def _host(host: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(host))
    except ValueError:
        return x509.DNSName(host)


def follow_agent_key(
    path: Path,
    *,
    make: bool,
    on_refused: Callable[[str], None],
    clock: Callable[[], float] = time.monotonic,
) -> FollowedFiles[bytes]:
    """The agent's key in a file, which stays the one of the start: a changed file is refused.

    Tokens of jobs that run follow from it, so another key would lose them all. It is replaced by a restart, with the
    one before among `earlier_key_files`.

    Args:
        make: whether a missing one is made at the start.
        on_refused: called when the file was changed.
        clock: seconds that never go back.

    Raises:
        BadAgentConfig: at the start: as `read_agent_key`.
    """
    first = read_agent_key(path, make=make)

    def unchanged(content: Content) -> bytes:
        if content(path).strip() != first:
            raise BadAgentConfig(
                f"setting backend.training.key_file: {path} was changed, and tokens of running jobs follow from the "
                "key before, which stays in use: put it back; or keep it in a file of its own, name that in "
                "backend.training.earlier_key_files, and start the agent again"
            )
        return first

    return FollowedFiles(unchanged, BadAgentConfig, on_refused=on_refused, clock=clock)


def read_agent_key(path: Path, *, make: bool) -> bytes:
    """The agent's key in a file.

    Args:
        make: whether a missing one is made; else it is somebody else's to make, such as a Secret's.

    Raises:
        BadAgentConfig: it cannot be read, or is too short to be a key.
    """
    try:
        if make and not path.exists():
            path.parent.mkdir(parents=True, exist_ok=True)
            # Of agents that begin at once, all have the key of the first one.
            write_first(path, base64.b64encode(secrets.token_bytes(_KEY_BYTES)), mode=PRIVATE)
        key = path.read_bytes().strip()
    except OSError as error:
        raise BadAgentConfig(f"setting backend.training.key_file: {path} cannot be read ({error.strerror})") from error
    if not _KEY_BYTES <= len(key) <= _LONGEST_KEY:
        raise BadAgentConfig(
            f"setting backend.training.key_file: {path} holds {len(key)} bytes; put {_KEY_BYTES} random ones or more"
        )
    return key
