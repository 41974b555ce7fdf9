"""Training with parameter servers: what a worker does whether all take each step together, or each its own.

Source: DL2 §5.
"""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping

import torch
from torch import nn

from elastic_runtime.errors import ElasticError
from elastic_runtime.model.layout import Layout
from elastic_runtime.model.training import Training
from elastic_runtime.protocol.plan import Phase, View
from elastic_runtime.worker.batches import Batch, Batches
from elastic_runtime.worker.first_checkpoint import FirstCheckpoint
from elastic_runtime.worker.membership import Membership
from elastic_runtime.worker.meter import Meter
from elastic_runtime.worker.shared_model import SharedModel


class ParameterServerMode(ABC):
    """One worker's part in training with parameter servers.

    The script's thread does all of it between two batches; control threads only bring views.

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
        self._training, self._batches, self._clock = training, batches, clock
        self._member = Membership(environment, layout, training, clock)
        self._task, self._gate = self._member.task, self._member.gate
        try:
            self._model = SharedModel(self._member.endpoint, layout, model)
        except BaseException:
            self._member.close()
            raise
        self._first_checkpoint = FirstCheckpoint(self._member, self._model.flat)
        self._meter = Meter(self._member)
        self._start()

    def next_batch(self) -> Batch | None:
        """The next batch, waited for; None once this worker has nothing more to do.

        Raises:
            ElasticError: the job failed, or this worker was taken for dead.
        """
        while not self._member.left:
            view = self._member.view()
            if view.phase is Phase.FAILED:
                raise ElasticError(f"the job failed: {view.failure}")
            batch = self._go_on(view)
            if batch is not None:
                return batch
        return None

    def step(self, batch: Batch, loss: torch.Tensor) -> None:
        """Backward pass of a batch, whose gradient is pushed."""
        flat = self._model.flat
        flat.begin_step()
        # The mean over a slice counts by the slice's share; the servers only add.
        (loss * batch.weight).backward()  # type: ignore[no-untyped-call]  # torch's
        flat.finish_backward()
        self._computed(batch, loss)

    def fail(self, error: BaseException) -> None:
        """Tell the coordinator that the script raised."""
        self._member.fail(error)

    def close(self) -> None:
        """Leave the job."""
        self._batches.close()
        self._member.close()
        self._model.flat.release()

    @abstractmethod
    def _start(self) -> None:
        """Make what this kind of training needs, and take views from now on."""

    @abstractmethod
    def _go_on(self, view: View) -> Batch | None:
        """Do what is next, given the newest view; a batch if one is to be computed."""

    @abstractmethod
    def _computed(self, batch: Batch, loss: torch.Tensor) -> None:
        """The gradient of the batch that was given last lies in its bank: push it."""
