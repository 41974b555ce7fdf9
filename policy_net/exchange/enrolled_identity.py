"""Identity that a learner gave to an agent or a region, on disk, and the enrollment file by which it is gained.

`policyctl cluster enroll` writes the enrollment file: a one-time token, and the authority by which the cluster knows
the learner. The agent trades it once for a certificate. Whoever holds it before that is the cluster, so only its owner
can read the file. The key is made here and never leaves. It is on disk before it is shown to anyone, so that an agent
that is killed between its request and the answer asks again with the same key, and the learner gives it the same
certificate. The identity is replaced whole.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import asdict, dataclass
from pathlib import Path

from foundation.text import parse_json
from policy_net.errors import IdentityFileError
from policy_net.exchange.identity_file import (
    IdentityFile,
    make_private_folder,
    new_key,
    parse_identity,
    read_identity,
    read_private,
    signing_request,
    write_private,
)

FORMAT = "fedl2-enrollment-1"


@dataclass(frozen=True, slots=True)
class EnrollmentFile:
    """The content of an enrollment file; `enroll_port` is on the learner's host."""

    cluster: str
    token: str
    enroll_port: int
    expires_unix_seconds: float
    authority: str

    @property
    def digest(self) -> str:
        """Names the token without giving it away."""
        return token_digest(self.token)

    def to_json(self) -> str:
        """The file's text."""
        return json.dumps({"format": FORMAT, **asdict(self)}, indent=2) + "\n"

    def write(self, path: Path) -> None:
        """Write the file, readable for its owner only.

        Raises:
            OSError: the disk refuses.
        """
        write_private(path, self.to_json().encode())


def token_digest(token: str) -> str:
    """What is kept of a token. It is 256 random bits, which nobody guesses, so no slow hash is needed."""
    return hashlib.sha256(token.encode(errors="replace")).hexdigest()


def read_enrollment(path: Path) -> EnrollmentFile:
    """Read and check an enrollment file.

    Raises:
        SecretExposed: others may read it.
        IdentityFileError: not there, cut short, or something else.
    """
    try:
        content = parse_json(read_private(path))
    except OSError as error:
        raise IdentityFileError(f"{path}: cannot be read ({error.strerror})") from error
    except ValueError as error:
        raise IdentityFileError(f"{path}: holds no JSON; it may be cut short: copy it again") from error
    if not isinstance(content, dict) or content.pop("format", None) != FORMAT:
        raise IdentityFileError(f"{path}: is no enrollment file; make one with `policyctl cluster enroll NAME`")
    kinds = {"cluster": str, "token": str, "enroll_port": int, "expires_unix_seconds": float, "authority": str}
    if content.keys() != kinds.keys() or any(type(content[name]) is not kind for name, kind in kinds.items()):
        raise IdentityFileError(f"{path}: an entry is missing or of another kind; copy the file again")
    return EnrollmentFile(**content)


_IDENTITY = "identity.pem"
_PENDING_KEY = "pending.key"
_TOKEN_DIGEST = "token.sha256"  # noqa: S105  (a file's name)


@dataclass(frozen=True, slots=True)
class KeyRequest:
    """A key of ours, and the request for a certificate for it."""

    key: bytes
    request: bytes


class EnrolledIdentity:
    """The identity in a folder, and the enrollment file by which it is to be gained.

    Args:
        enrollment_file: looked at again whenever it changes: a new one means to enroll anew.
    """

    def __init__(self, folder: Path, cluster: str, enrollment_file: Path) -> None:
        """Read what is there.

        Raises:
            IdentityFileError: neither an identity nor an enrollment file can be used.
        """
        self._folder = folder
        self._cluster = cluster
        self._enrollment_file = enrollment_file
        self._seen: tuple[int, int] | None = None
        self.present: IdentityFile | None = None
        try:
            make_private_folder(folder)
            if (folder / _IDENTITY).exists():
                self.present = read_identity(folder / _IDENTITY)
            if self.present is None or enrollment_file.exists():
                self._checked(read_enrollment(enrollment_file))
        except OSError as error:
            raise IdentityFileError(f"{folder}: cannot be used ({error.strerror})") from error
        if self.present is not None and self.present.name != cluster:
            raise IdentityFileError(
                f"{folder / _IDENTITY} is cluster {self.present.name}'s, and this one is {cluster}; use a "
                "state_dir of its own for every one"
            )

    def invitation(self) -> EnrollmentFile | None:
        """An enrollment file that was not used yet; None if there is none, or none that is new.

        Raises:
            IdentityFileError: it cannot be used.
        """
        try:
            stat = self._enrollment_file.stat()
        except OSError:
            return None
        if (stat.st_ino, stat.st_mtime_ns) == self._seen:
            return None
        enrollment = self._checked(read_enrollment(self._enrollment_file))
        if self.present is not None and enrollment.digest == self._used_digest():
            self.polled_at()
            return None
        return enrollment

    def polled_at(self) -> None:
        """The enrollment file as it is now is settled, for good or ill."""
        stat = self._enrollment_file.stat()
        self._seen = (stat.st_ino, stat.st_mtime_ns)

    def first_request(self) -> KeyRequest:
        """A request with the key that waits for its certificate; made now if there is none.

        Raises:
            OSError: the disk refuses.
        """
        pending = self._folder / _PENDING_KEY
        try:
            key = read_private(pending)
            return KeyRequest(key, signing_request(key, self._cluster))
        except (FileNotFoundError, IdentityFileError):
            request = self.next_request()
            write_private(pending, request.key)
            return request

    def next_request(self) -> KeyRequest:
        """A request with a fresh key, which is on disk only once its certificate is."""
        key = new_key()
        return KeyRequest(key, signing_request(key, self._cluster))

    def received(self, key: bytes, certificate: bytes, authority: bytes) -> IdentityFile:
        """Keep a certificate that the learner made.

        Raises:
            IdentityFileError: it is not ours, or of another name.
            OSError: the disk refuses.
        """
        try:
            identity = parse_identity(key + certificate + authority)
        except IdentityFileError as error:
            raise IdentityFileError(f"the learner's certificate cannot be used: {error}") from error
        if identity.name != self._cluster:
            raise IdentityFileError(f"the learner's certificate is for {identity.name}, and not for {self._cluster}")
        identity.write(self._folder / _IDENTITY)
        self.present = identity
        return identity

    def on_token_used(self, enrollment: EnrollmentFile) -> None:
        """Remember that a token was used; the file may stay where it is.

        Raises:
            OSError: the disk refuses.
        """
        write_private(self._folder / _TOKEN_DIGEST, enrollment.digest.encode())
        (self._folder / _PENDING_KEY).unlink(missing_ok=True)
        self.polled_at()

    def _checked(self, enrollment: EnrollmentFile) -> EnrollmentFile:
        if enrollment.cluster != self._cluster:
            raise IdentityFileError(
                f"{self._enrollment_file} is cluster {enrollment.cluster}'s, and this one is {self._cluster}; name the "
                "right one"
            )
        return enrollment

    def _used_digest(self) -> str:
        try:
            return read_private(self._folder / _TOKEN_DIGEST).decode(errors="replace")
        except FileNotFoundError:
            return ""
