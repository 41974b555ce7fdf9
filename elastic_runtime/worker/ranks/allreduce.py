"""Training in the processes that torchrun started: each has the whole model, and gradients are summed over all.

Differs from DistributedDataParallel in three things: slices may have different sizes and count by them; nothing wraps
the model; and the samples are those of the job's order, so that a run gives what a run alone gives, up to rounding
(batch norm excepted, which sees its own process's slice only).

Gradients are summed while the backward pass still runs, a bucket of some megabytes at a time. Tensors go into buckets
in the reverse of the model's order, which is about that in which their gradients come. Buckets are sent in their order
in every process, whichever is full first, as processes must agree on what they sum.

Where somebody looks after the processes (`RankFiles`), all stop after the same step when they are to, with a checkpoint
from which the next ones go on, however many they are.

Source: Li et al. 2020 (PyTorch Distributed). Deviation: sums, not means: each process weights its own loss, so that
slices of different sizes count as they should.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

import torch
from torch import nn

from elastic_runtime.checkpoint.rank_files import RankFiles
from elastic_runtime.errors import ModelMismatch
from elastic_runtime.model.buffer_merge import MergeRule
from elastic_runtime.model.data_shards import check_workers, slice_bounds
from elastic_runtime.model.layout import Layout, difference
from elastic_runtime.model.module_tensors import persistent_buffers
from elastic_runtime.model.training import Training
from elastic_runtime.worker.alone import LocalOptimizer
from elastic_runtime.worker.batches import Batch, Batches
from elastic_runtime.worker.mode import TrainingMode
from elastic_runtime.worker.ranks.process_group import ProcessGroup
from elastic_runtime.worker.ranks.rank_keeper import RankKeeper, RankState
from elastic_runtime.worker.ranks.rank_pod import RankPlace, RankPod

BUCKET_BYTES = 25 * 1024 * 1024
"""Large enough that a message's cost does not count, small enough that sending overlaps with computing."""

_WORDS = 2


