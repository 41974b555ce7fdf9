"""A worker's batches: the samples of its slices, read from the user's data set, perhaps one batch ahead."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import torch

from elastic_runtime.model.data_shards import Indices, SampleOrder
from elastic_runtime.worker.samples import Samples

Slice = tuple[int, int, int]
"""Step, index of the slice, and in how many the step's batch is cut."""


@dataclass(frozen=True, slots=True)
class Batch:
    """What a worker computes with between two calls of `Job.step`: one slice of a step's global batch.

    Attributes:
        data: what the collate function made of the samples; with columns (a tuple of tensors), a tuple of them.
        indices: the samples' numbers in the data set, int64 [size].
        step: the global step, from 0.
        epoch: from 0.
        size: how many samples the slice has.
        global_size: how many the whole step has; the last of an epoch may be short.
        warm_up: computed to get ready, before this worker joins the others; what `Job.step` gets for it is thrown away.
        ends_epoch: nothing of this epoch is left for this process after it.
    """

    data: Any
    indices: Indices
    step: int
    epoch: int
    size: int
    global_size: int
    warm_up: bool = False
    ends_epoch: bool = False

    @property
    def weight(self) -> float:
        """The slice's share in the step: its gradient counts so much."""
        return self.size / self.global_size


class Batches:
    """Where modes get batches from.

    Torch's random numbers are seeded with (seed, step, slice) before each batch, so that a slice that is computed
    again, by whomever, gives the same gradient. A data set that draws random numbers does so from another stream; its
    numbers are the same again too, unless `prefetch` reads it while the script draws from the same generator.

    Args:
        samples: the data set.
        order: who reads what.
        prefetch: read the batch that `expect` names in a thread, one at a time.
    """

    def __init__(self, samples: Samples, order: SampleOrder, prefetch: bool = False) -> None:
        self.order = order
        self._samples = samples
        self._reader = ThreadPoolExecutor(1, "elastic-batches") if prefetch else None
        self._ahead: dict[Slice, Future[Any]] = {}

    def batch(self, step: int, slice_index: int, slices: int, *, last: bool = True, warm_up: bool = False) -> Batch:
        """Read one slice, and seed torch's random numbers for it.

        Args:
            step: the global step.
            slice_index: which slice.
            slices: in how many the step's batch is cut.
            last: this process computes no other slice of the step after it.
            warm_up: marked as such.

        Raises:
            IndexError: there is no such step or slice.
            ValueError: the slice has no samples: nothing is to be computed for it.
        """
        indices = self.order.slice_indices(step, slice_index, slices)
        if not len(indices):
            raise ValueError(f"slice {slice_index} of {slices} of step {step} has no samples")
        position = self.order.position(step)
        return Batch(
            data=self._read((step, slice_index, slices), indices),
            indices=indices,
            step=step,
            epoch=position.epoch,
            size=len(indices),
            global_size=self.order.batch_size(step),
            warm_up=warm_up,
            ends_epoch=last and not warm_up and position.step_in_epoch == self.order.steps_per_epoch - 1,
        )

    def leased(self, number: int, epoch: int, start: int, stop: int, *, ends_epoch: bool | None = None) -> Batch:
        """Read positions `start` to `stop` (exclusive) of an epoch's order, for asynchronous training.

        Args:
            number: it stands in place of the step: how many updates are known.
            epoch: whose order.
            start: of 0 to the number of samples.
            stop: likewise; larger.
            ends_epoch: whether it is marked so; None: if the epoch's last sample is in it.

        Raises:
            IndexError: there is no such epoch or position.
        """
        if not (0 <= epoch < self.order.epochs and 0 <= start < stop <= self.order.samples):
            raise IndexError(f"positions {start} to {stop} of epoch {epoch}")
        indices = self.order.permutation(epoch)[start:stop]
        data = self._read((epoch, start, 0), indices)
        ends = stop == self.order.samples if ends_epoch is None else ends_epoch
        return Batch(data, indices, number, epoch, len(indices), len(indices), ends_epoch=ends)

    def expect_leased(self, epoch: int, start: int, stop: int) -> None:
        """This range will probably be asked for next: begin to read it."""
        if self._reader is not None and not self._ahead:
            indices = self.order.permutation(epoch)[start:stop]
            self._ahead[epoch, start, 0] = self._reader.submit(self._samples.read, indices)

    def expect(self, step: int, slices_of_step: Sequence[int], slices: int) -> None:
        """These slices will probably be asked for next: begin to read the first. Costs nothing if it is wrong."""
        if self._reader is None or self._ahead or step >= self.order.total_steps:
            return
        for index in slices_of_step:
            indices = self.order.slice_indices(step, index, slices)
            if len(indices):
                self._ahead[step, index, slices] = self._reader.submit(self._samples.read, indices)
                return

    def close(self) -> None:
        """Read nothing more."""
        if self._reader is not None:
            self._reader.shutdown(wait=False, cancel_futures=True)

    def _read(self, key: Slice, indices: Indices) -> Any:
        ahead, self._ahead = self._ahead, {}
        waiting = ahead.get(key)
        if waiting is None:
            self._seed("data", key)
            data = self._samples.read(indices)
        else:
            data = waiting.result()
        self._seed("model", key)
        return data

    def _seed(self, stream: str, key: Slice) -> None:
        step, slice_index, _ = key
        text = f"{stream} {self.order.seed} {step} {slice_index}"
        number = int.from_bytes(hashlib.blake2b(text.encode(), digest_size=8).digest(), "little", signed=True)
        # The parts of torch.manual_seed that a job needs, at a tenth of its 60 µs.
        torch.default_generator.manual_seed(number)
        if torch.cuda.is_initialized():  # type: ignore[no-untyped-call]  # torch's
            torch.cuda.manual_seed_all(number)
