"""Two different holders of each block, equal loads, little moved, whatever PSs come and go at once."""

import itertools
from collections import Counter
from collections.abc import Mapping, Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.strategies import DataObject

from elastic_runtime.coordinator.rules.moves import assign_holders
from elastic_runtime.model.layout import Layout, TensorSpec, build_layout

Holders = Mapping[int, tuple[str, ...]]
NAMES = [f"ps-{number}" for number in range(12)]
MIXED = st.lists(
    st.tuples(st.integers(0, 200_000), st.sampled_from(["float32", "float16", "float64"])), min_size=1, max_size=5
)


def model(tensors: Sequence[tuple[int, str]]) -> Layout:
    return build_layout([TensorSpec(f"w{i}", (size,), dtype) for i, (size, dtype) in enumerate(tensors)], [])


def loads(layout: Layout, holders: Holders, servers: Sequence[str], most: int) -> Counter[str]:
    """Bytes of each PS: as one of the first `most` holders."""
    result = Counter(dict.fromkeys(servers, 0))
    for block, names in holders.items():
        for name in names[:most]:
            result[name] += layout.blocks[block].size_bytes
    return result


def moved_bytes(layout: Layout, old: Holders, new: Holders) -> int:
    return sum(layout.blocks[block].size_bytes * len(set(new[block]) - set(old[block])) for block in new)


def least_bytes(layout: Layout, old: Holders, servers: Sequence[str]) -> float:
    """No less can move: what each PS lacks of its share, and copies that nobody stays to hold."""
    total = layout.total_bytes * min(2, len(servers))
    held = loads(layout, old, NAMES, 2)
    return max(
        sum(max(0.0, total / len(servers) - held[name]) for name in servers),
        total - sum(held[name] for name in servers),
    )


@given(MIXED, st.data())
def test_holders_differ_and_loads_are_even(tensors: list[tuple[int, str]], data: DataObject) -> None:
    layout = model(tensors)
    largest = max((block.size_bytes for block in layout.blocks), default=0)
    old: dict[int, tuple[str, ...]] = {}
    for _ in range(4):
        servers = data.draw(st.lists(st.sampled_from(NAMES), min_size=1, max_size=7, unique=True))
        new = assign_holders(layout, servers, old)
        assert sorted(new) == list(range(len(layout.blocks)))
        for names in new.values():
            assert len(set(names)) == len(names) == min(2, len(servers))
            assert set(names) <= set(servers)
        held = loads(layout, new, servers, 2)
        assert max(held.values()) - min(held.values()) <= largest
        owned = loads(layout, new, servers, 1)
        assert max(owned.values()) - min(owned.values()) <= max(len(servers) - 1, 1) * largest
        assert assign_holders(layout, servers, new) == new
        old = new


@pytest.mark.parametrize(
    ("before", "after"),
    [([0], [0, 1]), ([0, 1], [0, 1, 2, 3]), ([0, 1, 2, 3], [1, 3]), ([0, 1], [0]), ([0, 1, 2], [0, 1, 3]),
     ([0, 1, 2, 3], [0, 1, 2]), ([0, 1, 2], [0, 1, 2, 3, 4])],
)  # fmt: skip
def test_no_more_moves_than_has_to(before: list[int], after: list[int]) -> None:
    layout = build_layout([TensorSpec("w", (600 * 1024,), "float32")], [], 4096)
    old = assign_holders(layout, [NAMES[n] for n in before], {})
    servers = [NAMES[n] for n in after]
    new = assign_holders(layout, servers, old)
    assert moved_bytes(layout, old, new) <= 1.02 * least_bytes(layout, old, servers) + 4096 * len(servers)


def test_what_a_server_holds_is_spread_over_all_others() -> None:
    layout = build_layout([TensorSpec("w", (300 * 1024,), "float32")], [], 4096)
    holders = assign_holders(layout, NAMES[:4], {})
    partners = Counter(name for names in holders.values() if NAMES[0] in names for name in names if name != NAMES[0])
    assert set(partners) == set(NAMES[1:4])
    assert max(partners.values()) - min(partners.values()) <= 2


def test_neighbours_go_the_same_way() -> None:
    layout = build_layout([TensorSpec("w", (256 * 1024,), "float32")], [], 4096)
    two = assign_holders(layout, NAMES[:2], assign_holders(layout, NAMES[:1], {}))
    four = assign_holders(layout, NAMES[:4], two)
    for holders, most in ((two, 2), (four, 12)):
        rows = [holders[block.index] for block in layout.blocks]
        assert sum(a != b for a, b in itertools.pairwise(rows)) < most


def test_nobody_to_hold_blocks_is_an_error() -> None:
    with pytest.raises(ValueError, match="no parameter server is left"):
        assign_holders(model([(10, "float32")]), [], {})
