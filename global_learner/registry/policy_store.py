"""Store of policy files by digest, and the rule of which go.

A file is written whole or not at all, and checked whenever it is read. Files go by count and age of their versions, but
never one that somebody may still need.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from pathlib import Path

from foundation.files import PRIVATE, write_whole
from global_learner.errors import StateUnusable
from global_learner.registry.cards import FIRST_VERSION
from global_learner.registry.tables import VersionRow
from global_learner.section_settings import Retention
from policy_net.exchange.policy_file import digest_of

_DAY_SECONDS = 86_400.0


class PolicyStore:
    """A folder of `<sha256><suffix>`: policy files, or the heads that they were published from."""

    def __init__(self, folder: Path, suffix: str = ".safetensors") -> None:
        """Create the folder where there is none."""
        folder.mkdir(mode=0o700, exist_ok=True)
        self._folder = folder
        self._suffix = suffix

    def add(self, data: bytes) -> str:
        """Keep a file; its digest. The same content twice is one file.

        Raises:
            OSError: it could not be written; nothing is left behind.
        """
        digest = digest_of(data)
        path = self.path(digest)
        write_whole(path, data, alone=True, mode=PRIVATE)
        return digest

    def read(self, digest: str) -> bytes:
        """A file's bytes; of a version that is kept.

        Raises:
            StateUnusable: what is on disk is not what was written, or nothing.
        """
        path = self.path(digest)
        try:
            data = path.read_bytes()
        except FileNotFoundError as error:
            raise StateUnusable(f"{path}: is gone, yet its version is kept; restore the file from a copy") from error
        except OSError as error:
            raise StateUnusable(f"{path}: cannot be read ({error.strerror})") from error
        found = digest_of(data)
        if found != digest:
            raise StateUnusable(
                f"{path}: damaged: its digest is {found}, expected {digest}; restore the file from a copy"
            )
        return data

    def check_size(self, digest: str, size_bytes: int) -> None:
        """See that a file is there, without reading it.

        Raises:
            StateUnusable: it is gone, or of another size.
        """
        path = self.path(digest)
        try:
            found = path.stat().st_size
        except OSError as error:
            raise StateUnusable(f"{path}: is gone ({error.strerror}); restore the file from a copy") from error
        if found != size_bytes:
            raise StateUnusable(f"{path}: damaged: of {found} bytes, not {size_bytes}; restore the file from a copy")

    def others(self, digests: Collection[str]) -> list[Path]:
        """What no version refers to, such as what a crash left between a file and its version."""
        return sorted(path for path in self._folder.glob(f"*{self._suffix}") if path.stem not in digests)

    def path(self, digest: str) -> Path:
        """Where a file lies, or would."""
        return self._folder / f"{digest}{self._suffix}"


def superfluous(
    rows: Sequence[VersionRow], assigned: Collection[int], rule: Retention, unix_seconds: float
) -> list[VersionRow]:
    """Those of the kept versions (newest first) whose files may go.

    Never: v1, the newest, those that are assigned, pinned or have an alias, the one that the head was reset to, and the
    parents of all these, with which they are compared and to which one goes back.
    """
    if not rows:
        return []
    needed = {FIRST_VERSION, rows[0].version, *assigned}
    needed |= {row.version for row in rows if row.pinned or row.aliases or row.reset_base}
    needed |= {row.parent for row in rows if row.version in needed}
    beyond = {row.version for row in rows[rule.versions :]} if rule.versions else set()
    if rule.days is not None:
        oldest = unix_seconds - rule.days * _DAY_SECONDS
        beyond |= {row.version for row in rows if row.created_unix_seconds < oldest}
    return [row for row in rows if row.version in beyond - needed]
