"""A worker's leased batches: each is computed once, also where answers of the coordinator are lost."""

import threading
from time import monotonic

from elastic_runtime.errors import CoordinatorUnreachable
from elastic_runtime.model.data_shards import SampleOrder
from elastic_runtime.model.sample_leases import SampleLease, SampleLeaseTable
from elastic_runtime.worker.lease_queue import LeaseQueue


class Coordinator:
    """Answers as the real one does; some of the answers are lost."""

    def __init__(self, lost: set[int]) -> None:
        self.leases = SampleLeaseTable(SampleOrder(80, 4, seed=1, epochs=1), 4)
        self.questions = 0
        self.lock = threading.Lock()
        self._lost = lost

    def __call__(self, generation: int, done: tuple[int, ...], batches: int) -> tuple[tuple[SampleLease, ...], bool]:
        with self.lock:
            stops = {one.id: one.stop for one in self.leases.leases_of("worker-0")}
            for number in done:
                if number in stops:
                    self.leases.done(number, stops[number])
            for _ in range(batches - len(self.leases.leases_of("worker-0"))):
                self.leases.lease("worker-0", 1)
            self.questions += 1
            if self.questions in self._lost:
                raise CoordinatorUnreachable("the answer is lost")
            held = tuple(self.leases.leases_of("worker-0"))
            return held, self.leases.finished


def test_each_batch_comes_once_though_answers_are_lost() -> None:
    coordinator = Coordinator(lost={1, 3})
    queue = LeaseQueue(coordinator, monotonic)
    try:
        queue.begin(1)
        taken = []
        deadline = monotonic() + 30
        while not queue.finished and monotonic() < deadline:
            leased = queue.take(0.05)
            if leased is not None:
                taken.append((leased.start, leased.stop))
                queue.on_done(leased)
        assert sorted(taken) == [(start, start + 4) for start in range(0, 80, 4)]
        assert queue.is_last_taken
        assert coordinator.leases.finished
    finally:
        queue.close()


def test_who_stops_has_told_what_it_did_and_gets_nothing_more() -> None:
    coordinator = Coordinator(lost=set())
    queue = LeaseQueue(coordinator, monotonic)
    try:
        queue.begin(1)
        leased = queue.take(30)
        assert leased is not None
        queue.on_done(leased)
        assert queue.stop(30)
        assert coordinator.leases.samples_done == 4
        assert queue.take(0) is None
        assert not queue.finished
        queue.begin(2)  # the job went back: what was held before is not known any more
        assert queue.take(30) is not None
    finally:
        queue.close()
