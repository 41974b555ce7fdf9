"""Asynchronous workers: every sample is counted done once an epoch, however workers join, leave, die and come back."""

import json
from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from elastic_runtime.errors import BadInput
from elastic_runtime.model.data_shards import SampleOrder
from elastic_runtime.model.sample_leases import Lease, LeaseBook


@st.composite
def books(draw: st.DrawFn) -> tuple[SampleOrder, int]:
    samples, batch = draw(st.integers(1, 60)), draw(st.integers(1, 12))
    drop_last = samples >= batch and draw(st.booleans())
    return SampleOrder(samples, batch, draw(st.integers(0, 9)), draw(st.integers(1, 3)), drop_last), batch


class Workers:
    """What workers know themselves, and what was counted of what they told."""

    def __init__(self) -> None:
        self.reading: dict[int, tuple[str, Lease, int]] = {}
        self.counted: Counter[tuple[int, int]] = Counter()

    def tell(self, book: LeaseBook, lease_id: int, samples: int) -> None:
        worker, lease, start = self.reading[lease_id]
        upto = min(lease.stop, start + samples)
        counted = book.done(lease_id, upto)
        self.counted.update((lease.epoch, place) for place in range(upto - counted, upto))
        self.reading[lease_id] = (worker, lease, upto)
        if upto == lease.stop:
            del self.reading[lease_id]


@given(books(), st.data())
def test_every_sample_is_counted_once_an_epoch_under_any_history(
    terms: tuple[SampleOrder, int], data: st.DataObject
) -> None:
    order, batch = terms
    book, workers = LeaseBook(order, batch), Workers()
    names = st.sampled_from(["a", "b", "c"])
    for act in data.draw(st.lists(st.sampled_from(["lease", "tell", "lost", "restart"]), max_size=40)):
        if act == "lease":
            worker = data.draw(names)
            lease = book.lease(worker, data.draw(st.integers(1, 3)))
            if lease is not None:
                workers.reading[lease.id] = (worker, lease, lease.start)
        elif act == "tell" and workers.reading:
            # Also of leases that were taken back: a worker that is taken for dead may still be telling.
            workers.tell(book, data.draw(st.sampled_from(sorted(workers.reading))), data.draw(st.integers(0, 15)))
        elif act == "lost":
            before = book.to_json()
            samples = book.lost(data.draw(names))
            assert (samples == 0) == (book.to_json() == before)
        elif act == "restart":
            book = LeaseBook.from_json(order, batch, book.to_json())
        assert book.samples_done == workers.counted.total()
    for worker in "abc":
        book.lost(worker)
    while not book.finished:
        lease = book.lease("last", 2)
        assert lease is not None
        assert len(book.indices(lease)) == lease.stop - lease.start > 0
        workers.reading[lease.id] = ("last", lease, lease.start)
        workers.tell(book, lease.id, order.samples)
    left_out = order.samples % batch if order.drop_last else 0
    places = {(epoch, place) for epoch in range(order.epochs) for place in range(order.samples - left_out)}
    assert workers.counted == Counter(places)
    assert book.lease("last", 1) is None


def test_the_rest_of_a_dead_workers_lease_comes_first_and_whole() -> None:
    book = LeaseBook(SampleOrder(100, 10, seed=0, epochs=1), 10)
    first, second, other = book.lease("a", 2), book.lease("a", 2), book.lease("b", 1)
    assert first is not None
    assert second is not None
    assert other is not None
    assert book.done(first.id, 10) == 10
    assert book.lost("a") == 30
    again = book.lease("c", 3)
    assert again is not None
    assert (again.start, again.stop) == (10, 40)
    assert book.done(first.id, 20) == 0, "what its worker tells now is computed by another"
    following = book.lease("c", 3)
    assert following is not None
    assert following.start == 50


def test_the_next_epoch_begins_before_the_slowest_is_done() -> None:
    book = LeaseBook(SampleOrder(20, 10, seed=0, epochs=2), 10)
    slow, fast = book.lease("slow", 1), book.lease("fast", 9)
    ahead = book.lease("fast", 9)
    assert slow is not None
    assert fast is not None
    assert ahead is not None
    assert (ahead.epoch, ahead.start, ahead.stop) == (1, 0, 20)
    book.done(fast.id, 20)
    book.done(ahead.id, 20)
    assert (book.epochs_done, book.finished, book.samples_done) == (0, False, 30)
    assert book.lease("fast", 1) is None
    assert book.done(slow.id, 10) == 10
    assert (book.epochs_done, book.finished) == (2, True)


def test_telling_twice_counts_once() -> None:
    book = LeaseBook(SampleOrder(20, 10, seed=0, epochs=1), 10)
    lease = book.lease("a", 2)
    assert lease is not None
    assert [book.done(lease.id, upto) for upto in (10, 10, 5, 20, 20)] == [10, 0, 0, 10, 0]


def test_what_was_never_leased_cannot_be_done() -> None:
    book = LeaseBook(SampleOrder(20, 10, seed=0, epochs=1), 10)
    lease = book.lease("a", 1)
    assert lease is not None
    with pytest.raises(BadInput, match="lease 2, which was never given"):
        book.done(2, 5)
    with pytest.raises(BadInput, match="up to 11 under lease 1, which ends at 10"):
        book.done(lease.id, 11)


def test_a_batch_that_leaves_nothing_to_read_is_refused() -> None:
    with pytest.raises(BadInput, match="nothing is left to read"):
        LeaseBook(SampleOrder(20, 10, seed=0, epochs=1, drop_last=True), 21)
    with pytest.raises(BadInput, match="batch is 0"):
        LeaseBook(SampleOrder(20, 10, seed=0, epochs=1), 0)


@pytest.mark.parametrize(
    "change",
    [
        {"format": 2},
        {"samples": 21},
        {"seed": 1},
        {"batch": 5},
        {"next": [0, 21]},
        {"next": [3, 0]},
        {"next": [0]},
        {"next": [0, -1]},
        {"next_id": 1},
        {"returned": [[0, 0, 5]]},
        {"returned": [[0, 15, 16]]},
        {"returned": [[1, 0, 1]]},
        {"returned": [[0, 9, 9]]},
        {"held": [[1, "a", 0, 0, 10], [1, "a", 0, 10, 11]]},
        {"held": 3},
        {"held": [[1, "a", 0, 0, 5], [1, "a", 0, 5, 10]]},
    ],
)
def test_a_changed_book_is_refused_in_one_line(change: dict[str, object]) -> None:
    order = SampleOrder(20, 10, seed=0, epochs=2)
    book = LeaseBook(order, 10)
    book.lease("a", 1)
    content = json.loads(book.to_json())
    with pytest.raises(BadInput) as caught:
        LeaseBook.from_json(order, 10, json.dumps({**content, **change}).encode())
    assert "\n" not in str(caught.value)
