"""Loads are even, little moves, neighbours stay together, whatever PSs come and go at once."""

import itertools
from collections import Counter
from collections.abc import Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from benchmarks.resize.movement_bound import minimum_bytes
from elastic_runtime.model.layout import Layout, TensorSpec, build_layout
from elastic_runtime.model.partition import Assignment, BlockMove, assign, batches
from elastic_runtime.protocol.messages import runs_of

_MIXED = st.lists(
    st.tuples(st.integers(0, 200_000), st.sampled_from(["float32", "float16", "float64"])), min_size=1, max_size=5
)
_ONE_SIZE = st.integers(0, 300).map(lambda blocks: blocks * 1024)
IDS = [f"ps-{number}" for number in range(100)]


@st.composite
def chains(draw: st.DrawFn, most_servers: int = 8) -> list[list[str]]:
    """Sets of PSs that follow one another: some leave and some come at each, also all of them."""
    unused = iter(IDS)
    sets = [[next(unused) for _ in range(draw(st.integers(1, most_servers)))]]
    for _ in range(draw(st.integers(1, 3))):
        staying = draw(st.lists(st.sampled_from(sets[-1]), unique=True))
        coming = draw(st.integers(0 if staying else 1, most_servers))
        sets.append([*staying, *itertools.islice(unused, coming)])
    return sets


def model(tensors: Sequence[tuple[int, str]]) -> Layout:
    return build_layout([TensorSpec(f"w{i}", (size,), dtype) for i, (size, dtype) in enumerate(tensors)], [])


def blocks_of(count: int) -> Layout:
    return build_layout([TensorSpec("w", (count * 1024,), "float32")], [], 4096)


def loads(layout: Layout, assignment: Assignment, servers: Sequence[str]) -> Counter[str]:
    result = Counter(dict.fromkeys(servers, 0))
    for block in layout.blocks:
        result[assignment[block.index]] += block.size_bytes
    return result


def moves(old: Assignment, new: Assignment) -> list[BlockMove]:
    return [
        BlockMove(block, old[block], new[block])
        for block in sorted(old.keys() & new.keys())
        if old[block] != new[block]
    ]


def moved_bytes(layout: Layout, old: Assignment, new: Assignment) -> int:
    return sum(layout.blocks[move.block].size_bytes for move in moves(old, new))


def largest(layout: Layout) -> int:
    return max((block.size_bytes for block in layout.blocks), default=0)


@given(_MIXED, chains())
def test_every_block_has_one_owner_and_loads_are_even(tensors: list[tuple[int, str]], chain: list[list[str]]) -> None:
    layout = model(tensors)
    old: dict[int, str] | None = None
    for servers in chain:
        new = assign(layout, servers, old)
        assert sorted(new) == list(range(len(layout.blocks)))
        held = loads(layout, new, servers)
        assert set(held) == set(servers)
        assert max(held.values()) - min(held.values()) <= largest(layout)
        assert assign(layout, servers, new) == new
        old = new


@given(_ONE_SIZE, chains(16))
def test_blocks_of_one_size_move_exactly_as_little_as_can_be(elements: int, chain: list[list[str]]) -> None:
    layout = build_layout([TensorSpec("w", (elements,), "float32")], [], 4096)
    old = assign(layout, chain[0])
    for servers in chain[1:]:
        new = assign(layout, servers, old)
        held = Counter(old.values())
        each, more = divmod(len(layout.blocks), len(servers))
        # Whoever has most keeps one more than the others; the rest of what anybody has goes.
        kept = sorted((held[ps] for ps in servers), reverse=True)
        least = len(layout.blocks) - sum(min(have, each + (1 if i < more else 0)) for i, have in enumerate(kept))
        assert moved_bytes(layout, old, new) == 4096 * least
        old = new


# The same examples each time: the least is reached in nearly all cases, not provably in all.
@settings(max_examples=40, derandomize=True)
@given(st.integers(70_000, 30_000_000), st.integers(0, 60_000), st.integers(0, 60), chains(3))
def test_a_model_of_many_blocks_moves_within_two_percent_of_the_minimum(
    weights: int, statistics: int, counters: int, chain: list[list[str]]
) -> None:
    layout = build_layout(
        [TensorSpec("w", (weights,), "float32")],
        [TensorSpec("mean", (statistics,), "float32"), TensorSpec("count", (counters,), "int64")],
    )
    old = assign(layout, chain[0])
    new = assign(layout, chain[1], old)
    least = minimum_bytes(layout, old, chain[1])
    assert least <= moved_bytes(layout, old, new) <= 1.02 * least


@settings(max_examples=40, derandomize=True)
@given(_MIXED, chains(4))
def test_a_model_of_few_or_odd_blocks_moves_at_most_one_more_than_it_must(
    tensors: list[tuple[int, str]], chain: list[list[str]]
) -> None:
    layout = model(tensors)
    old = assign(layout, chain[0])
    new = assign(layout, chain[1], old)
    least = minimum_bytes(layout, old, chain[1])
    assert least <= moved_bytes(layout, old, new) <= least + largest(layout)


