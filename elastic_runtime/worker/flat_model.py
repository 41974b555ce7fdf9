"""A model whose tensors lie in flat memory, block beside block, so that they are sent and received without copies.

Each segment of trained tensors has three banks of memory, which the caller allocates (shared memory, if parameter
servers run on the same host): `active`, what the model computes with; `staging`, where the next step's values arrive
while the model still computes; and `gradients`. `swap` makes the staging bank the active one: it moves pointers, not
values. Buffers such as running statistics have one bank, into and out of which they are copied: a module may replace
its buffers at any time, and they are small.

A parameter keeps its identity, only its `data` is moved: optimizers, hooks and tied layers see no difference. Modules
that keep pointers of their own to a parameter's memory must not: `flatten_parameters` of an RNN moves its weights away
again, and is to be called before the model is handed over, if at all. A model on an accelerator computes with copies
there, which cost a transfer each way a step.

Source: none; DL2 §5 leaves it to MXNet how tensors lie in a worker.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import torch
from torch import nn

from elastic_runtime.errors import BadInput, ModelMismatch
from elastic_runtime.model.layout import Layout, Segment, TensorKind, TensorSlot

Allocate = Callable[[str, int], memoryview]
"""`allocate(name, size_bytes)` gives writable memory of at least so many bytes; a model asks for each name once."""
_EPSILON = 1e-6
"""As in torch.nn.utils.clip_grad_norm_."""


@dataclass(slots=True, frozen=True)
class Bank:
    """One segment's values.

    Attributes:
        host: (elements of the segment,) in the caller's memory.
        device: the same values where the model computes; `host` itself, unless that is an accelerator.
        views: of `device`, one for each tensor, in its shape.
    """

    host: torch.Tensor
    device: torch.Tensor
    views: tuple[torch.Tensor, ...]

    @property
    def on_host(self) -> bool:
        """Whether there is one copy only."""
        return self.device is self.host

    def to_device(self) -> None:
        """Copy `host` to the device of the model."""
        if not self.on_host:
            self.device.copy_(self.host)

    def to_host(self) -> None:
        """Copy the values on the model's device to `host`."""
        if not self.on_host:
            self.host.copy_(self.device)


def flat_tensor(allocate: Allocate, name: str, segment: Segment) -> torch.Tensor:
    """A flat tensor (elements of the segment,) in memory that `allocate` gives for `name-INDEX`.

    Raises:
        ValueError: it gave too little, or memory that cannot be written to.
    """
    dtype = getattr(torch, segment.dtype)
    size_bytes = segment.elements * segment.element_bytes
    memory = allocate(f"{name}-{segment.index}", size_bytes)
    if memory.nbytes < size_bytes or memory.readonly:
        raise ValueError(f"{name}-{segment.index} wants {size_bytes} writable bytes, and was given {memory.nbytes}")
    if size_bytes == 0:
        return torch.empty(0, dtype=dtype)  # torch makes no tensor of no bytes
    return torch.frombuffer(memory, dtype=dtype, count=segment.elements)


def make_bank(allocate: Allocate, name: str, segment: Segment, device: torch.device) -> Bank:
    """A bank of a segment for a model that computes on `device`."""
    host = flat_tensor(allocate, name, segment)
    there = host if device.type == "cpu" else torch.zeros_like(host, device=device)
    views = tuple(there[slot.start : slot.start + slot.size].view(slot.tensor.shape) for slot in segment.slots)
    return Bank(host, there, views)


@dataclass(slots=True)
class _Trained:
    """One segment of trained tensors; its slots and its parameters are in the same order."""

    segment: Segment
    parameters: list[nn.Parameter]
    active: Bank
    staging: Bank
    gradients: Bank
    banks_of_gradients: list[Bank]

    def rows(self, bank: Bank) -> Iterator[tuple[TensorSlot, nn.Parameter, torch.Tensor]]:
        return zip(self.segment.slots, self.parameters, bank.views, strict=True)


