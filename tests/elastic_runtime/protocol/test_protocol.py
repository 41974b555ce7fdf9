"""The protocol as a whole: whatever happens to messages, the numbers are those of one quiet server."""

from collections.abc import Sequence

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from world import BATCH, World, first_values, gradient, statistics

from elastic_runtime.model.data_shards import slice_bounds
from elastic_runtime.model.layout import Layout, TensorKind, TensorSpec, build_layout
from elastic_runtime.model.optimizers import SGD, Adam, Optimizer
from elastic_runtime.protocol.plan import ChangeStage
from elastic_runtime.server.store import BlockStore

LAYOUT = build_layout(
    [TensorSpec("a", (70, 9), "float32"), TensorSpec("b", (33,), "float32"), TensorSpec("c", (130,), "float64")],
    [TensorSpec("mean", (17,), "float32"), TensorSpec("count", (), "int64")],
    block_bytes=512,
)
BLOCKS = len(LAYOUT.blocks)
OPTIMIZERS = {"sgd": SGD(0.1), "momentum": SGD(0.1, momentum=0.9), "adam": Adam(0.01)}
Outcome = list[tuple[int, torch.Tensor, dict[str, torch.Tensor]]]


def quiet(
    layout: Layout, optimizer: Optimizer, workers: Sequence[int], merge_steps: int = 1, clip: float | None = None
) -> Outcome:
    """The same training without any servers or messages; `workers`: how many there are, step by step."""
    store = BlockStore(layout, optimizer)
    values = first_values(layout)
    for block in layout.blocks:
        store.adopt(block.index, values[block.segment][block.start : block.stop])
    for step, count in enumerate(workers):
        flat = [torch.cat([store.snapshot(b.index).parameters for b in layout.blocks if b.segment == s.index])
                for s in layout.segments]  # fmt: skip
        bounds = slice_bounds(BATCH, count, 1)
        merges = (step + 1) % merge_steps == 0 or step + 1 == len(workers)
        for block in layout.blocks:
            segment = layout.segments[block.segment]
            if segment.kind is TensorKind.BUFFER:
                if merges:
                    parts = [statistics(segment, step, k)[block.start : block.stop] for k in range(count)]
                    store.apply([block.index], [parts], step, [stop - start for start, stop in bounds])
                else:
                    store.pass_over([block.index])
        trained = [b for b in layout.blocks if layout.segments[b.segment].kind is TensorKind.PARAMETER]
        slices = {
            s.index: [gradient(s.index, flat[s.index], step, *bound) for bound in bounds]
            for s in layout.segments
            if s.kind is TensorKind.PARAMETER
        }
        gradients = [[g[b.start : b.stop] for g in slices[b.segment]] for b in trained]
        if clip is None:
            store.apply([b.index for b in trained], gradients, step)
        else:
            store.reduce([b.index for b in trained], gradients)
            norms = store.squared_norms()
            norm = sum(norms[block] for block in sorted(norms)) ** 0.5
            store.apply_reduced([b.index for b in trained], min(1.0, clip / (norm + 1e-6)), step)
    states = [store.snapshot(block.index) for block in layout.blocks]
    return [(state.version, state.parameters, dict(state.state)) for state in states]


def assert_equal(world: World, expected: Outcome) -> None:
    for block, (got, wanted) in enumerate(zip(world.outcome(), expected, strict=True)):
        buffer = LAYOUT.segments[LAYOUT.blocks[block].segment].kind is TensorKind.BUFFER
        assert buffer or got[0] == wanted[0] == world.last_step
        assert torch.equal(got[1], wanted[1]), f"block {block}"
        assert got[2].keys() == wanted[2].keys()
        for name, tensor in got[2].items():
            assert torch.equal(tensor, wanted[2][name]), f"{name} of block {block}"


def spread(servers: int) -> list[str]:
    return [f"ps-{block % servers}" for block in range(BLOCKS)]


