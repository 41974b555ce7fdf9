"""Training in the processes that torchrun started: each has the whole model, and gradients are summed over all.

Differs from DistributedDataParallel in three things: slices may have different sizes and count by them; nothing wraps
the model; and the samples are those of the job's order, so that a run gives what a run alone gives, up to rounding
(batch norm excepted, which sees its own process's slice only).
"""

from __future__ import annotations

import torch
from torch import nn

from elastic_runtime.errors import ModelMismatch
from elastic_runtime.model.buffer_merge import MergeRule
from elastic_runtime.model.data_shards import check_workers, slice_bounds
from elastic_runtime.model.layout import Layout, difference
from elastic_runtime.model.training import Training
from elastic_runtime.worker.batches import Batch, Batches
from elastic_runtime.worker.buffer_merge import merge_buffers
from elastic_runtime.worker.gradient_buckets import GradientBuckets
from elastic_runtime.worker.local_optimizer import LocalOptimizer
from elastic_runtime.worker.process_group import ProcessGroup


class AllReduceMode:
    """One of several workers that have no parameter servers.

    Args:
        model: what is trained; becomes the first process's.
        layout: of the model.
        training: how.
        batches: the data.
        group: the processes.

    Raises:
        BadInput: the global batch is too small for so many processes.
        ModelMismatch: processes with different models or different choices.
    """

    name = "all-reduce"
    stall_seconds = 0.0

    def __init__(
        self, model: nn.Module, layout: Layout, training: Training, batches: Batches, group: ProcessGroup
    ) -> None:
        check_workers(group.size, training.global_batch, training.min_worker_batch)
        _agree(layout, training, group)
        with torch.no_grad():
            for tensor in (*model.parameters(), *model.buffers()):
                group.take_from_first(tensor)
        trained = [parameter for parameter in model.parameters() if parameter.requires_grad]
        self._model = model
        self._training = training
        self._batches = batches
        self._group = group
        self._optimizer = LocalOptimizer(training.optimizer, trained)
        self._buckets = GradientBuckets(trained, group)
        self._merge = MergeRule(training.buffer_merge_steps, batches.order.total_steps)
        self.global_step = 0

    @property
    def is_first(self) -> bool:
        """Whether this is the process of rank 0."""
        return self._group.rank == 0

    @property
    def finished(self) -> bool:
        """Whether the last step is applied."""
        return self.global_step >= self._batches.order.total_steps

    def next_batch(self) -> Batch | None:
        """This process's slice of the next step that has one for it; what lies between is applied on the way."""
        rank, size = self._group.rank, self._group.size
        while not self.finished:
            if self._has_samples(self.global_step):
                batch = self._batches.batch(self.global_step, rank, size)
                self._batches.expect(self.global_step + 1, (rank,), size)
                self._buckets.begin()
                return batch
            self._buckets.begin()
            self._apply(self.global_step, samples=0)
        return None

    def step(self, batch: Batch, loss: torch.Tensor) -> None:
        """Sum the gradients of all slices by their share in the step, and apply them."""
        (loss * batch.weight).backward()  # type: ignore[no-untyped-call]  # torch's
        self._apply(batch.step, batch.size)

    def fail(self, error: BaseException) -> None:
        """Torchrun ends the others when this process ends."""

    def close(self) -> None:
        """Leave the group."""
        self._batches.close()
        self._buckets.close()
        self._group.close()

    def _has_samples(self, step: int) -> bool:
        bounds = slice_bounds(self._batches.order.batch_size(step), self._group.size, self._training.min_worker_batch)
        start, stop = bounds[self._group.rank]
        return stop > start

    def _apply(self, step: int, samples: int) -> None:
        self._buckets.finish()
        self._optimizer.apply(step)
        if self._merge.merges(step):
            merge_buffers(self._model, self._group, samples, self._batches.order.batch_size(step))
        self.global_step = step + 1


def _agree(layout: Layout, training: Training, group: ProcessGroup) -> None:
    """All processes train the same model in the same way, or all end."""
    first_layout = Layout.from_json(group.bytes_of_first(layout.to_json()))
    first_training = Training.from_json(group.bytes_of_first(training.to_json()))
    differs = difference(layout, first_layout) or training.difference(first_training)
    if not group.all_true(not differs):
        raise ModelMismatch(
            f"process {group.rank} does not train what process 0 does: {differs}"
            if differs
            else "another process does not train what this one does; its own message says what differs"
        )
