"""File that one server writes: a safetensors file whose head holds the digest of every block.

The head comes first in the file and is known last, so its room is reserved and what is left of it filled with spaces,
which the format allows. Blocks lie in the order in which they came. Who trusts the head's digest can check any block
without reading the others.

Source: the safetensors format (8 bytes of length, little-endian; a JSON object; the numbers).
"""

from __future__ import annotations

import errno
import hashlib
import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from elastic_runtime.checkpoint.object_store import Place
from elastic_runtime.errors import CheckpointDamaged, CheckpointError
from elastic_runtime.model.layout import Layout

SUFFIX = ".safetensors"
_FORMAT = "1"
_LENGTH_BYTES = 8
_ALIGNMENT_BYTES = 64
_LARGEST_HEAD_BYTES = 1024**3
_LARGEST_VERSION = 2**63
_DAMAGE = {errno.ENOENT, errno.EIO}
"""It is gone, or the disk cannot read it back."""
_PARAMETERS = "parameters"
_DTYPES = {"float64": "F64", "float32": "F32", "float16": "F16", "bfloat16": "BF16", "bool": "BOOL", "uint8": "U8"} | {
    f"int{bits}": f"I{bits}" for bits in (8, 16, 32, 64)
}


@dataclass(frozen=True, slots=True)
class ShardRecord:
    """A finished shard.

    Attributes:
        sha256: hex, of the file's head, which holds the SHA-256 of each block.
    """

    name: str
    size_bytes: int
    sha256: str


@dataclass(frozen=True, slots=True)
class ShardEntry:
    """One block in a shard.

    Attributes:
        sha256: hex, of its bytes: the parameters, then each tensor of the state.
        start: where its bytes begin, counted from the end of the head.
        states: names of the optimizer's tensors that follow the parameters, each of the parameters' size.
    """

    block: int
    version: int
    sha256: str
    start: int
    states: tuple[str, ...]

    def size_bytes(self, layout: Layout) -> int:
        """Bytes of the block and its state."""
        return layout.blocks[self.block].size_bytes * (1 + len(self.states))


def head_bytes(layout: Layout, blocks: Iterable[int], states: Sequence[str]) -> int:
    """The room that the head of these blocks may need; states that a block turns out to lack leave some over."""
    end = sum(layout.blocks[block].size_bytes for block in blocks) * (1 + len(states))
    entries = [ShardEntry(block, _LARGEST_VERSION, "0" * 64, end, tuple(states)) for block in blocks]
    length = _LENGTH_BYTES + len(_content(layout, entries))
    return -(-length // _ALIGNMENT_BYTES) * _ALIGNMENT_BYTES


def pack_head(layout: Layout, entries: Sequence[ShardEntry], size_bytes: int) -> bytes:
    """The head of exactly this size."""
    content_bytes = size_bytes - _LENGTH_BYTES
    return content_bytes.to_bytes(_LENGTH_BYTES, "little") + _content(layout, entries).ljust(content_bytes, b" ")


def read_head(folder: Place, record: ShardRecord, layout: Layout) -> tuple[int, dict[int, ShardEntry]]:
    """Where a shard's numbers begin, and its blocks.

    Raises:
        CheckpointDamaged: the file is missing, or of another size or digest.
        CheckpointError: it cannot be read, or is not a shard of this model.
    """
    path = folder / record.name
    try:
        if path.stat().st_size != record.size_bytes:
            raise CheckpointDamaged(f"{path} has {path.stat().st_size} bytes, and {record.size_bytes} were written")
        with path.open("rb") as file:
            length = file.read(_LENGTH_BYTES)
            content_bytes = int.from_bytes(length, "little")
            if content_bytes > min(record.size_bytes, _LARGEST_HEAD_BYTES):
                raise CheckpointDamaged(f"{path} is damaged: its head says that it is {content_bytes} bytes long")
            content = file.read(content_bytes)
    except OSError as error:
        raise cannot_read(path, error) from error
    if hashlib.sha256(length + content).hexdigest() != record.sha256:
        raise CheckpointDamaged(f"{path} is damaged: its head does not have the digest that was written down")
    try:
        metadata = json.loads(content)["__metadata__"]
        if (metadata["format"], metadata["layout"]) != (_FORMAT, layout.digest):
            raise CheckpointError(f"{path} is a shard of another model, or of another format")
        entries = {entry.block: entry for entry in map(_entry, json.loads(metadata["blocks"]))}
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise CheckpointError(f"{path} is no shard of a checkpoint: {error}") from error
    return _LENGTH_BYTES + content_bytes, entries


def cannot_read(path: Place, error: OSError) -> CheckpointError:
    """Error to raise where the system refuses to read a checkpoint's file.

    An older checkpoint is taken in place of a damaged one, and steps are computed again. A file that this process may
    not read may be sound: that is for a person to mend, and never passed over.
    """
    kind = CheckpointDamaged if error.errno in _DAMAGE else CheckpointError
    return kind(f"{path} cannot be read: {error.strerror}")


def _entry(row: object) -> ShardEntry:
    match row:
        case [int(block), int(version), str(digest), int(start), [*states]]:
            return ShardEntry(block, version, digest, start, tuple(str(state) for state in states))
    raise ValueError(f"no block: {str(row)[:80]}")


def _content(layout: Layout, entries: Sequence[ShardEntry]) -> bytes:
    rows = [[entry.block, entry.version, entry.sha256, entry.start, entry.states] for entry in entries]
    content: dict[str, object] = {
        "__metadata__": {"format": _FORMAT, "layout": layout.digest, "blocks": json.dumps(rows, separators=(",", ":"))}
    }
    for entry in entries:
        block = layout.blocks[entry.block]
        start = entry.start
        for name in (_PARAMETERS, *entry.states):
            content[f"block/{entry.block}/{name}"] = {
                "dtype": _DTYPES[layout.segments[block.segment].dtype],
                "shape": [block.stop - block.start],
                "data_offsets": [start, start + block.size_bytes],
            }
            start += block.size_bytes
    return json.dumps(content, separators=(",", ":")).encode()
