"""One optimizer step over a list of flat tensors, by PyTorch's fused kernels: one pass over the memory, one thread.

Called below `torch.optim`'s functions, which would keep a step counter for every tensor; here all tensors of a call are
at the same version, which is their counter.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import assert_never

import torch
from torch import Tensor

from elastic_runtime.model.optimizers import SGD, Adam, AdamW, Optimizer

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
        optimizer: the rule.
        lr: the learning rate of this step.
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


def mean_(target: Tensor, parts: Sequence[Tensor], samples: Sequence[int]) -> None:
    """Write the mean of real numbers over `target`, each part counted so often; the parts are only read.

    Summed in float64 and divided at last: numbers that are equal in all parts come out as they went in, bit by bit
    (float64: up to rounding), whatever their dtype.

    Args:
        target: 1-D; unchanged if no part counts.
        parts: as `target`.
        samples: for each part, 0 or more.
    """
    counted = [(part, count) for part, count in zip(parts, samples, strict=True) if count]
    if len(counted) == 1:
        target.copy_(counted[0][0])
    elif counted:
        total = torch.zeros_like(target, dtype=torch.float64)
        for part, count in counted:
            total.add_(part.double(), alpha=count)
        target.copy_(total / sum(count for _, count in counted))


def maximum_(target: Tensor, slices: Sequence[Tensor]) -> None:
    """Write the largest, element by element, over `target`; the slices are only read."""
    target.copy_(slices[0])
    for part in slices[1:]:
        torch.maximum(target, part, out=target)


def squared_norm(gradient: Tensor) -> float:
    """The sum of squares, in float64; the same for the same numbers wherever they lie in memory."""
    norm = float(torch.linalg.vector_norm(gradient, dtype=torch.float64))
    return norm * norm


def clip_scale(squared_norms: Mapping[int, float], clip_norm: float) -> float:
    """What gradients are multiplied by to bring their global norm down to `clip_norm`; 1 if it is not above.

    Args:
        squared_norms: of all trained blocks of the model, by block, from however many servers.
        clip_norm: the largest norm allowed.

    Source: `torch.nn.utils.clip_grad_norm_`, with its 1e-6; as there, a norm that is not finite spoils the step.
    """
    total = 0.0
    for block in sorted(squared_norms):
        total += squared_norms[block]
    scale = clip_norm / (math.sqrt(total) + 1e-6)
    return 1.0 if scale > 1.0 else scale