@pytest.mark.parametrize(
    ("sizes", "expected_blocks"), [([1, 4, 2, 1], [9, 6, 6]), ([2, 3], [4]), ([3, 2], [4]), ([5, 5], [0])]
)
def test_twelve_blocks_move_as_counted_by_hand(sizes: list[int], expected_blocks: list[int]) -> None:
    layout = blocks_of(12)
    old = assign(layout, IDS[: sizes[0]])
    for size, expected in zip(sizes[1:], expected_blocks, strict=True):
        new = assign(layout, IDS[:size], old)
        assert len(moves(old, new)) == expected == minimum_bytes(layout, old, IDS[:size]) // 4096
        old = new


def test_a_replaced_server_gives_all_to_the_one_in_its_place() -> None:
    layout = blocks_of(30)
    old = assign(layout, ["a", "b", "c"])
    new = assign(layout, ["a", "c", "d"], old)
    assert {(move.source, move.target) for move in moves(old, new)} == {("b", "d")}
    assert "b" not in new.values()


def test_the_order_of_names_does_not_matter() -> None:
    layout = blocks_of(31)
    old = assign(layout, ["b", "a"])
    assert old == assign(layout, ["a", "b"])
    assert assign(layout, ["c", "a", "b"], old) == assign(layout, ["a", "b", "c"], old)


def test_a_model_of_fewer_blocks_than_servers_leaves_some_without() -> None:
    layout = blocks_of(3)
    assert sorted(assign(layout, IDS[:5]).values()) == IDS[:3]
    assert assign(build_layout([], []), IDS[:5]) == {}


def test_one_large_tensor_is_spread_over_all() -> None:
    layout = build_layout([TensorSpec("fc", (25_000_000,), "float32")], [])
    held = loads(layout, assign(layout, IDS[:16]), IDS[:16])
    assert min(held.values()) > 0.8 * layout.total_bytes / 16


def test_neighbours_stay_together() -> None:
    layout = blocks_of(96)
    old: Assignment = {}
    for count in (1, 2, 4, 8, 4, 2, 1):
        new = assign(layout, IDS[:count], old)
        pieces = sum(
            len(runs_of([block.index for block in layout.blocks if new[block.index] == ps])) for ps in IDS[:count]
        )
        assert pieces <= 2 * count
        old = new


def test_blocks_that_lost_their_owner_are_spread_without_counting_as_moved() -> None:
    layout = blocks_of(12)
    old = {block: owner for block, owner in assign(layout, ["a", "b", "c"]).items() if owner != "c"}
    new = assign(layout, ["a", "b"], old)
    assert moves(old, new) == []
    assert minimum_bytes(layout, old, ["a", "b"]) == 0
    assert sorted(Counter(new.values()).values()) == [6, 6]


def test_one_server_becomes_four_then_two_then_the_first_again_has_all() -> None:
    layout = model([(1_000_000, "float32"), (3000, "float16")])
    old = first = assign(layout, IDS[:1])
    for count in (4, 2, 1):
        old = assign(layout, IDS[:count], old)
    assert old == first


def test_no_server_and_blocks_of_another_model_are_faults() -> None:
    with pytest.raises(ValueError, match="no parameter server is left"):
        assign(blocks_of(3), [], None)
    with pytest.raises(ValueError, match="blocks of another model: 3 of 3"):
        assign(blocks_of(3), ["a"], {3: "a"})


@given(_MIXED, chains(), st.integers(1, 300_000))
def test_batches_hold_every_move_once_within_their_budget(
    tensors: list[tuple[int, str]], chain: list[list[str]], budget_bytes: int
) -> None:
    layout = model(tensors)
    old = assign(layout, chain[0])
    wanted = moves(old, assign(layout, chain[1], old))
    cut = batches(wanted, layout, budget_bytes)
    assert sorted((move for batch in cut for move in batch), key=lambda move: move.block) == wanted
    sizes = [[layout.blocks[move.block].size_bytes for move in batch] for batch in cut]
    assert all(0 < sum(batch) <= budget_bytes or len(batch) == 1 for batch in sizes)
    assert all(sum(one) + two[0] > budget_bytes for one, two in itertools.pairwise(sizes))


def test_all_sources_send_in_every_batch() -> None:
    layout = blocks_of(96)
    old = assign(layout, IDS[:4])
    cut = batches(moves(old, assign(layout, IDS[:8], old)), layout, 8 * 4096)
    assert [len(batch) for batch in cut] == [8] * 6
    assert all(Counter(move.source for move in batch) == dict.fromkeys(IDS[:4], 2) for batch in cut)
    for source in IDS[:4]:
        sent = [move.block for batch in cut for move in batch if move.source == source]
        assert sent == sorted(sent)


def test_a_block_beyond_the_budget_goes_alone() -> None:
    layout = blocks_of(3)
    wanted = [BlockMove(index, "a", "b") for index in range(3)]
    assert batches(wanted, layout, 1) == [[move] for move in wanted]
    assert batches([], layout, 1) == []
