"""A script's DataLoader of which each worker reads its slices: the batches are those that it would have alone.

The order of an epoch is drawn once, by the first worker and where a plain DataLoader would draw it, so that a script's
own sampler, generator and seed decide as they do alone. All workers have that order; each reads its slice of each
batch, through the script's own collate function and as many reading processes.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import torch
from torch.utils.data import DataLoader, DistributedSampler, IterableDataset

from elastic_runtime.errors import BadInput
from elastic_runtime.model.data_shards import slice_bounds

Order = list[list[int]]
"""The samples' numbers, batch by batch."""


def check_loader(loader: DataLoader[Any]) -> None:
    """Refuse a loader that cannot be cut.

    Raises:
        BadInput: naming what it is, and what to do.
    """
    if isinstance(loader.dataset, IterableDataset):
        raise BadInput(
            f"the loader reads an iterable data set ({type(loader.dataset).__name__}), which has no samples by number; "
            "give a map-style one, or draw batches yourself in `for step in elastic.steps(N)` with elastic.rows(n)"
        )
    if any(isinstance(sampler, DistributedSampler) for sampler in samplers_of(loader)):
        raise BadInput(
            "the loader has a DistributedSampler, which leaves out what other workers read; give shuffle=True in its "
            "place: each worker reads its slice of each batch"
        )
    if type(loader).__iter__ is not DataLoader.__iter__:
        raise BadInput(
            f"the loader is a {type(loader).__name__} with an __iter__ of its own, which workers would pass by; give a "
            "DataLoader with a collate_fn"
        )
    if loader.batch_sampler is None:
        raise BadInput(
            "the loader makes no batches (batch_size=None); give a batch_size or a batch_sampler: a batch is what the "
            "workers share"
        )
    try:
        len(loader)
    except TypeError as error:
        raise BadInput(
            "the loader's sampler has no length; give one with __len__: the workers share an order that is drawn whole"
        ) from error


def samplers_of(loader: DataLoader[Any]) -> list[Any]:
    """The loader's samplers, and those in its batch sampler."""
    found = [loader.sampler, loader.batch_sampler]
    while (inner := getattr(found[-1], "sampler", None)) is not None:
        found.append(inner)
    return found


def draw_order(loader: DataLoader[Any]) -> Order:
    """Draw an epoch's order as a plain DataLoader does at its `iter()`.

    Raises:
        BadInput: the sampler gives something else than samples' numbers.
    """
    # A plain loader draws a seed for its reading processes first, from the same generator.
    torch.empty((), dtype=torch.int64).random_(generator=loader.generator)
    assert loader.batch_sampler is not None  # noqa: S101  (`check_loader`; narrows the type)
    order = []
    for batch in loader.batch_sampler:
        if set(map(type, batch)) == {int}:
            order.append(list(batch))
            continue
        if not all(isinstance(number, int | np.integer) or _is_number(number) for number in batch):
            raise BadInput(
                f"the loader's sampler gives {type(batch[0]).__name__}, and the workers share numbers of samples: give "
                "a sampler of whole numbers"
            )
        order.append([int(number) for number in batch])
    return order


def _is_number(value: object) -> bool:
    return isinstance(value, torch.Tensor) and value.numel() == 1 and not value.is_floating_point()


def order_to_bytes(order: Order) -> bytes:
    """An order on its way to the other workers: how many batches, their sizes, and all numbers."""
    sizes = [len(batch) for batch in order]
    return np.array([len(order), *sizes, *itertools.chain.from_iterable(order)], dtype=np.int64).tobytes()


def order_from_bytes(content: bytes) -> Order:
    """See `order_to_bytes`."""
    numbers = np.frombuffer(content, dtype=np.int64)
    ends = np.cumsum(numbers[1 : 1 + numbers[0]])
    return [batch.tolist() for batch in np.split(numbers[1 + numbers[0] :], ends[:-1])] if len(ends) else []


class SlicedReader:
    """Reads one worker's slices of the batches of an order.

    Args:
        done: batches of it that were trained already.
        smallest: fewest samples of a slice.
        seed: of the reading processes' random numbers, another one in each worker.
    """

    def __init__(
        self,
        loader: DataLoader[Any],
        order: Sequence[list[int]],
        done: int,
        rank: int,
        size: int,
        smallest: int,
        seed: int,
    ) -> None:
        self._weights: list[float] = []
        chosen = []
        for batch in order[done:]:
            start, stop = slice_bounds(len(batch), size, smallest)[rank]
            self._weights.append((stop - start) / len(batch))
            # A worker for which the batch has none goes through the script's loop as the others do: for nothing.
            chosen.append(batch[start:stop] or batch[:smallest])
        generator = torch.Generator()
        generator.manual_seed(seed)
        reader: DataLoader[Any] = DataLoader(
            loader.dataset,
            batch_sampler=chosen,
            num_workers=loader.num_workers,
            collate_fn=loader.collate_fn,
            pin_memory=loader.pin_memory,
            timeout=loader.timeout,
            worker_init_fn=loader.worker_init_fn,
            multiprocessing_context=loader.multiprocessing_context,
            generator=generator,
            prefetch_factor=loader.prefetch_factor,
        )
        self._reading = iter(reader)

    def __iter__(self) -> Iterator[tuple[float, Any]]:
        """Each batch's weight, and this worker's slice of it."""
        return zip(self._weights, self._reading, strict=True)


class PreparedLoader:
    """Stands in the script's loop where its DataLoader stood.

    Attributes:
        loader: the script's own.
    """

    def __init__(self, loader: DataLoader[Any], training: Any) -> None:
        self.loader, self._training = loader, training

    def __iter__(self) -> Iterator[Any]:
        """The batches of an epoch, cut for this worker; a job that went on takes the rest of the one that it was in."""
        iterator: Iterator[Any] = self._training.batches()
        return iterator

    def __len__(self) -> int:
        return len(self.loader)

    @property
    def step(self) -> int:
        """Batches that all workers have trained since the job began: for what a script does every so many steps."""
        step: int = self._training.step
        return step

    def __getattr__(self, name: str) -> Any:
        """What the script's loader has."""
        return getattr(self.loader, name)