class AllReduceMode(TrainingMode):
    """One of several workers that have no parameter servers.

    Args:
        files: of whoever looks after them; None: nobody does.
        place: of this process among pods; None: it is none.

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
        self._samples = 0
        self._over = self._stopped = False
        state = RankState(model, self._optimizer.torch_optimizer, layout)
        pod = None if place is None else RankPod(place, group.rank, group.size)
        self._keeper = None if files is None else RankKeeper(files, state, batches.order, group, pod)
        if self._keeper is not None:
            self.global_step = self._keeper.begin()

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
            self._buckets.begin(stop=self._stop_requested)
            self._apply(self.global_step, samples=0)
        return None

    def step(self, batch: Batch, loss: torch.Tensor | None, value: float | None) -> None:  # noqa: ARG002  # nobody asks
        """Sum the gradients of all slices by their share in the step, and apply them."""
        self._buckets.begin(batch.weight, stop=self._stop_requested)
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
    def _stop_requested(self) -> bool:
        return self._keeper is not None and self._keeper.stop_requested

    def _has_samples(self, step: int) -> bool:
        bounds = slice_bounds(self._batches.order.batch_size(step), self._group.size, self._training.min_worker_batch)
        start, stop = bounds[self._group.rank]
        return stop > start

    def _apply(self, step: int, samples: int, *, over: bool = False) -> None:
        if self._buckets.finish(over=over):
            self._over = True
            if step > 0 and not self._merge.merges(step - 1):
                self._merge_buffers(step - 1, self._samples)
            self._keep(step)
            return
        self._optimizer.apply(step)
        self._stopped = self._buckets.stopping
        if self._merge.merges(step) or self._stopped:
            self._merge_buffers(step, samples)
        self._samples = samples
        self.global_step = step + 1
        self._keep(self.global_step)

    def _keep(self, step: int) -> None:
        if self._keeper is not None:
            self._keeper.after_step(step, finished=self.finished, stopped=self._stopped)

    def _merge_buffers(self, step: int, samples: int) -> None:
        """Replace the buffers of every process by the merged ones; `samples` were computed here in the step."""
        means: list[torch.Tensor] = []
        maxima: list[torch.Tensor] = []
        for buffer in persistent_buffers(self._model).values():
            (means if buffer.is_floating_point() else maxima).append(buffer)
        if means:
            # A process without samples adds zeros: zero times an infinite value would be no number.
            weighted = [
                samples * buffer.double().flatten() if samples else buffer.new_zeros(buffer.numel()).double()
                for buffer in means
            ]
            flat = torch.cat(weighted)
            self._group.sum(flat)
            _put(means, flat / self._batches.order.batch_size(step))
        if maxima:
            flat = torch.cat([buffer.long().flatten() for buffer in maxima])
            self._group.maximum(flat)
            _put(maxima, flat)


def _put(buffers: list[torch.Tensor], flat: torch.Tensor) -> None:
    with torch.no_grad():
        for buffer, merged in zip(buffers, torch.split(flat, [buffer.numel() for buffer in buffers]), strict=True):
            buffer.copy_(merged.view(buffer.shape))


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


@dataclass(slots=True)
class _Bucket:
    """Some tensors of one dtype; `waiting` are those without a gradient so far.

    `flat` has two elements more: in the last bucket, how many processes want all to stop after this step, and how many
    say that the training is over.
    """

    parameters: list[nn.Parameter]
    flat: torch.Tensor
    views: list[torch.Tensor]
    waiting: set[int] = field(default_factory=set)
    wait: Callable[[], None] | None = None


class GradientBuckets:
    """The gradients of a model over all processes of a group.

    Args:
        bucket_bytes: size of a bucket; a tensor that is larger has one for itself.
    """

    def __init__(
        self, parameters: Sequence[nn.Parameter], group: ProcessGroup, bucket_bytes: int = BUCKET_BYTES
    ) -> None:
        self._group = group
        self._buckets = [_bucket(chosen) for chosen in _divided(parameters, bucket_bytes)]
        self._place = {
            parameter: (bucket, index) for bucket in self._buckets for index, parameter in enumerate(bucket.parameters)
        }
        self._sent = 0
        self._active = False
        self.stopping = False
        self._hooks = [
            parameter.register_post_accumulate_grad_hook(self._take)  # type: ignore[no-untyped-call]  # torch's
            for parameter in self._place
        ]

    def begin(self, weight: float = 1.0, *, stop: bool = False) -> None:
        """Before the last backward pass of a step, in which buckets are sent as soon as they are full.

        Args:
            weight: what the script accumulated before counts by it.
        """
        for bucket in self._buckets:
            bucket.waiting = set(range(len(bucket.parameters)))
            bucket.wait = None
            for parameter in bucket.parameters if weight != 1.0 else ():
                if parameter.grad is not None:
                    parameter.grad.mul_(weight)
        self._buckets[-1].flat[-1] = 0
        self._buckets[-1].flat[-2] = int(stop)
        self._sent = 0
        self._active = True

    def finish(self, *, over: bool = False) -> bool:
        """After it: every parameter's `grad` is the sum over all processes; one that got none anywhere has zero.

        Whether any process wants all to stop after this step is in `stopping` then.

        Returns:
            whether any process said so; there are no gradients then.
        """
        self._active = False
        for bucket in self._buckets:
            for index in bucket.waiting:
                parameter = bucket.parameters[index]
                if parameter.grad is None:
                    bucket.views[index].zero_()
                else:
                    self._copy(bucket, index, parameter.grad)
            bucket.waiting.clear()
        last = self._buckets[-1].flat
        if over:
            last[-1] = 1
        self._send_full()
        for bucket in self._buckets:
            if bucket.wait is not None:
                bucket.wait()
                bucket.wait = None  # nothing of a sum outlives its step, and so the group
        stopping, over_for_one = (last[-_WORDS:] > 0).tolist()
        self.stopping = bool(stopping)
        for bucket in self._buckets:
            for parameter, view in zip(bucket.parameters, bucket.views, strict=True):
                parameter.grad = None if over_for_one else view
        return bool(over_for_one)

    def close(self) -> None:
        """Let the model's gradients be."""
        for hook in self._hooks:
            hook.remove()

    def _take(self, parameter: torch.Tensor) -> None:
        """Called by autograd for each tensor, once in a backward pass."""
        if not self._active or parameter.grad is None:
            return
        bucket, index = self._place[parameter]  # type: ignore[index]  # autograd gives what it was registered with
        self._copy(bucket, index, parameter.grad)
        parameter.grad = None
        bucket.waiting.discard(index)
        if not bucket.waiting:
            self._send_full()

    @staticmethod
    def _copy(bucket: _Bucket, index: int, gradient: torch.Tensor) -> None:
        bucket.views[index].copy_(gradient.to_dense() if gradient.is_sparse else gradient)

    def _send_full(self) -> None:
        while self._sent < len(self._buckets) and not self._buckets[self._sent].waiting:
            bucket = self._buckets[self._sent]
            bucket.wait = self._group.begin_sum(bucket.flat)
            self._sent += 1


def _divided(parameters: Sequence[nn.Parameter], bucket_bytes: int) -> Iterator[list[nn.Parameter]]:
    """Parameters in reverse, cut where the dtype changes or a bucket is full."""
    chosen: list[nn.Parameter] = []
    size_bytes = 0
    for parameter in reversed(parameters):
        more_bytes = parameter.numel() * parameter.element_size()
        if chosen and (chosen[-1].dtype != parameter.dtype or size_bytes + more_bytes > bucket_bytes):
            yield chosen
            chosen, size_bytes = [], 0
        chosen.append(parameter)
        size_bytes += more_bytes
    if chosen:
        yield chosen


def _bucket(parameters: list[nn.Parameter]) -> _Bucket:
    sizes = [parameter.numel() for parameter in parameters]
    flat = torch.zeros(sum(sizes) + _WORDS, dtype=parameters[0].dtype, device=parameters[0].device)
    parts = torch.split(flat[:-_WORDS], sizes)
    views = [part.view(parameter.shape) for part, parameter in zip(parts, parameters, strict=True)]
    return _Bucket(parameters, flat, views)
