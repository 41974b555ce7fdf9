"""Asynchronous workers: every sample is counted done once an epoch, however workers join, leave, die and come back."""

import json
from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from elastic_runtime.errors import BadInput
from elastic_runtime.model.data_shards import SampleOrder
from elastic_runtime.model.sample_leases import SampleLease, SampleLeaseTable


@st.composite
def leased_orders(draw: st.DrawFn) -> tuple[SampleOrder, int]:
    samples, batch = draw(st.integers(1, 60)), draw(st.integers(1, 12))
    drop_last = samples >= batch and draw(st.booleans())
    return SampleOrder(samples, batch, draw(st.integers(0, 9)), draw(st.integers(1, 3)), drop_last), batch


class Workers:
    """What workers know themselves, and what was counted of what they told."""

    def __init__(self) -> None:
        self.reading: dict[int, tuple[str, SampleLease, int]] = {}
        self.counted: Counter[tuple[int, int]] = Counter()

    def tell(self, leases: SampleLeaseTable, lease_id: int, samples: int) -> None:
        worker, lease, start = self.reading[lease_id]
        upto = min(lease.stop, start + samples)
        counted = leases.done(lease_id, upto)
        self.counted.update((lease.epoch, place) for place in range(upto - counted, upto))
        self.reading[lease_id] = (worker, lease, upto)
        if upto == lease.stop:
            del self.reading[lease_id]


@given(leased_orders(), st.data())
def test_every_sample_is_counted_once_an_epoch_under_any_history(
    terms: tuple[SampleOrder, int], data: st.DataObject
) -> None:
    order, batch = terms
    leases, workers = SampleLeaseTable(order, batch), Workers()
    names = st.sampled_from(["a", "b", "c"])
    for act in data.draw(st.lists(st.sampled_from(["lease", "tell", "lost", "restart"]), max_size=40)):
        if act == "lease":
            worker = data.draw(names)
            lease = leases.lease(worker, data.draw(st.integers(1, 3)))
            if lease is not None:
                workers.reading[lease.id] = (worker, lease, lease.start)
        elif act == "tell" and workers.reading:
            # Also of leases that were taken back: a worker that is taken for dead may still be telling.
            workers.tell(leases, data.draw(st.sampled_from(sorted(workers.reading))), data.draw(st.integers(0, 15)))
        elif act == "lost":
            before = leases.to_json()
            samples = leases.lost(data.draw(names))
            assert (samples == 0) == (leases.to_json() == before)
        elif act == "restart":
            leases = SampleLeaseTable.from_json(order, batch, leases.to_json())
        assert leases.samples_done == workers.counted.total()
    for worker in "abc":
        leases.lost(worker)
    while not leases.finished:
        lease = leases.lease("last", 2)
        assert lease is not None
        assert 0 <= lease.start < lease.stop <= order.samples
        workers.reading[lease.id] = ("last", lease, lease.start)
        workers.tell(leases, lease.id, order.samples)
    left_out = order.samples % batch if order.drop_last else 0
    places = {(epoch, place) for epoch in range(order.epochs) for place in range(order.samples - left_out)}
    assert workers.counted == Counter(places)
    assert leases.lease("last", 1) is None


def test_the_rest_of_a_dead_workers_lease_comes_first_and_whole() -> None:
    leases = SampleLeaseTable(SampleOrder(100, 10, seed=0, epochs=1), 10)
    first, second, other = leases.lease("a", 2), leases.lease("a", 2), leases.lease("b", 1)
    assert first is not None
    assert second is not None
    assert other is not None
    assert leases.done(first.id, 10) == 10
    assert leases.lost("a") == 30
    again = leases.lease("c", 3)
    assert again is not None
    assert (again.start, again.stop) == (10, 40)
    assert leases.done(first.id, 20) == 0, "what its worker tells now is computed by another"
    following = leases.lease("c", 3)
    assert following is not None
    assert following.start == 50


def test_the_next_epoch_begins_before_the_slowest_is_done() -> None:
    leases = SampleLeaseTable(SampleOrder(20, 10, seed=0, epochs=2), 10)
    slow, fast = leases.lease("slow", 1), leases.lease("fast", 9)
    ahead = leases.lease("fast", 9)
    assert slow is not None
    assert fast is not None
    assert ahead is not None
    assert (ahead.epoch, ahead.start, ahead.stop) == (1, 0, 20)
    leases.done(fast.id, 20)
    leases.done(ahead.id, 20)
    assert (leases.epochs_done, leases.finished, leases.samples_done) == (0, False, 30)
    assert leases.lease("fast", 1) is None
    assert leases.done(slow.id, 10) == 10
    assert (leases.epochs_done, leases.finished) == (2, True)


def test_telling_twice_counts_once() -> None:
    leases = SampleLeaseTable(SampleOrder(20, 10, seed=0, epochs=1), 10)
    lease = leases.lease("a", 2)
    assert lease is not None
    assert [leases.done(lease.id, upto) for upto in (10, 10, 5, 20, 20)] == [10, 0, 0, 10, 0]


def test_what_was_never_leased_cannot_be_done() -> None:
    leases = SampleLeaseTable(SampleOrder(20, 10, seed=0, epochs=1), 10)
    lease = leases.lease("a", 1)
    assert lease is not None
    with pytest.raises(BadInput, match="lease 2, which was never given"):
        leases.done(2, 5)
    with pytest.raises(BadInput, match="up to 11 under lease 1, which ends at 10"):
        leases.done(lease.id, 11)


def test_a_batch_that_leaves_nothing_to_read_is_refused() -> None:
    with pytest.raises(BadInput, match="nothing is left to read"):
        SampleLeaseTable(SampleOrder(20, 10, seed=0, epochs=1, drop_last=True), 21)
    with pytest.raises(BadInput, match="batch is 0"):
        SampleLeaseTable(SampleOrder(20, 10, seed=0, epochs=1), 0)


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
    leases = SampleLeaseTable(order, 10)
    leases.lease("a", 1)
    content = json.loads(leases.to_json())
    with pytest.raises(BadInput) as caught:
        SampleLeaseTable.from_json(order, 10, json.dumps({**content, **change}).encode())
    assert "\n" not in str(caught.value)
