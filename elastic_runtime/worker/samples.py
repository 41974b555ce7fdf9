"""A user's data set, whatever its kind, as something that reads the samples of given numbers."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Protocol

import numpy as np
import torch
from torch.utils.data import DataLoader, IterableDataset, TensorDataset, default_collate

from elastic_runtime.errors import BadInput
from elastic_runtime.model.data_shards import Indices

Collate = Callable[[list[Any]], Any]
"""Makes a batch of a list of samples, as the argument of that name of torch's DataLoader does."""


class Samples(Protocol):
    """Samples by their numbers."""

    def __len__(self) -> int: ...

    def read(self, indices: Indices) -> Any:
        """One batch of these samples, in this order."""
        ...


class Columns:
    """Tensors or arrays whose first dimension counts the samples; read by indexing, without a call for each sample.

    Args:
        columns: by name or by place.

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


def as_samples(data: Any, collate: Collate | None) -> Samples:
    """Take whatever a user hands over as a data set.

    Args:
        data: a tensor or array, a tuple or mapping of them, a map-style torch data set, or anything with a length that
            gives a sample for a number.
        collate: makes a batch of a list of samples; None takes torch's `default_collate`.

    Raises:
        BadInput: it is none of these, or has no samples.
    """
    samples: Samples
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


class _OneColumn(Columns):
    def read(self, indices: Indices) -> Any:
        return super().read(indices)[0]


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
