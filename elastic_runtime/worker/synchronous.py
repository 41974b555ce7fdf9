"""Synchronous training with parameter servers, as a script's `Job` sees it: batches, backward passes, the end.

Source: DL2 §5.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping

import torch
from torch import nn

from elastic_runtime.layout import Layout
from elastic_runtime.training import Training
from elastic_runtime.worker.batches import Batch, Batches
from elastic_runtime.worker.membership import Membership
from elastic_runtime.worker.shared_model import SharedModel
from elastic_runtime.worker.steps import Steps


class SynchronousMode:
    """One worker's part in synchronous training with parameter servers.

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
        self._batches = batches
        self._member = Membership(environment, layout, training, clock)
        try:
            self._model = SharedModel(self._member.endpoint, layout, model)
        except BaseException:
            self._member.close()
            raise
        self._steps = Steps(self._member, self._model, batches)
        self._member.follow(self._steps.vote, self._steps.refresh)

    @property
    def is_first(self) -> bool:
        """Whether this worker computes the first slice."""
        return self._steps.computes_first_slice

    @property
    def global_step(self) -> int:
        """Steps applied."""
        return self._steps.applied

    @property
    def finished(self) -> bool:
        """Whether the job's last step is applied."""
        return self._steps.finished

    @property
    def stall_seconds(self) -> float:
        """How long this worker waited for changes to be resolved, and what it took to go over to new plans."""
        return self._steps.stall_seconds

    def next_batch(self) -> Batch | None:
        """The next slice; None once this worker has nothing more to do.

        Raises:
            ElasticError: the job failed, or this worker was taken for dead.
        """
        return self._steps.next_slice()

    def step(self, batch: Batch, loss: torch.Tensor) -> None:
        """Backward pass of a slice, whose gradient is pushed."""
        flat = self._model.flat
        flat.begin_step()
        # The mean over the slice counts by the slice's share; the servers only add.
        (loss * batch.weight).backward()  # type: ignore[no-untyped-call]  # torch's
        flat.finish_backward()
        self._steps.computed(batch, loss)

    def fail(self, error: BaseException) -> None:
        """Tell the coordinator that the script raised."""
        self._member.fail(error)

    def close(self) -> None:
        """Leave the job."""
        self._batches.close()
        self._member.close()
        self._model.flat.release()
