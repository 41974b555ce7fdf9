"""Policy files on disk by digest: written whole or not at all, checked whenever they are read."""

from __future__ import annotations

import os
from pathlib import Path

from global_learner.errors import StateUnusable, UnknownPolicyVersion
from policy_net.exchange.policy_file import digest_of


class PolicyStore:
    """A folder of `<sha256>.safetensors`."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def add(self, data: bytes) -> str:
        """Keep a policy file; its digest. The same content twice is one file.

        Raises:
            OSError: it could not be written; nothing is left behind.
        """
        digest = digest_of(data)
        path = self._path(digest)
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
        """A policy file's bytes.

        Raises:
            UnknownPolicyVersion: it is no longer kept.
            StateUnusable: what is on disk is not what was written.
        """
        path = self._path(digest)
        try:
            data = path.read_bytes()
        except FileNotFoundError as error:
            raise UnknownPolicyVersion(f"policy file {digest[:12]} is no longer kept") from error
        except OSError as error:
            raise StateUnusable(f"{path}: cannot be read ({error.strerror})") from error
        if digest_of(data) != digest:
            raise StateUnusable(f"{path}: damaged (its digest is another); restore it from a copy")
        return data

    def remove(self, digest: str) -> None:
        """Stop keeping a file; none is fine too."""
        self._path(digest).unlink(missing_ok=True)

    def _path(self, digest: str) -> Path:
        return self._folder / f"{digest}.safetensors"
