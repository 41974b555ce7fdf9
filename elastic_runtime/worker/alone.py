"""Training in one process with nothing around it: plain PyTorch, with the batches that a job of many would compute.

PyTorch's own optimizer applies gradients here and by all-reduce. It follows the same rules as the parameter servers, so
that a script trains alike in all modes: the learning rate is that of the step, a trained tensor without a gradient
counts as one with a gradient of zero, and clipping is by the norm of the whole step's gradient.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import nn

from elastic_runtime.model.optimizers import SGD, AdamW, Optimizer
from elastic_runtime.model.training import Training
from elastic_runtime.worker.batches import Batch, Batches
from elastic_runtime.worker.mode import TrainingMode


class AloneMode(TrainingMode):
    """One worker with the whole global batch."""

    name = "alone"
    is_first = True
    global_step = 0

    def __init__(self, model: nn.Module, training: Training, batches: Batches) -> None:
        trained = [parameter for parameter in model.parameters() if parameter.requires_grad]
        self._optimizer = LocalOptimizer(training.optimizer, trained)
        self._total_steps = batches.order.total_steps
        self._batches = batches

    @property
    def finished(self) -> bool:
        """Whether the last step is applied."""
        return self.global_step >= self._total_steps

    def next_batch(self) -> Batch | None:
        """The next step's whole batch."""
        if self.finished:
            return None
        batch = self._batches.batch(self.global_step, 0, 1)
        self._batches.expect(self.global_step + 1, (0,), 1)
        return batch

    def step(self, batch: Batch, loss: torch.Tensor | None, value: float | None) -> None:  # noqa: ARG002  # nobody asks
        """Apply the batch's gradient."""
        if loss is not None:
            loss.backward()  # type: ignore[no-untyped-call]  # torch's
        self._optimizer.apply(batch.step)
        self.global_step = batch.step + 1

    def end(self) -> None:
        """No step is left."""
        self._total_steps = self.global_step

    def close(self) -> None:
        """Stop reading ahead."""
        self._batches.close()


class LocalOptimizer:
    """Applies steps to parameters."""

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
