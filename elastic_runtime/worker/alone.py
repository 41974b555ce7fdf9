"""Training in one process with nothing around it: plain PyTorch, with the batches that a job of many would compute."""

from __future__ import annotations

import torch
from torch import nn

from elastic_runtime.model.training import Training
from elastic_runtime.worker.batches import Batch, Batches
from elastic_runtime.worker.local_optimizer import LocalOptimizer


class AloneMode:
    """One worker with the whole global batch.

    Args:
        model: what is trained.
        training: how.
        batches: the data.
    """

    name = "alone"
    is_first = True
    stall_seconds = 0.0

    def __init__(self, model: nn.Module, training: Training, batches: Batches) -> None:
        trained = [parameter for parameter in model.parameters() if parameter.requires_grad]
        self._optimizer = LocalOptimizer(training.optimizer, trained)
        self._total_steps = batches.order.total_steps
        self._batches = batches
        self.global_step = 0

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

    def step(self, batch: Batch, loss: torch.Tensor) -> None:
        """Apply the batch's gradient."""
        loss.backward()  # type: ignore[no-untyped-call]  # torch's
        self._optimizer.apply(batch.step)
        self.global_step = batch.step + 1

    def fail(self, error: BaseException) -> None:
        """Nobody is to be told."""

    def close(self) -> None:
        """Stop reading ahead."""
        self._batches.close()
