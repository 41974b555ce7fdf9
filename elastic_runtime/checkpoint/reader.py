"""Reads blocks back, any of them, by whoever owns them now; each is checked against its digest."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator
from pathlib import Path

import torch

from elastic_runtime.block_state import BlockState
from elastic_runtime.checkpoint.manifest import Manifest, read_heads, read_manifest
from elastic_runtime.checkpoint.shard import Entry
from elastic_runtime.errors import CheckpointError, ModelMismatch
from elastic_runtime.layout import Layout, difference
from elastic_runtime.optimizers import Optimizer


def read_blocks(checkpoint: Path | Manifest, blocks: Iterable[int]) -> Iterator[BlockState]:
    """Some blocks of a checkpoint, in the order in which they lie on the disk; nothing else is read.

    Args:
        checkpoint: its folder, or its manifest if that was read.
        blocks: indices of the layout.

    Yields:
        The blocks, in memory of their own.

    Raises:
        CheckpointError: a file is missing, cut short or damaged.
        ValueError: the model has no such block.
    """
    manifest = checkpoint if isinstance(checkpoint, Manifest) else read_manifest(checkpoint)
    wanted = set(blocks)
    beyond = [block for block in wanted if not 0 <= block < len(manifest.layout.blocks)]
    if beyond:
        raise ValueError(f"block {min(beyond)} is none of the model's {len(manifest.layout.blocks)}")
    for shard, start, entries in read_heads(manifest):
        due = sorted((entry for block, entry in entries.items() if block in wanted), key=lambda entry: entry.start)
        if due:
            yield from _read(manifest, manifest.folder / shard.name, start, due)


def verify(folder: Path) -> Manifest:
    """Read all of a checkpoint and compare every digest.

    Raises:
        CheckpointError: something is missing, cut short or damaged; the message says what.
    """
    manifest = read_manifest(folder)
    for _ in read_blocks(manifest, range(len(manifest.layout.blocks))):
        pass
    return manifest


def require_same_model(manifest: Manifest, layout: Layout, optimizer: Optimizer) -> None:
    """Refuse to go on from a checkpoint of another model, or of an optimizer that keeps other state.

    Learning rates and the like may differ: they are the user's to change. At step 0 there is no state yet.

    Raises:
        ModelMismatch: one line that says how they differ.
    """
    if line := difference(layout, manifest.layout):
        raise ModelMismatch(f"{manifest.folder} is a checkpoint of another model: {line}")
    mine, theirs = optimizer.state_names, manifest.optimizer.state_names
    if manifest.step and mine != theirs:
        kept = " and ".join(theirs) or "nothing"
        raise ModelMismatch(
            f"{manifest.folder} was written by {manifest.optimizer.kind}, which keeps {kept}, and the job trains by "
            f"{optimizer.kind}, which keeps {' and '.join(mine) or 'nothing'}; choose the same optimizer"
        )


def _read(manifest: Manifest, path: Path, start: int, entries: list[Entry]) -> Iterator[BlockState]:
    try:
        with path.open("rb") as file:
            for entry in entries:
                numbers = bytearray(entry.size_bytes(manifest.layout))
                file.seek(start + entry.start)
                file.readinto(numbers)  # cut short, the digest is another one
                if hashlib.sha256(numbers).hexdigest() != entry.sha256:
                    raise CheckpointError(f"{path} is damaged: block {entry.block} does not have its digest")
                yield _state(manifest.layout, entry, numbers)
    except OSError as error:
        raise CheckpointError(f"{path} cannot be read: {error.strerror}") from error


def _state(layout: Layout, entry: Entry, numbers: bytearray) -> BlockState:
    block = layout.blocks[entry.block]
    dtype = getattr(torch, layout.segments[block.segment].dtype)
    elements = block.stop - block.start
    parameters, *state = torch.frombuffer(numbers, dtype=dtype).view(-1, elements)
    return BlockState(entry.block, entry.version, parameters, dict(zip(entry.states, state, strict=True)))
