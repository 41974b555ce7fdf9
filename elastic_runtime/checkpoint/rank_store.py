"""Checkpoints of an all-reduce job in an object store: each an object of its own, which a manifest makes count.

    ranks-0000000120-1f0c….pt   the whole model, with the optimizer's state
    ranks-0000000120.json       written after it: its name, its size and its SHA-256

The newest two stay: one that turns out to be damaged is passed over.
"""

from __future__ import annotations

import hashlib
import json
import re
import secrets

import structlog

from elastic_runtime.checkpoint.object_store import StorePath
from elastic_runtime.checkpoint.shard import cannot_read
from elastic_runtime.errors import CheckpointDamaged, CheckpointError
from foundation.text import parse_json

_FORMAT = 1
_MANIFEST = re.compile(r"ranks-(\d{10,18})\.json")
_OBJECT = re.compile(r"ranks-(\d{10,18})-[0-9a-f]{16}\.pt")
_log = structlog.get_logger(__name__)


class RankStore:
    """One job's checkpoints; written by its first process, read by all.

    Args:
        place: nobody else's.
    """

    def __init__(self, place: StorePath) -> None:
        self._place = place
        self._damaged: set[int] = set()

    def __str__(self) -> str:
        return str(self._place)

    def save(self, step: int, content: bytes) -> None:
        """Keep what the job has after so many steps, and remove what is older than the one before.

        Raises:
            CheckpointError: it cannot be written; those before stand.
        """
        name = f"ranks-{step:010d}-{secrets.token_hex(8)}.pt"
        digest = hashlib.sha256(content).hexdigest()
        manifest = {"format": _FORMAT, "file": name, "size_bytes": len(content), "sha256": digest}
        try:
            (self._place / name).write_bytes(content)
            (self._place / f"ranks-{step:010d}.json").write_bytes(json.dumps(manifest).encode())
        except OSError as error:
            raise CheckpointError(f"{self._place / name}: cannot be written ({error.strerror})") from error
        try:
            self._tidy(step, name)
        except OSError as error:  # it takes room, and does no other harm
            _log.warning("checkpoint-not-removed", checkpoint=str(self._place), reason=error.strerror)

    def load(self) -> bytes | None:
        """The newest checkpoint that is as it was written; None if there is none yet.

        Raises:
            CheckpointError: none can be used, or the store cannot be asked.
        """
        try:
            steps = sorted(self._steps(), reverse=True)
        except OSError as error:
            raise cannot_read(self._place, error) from error
        reason = ""
        for step in steps:
            try:
                return self._read(step)
            except CheckpointDamaged as error:
                _log.warning("checkpoint-passed-over", step=step, reason=str(error))
                self._damaged.add(step)
                reason = reason or str(error)
        if reason:
            raise CheckpointError(f"{reason}; no other can be used: remove them to start the job over")
        return None

    def _read(self, step: int) -> bytes:
        path = self._place / f"ranks-{step:010d}.json"
        try:
            manifest = parse_json(path.read_bytes().decode())
            name, digest = str(manifest["file"]), manifest["sha256"]
            if manifest["format"] != _FORMAT:
                raise CheckpointError(f"{path} is of format {manifest['format']!r}, and this version reads {_FORMAT}")
            if not _OBJECT.fullmatch(name):
                raise CheckpointDamaged(f"{path} is damaged: it names {name[:80]!r}")
            content = (self._place / name).read_bytes()
        except OSError as error:
            raise cannot_read(path, error) from error
        except (ValueError, KeyError, TypeError) as error:
            raise CheckpointDamaged(f"{path} is damaged: it is no manifest") from error
        if hashlib.sha256(content).hexdigest() != digest:
            raise CheckpointDamaged(
                f"{self._place / name} is damaged: it does not have the digest that was written down"
            )
        return content

    def _steps(self) -> list[int]:
        return [int(found[1]) for path in self._place.iterdir() if (found := _MANIFEST.fullmatch(path.name))]

    def _tidy(self, step: int, name: str) -> None:
        """Manifests go first: without one, an object does not count."""
        older = sorted(each for each in self._steps() if each < step and each not in self._damaged)
        gone = {*older[:-1], *(self._damaged - {step})}
        self._damaged.clear()
        for each in gone:
            (self._place / f"ranks-{each:010d}.json").unlink(missing_ok=True)
        for path in self._place.iterdir():
            found = _OBJECT.fullmatch(path.name)
            if found and (int(found[1]) in gone or (int(found[1]) == step and path.name != name)):
                path.unlink(missing_ok=True)
