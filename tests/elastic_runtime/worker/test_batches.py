"""Batches hold the samples of their slices, whatever the data set is; random numbers follow from the slice."""

from __future__ import annotations

import threading
from typing import Any

import numpy as np
import pytest
import torch
from torch.utils.data import DataLoader, Dataset, IterableDataset, TensorDataset

from elastic_runtime.errors import BadInput
from elastic_runtime.model.data_shards import SampleOrder
from elastic_runtime.worker.batches import Batches, as_samples

IMAGES = torch.arange(20.0).reshape(10, 2)
LABELS = torch.arange(10)


class _Map(Dataset[tuple[torch.Tensor, torch.Tensor]]):
    def __len__(self) -> int:
        return 10

    def __getitem__(self, index: int) -> tuple[torch.Tensor, torch.Tensor]:
        return IMAGES[index], LABELS[index]


class _ManyAtOnce(_Map):
    def __getitem__(self, index: int) -> tuple[torch.Tensor, torch.Tensor]:
        raise AssertionError("asked one by one")

    def __getitems__(self, indices: list[int]) -> list[tuple[torch.Tensor, torch.Tensor]]:
        return [(IMAGES[index], LABELS[index]) for index in indices]


def _order(**changes: Any) -> SampleOrder:
    return SampleOrder(**{"samples": 10, "global_batch": 4, "seed": 1, "epochs": 2, **changes})


READ_ONLY = IMAGES.numpy().copy()
READ_ONLY.flags.writeable = False


@pytest.mark.parametrize(
    "data",
    [
        _Map(),
        _ManyAtOnce(),
        TensorDataset(IMAGES, LABELS),
        (IMAGES, LABELS),
        (READ_ONLY, LABELS.numpy()),
        [(IMAGES[index], LABELS[index]) for index in range(10)],
    ],
)
def test_every_kind_of_data_set_gives_the_samples_of_the_slice(data: Any) -> None:
    order = _order()
    batch = Batches(as_samples(data, None), order).batch(1, 1, 3)
    images, labels = batch.data
    assert batch.indices.tolist() == order.slice_indices(1, 1, 3).tolist() == labels.tolist()
    assert torch.equal(images, IMAGES[labels])
    assert (batch.size, batch.global_size, batch.weight) == (len(labels), 4, len(labels) / 4)


def test_a_mapping_and_a_single_tensor_keep_their_form() -> None:
    order = _order(shuffle=False)
    assert Batches(as_samples({"x": IMAGES, "y": LABELS}, None), order).batch(0, 0, 1).data["y"].tolist() == [
        0,
        1,
        2,
        3,
    ]
    assert Batches(as_samples(LABELS, None), order).batch(0, 0, 1).data.tolist() == [0, 1, 2, 3]


def test_a_collate_function_gets_the_samples() -> None:
    batches = Batches(as_samples((1, 2, 3, 4), sum), SampleOrder(4, 4, 0, 1))
    assert batches.batch(0, 0, 1).data == 10


def test_epochs_end_with_the_last_slice_of_the_last_step() -> None:
    batches = Batches(as_samples(LABELS, None), _order())
    ends = [batches.batch(step, 0, 2).ends_epoch for step in range(6)]
    assert ends == [False, False, True] * 2
    assert [batches.batch(step, 0, 2).epoch for step in range(6)] == [0, 0, 0, 1, 1, 1]
    assert not batches.batch(2, 0, 2, last=False).ends_epoch


def test_the_last_step_of_a_job_ends_its_epoch() -> None:
    order = SampleOrder(10, 4, seed=1, epochs=9, steps=5)
    batches = Batches(as_samples(LABELS, None), order)
    assert (order.total_steps, order.epochs) == (5, 2)
    assert [batches.batch(step, 0, 2).ends_epoch for step in range(5)] == [False, False, True, False, True]


def test_a_leased_range_has_the_samples_of_its_epochs_order() -> None:
    order = _order()
    batches = Batches(as_samples((IMAGES, LABELS), None), order)
    batch = batches.leased(7, 1, 3, 6, ends_epoch=False)
    drawn = torch.rand(2)
    assert batch.data[1].tolist() == batch.indices.tolist() == order.permutation(1)[3:6].tolist()
    assert (batch.step, batch.epoch, batch.size, batch.weight, batch.ends_epoch) == (7, 1, 3, 1.0, False)
    assert batches.leased(8, 1, 8, 10, ends_epoch=True).ends_epoch
    batches.leased(9, 1, 3, 6, ends_epoch=False)  # by whomever, as whichever of its batches
    assert torch.equal(torch.rand(2), drawn)
    for wrong in ((2, 0, 1), (0, 3, 3), (0, 9, 11), (-1, 0, 1)):
        with pytest.raises(IndexError):
            batches.leased(0, *wrong, ends_epoch=False)


