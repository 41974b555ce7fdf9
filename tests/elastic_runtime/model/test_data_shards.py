"""Every sample is taken exactly once in every epoch, whoever computes which slice of a step."""

import subprocess
import sys
from collections import Counter

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from elastic_runtime.errors import BadInput
from elastic_runtime.model.data_shards import SampleOrder, check_workers, slice_bounds


@st.composite
def orders(draw: st.DrawFn) -> SampleOrder:
    samples, batch = draw(st.integers(1, 80)), draw(st.integers(1, 30))
    return SampleOrder(
        samples,
        batch,
        seed=draw(st.integers(0, 2**64 - 1)),
        epochs=draw(st.integers(1, 3)),
        drop_last=samples >= batch and draw(st.booleans()),
        shuffle=draw(st.booleans()),
        smallest_slice=draw(st.integers(1, batch)),
    )


@given(orders(), st.data())
def test_every_sample_is_taken_once_an_epoch_while_workers_come_and_go(order: SampleOrder, data: st.DataObject) -> None:
    taken: dict[int, Counter[int]] = {epoch: Counter() for epoch in range(order.epochs)}
    for step in range(order.total_steps):
        workers = data.draw(st.integers(1, 6))
        # A worker that dies leaves its slice to another, which may compute it later and next to its own.
        for slice_index in data.draw(st.permutations(range(workers))):
            taken[order.position(step).epoch].update(order.slice_indices(step, slice_index, workers).tolist())
    for counts in taken.values():
        assert set(counts.values()) <= {1}
        left_out = order.samples % order.global_batch if order.drop_last else 0
        assert len(counts) == order.samples - left_out
        assert set(counts) <= set(range(order.samples))


@given(orders(), st.data())
def test_a_step_is_the_same_whatever_was_asked_before(order: SampleOrder, data: st.DataObject) -> None:
    fresh = SampleOrder(order.samples, order.global_batch, order.seed, order.epochs, order.drop_last, order.shuffle)
    step = data.draw(st.integers(0, order.total_steps - 1))
    for other in data.draw(st.lists(st.integers(0, order.total_steps - 1), max_size=4)):
        order.batch_indices(other)
    assert order.batch_indices(step).tolist() == fresh.batch_indices(step).tolist()
    assert order.batch_size(step) == len(fresh.batch_indices(step))


@given(st.integers(1, 300), st.integers(1, 40), st.integers(1, 20))
def test_slices_are_the_whole_batch_and_as_equal_as_can_be(batch: int, workers: int, smallest: int) -> None:
    bounds = slice_bounds(batch, workers, smallest)
    sizes = [stop - start for start, stop in bounds]
    assert len(bounds) == workers
    assert [start for start, _ in bounds] == [0, *(stop for _, stop in bounds[:-1])]
    assert bounds[-1][1] == batch
    used = [size for size in sizes if size]
    assert sizes[: len(used)] == used == sorted(used, reverse=True)
    assert max(used) - min(used) <= 1
    assert min(used) >= min(smallest, batch)
    assert len(used) == workers or (len(used) + 1) * smallest > batch


@given(st.integers(1, 100), st.integers(1, 20), st.integers(1, 30))
def test_a_plan_is_refused_exactly_where_a_full_batch_would_leave_somebody_without(
    batch: int, smallest: int, workers: int
) -> None:
    enough = batch >= workers * smallest
    if enough:
        check_workers(workers, batch, smallest)
        assert all(stop - start >= smallest for start, stop in slice_bounds(batch, workers, smallest))
    else:
        with pytest.raises(BadInput, match=f"{workers} workers cannot share a global batch of {batch}"):
            check_workers(workers, batch, smallest)


def test_no_workers_are_refused() -> None:
    with pytest.raises(BadInput, match="0 workers"):
        check_workers(0, 8, 1)


def test_an_epoch_ends_with_a_short_step_shared_by_fewer() -> None:
    order = SampleOrder(10, 4, seed=0, epochs=2, shuffle=False, smallest_slice=2)
    assert (order.steps_per_epoch, order.total_steps) == (3, 6)
    assert [order.slice_indices(1, k, 2).tolist() for k in range(2)] == [[4, 5], [6, 7]]
    assert [order.slice_indices(2, k, 2).tolist() for k in range(2)] == [[8, 9], []]
    assert order.position(3) == order.position(3).__class__(epoch=1, step_in_epoch=0, global_step=3)


def test_the_last_short_step_can_be_left_out() -> None:
    order = SampleOrder(10, 4, seed=3, epochs=2, drop_last=True)
    assert order.total_steps == 4
    left_out = [set(range(10)) - set(order.permutation(epoch)[:8].tolist()) for epoch in range(2)]
    assert left_out[0] != left_out[1]


def test_epochs_and_seeds_shuffle_differently() -> None:
    order, other = SampleOrder(1000, 10, seed=1, epochs=2), SampleOrder(1000, 10, seed=2, epochs=2)
    first = order.permutation(0).copy()
    for another in (order.permutation(1), other.permutation(0), np.arange(1000)):
        assert np.count_nonzero(first == another) < 20


def test_the_order_is_the_same_in_another_process_and_numpy() -> None:
    """Taken down once: a version of numpy or of ours that shuffles otherwise would break every checkpoint."""
    expected = SampleOrder(7, 2, seed=5, epochs=2).permutation(1).tolist()
    program = (
        "from elastic_runtime.model.data_shards import SampleOrder as S; print(S(7, 2, 5, 2).permutation(1).tolist())"
    )
    printed = subprocess.run([sys.executable, "-c", program], capture_output=True, check=True, timeout=60, text=True)
    assert printed.stdout.strip() == str(expected)
    assert expected == [4, 5, 1, 6, 0, 2, 3]


def test_nobody_can_change_the_order_that_others_read() -> None:
    indices = SampleOrder(10, 5, seed=0, epochs=1).batch_indices(0)
    with pytest.raises(ValueError, match="read-only"):
        indices[0] = 3


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"samples": 0}, "samples is 0"),
        ({"global_batch": 0}, "global_batch is 0"),
        ({"epochs": 0}, "epochs is 0"),
        ({"smallest_slice": 0}, "smallest_slice is 0"),
        ({"smallest_slice": 5}, "more than the global batch of 4"),
        ({"seed": -1}, "seed is -1"),
        ({"seed": 2**64}, "seed is 1844"),
        ({"samples": 3, "drop_last": True}, "no step is left"),
    ],
)
def test_values_without_a_step_are_refused(change: dict[str, int], message: str) -> None:
    values = {"samples": 10, "global_batch": 4, "seed": 0, "epochs": 1, **change}
    with pytest.raises(BadInput, match=message):
        SampleOrder(**values)  # type: ignore[arg-type]


def test_steps_and_slices_that_there_are_not_are_faults() -> None:
    order = SampleOrder(10, 4, seed=0, epochs=1)
    for step in (-1, 3):
        with pytest.raises(IndexError):
            order.batch_indices(step)
    with pytest.raises(IndexError):
        order.slice_indices(0, 2, 2)
