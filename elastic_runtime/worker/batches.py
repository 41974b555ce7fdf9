"""A worker's batches: the samples of its slices, read from the user's data set of whatever kind, perhaps one ahead."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import torch
from torch.utils.data import DataLoader, IterableDataset, TensorDataset, default_collate

from elastic_runtime.errors import BadInput
from elastic_runtime.model.data_shards import Indices, SampleOrder

Slice = tuple[int, int, int]
"""Step, index of the slice, and in how many the step's batch is cut."""

Collate = Callable[[list[Any]], Any]
"""Makes a batch of a list of samples, as the argument of that name of torch's DataLoader does."""


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
        ends_epoch: nothing of this epoch, or of the job, is left for this process after it.
    """

    data: Any
    indices: Indices
    step: int
    epoch: int
    size: int
    global_size: int
    ends_epoch: bool = False

    @property
    def warm_up(self) -> bool:
        """Always False: batches for practice do not reach the script. Kept for scripts written when they did."""
        return False

    @property
    def weight(self) -> float:
        """The slice's share in the step, which its gradient counts by."""
        return self.size / self.global_size


class Batches:
    """Where modes get batches from.

    Torch's random numbers are seeded with (seed, step, slice) before each batch, so that a slice that is computed
    again, by whomever, gives the same gradient. A data set that draws random numbers does so from another stream; its
    numbers are the same again too, unless `prefetch` reads it while the script draws from the same generator.

    Args:
        prefetch: read the batch that `expect` names in a thread, one at a time.
    """

    def __init__(self, samples: NumberedSamples, order: SampleOrder, prefetch: bool = False) -> None:
        self.order = order
        self._samples = samples
        self._reader = ThreadPoolExecutor(1, "elastic-batches") if prefetch else None
        self._ahead: dict[Slice, Future[Any]] = {}

    def batch(self, step: int, slice_index: int, slices: int, *, last: bool = True) -> Batch:
        """Read one slice, and seed torch's random numbers for it.

        Args:
            last: this process computes no other slice of the step after it.

        Raises:
            IndexError: there is no such step or slice.
            ValueError: the slice has no samples: nothing is to be computed for it.
        """
        indices = self.order.slice_indices(step, slice_index, slices)
        if not len(indices):
            raise ValueError(f"slice {slice_index} of {slices} of step {step} has no samples")
        return Batch(
            data=self._read((step, slice_index, slices), indices),
            indices=indices,
            step=step,
            epoch=self.order.position(step).epoch,
            size=len(indices),
            global_size=self.order.batch_size(step),
            ends_epoch=last and self.order.ends_epoch(step),
        )

    def leased(self, number: int, epoch: int, start: int, stop: int, *, ends_epoch: bool) -> Batch:
        """Read positions `start` to `stop` (exclusive) of an epoch's order, for asynchronous training.

        Args:
            number: it stands in place of the step: how many updates are known.

        Raises:
            IndexError: there is no such epoch or position.
        """
        if not (0 <= epoch < self.order.epochs and 0 <= start < stop <= self.order.samples):
            raise IndexError(f"positions {start} to {stop} of epoch {epoch}")
        indices = self.order.permutation(epoch)[start:stop]
        data = self._read((epoch, start, 0), indices)
        return Batch(data, indices, number, epoch, len(indices), len(indices), ends_epoch=ends_epoch)

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


class NumberedSamples(Protocol):
    """Samples by their numbers."""

    def __len__(self) -> int: ...

    def read(self, indices: Indices) -> Any:
        """One batch of these samples, in this order."""
        ...


def as_samples(data: Any, collate: Collate | None) -> NumberedSamples:
    """Take whatever a user hands over as a data set.

    Args:
        data: a tensor or array, a tuple or mapping of them, a map-style torch data set, or anything with a length that
            gives a sample for a number.
        collate: makes a batch of a list of samples; None takes torch's `default_collate`.

    Raises:
        BadInput: it is none of these, or has no samples.
    """
    samples: NumberedSamples
    if isinstance(data, DataLoader):
        raise BadInput("the data set is a DataLoader; give the data set that it reads: the runtime makes the batches")
    if isinstance(data, IterableDataset) or not (hasattr(data, "__len__") and hasattr(data, "__getitem__")):
        raise BadInput(
            f"the data set, a {type(data).__name__}, has no length or no samples by number; give a map-style one"
        )
    if collate is not None:
        samples = Items(data, collate)
    elif isinstance(data, TensorDataset):
        samples = Columns(data.tensors)
    elif _is_column(data):
        samples = _OneColumn((data,))
    elif isinstance(data, tuple | Mapping) and _all_columns(data):
        samples = Columns(data)
    elif isinstance(data, Mapping):
        raise BadInput("the data set is a mapping, and not all of its values are tensors or arrays; give such columns")
    else:
        samples = Items(data, default_collate)
    if len(samples) == 0:
        raise BadInput("the data set has no samples")
    return samples


class Columns:
    """Tensors or arrays whose first dimension counts the samples; read by indexing, without a call for each sample.

    Raises:
        BadInput: lengths differ, or there is no column.
    """

    def __init__(self, columns: Mapping[str, Any] | tuple[Any, ...]) -> None:
        named = columns if isinstance(columns, Mapping) else dict(enumerate(columns))
        tensors = {name: _tensor(column) for name, column in named.items()}
        if not tensors or any(tensor.ndim == 0 for tensor in tensors.values()):
            raise BadInput("the data set has no column, or one that is a single number; give tensors of many samples")
        lengths = {name: len(tensor) for name, tensor in tensors.items()}
        if len(set(lengths.values())) > 1:
            raise BadInput(f"the data set's columns have different lengths: {lengths}; each sample needs all of them")
        self._tensors = tensors
        self._by_name = isinstance(columns, Mapping)

    def __len__(self) -> int:
        return len(next(iter(self._tensors.values())))

    def read(self, indices: Indices) -> Any:
        """A tuple or a dictionary of tensors [size, …], as the data set is one."""
        chosen = torch.from_numpy(np.array(indices))  # torch wants an array that it might write to
        read = {name: tensor[chosen.to(tensor.device)] for name, tensor in self._tensors.items()}
        return read if self._by_name else tuple(read.values())


class _OneColumn(Columns):
    def read(self, indices: Indices) -> Any:
        return super().read(indices)[0]


class Items:
    """A data set that is asked for one sample after the other, or for a list of them with `__getitems__`."""

    def __init__(self, items: Any, collate: Collate) -> None:
        self._items = items
        self._collate = collate
        self._many: Callable[[list[int]], list[Any]] | None = getattr(items, "__getitems__", None)

    def __len__(self) -> int:
        return len(self._items)

    def read(self, indices: Indices) -> Any:
        """What the collate function makes of these samples."""
        numbers = [int(index) for index in indices]
        if self._many is not None:
            return self._collate(self._many(numbers))
        return self._collate([self._items[number] for number in numbers])


def _tensor(column: Any) -> torch.Tensor:
    """The column without a copy, unless it is an array that may not be written to: torch has no such tensors."""
    if isinstance(column, np.ndarray) and not column.flags.writeable:
        return torch.from_numpy(column.copy())
    return torch.as_tensor(column)


def _is_column(data: Any) -> bool:
    return isinstance(data, torch.Tensor | np.ndarray)


def _all_columns(data: tuple[Any, ...] | Mapping[str, Any]) -> bool:
    values = data.values() if isinstance(data, Mapping) else data
    return all(_is_column(value) for value in values)
