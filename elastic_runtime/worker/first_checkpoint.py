"""The job's first checkpoint: the model as one worker's script made it."""

from __future__ import annotations

from elastic_runtime.checkpoint import ShardWriter, write_manifest
from elastic_runtime.model.block_state import BlockState
from elastic_runtime.model.layout import Kind
from elastic_runtime.protocol.plan import View
from elastic_runtime.worker.flat_model import FlatModel
from elastic_runtime.worker.membership import Membership


class FirstCheckpoint:
    """What every server begins from at step 0, if the coordinator asks this worker for it.

    Args:
        member: this worker.
        model: in flat memory.
    """

    def __init__(self, member: Membership, model: FlatModel) -> None:
        self._member = member
        self._model = model
        self._written = False

    def write_if_asked(self, view: View) -> None:
        """Write it once, if this view asks this worker for it.

        Raises:
            CheckpointError: the disk refuses.
        """
        if view.initialiser != self._member.task or view.generation or self._written:
            return
        layout, optimizer = self._member.layout, self._member.training.optimizer
        folder = self._member.environment.checkpoints / view.start_checkpoint
        writer = ShardWriter(folder, self._member.task, layout, optimizer, range(len(layout.blocks)))
        for block in layout.blocks:
            segment = layout.segments[block.segment]
            flat = self._model.buffers if segment.kind is Kind.BUFFER else self._model.active
            writer.add(BlockState(block.index, 0, flat(segment.index)[block.start : block.stop].clone(), {}))
        write_manifest(folder, 0, layout, optimizer, [writer.finish()], {})
        self._written = True  # not again: servers may read it before a view says that it is there
        self._member.link.report(initialised=True)
