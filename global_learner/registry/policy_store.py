"""Files on disk by digest: written whole or not at all, checked whenever they are read."""

from __future__ import annotations

import os
from collections.abc import Collection
from pathlib import Path

from global_learner.errors import StateUnusable, UnknownPolicyVersion
from policy_net.exchange.policy_file import digest_of


class PolicyStore:
    """A folder of `<sha256><suffix>`: policy files, or the heads that they were published from."""

    def __init__(self, folder: Path, suffix: str = ".safetensors") -> None:
        """Create the folder where there is none."""
        folder.mkdir(exist_ok=True)
        self._folder = folder
        self._suffix = suffix

    def add(self, data: bytes) -> str:
        """Keep a file; its digest. The same content twice is one file.

        Raises:
            OSError: it could not be written; nothing is left behind.
        """
        digest = digest_of(data)
        path = self.path(digest)
        partial = path.with_suffix(".partial")
        with partial.open("wb") as stream:
            stream.write(data)
            stream.flush()
            os.fsync(stream.fileno())
        partial.replace(path)
        folder = os.open(self._folder, os.O_RDONLY)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)
        return digest

    def read(self, digest: str) -> bytes:
        """A file's bytes.

        Raises:
            UnknownPolicyVersion: it is no longer kept.
            StateUnusable: what is on disk is not what was written.
        """
        path = self.path(digest)
        try:
            data = path.read_bytes()
        except FileNotFoundError as error:
            raise UnknownPolicyVersion(f"policy file {digest[:12]} is no longer kept") from error
        except OSError as error:
            raise StateUnusable(f"{path}: cannot be read ({error.strerror})") from error
        found = digest_of(data)
        if found != digest:
            raise StateUnusable(
                f"{path}: damaged: its digest is {found}, expected {digest}; restore the file from a copy"
            )
        return data

    def remove(self, digest: str) -> None:
        """Stop keeping a file; none is fine too."""
        self.path(digest).unlink(missing_ok=True)

    def remove_others(self, digests: Collection[str]) -> int:
        """Remove what no version refers to, such as what a crash left between a file and its version; how many."""
        orphans = [path for path in self._folder.glob(f"*{self._suffix}") if path.stem not in digests]
        for path in orphans:
            path.unlink(missing_ok=True)
        return len(orphans)

    def path(self, digest: str) -> Path:
        """Where a file lies, or would."""
        return self._folder / f"{digest}{self._suffix}"
