"""Pieces that are easier to see alone: memory that is used again, and waiting before another attempt."""

from __future__ import annotations

import gc

import numpy as np

from elastic_runtime.transport import Endpoint, TransportSettings
from elastic_runtime.transport.assembly import MemoryPool
from elastic_runtime.transport.outbound import LinkState
from elastic_runtime.transport.sockets import poll


def _address(view: memoryview) -> int:
    return int(np.frombuffer(view, np.uint8).ctypes.data)


def test_memory_is_used_again_only_when_the_last_view_is_gone():
    pool = MemoryPool()
    first = pool.take(100)
    place, part = _address(first), first[10:20].toreadonly()
    del first
    assert pool.free_bytes == 0  # a part of it is still held
    assert _address(pool.take(100)) != place
    del part
    gc.collect()
    assert pool.free_bytes == 200
    again = {_address(view) for view in [pool.take(100), pool.take(100)]}
    assert place in again


def test_the_pool_keeps_no_more_than_it_should():
    pool = MemoryPool(kept_bytes=150)
    views = [pool.take(100), pool.take(100)]
    del views
    assert pool.free_bytes == 100


def test_attempts_become_rarer_while_nobody_answers():
    seconds = 0.0
    settings = TransportSettings(reconnect_first_seconds=1.0, reconnect_most_seconds=5.0)
    options = {"bind": "tcp://127.0.0.1:0", "job_token": "of the job"}
    with Endpoint("worker-0", settings=settings, clock=lambda: seconds, **options) as worker:
        server = Endpoint("ps-0", **options)
        address = server.address
        server.close()
        worker.connect("ps-0", address)
        link = worker.links["ps-0"]
        waits = []
        for _ in range(5):
            for _ in range(20):  # the refusal comes in its own time, which is no time of ours
                link.pump()
                if link.state is LinkState.WAITING:
                    break
                poll(link.pollables(), 1.0)
            assert link.state is LinkState.WAITING
            waits.append(link.seconds_to_next_step())
            seconds += waits[-1]
        assert waits == [1.0, 2.0, 4.0, 5.0, 5.0]
        assert link.trouble == "nobody answers at its address"
