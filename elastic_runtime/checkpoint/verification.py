"""The bytes of blocks, each compared with its digest; without PyTorch, for who only has to know that they are right."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator
from pathlib import Path

from elastic_runtime.checkpoint.damage import cannot_read
from elastic_runtime.checkpoint.manifest import Manifest, read_heads, read_manifest
from elastic_runtime.checkpoint.shard import Entry
from elastic_runtime.errors import CheckpointDamaged


def verify(folder: Path) -> Manifest:
    """Read all of a checkpoint and compare every digest.

    Raises:
        CheckpointDamaged: something is missing, cut short or changed; the message says what.
        CheckpointError: it cannot be read, or is of another version.
    """
    manifest = read_manifest(folder)
    for _ in read_verified(manifest, range(len(manifest.layout.blocks))):
        pass
    return manifest


def read_verified(manifest: Manifest, blocks: Iterable[int]) -> Iterator[tuple[Entry, bytearray]]:
    """Some blocks, in the order in which they lie on the disk: parameters, then each tensor of the state.

    Raises:
        CheckpointDamaged: a file is missing, cut short or changed.
        CheckpointError: it cannot be read.
        ValueError: the model has no such block.
    """
    wanted = set(blocks)
    beyond = [block for block in wanted if not 0 <= block < len(manifest.layout.blocks)]
    if beyond:
        raise ValueError(f"block {min(beyond)} is none of the model's {len(manifest.layout.blocks)}")
    for shard, start, entries in read_heads(manifest):
        due = sorted((entry for block, entry in entries.items() if block in wanted), key=lambda entry: entry.start)
        if due:
            yield from _read(manifest, manifest.folder / shard.name, start, due)


def _read(manifest: Manifest, path: Path, start: int, entries: list[Entry]) -> Iterator[tuple[Entry, bytearray]]:
    try:
        with path.open("rb") as file:
            for entry in entries:
                numbers = bytearray(entry.size_bytes(manifest.layout))
                file.seek(start + entry.start)
                file.readinto(numbers)  # cut short, the digest is another one
                if hashlib.sha256(numbers).hexdigest() != entry.sha256:
                    raise CheckpointDamaged(f"{path} is damaged: block {entry.block} does not have its digest")
                yield entry, numbers
    except OSError as error:
        raise cannot_read(path, error) from error
