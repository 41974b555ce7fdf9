"""Two holders of each block: bit for bit the same, whatever happens to messages; either goes on without the other."""

import random
from dataclasses import dataclass

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from test_protocol import BLOCKS, LAYOUT, OPTIMIZERS, Outcome, assert_equal, quiet
from world import World

from elastic_runtime.errors import ProtocolError
from elastic_runtime.model.layout import TensorKind
from elastic_runtime.model.optimizers import SGD, Adam, Optimizer
from elastic_runtime.protocol.messages import Values
from elastic_runtime.protocol.plan import ChangeStage, Plan, Timeline

LOSS = st.sampled_from([0.0, 0.1])
SEEDS = st.integers(0, 10**6)
BUFFERS = [b.index for b in LAYOUT.blocks if LAYOUT.segments[b.segment].kind is TensorKind.BUFFER]


def spread(names: list[str], seed: int) -> tuple[list[str], list[str]]:
    """An owner and another holder of each block, by chance; nobody is the second holder if there is one server only."""
    chance = random.Random(seed)
    pairs = [chance.sample(names, 2) if len(names) > 1 else [names[0], ""] for _ in range(BLOCKS)]
    return [owner for owner, _ in pairs], [replica for _, replica in pairs]


def stages(plan: Plan, owners: list[str], replicas: list[str]) -> list[ChangeStage]:
    """From one plan to another, a third of the blocks at a step."""
    changed = [
        b for b in range(BLOCKS) if plan.holders(b) != ((owners[b], replicas[b]) if replicas[b] else (owners[b],))
    ]
    size = max(1, len(changed) // 3)
    parts = [changed[start : start + size] for start in range(0, len(changed), size)]
    return [ChangeStage({b: owners[b] for b in part}, replicas={b: replicas[b] for b in part}) for part in parts]


def named(world: World) -> Plan:
    """The newest plan, lost servers included."""
    view = world.views[-1]
    plan = view.start_plan
    owners, replicas = list(plan.owners), list(plan.replicas or [""] * BLOCKS)
    for change in view.changes:
        for stage in change.stages:
            for block, name in stage.moves.items():
                owners[block] = name
            for block, name in stage.replicas.items():
                replicas[block] = name
    return Plan((), tuple(owners), replicas=tuple(replicas))


def go_to(world: World, names: list[str], seed: int) -> None:
    """Over to these servers, and wait until the old copies may go."""
    for name in names:
        if name not in world.servers:
            world.add_server(name)
    world.decide(stages(named(world), *spread(names, seed)), margin=1)
    finish_change(world)


def finish_change(world: World) -> None:
    if world.views[-1].changes:
        number = world.views[-1].changes[-1].number
        world.run_until(lambda: world.committed(number) or world.over)
        world.publish(committed=number)


def assert_both_equal(world: World, expected: Outcome) -> None:
    assert_equal(world, expected)
    final = max(w.step for w in world.workers.values())
    assert final == world.last_step
    for block, (got, wanted) in enumerate(zip(world.replica_outcome(), world.outcome(), strict=True)):
        assert got[0] == wanted[0], f"block {block}"
        assert torch.equal(got[1], wanted[1]), f"block {block}"
        assert all(torch.equal(got[2][name], tensor) for name, tensor in wanted[2].items())


@pytest.mark.heavy
@pytest.mark.parametrize("optimizer", OPTIMIZERS.values(), ids=OPTIMIZERS)
@settings(max_examples=6)
@given(seed=SEEDS, loss=LOSS, twice=st.sampled_from([0.0, 0.2]))
def test_from_one_server_to_four_to_two_both_copies_are_those_of_one_quiet_server(
    optimizer: Optimizer, seed: int, loss: float, twice: float
) -> None:
    world = World(LAYOUT, optimizer, seed, loss, twice, last_step=14)
    world.start(["worker-0", "worker-1"], *spread(["ps-0"], seed))
    for names in (["ps-0", "ps-1"], ["ps-0", "ps-1", "ps-2", "ps-3"], ["ps-3", "ps-1"]):
        go_to(world, names, seed)
    world.run_until(lambda: world.over)
    assert_both_equal(world, quiet(LAYOUT, optimizer, [2] * 14))


@settings(max_examples=8)
@given(seed=SEEDS, loss=LOSS, merge_steps=st.sampled_from([1, 3]), clip=st.sampled_from([None, 0.5]))
def test_buffers_and_clipping_are_the_same_at_both(
    seed: int, loss: float, merge_steps: int, clip: float | None
) -> None:
    world = World(LAYOUT, SGD(0.1, momentum=0.9), seed, loss, merge_steps=merge_steps, clip_norm=clip, last_step=9)
    world.start(["worker-0", "worker-1"], *spread(["ps-0", "ps-1", "ps-2"], seed))
    go_to(world, ["ps-2", "ps-3"], seed + 1)
    world.run_until(lambda: world.over)
    assert_both_equal(world, quiet(LAYOUT, SGD(0.1, momentum=0.9), [2] * 9, merge_steps, clip=clip))


@settings(max_examples=10)
@given(seed=SEEDS, loss=LOSS, dies_at=st.integers(0, 6), clip=st.sampled_from([None, 0.5]))
def test_a_lost_server_is_replaced_by_the_other_holders_without_a_step_back(
    seed: int, loss: float, dies_at: int, clip: float | None
) -> None:
    world = World(LAYOUT, Adam(0.01), seed, loss, clip_norm=clip, last_step=12)
    names = ["ps-0", "ps-1", "ps-2"]
    world.start(["worker-0", "worker-1"], *spread(names, seed))
    world.run_until(lambda: max(w.step for w in world.workers.values()) >= dies_at)
    world.run_until(lambda: world.random.random() < 0.01)
    kill(world, "ps-1")
    world.run_until(lambda: world.random.random() < 0.01)
    go_to(world, ["ps-0", "ps-2"] if seed % 2 else ["ps-0", "ps-2", "ps-3"], seed)
    world.run_until(lambda: world.over)
    assert "ps-1" not in named(world).servers or not world.views[-1].changes
    assert_both_equal(world, quiet(LAYOUT, Adam(0.01), [2] * 12, clip=clip))


@pytest.mark.heavy
@settings(max_examples=20)
@given(seed=SEEDS, loss=LOSS, dies=st.sampled_from(["ps-0", "ps-1", "ps-2", "ps-3"]), clip=st.sampled_from([None, 0.5]))
def test_a_server_lost_while_blocks_move_is_done_without(seed: int, loss: float, dies: str, clip: float | None) -> None:
    world = World(LAYOUT, Adam(0.01), seed, loss, merge_steps=2, clip_norm=clip, last_step=16)
    world.start(["worker-0", "worker-1"], *spread(["ps-0", "ps-1"], seed))
    world.run_until(lambda: max(w.step for w in world.workers.values()) >= 1)
    for name in ("ps-2", "ps-3"):
        world.add_server(name)
    world.decide(stages(named(world), *spread(["ps-0", "ps-2", "ps-3"], seed)), margin=1)
    world.run_until(lambda: world.random.random() < 0.005)
    kill(world, dies)
    finish_change(world)
    world.run_until(lambda: world.over)
    assert_both_equal(world, quiet(LAYOUT, Adam(0.01), [2] * 16, 2, clip=clip))


def kill(world: World, name: str) -> None:
    """A server dies; some of what it sent is still on its way."""
    world.servers[name].alive = False
    world.queue = [message for message in world.queue if message[0] != name or world.random.random() < 0.5]
    world.publish(lost_servers=(*world.views[-1].lost_servers, name))


def test_a_plan_without_a_server_has_the_other_holders_as_owners() -> None:
    world = World(LAYOUT, SGD(0.1), 0)
    world.start(["worker-0"], *spread(["ps-0", "ps-1"], 1))
    world.publish(lost_servers=("ps-0",))
    plan = Timeline(world.views[-1]).at(3)
    assert plan.servers == ("ps-1",)
    assert plan.replicas == ()


@dataclass
class Watched(World):
    """Buffers are each worker's own; their holders are compared after everything that happens."""

    compared: int = 0

    def turn(self) -> None:
        super().turn()
        plan = Timeline(self.views[-1]).at(max(0, *(worker.step for worker in self.workers.values())))
        for block in BUFFERS:
            stores = [self.servers[name].store for name in plan.holders(block) if self.servers[name].alive]
            if len(stores) == 2 and all(block in store.owned for store in stores):
                one, other = (store.view(block) for store in stores)
                if one.version == other.version > 0:
                    self.compared += 1
                    assert torch.equal(one.parameters, other.parameters), f"block {block} at {one.version}"


def watched(seed: int, loss: float = 0.0, merge_steps: int = 1) -> Watched:
    world = Watched(LAYOUT, SGD(0.1), seed, loss, merge_steps=merge_steps, last_step=8, own_statistics=True)
    world.start(["worker-0", "worker-1", "worker-2"], *spread(["ps-0", "ps-1", "ps-2"], seed))
    return world


def lose_a_worker(world: World, dies_at: int) -> None:
    """It dies when it has sent something of a step; some of that still comes."""
    world.run_until(lambda: world.workers["worker-1"].step >= dies_at)
    world.run_until(lambda: any(message[0] == "worker-1" for message in world.queue) or world.over)
    world.workers["worker-1"].alive = False
    world.queue = [message for message in world.queue if message[0] != "worker-1" or world.random.random() < 0.5]
    world.publish(substitutes={"worker-1": "worker-2"})


@pytest.mark.heavy
@settings(max_examples=15)
@given(seed=SEEDS, dies_at=st.integers(0, 7), loss=st.sampled_from([0.0, 0.1]), merge_steps=st.sampled_from([1, 2]))
def test_a_worker_that_dies_with_its_buffers_at_one_holder_leaves_both_with_the_same(
    seed: int, dies_at: int, loss: float, merge_steps: int
) -> None:
    world = watched(seed, loss, merge_steps)
    lose_a_worker(world, dies_at)
    world.decide([ChangeStage(workers=("worker-0", "worker-2"))], margin=2)
    world.run_until(lambda: world.over)
    assert world.compared
    assert max(worker.step for worker in world.workers.values()) == world.last_step


@settings(max_examples=6)
@given(seed=SEEDS, dies_at=st.integers(0, 4))
def test_also_while_blocks_go_over_to_other_servers(seed: int, dies_at: int) -> None:
    world = watched(seed)
    world.add_server("ps-3")
    world.decide(stages(named(world), *spread(["ps-1", "ps-2", "ps-3"], seed)), margin=1)
    lose_a_worker(world, dies_at)
    finish_change(world)
    world.run_until(lambda: world.over)
    assert world.compared


@settings(max_examples=6)
@given(seed=SEEDS, dies_at=st.integers(0, 5), which=st.sampled_from(["ps-0", "ps-1", "ps-2"]))
def test_without_the_owner_the_other_holder_merges_what_it_has(seed: int, dies_at: int, which: str) -> None:
    world = watched(seed)
    world.run_until(lambda: max(worker.step for worker in world.workers.values()) >= dies_at)
    world.run_until(lambda: world.random.random() < 0.01)
    kill(world, which)
    go_to(world, [name for name in ("ps-0", "ps-1", "ps-2") if name != which], seed)
    world.run_until(lambda: world.over)
    assert max(worker.step for worker in world.workers.values()) == world.last_step


def test_only_the_owner_says_what_came_out_of_a_merge_and_of_nothing_else() -> None:
    world = watched(3)
    world.run_until(lambda: max(worker.step for worker in world.workers.values()) >= 2)
    plan, block = Timeline(world.views[-1]).at(2), BUFFERS[0]
    other = next(name for name in world.servers if name not in plan.holders(block))
    replica = world.servers[plan.replica(block)]
    before = replica.store.snapshot(block)
    place = LAYOUT.blocks[block]
    payload = [memoryview(bytes(place.size_bytes))]
    for sender in (other, "worker-0"):
        assert replica.server_part.handle(sender, Values(1, before.version + 1, block, 1), payload) == []
    assert replica.server_part.handle(plan.owners[block], Values(1, 0, block, 1), payload) == []
    assert torch.equal(replica.store.snapshot(block).parameters, before.parameters)
    with pytest.raises(ProtocolError, match="sent values that only workers get"):
        replica.server_part.handle(plan.owners[0], Values(1, before.version + 1, 0, 1), payload)
