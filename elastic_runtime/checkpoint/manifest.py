"""Manifest of a checkpoint: the file that makes it count, with the model, the optimizer and the shards; written last.

Blocks are read through it, each compared with its digest; without PyTorch, for who only has to know that all is right.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import structlog

from elastic_runtime.checkpoint.object_store import Place, put_whole
from elastic_runtime.checkpoint.shard import SUFFIX, ShardEntry, ShardRecord, cannot_read, read_head
from elastic_runtime.errors import BadInput, CheckpointDamaged, CheckpointError
from elastic_runtime.model import optimizers
from elastic_runtime.model.layout import Layout
from elastic_runtime.model.optimizers import Optimizer
from elastic_runtime.model.plain_fields import require_object, require_whole
from foundation.files import PARTIAL

MANIFEST = "manifest.json"
_FORMAT = 1
_LARGEST_BYTES = 1024**3
_log = structlog.get_logger(__name__)


@dataclass(frozen=True)
class Manifest:
    """Content of a checkpoint: `step` global steps are applied.

    Attributes:
        position: the caller's own JSON: what else is needed to go on, such as where the data stand.
    """

    folder: Place
    step: int
    layout: Layout
    optimizer: Optimizer
    shards: tuple[ShardRecord, ...]
    position: Mapping[str, Any] = field(default_factory=dict)


def write_manifest(
    folder: Place,
    step: int,
    layout: Layout,
    optimizer: Optimizer,
    shards: Sequence[ShardRecord],
    position: Mapping[str, Any],
) -> Manifest:
    """Make a checkpoint count, once all its shards are written.

    Raises:
        CheckpointError: a shard is not there or damaged, a block is in none of them, or the disk refuses.
    """
    manifest = Manifest(folder, step, layout, optimizer, tuple(shards), dict(position))
    read_heads(manifest)
    content = {
        "format": _FORMAT,
        "step": step,
        "layout": json.loads(layout.to_json()),
        "optimizer": optimizers.to_json(optimizer),
        "shards": [asdict(shard) for shard in shards],
        "position": dict(position),
    }
    try:
        put_whole(folder / MANIFEST, _text(content))
    except OSError as error:
        raise CheckpointError(
            f"{folder / MANIFEST} cannot be written: {error.strerror}; the last durable checkpoint stands"
        ) from error
    try:
        _sweep(manifest)
    except OSError as error:  # what an earlier try left takes room, and does no other harm
        _log.warning("checkpoint-not-swept", checkpoint=folder.name, reason=error.strerror)
    return manifest


def read_manifest(folder: Place) -> Manifest:
    """The manifest of a checkpoint; the shards are not looked at.

    Raises:
        CheckpointDamaged: there is none, or it is not as it was written.
        CheckpointError: it cannot be read, or is of another version.
    """
    path = folder / MANIFEST
    try:
        if path.stat().st_size > _LARGEST_BYTES:
            raise CheckpointDamaged(f"{path} is no manifest: it has {path.stat().st_size} bytes")
        data = path.read_bytes()
    except FileNotFoundError as error:
        raise CheckpointDamaged(f"{folder} is not a finished checkpoint: it has no {MANIFEST}") from error
    except OSError as error:
        raise cannot_read(path, error) from error
    content = _as_written(path, data)
    try:
        fields = require_object(str(path), content, {"format", "step", "layout", "optimizer", "shards", "position"})
        if fields["format"] != _FORMAT:
            raise CheckpointError(f"{path} is of format {fields['format']!r}, and this version reads {_FORMAT}")
        return Manifest(
            folder,
            require_whole("step", fields["step"], 0),
            Layout.from_json(json.dumps(fields["layout"]).encode()),
            optimizers.from_json(fields["optimizer"]),
            tuple(_record(shard) for shard in fields["shards"]),
            fields["position"],
        )
    except (ValueError, TypeError, RecursionError, BadInput) as error:
        raise CheckpointError(f"{path} is as it was written, but not by this version: {error}") from error


def read_heads(manifest: Manifest) -> list[tuple[ShardRecord, int, dict[int, ShardEntry]]]:
    """Each shard, where its numbers begin, and the blocks that are read from it: each block of the model from one.

    Raises:
        CheckpointDamaged: a shard is missing or damaged, or a block is in none.
        CheckpointError: a shard cannot be read, or is of another model.
    """
    found: list[tuple[ShardRecord, int, dict[int, ShardEntry]]] = []
    left = {block.index for block in manifest.layout.blocks}
    for shard in manifest.shards:
        start, entries = read_head(manifest.folder, shard, manifest.layout)
        fresh = {block: entry for block, entry in entries.items() if block in left}
        left -= fresh.keys()
        found.append((shard, start, fresh))
    if left:
        raise CheckpointDamaged(
            f"{manifest.folder}: {len(left)} blocks are in no shard, such as block {min(left)}; it is not complete"
        )
    return found


def verify(folder: Place) -> Manifest:
    """Read all of a checkpoint and compare every digest.

    Raises:
        CheckpointDamaged: something is missing, cut short or changed; the message says what.
        CheckpointError: it cannot be read, or is of another version.
    """
    manifest = read_manifest(folder)
    for _ in read_verified(manifest, range(len(manifest.layout.blocks))):
        pass
    return manifest


def read_verified(manifest: Manifest, blocks: Iterable[int]) -> Iterator[tuple[ShardEntry, bytearray]]:
    """Some blocks, in the order in which they lie on the disk: parameters, then each tensor of the state.

    Raises:
        CheckpointDamaged: a file is missing, cut short or changed.
        CheckpointError: it cannot be read.
        ValueError: the model has no such block.
    """
    chosen = set(blocks)
    beyond = [block for block in chosen if not 0 <= block < len(manifest.layout.blocks)]
    if beyond:
        raise ValueError(f"block {min(beyond)} is none of the model's {len(manifest.layout.blocks)}")
    for shard, start, entries in read_heads(manifest):
        due = sorted((entry for block, entry in entries.items() if block in chosen), key=lambda entry: entry.start)
        if due:
            yield from _read_shard(manifest, manifest.folder / shard.name, start, due)


def _read_shard(
    manifest: Manifest, path: Place, start: int, entries: list[ShardEntry]
) -> Iterator[tuple[ShardEntry, bytearray]]:
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


def _as_written(path: Place, data: bytes) -> dict[str, Any]:
    try:
        content = json.loads(data)
    except (ValueError, RecursionError) as error:
        raise CheckpointDamaged(f"{path} is damaged: {error}") from error
    if not isinstance(content, dict) or content.pop("sha256", None) is None or _text(content) != data:
        raise CheckpointDamaged(f"{path} is damaged: it does not have its own digest")
    return content


def _sweep(manifest: Manifest) -> None:
    """Remove what an earlier try left in the folder: shards that the manifest does not name."""
    named = {MANIFEST, *(shard.name for shard in manifest.shards)}
    for path in manifest.folder.iterdir():
        if path.name not in named and path.name.removesuffix(PARTIAL).endswith(SUFFIX):
            path.unlink(missing_ok=True)


def _record(plain: object) -> ShardRecord:
    fields = require_object("shard", plain, {"name", "size_bytes", "sha256"})
    name, digest = fields["name"], fields["sha256"]
    if not isinstance(name, str) or not isinstance(digest, str) or Path(name).name != name:
        raise BadInput(f"shard {name!r} is no file of this folder")
    return ShardRecord(name, require_whole("shard: size_bytes", fields["size_bytes"], 0), digest)


def _text(content: Mapping[str, Any]) -> bytes:
    digest = hashlib.sha256(json.dumps(content, indent=1).encode()).hexdigest()
    return json.dumps({**content, "sha256": digest}, indent=1).encode()
