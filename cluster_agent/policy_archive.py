"""The policy files that logged decisions were made with, by digest, so that they can be made again.

The log names a policy by its digest. The newest few files are kept beside it; older ones are in the learner's store,
which names its files alike.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterable
from pathlib import Path

from cluster_agent.recording.state_files import write_bytes
from policy_net.exchange.policy_file import digest_of

_DIGEST_LENGTH = 64


class PolicyArchive:
    """A folder of `<sha256>.safetensors`; other files in it are let alone."""

    def __init__(self, folder: Path, keep: int) -> None:
        """`keep` is how many files stay: those that took office last."""
        self._folder = folder
        self._keep = keep

    def add(self, digest: str, data: bytes) -> None:
        """Keep a file, or note that it is in office again.

        Raises:
            OSError: it could not be written; nothing is left behind.
        """
        if self._keep == 0:
            return
        path = self._folder / f"{digest}.safetensors"
        if path.exists():
            os.utime(path)
        else:
            write_bytes(path, data)
        files = [(file.stat().st_mtime_ns, file) for file in self._folder.iterdir() if _is_kept(file)]
        for _, file in sorted(files)[: -self._keep]:
            file.unlink(missing_ok=True)


def _is_kept(path: Path) -> bool:
    return path.suffix == ".safetensors" and len(path.stem) == _DIGEST_LENGTH


class PolicyFinder:
    """Looks policy files up by digest, in folders; every file is read once at most, and believed by its bytes alone."""

    def __init__(self, folders: Iterable[Path]) -> None:
        self._folders = [folder for folder in folders if folder.is_dir()]
        self._by_digest: dict[str, Path] | None = None

    def find(self, digest: str) -> bytes | None:
        """The file with this digest; None if no folder has it."""
        for folder in self._folders:
            with contextlib.suppress(OSError):
                data = (folder / f"{digest}.safetensors").read_bytes()
                if digest_of(data) == digest:
                    return data
        path = self._index().get(digest)
        return None if path is None else path.read_bytes()

    def _index(self) -> dict[str, Path]:
        if self._by_digest is None:
            files = [path for folder in self._folders for path in sorted(folder.glob("*.safetensors"))]
            self._by_digest = {digest_of(path.read_bytes()): path for path in files}
        return self._by_digest