def test_a_slice_without_samples_is_an_error() -> None:
    with pytest.raises(ValueError, match="slice 2 of 3 of step 2 has no samples"):
        Batches(as_samples(LABELS, None), _order()).batch(2, 2, 3)


def test_random_numbers_follow_from_the_seed_the_step_and_the_slice() -> None:
    def numbers(seed: int, step: int, slice_index: int, disturb: int) -> tuple[float, ...]:
        torch.rand(disturb)
        Batches(as_samples(LABELS, None), _order(seed=seed)).batch(step, slice_index, 2)
        return tuple(torch.rand(3).tolist())

    first = numbers(1, 0, 0, disturb=1)
    assert numbers(1, 0, 0, disturb=7) == first
    others = {numbers(2, 0, 0, 1), numbers(1, 1, 0, 1), numbers(1, 0, 1, 1)}
    assert len(others | {first}) == 4


def test_a_data_set_that_draws_does_not_change_what_the_model_draws() -> None:
    class Noisy(_Map):
        def __getitem__(self, index: int) -> tuple[torch.Tensor, torch.Tensor]:
            return IMAGES[index] + torch.rand(2), LABELS[index]

    noisy = Batches(as_samples(Noisy(), None), _order())
    first, drawn = noisy.batch(0, 0, 1), torch.rand(3)
    again = noisy.batch(0, 0, 1)
    assert torch.equal(first.data[0], again.data[0])
    assert torch.equal(drawn, torch.rand(3))
    Batches(as_samples(LABELS, None), _order()).batch(0, 0, 1)
    assert torch.equal(drawn, torch.rand(3))


class _Watched(_Map):
    def __init__(self) -> None:
        self.readers: list[str] = []
        self.asked = threading.Semaphore(0)

    def __getitem__(self, index: int) -> tuple[torch.Tensor, torch.Tensor]:
        self.readers.append(threading.current_thread().name)
        self.asked.release()
        return super().__getitem__(index)


def test_an_expected_slice_is_read_ahead_and_a_wrong_guess_does_no_harm() -> None:
    data = _Watched()
    batches = Batches(as_samples(data, None), _order(), prefetch=True)
    plain = Batches(as_samples(_Map(), None), _order())
    batches.expect(0, (0,), 1)
    for _ in range(4):
        assert data.asked.acquire(timeout=30)
    assert batches.batch(0, 0, 1).data[1].tolist() == plain.batch(0, 0, 1).data[1].tolist()
    assert set(data.readers) == {"elastic-batches_0"}
    assert len(data.readers) == 4
    batches.expect(1, (0,), 1)
    assert batches.batch(1, 1, 2).data[1].tolist() == plain.batch(1, 1, 2).data[1].tolist()
    batches.expect(6, (0,), 1)  # after the last step
    batches.close()


def test_an_error_of_the_data_set_comes_to_the_script_also_from_the_thread() -> None:
    class Broken(_Map):
        def __getitem__(self, index: int) -> tuple[torch.Tensor, torch.Tensor]:
            raise OSError("no such picture")

    batches = Batches(as_samples(Broken(), None), _order(), prefetch=True)
    batches.expect(0, (0,), 1)
    for _ in range(2):
        with pytest.raises(OSError, match="no such picture"):
            batches.batch(0, 0, 1)
    batches.close()


class _Stream(IterableDataset[int]):
    def __iter__(self):
        return iter(range(3))


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (DataLoader(_Map()), "give the data set that it reads"),
        (_Stream(), "no length"),
        (iter([1, 2]), "no length"),
        ((IMAGES, LABELS[:5]), "different lengths"),
        (torch.tensor(3), "single number"),
        ({"x": IMAGES, "name": "digits"}, "not all of its values"),
        ([], "no samples"),
        (np.zeros((0, 3)), "no samples"),
    ],
)
def test_what_is_no_data_set_is_refused(data: Any, message: str) -> None:
    with pytest.raises(BadInput, match=message):
        as_samples(data, None)
