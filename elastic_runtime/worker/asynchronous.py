"""Asynchronous training with parameter servers, as a script's `Job` sees it: batches, backward passes, the end.

Source: DL2 §2.2, §5 (asynchronous training).
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping

import torch
from torch import nn

from elastic_runtime.layout import Layout
from elastic_runtime.training import Training
from elastic_runtime.worker.batches import Batch, Batches
from elastic_runtime.worker.gradient_clipping import clip_gradients
from elastic_runtime.worker.leased_work import LeasedWork
from elastic_runtime.worker.membership import Membership
from elastic_runtime.worker.shared_model import SharedModel


class AsynchronousMode:
    """One worker's part in asynchronous training with parameter servers.

    Args:
        model: what is trained.
        layout: how it is cut.
        training: how it is trained.
        batches: the data.
        environment: of this process; see `MemberEnvironment`.
        clock: seconds, monotonic.

    Raises:
        ElasticError: the coordinator refuses this worker, or is not reached.
    """

    name = "parameter-server"

    def __init__(
        self,
        model: nn.Module,
        layout: Layout,
        training: Training,
        batches: Batches,
        environment: Mapping[str, str],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._layout, self._clip_norm, self._batches = layout, training.optimizer.clip_norm, batches
        self._member = Membership(environment, layout, training, clock)
        try:
            self._model = SharedModel(self._member.endpoint, layout, model)
        except BaseException:
            self._member.close()
            raise
        self._work = LeasedWork(self._member, self._model, batches)
        self._member.follow()

    @property
    def is_first(self) -> bool:
        """Whether this is the first worker of the plan."""
        return self._work.first_of_plan

    @property
    def global_step(self) -> int:
        """Updates applied, as far as this worker knows; with work that was done again not more than there are."""
        return self._work.applied

    @property
    def finished(self) -> bool:
        """Whether every sample of every epoch is done, and the model is what came of it."""
        return self._work.finished

    @property
    def stall_seconds(self) -> float:
        """How long this worker waited after it had been told that a block had left for another server."""
        return self._work.stall_seconds

    def next_batch(self) -> Batch | None:
        """The next leased batch; None once this worker has nothing more to do.

        Raises:
            ElasticError: the job failed, or this worker was taken for dead.
        """
        return self._work.next_batch()

    def step(self, batch: Batch, loss: torch.Tensor) -> None:
        """Backward pass of a batch, whose gradient is pushed."""
        flat = self._model.flat
        flat.begin_step()
        loss.backward()  # type: ignore[no-untyped-call]  # torch's
        flat.finish_backward()
        if self._clip_norm is not None:
            clip_gradients(flat, self._layout, self._clip_norm)
        self._work.computed(batch, loss)

    def fail(self, error: BaseException) -> None:
        """Tell the coordinator that the script raised."""
        self._member.fail(error)

    def close(self) -> None:
        """Leave the job."""
        self._work.close()
        self._batches.close()
        self._member.close()
        self._model.flat.release()
