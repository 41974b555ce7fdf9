"""Sums gradients over processes while the backward pass still runs, a bucket of some megabytes at a time.

Tensors go into buckets in the reverse of the model's order, which is about that in which their gradients come. Buckets
are sent in their order in every process, whichever is full first, as processes must agree on what they sum.

Source: Li et al. 2020 (PyTorch Distributed). Deviation: sums, not means: each process weights its own loss, so that
slices of different sizes count as they should.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

import torch
from torch import nn

from elastic_runtime.worker.process_group import ProcessGroup

BUCKET_BYTES = 25 * 1024 * 1024
"""Large enough that a message's cost does not count, small enough that sending overlaps with computing."""


@dataclass(slots=True)
class _Bucket:
    """Some tensors of one dtype; `waiting` are those without a gradient so far."""

    parameters: list[nn.Parameter]
    flat: torch.Tensor
    views: list[torch.Tensor]
    waiting: set[int] = field(default_factory=set)
    wait: Callable[[], None] | None = None


class GradientBuckets:
    """The gradients of a model over all processes of a group.

    Args:
        parameters: the trained ones, in the model's order.
        group: the processes.
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
        self._hooks = [
            parameter.register_post_accumulate_grad_hook(self._take)  # type: ignore[no-untyped-call]  # torch's
            for parameter in self._place
        ]

    def begin(self) -> None:
        """Before the backward pass of a step."""
        for bucket in self._buckets:
            bucket.waiting = set(range(len(bucket.parameters)))
            bucket.wait = None
        self._sent = 0
        self._active = True

    def finish(self) -> None:
        """After it: every parameter's `grad` is the sum over all processes; one that got none anywhere has zero."""
        self._active = False
        for bucket in self._buckets:
            for index in bucket.waiting:
                bucket.views[index].zero_()
            bucket.waiting.clear()
        self._send_full()
        for bucket in self._buckets:
            if bucket.wait is not None:
                bucket.wait()
                bucket.wait = None  # nothing of a sum outlives its step, and so the group
            for parameter, view in zip(bucket.parameters, bucket.views, strict=True):
                parameter.grad = view

    def close(self) -> None:
        """Let the model's gradients be."""
        for hook in self._hooks:
            hook.remove()

    def _take(self, parameter: torch.Tensor) -> None:
        """Called by autograd for each tensor, once in a backward pass."""
        if not self._active or parameter.grad is None:
            return
        bucket, index = self._place[parameter]  # type: ignore[index]  # autograd gives what it was registered with
        bucket.views[index].copy_(parameter.grad.to_dense() if parameter.grad.is_sparse else parameter.grad)
        parameter.grad = None
        bucket.waiting.discard(index)
        if not bucket.waiting:
            self._send_full()

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
    flat = torch.zeros(sum(sizes), dtype=parameters[0].dtype, device=parameters[0].device)
    views = [part.view(parameter.shape) for part, parameter in zip(torch.split(flat, sizes), parameters, strict=True)]
    return _Bucket(parameters, flat, views)
