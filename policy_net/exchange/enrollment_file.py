"""The invitation of a cluster: a one-time token, and the authority by which it knows the learner.

`policyctl cluster enroll` writes it, the agent trades it once for a certificate. Whoever holds it before that is the
cluster, so only its owner can read the file.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import asdict, dataclass
from pathlib import Path

from foundation.text import parse_json
from policy_net.errors import IdentityFileError
from policy_net.exchange.identity_file import read_private, write_private

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
