"""Asynchronous training as a whole: whatever happens to messages, each update is applied to each block once."""

import pytest
import torch
from asynchronous_world import BATCHES, BLOCKS, EPOCHS, LAYOUT, PARAMETERS, World, applied
from hypothesis import given, settings
from hypothesis import strategies as st

from elastic_runtime.model.layout import TensorKind
from elastic_runtime.protocol.messages import Current, Fetch, Update
from elastic_runtime.protocol.plan import ChangeStage, JobPhase, Member, Plan, TaskRole, View

TOTAL = BATCHES * EPOCHS
SEEDS = st.integers(0, 10**6)
LOSS = st.sampled_from([0.0, 0.1])
TWICE = st.sampled_from([0.0, 0.2])


@settings(max_examples=8)
@given(seed=SEEDS, loss=LOSS, twice=TWICE)
def test_every_update_is_applied_once_to_every_block_while_servers_and_workers_change(
    seed: int, loss: float, twice: float
) -> None:
    world = World(seed, loss, twice)
    world.start(workers=2, servers=1)
    world.run_until(lambda: len(world.done) >= 2)
    for servers, workers in ((3, ["worker-0", "worker-1", "worker-2"]), (2, ["worker-0", "worker-2"])):
        if "worker-2" not in world.workers:
            world.add_worker()
        change = world.resize(servers, workers)
        world.run_until(lambda change=change: world.settled(change.number))
        world.publish(committed=change.number)
    world.run_until(lambda: world.leases.finished)
    assert world.done == set(range(TOTAL))
    for block in PARAMETERS:
        assert world.applied(block) == world.done  # and its version is their number
    counted = sorted((lease.epoch, lease.start, lease.stop) for _, lease in world.pushed.values())
    assert counted == [(epoch, 4 * k, 4 * k + 4) for epoch in range(EPOCHS) for k in range(BATCHES)]


@pytest.mark.heavy
@settings(max_examples=8)
@given(seed=SEEDS, loss=LOSS, twice=TWICE, dies_after=st.integers(0, 12))
def test_a_dead_workers_batch_is_computed_again_and_nothing_else(
    seed: int, loss: float, twice: float, dies_after: int
) -> None:
    world = World(seed, loss, twice)
    world.start(workers=3, servers=2)
    world.run_until(lambda: len(world.done) >= dies_after and world.workers["worker-1"].state != "waiting")
    world.run_until(lambda: world.random.random() < 0.05)
    in_hand = world.workers["worker-1"]
    untold = {in_hand.number} if in_hand.state == "pushed" else set()
    world.kill("worker-1")
    change = world.resize(3, ["worker-0", "worker-2"])
    world.run_until(lambda: world.settled(change.number))
    world.publish(committed=change.number)
    world.run_until(lambda: world.leases.finished)
    counted = sorted((lease.epoch, lease.start) for number, (_, lease) in world.pushed.items() if number in world.done)
    assert counted == [(epoch, 4 * k) for epoch in range(EPOCHS) for k in range(BATCHES)]
    for block in PARAMETERS:
        assert world.done <= world.applied(block) <= world.done | untold


@pytest.mark.heavy
@settings(max_examples=8)
@given(seed=SEEDS, loss=LOSS)
def test_a_checkpoint_holds_at_least_what_was_told_done(seed: int, loss: float) -> None:
    world = World(seed, loss)
    world.start(workers=3, servers=2)
    world.run_until(lambda: len(world.done) >= 5)
    reported = set(world.done)
    change = world.decide(ChangeStage(), checkpoint=True)
    world.run_until(lambda: world.leases.finished)
    world.run_until(lambda: sum(copies.closed for copies in world.copies.values()) == 2)
    copied = {block: state for copies in world.copies.values() for block, state in copies.blocks.items()}
    assert copied.keys() == set(range(BLOCKS))
    assert {step for _, step in world.copies} == {change.clock}
    for block in PARAMETERS:
        assert reported <= applied(copied[block])


