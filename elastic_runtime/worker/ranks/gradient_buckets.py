"""Sums over a group's processes: of gradients, a bucket of some megabytes at a time, and of buffers.

Gradients are summed while the backward pass still runs. Tensors go into buckets in the reverse of the model's order,
which is about that in which their gradients come. Buckets are sent in their order in every process, whichever is full
first, as processes must agree on what they sum.

Source: Li et al. 2020 (PyTorch Distributed). Deviation: sums, not means: each process weights its own loss, so that
slices of different sizes count as they should.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

import torch
from torch import nn

from elastic_runtime.model.module_tensors import persistent_buffers
from elastic_runtime.worker.ranks.process_group import ProcessGroup

BUCKET_BYTES = 25 * 1024 * 1024
"""Large enough that a message's cost does not count, small enough that sending overlaps with computing."""

_WORDS = 2


def merge_buffers(model: nn.Module, group: ProcessGroup, samples: int, batch_size: int) -> None:
    """Replace the buffers of every process by the merged ones.

    Args:
        samples: computed here in the step.
        batch_size: of the whole step.
    """
    means: list[torch.Tensor] = []
    maxima: list[torch.Tensor] = []
    for buffer in persistent_buffers(model).values():
        if 0 in buffer.stride():  # one value many times over: nobody writes to it
            continue
        real = torch.view_as_real(buffer) if buffer.is_complex() else buffer
        (means if real.is_floating_point() else maxima).append(real)
    if means:
        # A process without samples adds zeros: zero times an infinite value would be no number.
        weighted = [
            samples * buffer.double().flatten() if samples else buffer.new_zeros(buffer.numel()).double()
            for buffer in means
        ]
        flat = torch.cat(weighted)
        group.sum(flat)
        _put(means, flat / batch_size)
    if maxima:
        flat = torch.cat([buffer.long().flatten() for buffer in maxima])
        group.maximum(flat)
        _put(maxima, flat)


def _put(buffers: list[torch.Tensor], flat: torch.Tensor) -> None:
    with torch.no_grad():
        for buffer, merged in zip(buffers, torch.split(flat, [buffer.numel() for buffer in buffers]), strict=True):
            buffer.copy_(merged.view(buffer.shape))


@dataclass(slots=True)
class _Bucket:
    """Some tensors of one dtype; `waiting` are those without a gradient so far.

    `flat` has two elements more: in the last bucket, what the processes want all to do after this step, and how many
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

    Attributes:
        scale: what a gradient counts by when it is taken; at 0 it counts nothing, whatever it is.
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
        self.scale = 1.0
        self.wish = 0
        self._hooks = [
            parameter.register_post_accumulate_grad_hook(self._take)  # type: ignore[no-untyped-call]  # torch's
            for parameter in self._place
        ]

    def begin(self, weight: float = 1.0, *, wish: int = 0) -> None:
        """Before the last backward pass of a step, in which buckets are sent as soon as they are full.

        Args:
            weight: what the script accumulated before counts by it.
            wish: what this process wants all to do after the step; several want one thing at most.
        """
        for bucket in self._buckets:
            bucket.waiting = set(range(len(bucket.parameters)))
            bucket.wait = None
            for parameter in bucket.parameters if weight != 1.0 else ():
                if parameter.grad is not None:
                    parameter.grad.mul_(weight)
        self._buckets[-1].flat[-1] = 0
        self._buckets[-1].flat[-2] = wish
        self._sent = 0
        self._active = True

    def finish(self, *, over: bool = False) -> bool:
        """After it: every parameter's `grad` is the sum over all processes; one that got none anywhere has zero.

        What the processes want all to do after this step is in `wish` then, as a sum.

        Returns:
            whether any process said so; there are no gradients then.
        """
        self.send_rest(over=over)
        last = self._buckets[-1].flat
        for bucket in self._buckets:
            if bucket.wait is not None:
                bucket.wait()
                bucket.wait = None  # nothing of a sum outlives its step, and so the group
        wish, over_for_one = last[-_WORDS:].tolist()
        self.wish = int(wish)
        for bucket in self._buckets:
            for parameter, view in zip(bucket.parameters, bucket.views, strict=True):
                parameter.grad = None if over_for_one else view
        return bool(over_for_one)

    def has_taken(self, parameter: nn.Parameter) -> bool:
        """Whether a parameter's gradient has come since `begin`."""
        bucket, index = self._place[parameter]
        return index not in bucket.waiting

    def send_rest(self, *, over: bool = False) -> None:
        """Begin the sums of all buckets; a gradient that has not come counts as what lies there, or zero."""
        self._active = False
        for bucket in self._buckets:
            for index in bucket.waiting:
                parameter = bucket.parameters[index]
                if parameter.grad is None:
                    bucket.views[index].zero_()
                else:
                    self._copy(bucket, index, parameter.grad)
            bucket.waiting.clear()
        if over:
            self._buckets[-1].flat[-1] = 1
        self._send_full()

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

    def _copy(self, bucket: _Bucket, index: int, gradient: torch.Tensor) -> None:
        view = bucket.views[index]
        if self.scale == 0.0:
            view.zero_()
            return
        view.copy_(gradient.to_dense() if gradient.is_sparse else gradient)
        if self.scale != 1.0:
            view.mul_(self.scale)

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
