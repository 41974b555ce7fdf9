"""Training in the processes that torchrun started: each has the whole model, and gradients are summed over all.

Differs from DistributedDataParallel in three things: slices may have different sizes and count by them; nothing wraps
the model; and the samples are those of the job's order, so that a run gives what a run alone gives, up to rounding
(batch norm excepted, which sees its own process's slice only).

Where somebody looks after the processes (`RankFiles`), all stop after the same step when they are to, with a checkpoint
from which the next ones go on, however many they are; or, on one machine, some come and go after it while they train.
"""

from __future__ import annotations

from functools import partial

import torch
from torch import nn

from elastic_runtime.checkpoint.rank_files import RankFiles
from elastic_runtime.errors import ModelMismatch
from elastic_runtime.model.buffer_merge import MergeRule
from elastic_runtime.model.data_shards import check_workers, slice_bounds
from elastic_runtime.model.layout import Layout, difference
from elastic_runtime.model.training import Training
from elastic_runtime.worker.alone import LocalOptimizer
from elastic_runtime.worker.batches import Batch, Batches
from elastic_runtime.worker.mode import TrainingMode
from elastic_runtime.worker.ranks.gradient_buckets import GradientBuckets, merge_buffers
from elastic_runtime.worker.ranks.process_group import ProcessGroup
from elastic_runtime.worker.ranks.rank_keeper import MEET, RankKeeper, RankState, Reach
from elastic_runtime.worker.ranks.rank_pod import RankPlace, RankPod


class AllReduceMode(TrainingMode):
    """One of several workers that have no parameter servers.

    Args:
        files: of whoever looks after them; None: nobody does.
        place: of this process among pods; None: it is none.
        meeting: number of the group that it begins in; above 1 it joins others, which train.

    Raises:
        BadInput: the global batch is too small for so many processes.
        ModelMismatch: processes with different models or different choices, or a checkpoint of another model.
        CheckpointError: the checkpoint cannot be read.
    """

    name = "all-reduce"
    global_step = 0

    def __init__(
        self,
        model: nn.Module,
        layout: Layout,
        training: Training,
        batches: Batches,
        group: ProcessGroup,
        files: RankFiles | None = None,
        place: RankPlace | None = None,
        meeting: int = 1,
    ) -> None:
        check_workers(group.size, training.global_batch, training.min_worker_batch)
        if meeting == 1:
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
        self._samples = 0
        self._over = self._stopped = False
        state = RankState(model, self._optimizer.torch_optimizer, layout)
        pod = None if place is None else RankPod(place, group.rank, group.size)
        reach, live = partial(Reach.of, batches.order), pod is None and group.may_meet
        self._keeper = None if files is None else RankKeeper(files, state, reach, group, pod, live=live)
        if self._keeper is not None:
            self.global_step = self._keeper.begin() if meeting == 1 else self._keeper.join_running(meeting)

    @property
    def is_first(self) -> bool:
        """Whether this is the process of rank 0."""
        return self._group.rank == 0

    @property
    def finished(self) -> bool:
        """Whether the last step is applied."""
        return self._over or self.global_step >= self._batches.order.total_steps

    def next_batch(self) -> Batch | None:
        """This process's slice of the next step that has one for it; what lies between is applied on the way."""
        rank, size = self._group.rank, self._group.size
        while not (self.finished or self._stopped):
            if self._has_samples(self.global_step):
                batch = self._batches.batch(self.global_step, rank, size)
                self._batches.expect(self.global_step + 1, (rank,), size)
                return batch
            self._buckets.begin(wish=self._wish)
            self._apply(self.global_step, samples=0)
        return None

    def step(self, batch: Batch, loss: torch.Tensor | None, value: float | None) -> None:  # noqa: ARG002  # nobody asks
        """Sum the gradients of all slices by their share in the step, and apply them."""
        self._buckets.begin(batch.weight, wish=self._wish)
        if loss is not None:
            (loss * batch.weight).backward()  # type: ignore[no-untyped-call]  # torch's
        self._apply(batch.step, batch.size)

    def end(self) -> None:
        """Take part in the next step with a word in place of a gradient: all hear it, and apply nothing."""
        if not self.finished:
            self._buckets.begin()
            self._apply(self.global_step, samples=0, over=True)

    def close(self) -> None:
        """Leave the group."""
        self._batches.close()
        self._buckets.close()
        self._group.close()

    @property
    def _wish(self) -> int:
        return 0 if self._keeper is None else self._keeper.wish

    def _has_samples(self, step: int) -> bool:
        bounds = slice_bounds(self._batches.order.batch_size(step), self._group.size, self._training.min_worker_batch)
        start, stop = bounds[self._group.rank]
        return stop > start

    def _apply(self, step: int, samples: int, *, over: bool = False) -> None:
        if self._buckets.finish(over=over):
            self._over = True
            if step > 0 and not self._merge.merges(step - 1):
                merge_buffers(self._model, self._group, self._samples, self._batches.order.batch_size(step - 1))
            self._keep(step)
            return
        self._optimizer.apply(step)
        # Pods may want it several at once, and want nothing but a stop.
        meets = self._buckets.wish == MEET and self._keeper is not None and self._keeper.live
        self._stopped = bool(self._buckets.wish) and not meets
        if self._merge.merges(step) or self._buckets.wish:
            merge_buffers(self._model, self._group, samples, self._batches.order.batch_size(step))
        self._samples = samples
        self.global_step = step + 1
        self._keep(self.global_step)
        if meets and not self.finished and self._keeper is not None:
            self._stopped = not self._keeper.regroup(self.global_step)

    def _keep(self, step: int) -> None:
        if self._keeper is not None:
            self._keeper.after_step(step, finished=self.finished, stopped=self._stopped)


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