class FlatModel:
    """Moves a model's trained tensors into flat memory and keeps them there until `release`.

    Args:
        allocate: where the memory comes from; asked for `active-S`, `staging-S` and `gradients-S` for each segment S of
            trained tensors, for `gradientsN-S` when bank N is first used, and for `buffers-S` for each segment of
            buffers.

    Raises:
        ModelMismatch: the model is not the layout's.
        BadInput: trained tensors on several devices, or two that share memory without being one parameter.
    """

    def __init__(
        self,
        model: nn.Module,
        layout: Layout,
        allocate: Allocate,
    ) -> None:
        self._model = model
        self._layout = layout
        self._allocate = allocate
        self._arrived: set[str] = set()
        self._taking = False
        self._hooks: list[torch.utils.hooks.RemovableHandle] = []
        self._trained: dict[int, _Trained] = {}
        self._merged: dict[int, torch.Tensor] = {}
        parameters = _parameters(model, layout)
        device = _device(parameters)
        for segment in layout.segments:
            if segment.kind == TensorKind.BUFFER:
                self._merged[segment.index] = flat_tensor(allocate, "buffers", segment)
                continue
            active, staging, gradients = (
                make_bank(allocate, name, segment, device) for name in ("active", "staging", "gradients")
            )
            own = [parameters[slot.tensor.name] for slot in segment.slots]
            trained = _Trained(segment, own, active, staging, gradients, [gradients])
            self._trained[segment.index] = trained
            self._adopt(trained)
        self.collect_buffers()

    def active(self, segment: int) -> torch.Tensor:
        """The flat values (elements of the segment,) that the model computes with."""
        return self._trained[segment].active.host

    def staging(self, segment: int) -> torch.Tensor:
        """The flat values (elements of the segment,) that become active with the next `swap`."""
        return self._trained[segment].staging.host

    def gradients(self, segment: int) -> torch.Tensor:
        """The flat gradients (elements of the segment,), complete after `finish_backward`."""
        return self._trained[segment].gradients.host

    def buffers(self, segment: int) -> torch.Tensor:
        """The flat buffers (elements of the segment,) as of the last `collect_buffers`."""
        return self._merged[segment]

    def use_gradients(self, number: int) -> None:
        """Put gradients into bank `number` from now on: one is still being read while another slice is computed."""
        for trained in self._trained.values():
            banks = trained.banks_of_gradients
            while len(banks) <= number:
                device = trained.active.device.device
                banks.append(make_bank(self._allocate, f"gradients{len(banks)}", trained.segment, device))
            trained.gradients = banks[number]

    def begin_backward(self, weight: float = 1.0) -> None:
        """Take gradients as they come, in a slice's last backward pass; what was accumulated counts by `weight`."""
        self._arrived.clear()
        self._taking = True
        if weight == 1.0:
            return
        for trained in self._trained.values():
            for parameter in trained.parameters:
                if parameter.grad is not None:
                    parameter.grad.mul_(weight)

    def finish_backward(self) -> None:
        """After it: a tensor whose gradient has not come has what was accumulated before, or zero."""
        self._taking = False
        for trained in self._trained.values():
            for slot, parameter, gradient in trained.rows(trained.gradients):
                if slot.tensor.name in self._arrived:
                    continue
                if parameter.grad is None:
                    gradient.zero_()
                else:
                    gradient.copy_(parameter.grad.to_dense() if parameter.grad.is_sparse else parameter.grad)
                    parameter.grad = None
            trained.gradients.to_host()

    def swap(self) -> None:
        """Let the model compute with what lies in the staging banks; what was active is the next staging bank."""
        for trained in self._trained.values():
            trained.active, trained.staging = trained.staging, trained.active
            trained.active.to_device()
            for parameter, view in zip(trained.parameters, trained.active.views, strict=True):
                parameter.data = view

    def collect_buffers(self) -> None:
        """Copy the model's buffers into their banks."""
        for flat, buffer in self._pairs():
            flat.copy_(buffer.detach().reshape(-1))

    def load_buffers(self) -> None:
        """Copy the banks of buffers into the model."""
        with torch.no_grad():
            for flat, buffer in self._pairs():
                buffer.copy_(flat.view(buffer.shape))

    def release(self) -> None:
        """Give the model memory of its own again, so that the banks' memory can be freed; nothing else works then."""
        for hook in self._hooks:
            hook.remove()
        for trained in self._trained.values():
            for parameter in trained.parameters:
                parameter.data = parameter.data.clone()
                parameter.grad = None
        self._trained.clear()
        self._merged.clear()

    def _adopt(self, trained: _Trained) -> None:
        for _, parameter, view in trained.rows(trained.active):
            view.copy_(parameter.data)
            parameter.data = view
        trained.active.to_host()
        for index, (slot, parameter) in enumerate(zip(trained.segment.slots, trained.parameters, strict=True)):
            hook = functools.partial(self._take_gradient, trained, slot, index)
            self._hooks.append(parameter.register_post_accumulate_grad_hook(hook))  # type: ignore[no-untyped-call]  # torch's

    def _take_gradient(self, trained: _Trained, slot: TensorSlot, index: int, parameter: torch.Tensor) -> None:
        """Called by autograd for each tensor, once in a backward pass."""
        gradient = parameter.grad
        if gradient is None or not self._taking:
            return  # the script accumulates
        trained.gradients.views[index].copy_(gradient.to_dense() if gradient.is_sparse else gradient)
        parameter.grad = None
        self._arrived.add(slot.tensor.name)

    def _pairs(self) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
        """Each buffer's place in its bank, and the buffer as the model has it now."""
        named = dict(self._model.named_buffers())
        for index, flat in self._merged.items():
            for slot in self._layout.segments[index].slots:
                buffer = named.get(slot.tensor.name)
                if buffer is None or tuple(buffer.shape) != slot.tensor.shape:
                    raise ModelMismatch(f"the model's buffer {slot.tensor} is gone or has another shape; keep it as is")
                yield flat[slot.start : slot.start + slot.size], buffer


