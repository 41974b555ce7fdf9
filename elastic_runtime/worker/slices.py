"""A worker's slices of the step in hand: which are still to be computed, and where the gradient of each one lies.

A worker has one, as a rule; more if it computes in place of a worker that died.
"""

from __future__ import annotations

from elastic_runtime.protocol.messages import Outgoing
from elastic_runtime.worker.batches import Batch, Batches
from elastic_runtime.worker.flat_model import FlatModel
from elastic_runtime.worker.protocol.exchange import Exchange
from elastic_runtime.worker.step_barrier import Gate


class StepSlices:
    """One worker's slices, step by step.

    Args:
        task: this worker.
        gate: has the plans.
        exchange: knows which slices were pushed.
        batches: the data.
        model: takes gradients.
    """

    def __init__(self, task: str, gate: Gate, exchange: Exchange, batches: Batches, model: FlatModel) -> None:
        self._task = task
        self._gate = gate
        self._exchange = exchange
        self._batches = batches
        self._model = model
        self._step = self._slice = 0
        self._pushed: list[int] = []

    def begin(self, step: int) -> None:
        """A step begins: nothing of it is pushed."""
        self._step = step
        self._pushed.clear()

    def next(self) -> Batch | None:
        """The slice to compute next, whose gradient goes into a bank of its own; None if all are pushed."""
        timeline = self._gate.timeline
        self._exchange.follow(timeline)
        slices = self.open()
        if not slices:
            return None
        self._model.use_gradients(self.bank)
        workers = len(timeline.at(self._step).workers)
        self._slice = slices[0]
        batch = self._batches.batch(self._step, self._slice, workers, last=len(slices) == 1)
        if len(slices) == 1:
            coming = timeline.at(self._step + 1)
            self._batches.expect(self._step + 1, coming.slices_of(self._task), len(coming.workers))
        return batch

    def open(self) -> list[int]:
        """The slices that are still to be computed."""
        plan = self._gate.timeline.at(self._step)
        order = self._batches.order
        return [
            k
            for k in plan.slices_of(self._task)
            if k not in self._exchange.pushed and len(order.slice_indices(self._step, k, len(plan.workers)))
        ]

    @property
    def bank(self) -> int:
        """The bank of the slice that `next` gave."""
        return len(self._pushed)

    def push(self) -> list[Outgoing]:
        """The gradient of the slice that `next` gave is there: send it."""
        self._pushed.append(self._slice)
        return self._exchange.push(self._slice)

    def bank_of(self, slice_index: int) -> int:
        """The bank of a slice that was pushed."""
        return self._pushed.index(slice_index)
