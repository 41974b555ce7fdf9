"""Store of policy files by digest, the search for those that are damaged or gone, and the rule of which are removed.

A file is written whole or not at all, and checked whenever it is read. Files are removed by count and age of their
versions, but never one that may still be needed.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from foundation.files import PRIVATE, write_whole
from global_learner.errors import StateUnusable
from global_learner.registry.cards import FIRST_VERSION
from global_learner.registry.tables import VersionRow
from policy_net.exchange.policy_file import digest_of

_READ_BYTES = 1 << 30
"""Files that are read at a start, in a second or two; of the others only sizes are checked. Fifty versions of the
shipped policy, as many as are kept by default, take a quarter of this."""


class PolicyStore:
    """A folder of `<sha256><suffix>`: policy files, or the heads that they were published from."""

    def __init__(self, folder: Path, suffix: str = ".safetensors") -> None:
        """Create the folder where there is none."""
        folder.mkdir(mode=0o700, exist_ok=True)
        self._folder = folder
        self._suffix = suffix

    def add(self, data: bytes) -> str:
        """Keep a file; its digest.

        Raises:
            OSError: it could not be written; nothing is left behind.
        """
        digest = digest_of(data)
        write_whole(self.path(digest), data, alone=True, mode=PRIVATE)
        return digest

    def read(self, digest: str) -> bytes:
        """A file's bytes.

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
        """Raise StateUnusable if a file is gone, or of another size; it is not read."""
        path = self.path(digest)
        try:
            found = path.stat().st_size
        except OSError as error:
            raise StateUnusable(f"{path}: is gone ({error.strerror}); restore the file from a copy") from error
        if found != size_bytes:
            raise StateUnusable(f"{path}: damaged: of {found} bytes, not {size_bytes}; restore the file from a copy")

    def others(self, digests: Collection[str]) -> list[Path]:
        """Files to which no version refers, as a crash leaves one between a file and its version."""
        return sorted(path for path in self._folder.glob(f"*{self._suffix}") if path.stem not in digests)

    def path(self, digest: str) -> Path:
        """Path of a file, there or not."""
        return self._folder / f"{digest}{self._suffix}"


@dataclass(frozen=True, slots=True)
class LostFile:
    """One file that is damaged or gone.

    Attributes:
        version: whose.
        is_head: whether it holds the moments, not the policy.
        what: the file, what is wrong with it, and whose it is.
        digest: that it should have.
    """

    version: int
    is_head: bool
    what: str
    digest: str


def find_lost(rows: Iterable[VersionRow], policies: PolicyStore, heads: PolicyStore) -> list[LostFile]:
    """Files of these kept versions that are damaged or gone."""
    lost: list[LostFile] = []
    read = 0
    for row in rows:
        files = [(policies, row.digest, row.size_bytes, False)]
        if row.head_digest:
            files.append((heads, row.head_digest, row.head_size_bytes, True))
        for store, digest, size, is_head in files:
            read += size
            try:
                if read <= _READ_BYTES:
                    store.read(digest)
                else:
                    store.check_size(digest, size)
            except StateUnusable as error:
                whose = f"{'the moments' if is_head else 'the policy'} of v{row.version}"
                what = f"{str(error).rpartition('; ')[0] or error} ({whose})"
                lost.append(LostFile(row.version, is_head, what, digest))
    return lost


def superfluous(rows: Sequence[VersionRow], assigned: Collection[int], keep: int) -> list[VersionRow]:
    """Kept versions (given newest first) whose files may be removed: all but the newest `keep`; 0 keeps any number.

    Never: v1, the newest, those that are assigned, pinned or have an alias, the one to which the head was reset, and
    the parents of all these, with which they are compared and to which an operator goes back.
    """
    if not rows:
        return []
    needed = {FIRST_VERSION, rows[0].version, *assigned}
    needed |= {row.version for row in rows if row.pinned or row.aliases or row.reset_base}
    needed |= {row.parent for row in rows if row.version in needed}
    return [row for row in rows[keep or len(rows) :] if row.version not in needed]