class Bench:
    """One server, asked directly."""

    def __init__(self) -> None:
        world = World(0)
        world.add_server("ps-0")
        self.store, self.server_part = world.servers["ps-0"].store, world.servers["ps-0"].server_part
        members = tuple(Member(f"worker-{n}", TaskRole.WORKER, n + 1, "") for n in range(2))
        plan = Plan(("worker-0", "worker-1"), ("ps-0",) * BLOCKS)
        world.views = [View(1, 1, JobPhase.RUNNING, 0, "step-0", plan, members=members)]
        world.see(world.servers["ps-0"])

    def push(self, worker: int, sequence: int, block: int, value: float, version: int = 0, samples: int = 0) -> object:
        place = LAYOUT.blocks[block]
        dtype = getattr(torch, LAYOUT.segments[place.segment].dtype)
        numbers = torch.full((place.stop - place.start,), value, dtype=dtype)
        header = Update(1, 0, worker + 1, sequence, version, samples, block, 1)
        return self.server_part.handle(f"worker-{worker}", header, [memoryview(numbers.numpy()).cast("B")])

    def value(self, block: int) -> float:
        return self.store.snapshot(block).parameters[0].item()


def test_staleness_counts_the_updates_of_others() -> None:
    bench = Bench()
    for sequence in range(1, 5):
        bench.push(0, sequence, 0, 1.0, version=sequence - 1)
    assert bench.server_part.staleness_versions == 0
    bench.push(1, 1, 0, 1.0, version=0)  # computed before the four
    bench.push(1, 2, 0, 1.0, version=1)
    bench.push(1, 3, 0, 1.0, version=2)
    bench.push(1, 4, 0, 1.0, version=3)
    bench.push(1, 5, 0, 1.0, version=4)
    assert bench.server_part.staleness_versions == 4


def test_an_update_that_comes_again_is_answered_and_not_applied() -> None:
    bench = Bench()
    first = bench.push(0, 1, 0, 8.0)
    assert bench.push(0, 1, 0, 9.0) == first == [("worker-0", Current(1, 1, 1, 0, 1))]
    bench.push(0, 2, 0, 1.0, version=1)
    assert bench.push(0, 1, 0, 9.0) == []  # of long ago
    assert bench.value(0) == -9.0


def test_who_is_no_member_changes_nothing() -> None:
    bench = Bench()
    header = Update(1, 0, 99, 1, 0, 0, 0, 1)
    size_bytes = LAYOUT.blocks[0].size_bytes
    assert bench.server_part.handle("worker-0", header, [memoryview(bytes(size_bytes))]) == []
    assert bench.server_part.handle("worker-7", Fetch(1, 0, 1, 0, 1), []) == [("worker-7", Current(1, 1, 0, 0, 1))]


def test_statistics_count_by_the_samples_since_their_worker_merged_last() -> None:
    bench = Bench()
    mean, count = (
        next(b.index for b in LAYOUT.blocks if LAYOUT.segments[b.segment].kind is TensorKind.BUFFER and kind(b.segment))
        for kind in (lambda s: LAYOUT.segments[s].dtype == "float64", lambda s: LAYOUT.segments[s].dtype == "int64")
    )
    bench.push(0, 1, mean, 6.0, samples=10)
    assert bench.value(mean) == 6.0  # the only one so far
    bench.push(1, 1, mean, 2.0, samples=10)
    assert bench.value(mean) == 4.0  # two of the same weight
    bench.push(0, 2, mean, 8.0, samples=30)  # 30 of the 40 samples since its last
    assert bench.value(mean) == 0.25 * 4.0 + 0.75 * 8.0
    bench.push(0, 1, count, 6, samples=10)
    bench.push(1, 1, count, 2, samples=10)
    assert bench.value(count) == 6


def test_a_worker_knows_which_of_its_updates_were_sent_on() -> None:
    world = World(3)
    world.start(workers=1, servers=1)
    world.run_until(lambda: len(world.done) >= 3)
    assert world.workers["worker-0"].redirected == 0
    change = world.resize(2, ["worker-0"])
    world.run_until(lambda: world.settled(change.number))
    done = len(world.done)
    world.run_until(lambda: len(world.done) >= done + 3)
    assert 1 <= world.workers["worker-0"].redirected <= 3