def moves(world: World, servers: int) -> list[ChangeStage]:
    """To this many servers, a third of the blocks that move at a step."""
    wanted = spread(servers)
    owners = world.views[-1].start_plan.owners
    for change in world.views[-1].changes:
        for stage in change.stages:
            owners = tuple(stage.moves.get(block, owner) for block, owner in enumerate(owners))
    moving = [block for block in range(BLOCKS) if owners[block] != wanted[block]]
    for name in dict.fromkeys(wanted):
        if name not in world.servers:
            world.add_server(name)
    size = max(1, len(moving) // 3)
    parts = [moving[start : start + size] for start in range(0, len(moving), size)]
    return [ChangeStage({block: wanted[block] for block in part}) for part in parts]


@pytest.mark.heavy
@pytest.mark.parametrize("optimizer", OPTIMIZERS.values(), ids=OPTIMIZERS)
@settings(max_examples=8)
@given(seed=st.integers(0, 10**6), loss=st.sampled_from([0.0, 0.1]), twice=st.sampled_from([0.0, 0.2]))
def test_from_one_server_to_four_to_two_nothing_changes(
    optimizer: Optimizer, seed: int, loss: float, twice: float
) -> None:
    world = World(LAYOUT, optimizer, seed, loss, twice, last_step=14)
    world.start(["worker-0", "worker-1"], spread(1))
    world.run_until(lambda: max(w.step for w in world.workers.values()) >= 1)
    for servers in (4, 2):
        world.decide(moves(world, servers), margin=1)
        number = world.views[-1].changes[-1].number
        world.run_until(lambda number=number: world.committed(number) or world.over)
        world.publish(committed=number)
    world.run_until(lambda: world.over)
    assert_equal(world, quiet(LAYOUT, optimizer, [2] * 14))


@settings(max_examples=8)
@given(seed=st.integers(0, 10**6), loss=st.sampled_from([0.0, 0.1]), merge_steps=st.sampled_from([1, 3]))
def test_gradients_are_clipped_by_the_norm_of_all_blocks(seed: int, loss: float, merge_steps: int) -> None:
    world = World(LAYOUT, SGD(0.1, momentum=0.9), seed, loss, merge_steps=merge_steps, clip_norm=0.5, last_step=9)
    world.start(["worker-0", "worker-1"], spread(3))
    world.run_until(lambda: max(w.step for w in world.workers.values()) >= 1)
    world.decide(moves(world, 2), margin=1)
    world.run_until(lambda: world.over)
    assert_equal(world, quiet(LAYOUT, SGD(0.1, momentum=0.9), [2] * 9, merge_steps, clip=0.5))
    world.loss = 0.0
    for _ in range(1000):
        if world.queue:
            world.deliver()
    assert not world.queue, "servers that have all applied the step answer each other for ever"


@settings(max_examples=10)
@given(seed=st.integers(0, 10**6), loss=st.sampled_from([0.0, 0.1]))
def test_workers_come_and_go_at_a_clock(seed: int, loss: float) -> None:
    world = World(LAYOUT, SGD(0.1), seed, loss, last_step=12)
    world.start(["worker-0", "worker-1"], spread(2))
    world.run_until(lambda: max(w.step for w in world.workers.values()) >= 1)
    world.add_worker("worker-2")
    world.decide([ChangeStage(workers=("worker-0", "worker-1", "worker-2"))], margin=2)
    joined = world.views[-1].changes[-1].clock if world.views[-1].changes else 12
    world.decide([ChangeStage(workers=("worker-2", "worker-1"))], margin=2)
    left = world.views[-1].changes[-1].clock if len(world.views[-1].changes) == 2 else 12
    world.run_until(lambda: world.over)
    counts = [2] * min(joined, 12) + [3] * (min(left, 12) - min(joined, 12)) + [2] * (12 - min(left, 12))
    assert_equal(world, quiet(LAYOUT, SGD(0.1), counts))


@settings(max_examples=10)
@given(seed=st.integers(0, 10**6), dies_at=st.integers(1, 6), loss=st.sampled_from([0.0, 0.1]))
def test_a_dead_workers_slices_are_computed_by_another_one(seed: int, dies_at: int, loss: float) -> None:
    world = World(LAYOUT, SGD(0.1, momentum=0.9), seed, loss, last_step=10)
    world.start(["worker-0", "worker-1", "worker-2"], spread(2))
    world.run_until(lambda: world.workers["worker-1"].step >= dies_at)
    world.run_until(lambda: world.random.random() < 0.01)
    world.workers["worker-1"].alive = False
    world.run_until(lambda: world.random.random() < 0.01)
    world.publish(substitutes={"worker-1": "worker-2"})
    world.decide([ChangeStage(workers=("worker-0", "worker-2"))], margin=2)
    clock = world.views[-1].changes[-1].clock if world.views[-1].changes else 10
    world.run_until(lambda: world.over)
    assert_equal(world, quiet(LAYOUT, SGD(0.1, momentum=0.9), [3] * min(clock, 10) + [2] * (10 - min(clock, 10))))


@settings(max_examples=8)
@given(seed=st.integers(0, 10**6), loss=st.sampled_from([0.0, 0.1]))
def test_a_checkpoint_is_of_one_version_whoever_owned_the_blocks(seed: int, loss: float) -> None:
    world = World(LAYOUT, Adam(0.01), seed, loss, last_step=12)
    world.start(["worker-0", "worker-1"], spread(2))
    world.run_until(lambda: max(w.step for w in world.workers.values()) >= 1)
    world.decide(moves(world, 3), margin=1)
    world.decide([], margin=2, checkpoint=True, halt=True)
    world.run_until(lambda: world.over)
    change = world.views[-1].changes[-1]
    if not change.checkpoint:
        return  # the job was over before everybody accepted
    step = min(change.clock, 12)
    if change.clock > 12:
        return
    world.run_until(
        lambda: all(s.closed for (_, at), s in world.shards.items() if at == step) and len(world.shards) >= 3
    )
    copied = {
        block: state for (_, at), shard in world.shards.items() if at == step for block, state in shard.blocks.items()
    }
    expected = quiet(LAYOUT, Adam(0.01), [2] * step)
    assert copied.keys() == set(range(BLOCKS))
    for block, (version, parameters) in copied.items():
        assert version == step
        assert torch.equal(parameters, expected[block][1])
