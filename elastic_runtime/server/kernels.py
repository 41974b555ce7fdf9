"""One optimizer step over a list of flat tensors, by PyTorch's fused kernels: one pass over the memory, one thread.

Called below `torch.optim`'s functions, which would keep a step counter for every tensor; here all tensors of a call are
at the same version, which is their counter. The slices of many blocks are summed a cacheful at a time: the optimizer
reads a sum while it is still in the cache.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TypeVar

import torch
from torch import Tensor
from typing_extensions import assert_never

from elastic_runtime.model.optimizers import SGD, Adam, AdamW, Optimizer

_T = TypeVar("_T")
_SCRATCH_BYTES = 1024 * 1024
"""A second-level cache of today's servers; what fits it is not written to memory and read again."""
_SKIPPED_BY_FUSED_SGD = (torch.bfloat16, torch.float16)
"""PyTorch's fused SGD leaves whole vectors of these unchanged on a CPU, up to 2.13 at least (pytorch issue 191763)."""


def step_(
    optimizer: Optimizer,
    lr: float,
    version: int,
    parameters: list[Tensor],
    gradients: list[Tensor],
    state: Mapping[str, list[Tensor]],
) -> None:
    """Apply one step in place; gradients are only read.

    Args:
        version: how many steps were applied to these parameters before.
        parameters: 1-D, all of one dtype.
        gradients: as `parameters`.
        state: the optimizer's tensors by name, each list as `parameters`.
    """
    match optimizer:
        case SGD() if parameters[0].dtype in _SKIPPED_BY_FUSED_SGD:
            _plain_sgd(optimizer, lr, version, parameters, gradients, state.get("momentum_buffer", []))
        case SGD():
            torch._fused_sgd_(
                parameters,
                gradients,
                state.get("momentum_buffer", []),
                weight_decay=optimizer.weight_decay,
                momentum=optimizer.momentum,
                lr=lr,
                dampening=optimizer.dampening,
                nesterov=optimizer.nesterov,
                maximize=False,
                is_first_step=version == 0,
            )
        case Adam():
            kernel = torch._fused_adamw_ if isinstance(optimizer, AdamW) else torch._fused_adam_
            kernel(
                parameters,
                gradients,
                state["exp_avg"],
                state["exp_avg_sq"],
                state.get("max_exp_avg_sq", []),
                [torch.tensor(float(version + 1))] * len(parameters),
                lr=lr,
                beta1=optimizer.betas[0],
                beta2=optimizer.betas[1],
                weight_decay=optimizer.weight_decay,
                eps=optimizer.eps,
                amsgrad=optimizer.amsgrad,
                maximize=False,
            )
        case _:
            assert_never(optimizer)


def _plain_sgd(
    optimizer: SGD, lr: float, version: int, parameters: list[Tensor], gradients: list[Tensor], momenta: list[Tensor]
) -> None:
    for index, parameter in enumerate(parameters):
        gradient = gradients[index]
        if optimizer.weight_decay:
            gradient = gradient.add(parameter, alpha=optimizer.weight_decay)
        if optimizer.momentum:
            momentum = momenta[index]
            if version == 0:
                momentum.copy_(gradient)
            else:
                momentum.mul_(optimizer.momentum).add_(gradient, alpha=1.0 - optimizer.dampening)
            gradient = gradient.add(momentum, alpha=optimizer.momentum) if optimizer.nesterov else momentum
        parameter.add_(gradient, alpha=-lr)


def sum_(target: Tensor, slices: Sequence[Tensor]) -> None:
    """Write the sum, added from first to last, over `target`; the slices are only read."""
    if len(slices) == 1:
        target.copy_(slices[0])
        return
    torch.add(slices[0], slices[1], out=target)
    for part in slices[2:]:
        target.add_(part)


def squared_norm(gradient: Tensor) -> float:
    """The sum of squares, in float64; the same for the same numbers wherever they lie in memory."""
    norm = float(torch.linalg.vector_norm(gradient, dtype=torch.float64))
    return norm * norm


class Sums:
    """A small scratch memory and what passes through it."""

    def __init__(self) -> None:
        self._scratch = torch.empty(0, dtype=torch.uint8)

    def of(self, members: Iterable[tuple[_T, Sequence[Tensor]]]) -> Iterator[tuple[list[_T], list[Tensor]]]:
        """Members and the sums of their slices, some at a time; a sum stands until the next are asked for.

        The sum of a single slice is that slice itself, without a copy.
        """
        some: list[_T] = []
        sums: list[Tensor] = []
        used = 0
        for member, slices in members:
            size_bytes = slices[0].nbytes if len(slices) > 1 else 0
            if size_bytes and used + size_bytes > len(self._scratch):
                if some:
                    yield some, sums
                some, sums, used = [], [], 0
                if size_bytes > len(self._scratch):
                    self._scratch = torch.empty(max(size_bytes, _SCRATCH_BYTES), dtype=torch.uint8)
            some.append(member)
            if size_bytes:
                target = self._scratch[used : used + size_bytes].view(slices[0].dtype)
                sum_(target, slices)
                sums.append(target)
                used += -(-size_bytes // 64) * 64
            else:
                sums.append(slices[0])
        if some:
            yield some, sums