def _parameters(model: nn.Module, layout: Layout) -> dict[str, nn.Parameter]:
    named = dict(model.named_parameters())
    found: dict[str, nn.Parameter] = {}
    for tensor in layout.tensors(TensorKind.PARAMETER):
        parameter = named.get(tensor.name)
        dtype = "" if parameter is None else str(parameter.dtype).removeprefix("torch.")
        if parameter is None or tuple(parameter.shape) != tensor.shape or dtype != tensor.dtype:
            raise ModelMismatch(f"this model has no parameter {tensor}, which the job's model has")
        found[tensor.name] = parameter
    return found


def _device(parameters: dict[str, nn.Parameter]) -> torch.device:
    """Where the model computes; refuses what could not be moved without changing the model."""
    owners: dict[int, str] = {}
    for name, parameter in parameters.items():
        pointer = parameter.untyped_storage().data_ptr()
        if parameter.numel() and owners.setdefault(pointer, name) != name:
            raise BadInput(
                f"parameters {owners[pointer]!r} and {name!r} share memory; to tie them, let both be the same Parameter"
            )
    devices = {parameter.device for parameter in parameters.values()}
    if len(devices) > 1:
        raise BadInput(f"the model's parameters are on {', '.join(sorted(map(str, devices)))}; put them on one device")
    return next(iter(devices), torch.device("cpu"))


def clip_gradients(model: FlatModel, layout: Layout, clip_norm: float) -> None:
    """Scale the gradients down to a global norm of `clip_norm`, if theirs is larger."""
    segments = [segment.index for segment in layout.segments if segment.kind is TensorKind.PARAMETER]
    gradients = [model.gradients(segment) for segment in segments]
    norm = torch.linalg.vector_norm(torch.stack([torch.linalg.vector_norm(g.float()) for g in gradients]))
    scale = float(clip_norm / (norm + _EPSILON))
    if scale < 1.0:
        torch._foreach_mul_(gradients, scale)
