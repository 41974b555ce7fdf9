"""Blocks of a checkpoint as tensors, for whoever owns them now; and whole models, for who wants one without a job."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import torch
from torch import Tensor

from elastic_runtime.checkpoint.manifest import Manifest, read_manifest, read_verified
from elastic_runtime.checkpoint.object_store import Place
from elastic_runtime.checkpoint.shard import ShardEntry
from elastic_runtime.errors import ModelMismatch
from elastic_runtime.model.block_state import BlockState
from elastic_runtime.model.layout import Layout, difference
from elastic_runtime.model.optimizers import Optimizer


def read_blocks(checkpoint: Place | Manifest, blocks: Iterable[int]) -> Iterator[BlockState]:
    """Some blocks of a checkpoint, in the order in which they lie on the disk; nothing else is read.

    Raises:
        CheckpointError: a file is missing, cut short or damaged.
        ValueError: the model has no such block.
    """
    manifest = checkpoint if isinstance(checkpoint, Manifest) else read_manifest(checkpoint)
    for entry, numbers in read_verified(manifest, blocks):
        yield _state(manifest.layout, entry, numbers)


def read_model(checkpoint: Place | Manifest) -> dict[str, Tensor]:
    """The model's parameters and buffers by name, for `load_state_dict`; a tensor that two names share is there once.

    Raises:
        CheckpointError: a file is missing, cut short or damaged.
    """
    manifest = checkpoint if isinstance(checkpoint, Manifest) else read_manifest(checkpoint)
    layout = manifest.layout
    flat = [torch.empty(segment.elements, dtype=getattr(torch, segment.dtype)) for segment in layout.segments]
    for state in read_blocks(manifest, range(len(layout.blocks))):
        block = layout.blocks[state.block]
        flat[block.segment][block.start : block.stop] = state.parameters
    return {
        slot.tensor.name: flat[segment.index][slot.start : slot.start + slot.size].view(slot.tensor.shape).clone()
        for segment in layout.segments
        for slot in segment.slots
    }


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


def _state(layout: Layout, entry: ShardEntry, numbers: bytearray) -> BlockState:
    block = layout.blocks[entry.block]
    dtype = getattr(torch, layout.segments[block.segment].dtype)
    elements = block.stop - block.start
    parameters, *state = torch.frombuffer(numbers, dtype=dtype).view(-1, elements)
    return BlockState(entry.block, entry.version, parameters, dict(zip(entry.states, state, strict=True)))
