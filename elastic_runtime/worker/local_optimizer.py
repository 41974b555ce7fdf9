"""PyTorch's own optimizer for the user's choice, where this process applies gradients itself: alone or by all-reduce.

It follows the same rules as the parameter servers, so that a script trains alike in all modes: the learning rate is
that of the step, a trained tensor without a gradient counts as one with a gradient of zero, and clipping is by the norm
of the whole step's gradient.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import nn

from elastic_runtime.model.optimizers import SGD, AdamW, Optimizer


class LocalOptimizer:
    """Applies steps to parameters.

    Args:
        rule: the user's choice.
        parameters: the trained ones.
    """

    def __init__(self, rule: Optimizer, parameters: Sequence[nn.Parameter]) -> None:
        self._rule = rule
        self._parameters = list(parameters)
        self.torch_optimizer = make_torch_optimizer(rule, self._parameters)

    def apply(self, step: int) -> None:
        """Apply the parameters' gradients as those of this global step, and clear them."""
        for parameter in self._parameters:
            if parameter.grad is None:
                parameter.grad = torch.zeros_like(parameter)
        if self._rule.clip_norm is not None:
            nn.utils.clip_grad_norm_(self._parameters, self._rule.clip_norm)
        for group in self.torch_optimizer.param_groups:
            group["lr"] = self._rule.lr_for(step)
        self.torch_optimizer.step()
        self.torch_optimizer.zero_grad(set_to_none=True)


def make_torch_optimizer(rule: Optimizer, parameters: Sequence[nn.Parameter]) -> torch.optim.Optimizer:
    """The optimizer of `torch.optim` that a rule names."""
    if isinstance(rule, SGD):
        return torch.optim.SGD(
            parameters,
            lr=rule.lr,
            momentum=rule.momentum,
            dampening=rule.dampening,
            nesterov=rule.nesterov,
            weight_decay=rule.weight_decay,
        )
    adam: type[torch.optim.Adam] = torch.optim.AdamW if isinstance(rule, AdamW) else torch.optim.Adam
    return adam(
        parameters,
        lr=rule.lr,
        betas=rule.betas,
        eps=rule.eps,
        weight_decay=rule.weight_decay,
        amsgrad=rule.amsgrad,
    )
