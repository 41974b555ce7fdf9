"""The job's first checkpoint: the model as one worker's script made it."""

from __future__ import annotations

from pathlib import Path

from elastic_runtime.block_state import BlockState
from elastic_runtime.checkpoint import ShardWriter, write_manifest
from elastic_runtime.layout import Kind, Layout
from elastic_runtime.optimizers import Optimizer
from elastic_runtime.worker.flat_model import FlatModel


def write_first_checkpoint(folder: Path, task: str, layout: Layout, optimizer: Optimizer, model: FlatModel) -> None:
    """Write what every server begins from, at step 0.

    Args:
        folder: of the checkpoint.
        task: the worker that writes.
        layout: of the model.
        optimizer: of the job.
        model: in flat memory.

    Raises:
        CheckpointError: the disk refuses.
    """
    writer = ShardWriter(folder, task, layout, optimizer, range(len(layout.blocks)))
    for block in layout.blocks:
        segment = layout.segments[block.segment]
        flat = model.buffers(segment.index) if segment.kind is Kind.BUFFER else model.active(segment.index)
        writer.add(BlockState(block.index, 0, flat[block.start : block.stop].clone(), {}))
    write_manifest(folder, 0, layout, optimizer, [writer.finish()], {})
