"""Moves of blocks from one plan's holders to another's: who is to hold what, cut into the stages that lead there.

Of one holder a block, equal load and as few moves as can be are `partition`'s; of two, `assign_holders`'s. First who
holds: whoever has a copy keeps it unless loads would differ by more than a block, and what is missing goes to the
emptiest. Then who owns: the two who hold a block can swap their parts, which moves nothing, until what each PS owns is
even too (owners send values, replicas do not). Last which blocks: those that the same PSs held are interchangeable, so
neighbours go the same way and travel in one message.

Source: DL2 §5 (best-fit). Deviation: it knows one holder of a parameter; the second one is ours.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence

from elastic_runtime.model import partition
from elastic_runtime.model.layout import Layout
from elastic_runtime.model.partition import BlockMove
from elastic_runtime.protocol.plan import ChangeStage, Plan


def assign(layout: Layout, servers: Sequence[str], before: Plan, holders: int) -> Plan:
    """A plan with other holders of the blocks: equal load, and as much as can be stays where it is.

    Args:
        before: who holds them now, lost ones too; without owners: nobody.
        holders: how many each block is to have, 1 or 2; with one server it has one.
    """
    if holders == 1:
        after = partition.assign(layout, servers, dict(enumerate(before.owners)))
        return Plan(before.workers, tuple(after[block.index] for block in layout.blocks))
    previous = {block: before.holders(block) for block in range(len(before.owners))}
    found = assign_holders(layout, servers, previous)
    rows = [found[block.index] for block in layout.blocks]
    replicas = tuple(names[1] if len(names) > 1 else "" for names in rows)
    return Plan(before.workers, tuple(names[0] for names in rows), replicas=replicas if any(replicas) else ())


def stages(
    layout: Layout, named: Plan, before: Plan, after: Plan, workers: tuple[str, ...] | None, budget_bytes: int
) -> tuple[tuple[ChangeStage, ...], int]:
    """What leads from one plan's holders to another's, and how many bytes that moves.

    The moves are cut into portions of at most `budget_bytes`, or one block; the first stage also has the new workers
    (None: they stay), and what moves nothing: holders that swap their parts, or are no longer named.

    Args:
        named: what the stages change, with lost servers.
    """
    moves: list[BlockMove] = []
    moved_bytes = 0
    silent: list[int] = []
    for block in range(len(after.owners)):
        old, new = before.holders(block), after.holders(block)
        coming = [name for name in new if name not in old]
        if coming:
            leaving = [name for name in old if name not in new]
            moves.append(BlockMove(block, (leaving or old)[0], coming[0]))
            moved_bytes += layout.blocks[block].size_bytes * len(coming)
        elif named.holders(block) != new:
            silent.append(block)
    portions = [[move.block for move in portion] for portion in partition.batches(moves, layout, max(budget_bytes, 1))]
    first, *rest = portions or [[]]
    cut = [_stage(named, after, [*silent, *first], workers), *(_stage(named, after, part, None) for part in rest)]
    return tuple(cut), moved_bytes


def _stage(named: Plan, after: Plan, blocks: Sequence[int], workers: tuple[str, ...] | None) -> ChangeStage:
    return ChangeStage(
        {block: after.owners[block] for block in blocks if named.owners[block] != after.owners[block]},
        workers,
        {block: after.replica(block) for block in blocks if named.replica(block) != after.replica(block)},
    )


Holders = Mapping[int, Sequence[str]]
"""Who has each block: its owner first."""


def assign_holders(layout: Layout, ps_ids: Sequence[str], previous: Holders) -> dict[int, tuple[str, ...]]:
    """Give every block an owner and, with two PSs or more, a second holder.

    Args:
        previous: who held which block until now, those that leave or are lost included.

    Returns:
        the owner of each block, then its replica if it has one.

    Raises:
        ValueError: nobody is left to hold blocks.
    """
    staying = sorted(set(ps_ids))
    if not staying:
        raise ValueError("no parameter server is left to own blocks")
    if len(staying) == 1:
        return {block.index: (staying[0],) for block in layout.blocks}
    kept = {block.index: [name for name in previous.get(block.index, ()) if name in staying] for block in layout.blocks}
    copies = _Copies(layout, staying, kept)
    copies.give()
    copies.even_out()
    owners = _owners(layout, staying, copies.of, kept)
    return _neighbours_together(layout, kept, copies.of, owners)


class _Copies:
    def __init__(self, layout: Layout, staying: Sequence[str], kept: Mapping[int, Sequence[str]]) -> None:
        self.of = {block: list(names[:2]) for block, names in kept.items()}
        self._layout, self._staying, self._kept = layout, staying, kept
        self._loads = Counter(dict.fromkeys(staying, 0))
        for block, names in self.of.items():
            for name in names:
                self._loads[name] += layout.blocks[block].size_bytes
        self._largest_bytes = max((block.size_bytes for block in layout.blocks), default=0)

    def give(self) -> None:
        """Give missing copies to the emptiest servers, the largest blocks first.

        Of those that are about as empty to the one that shares least with who has the other copy: what a PS holds is
        then spread over all others, and so is what is to be done when it is lost.
        """
        shared = Counter[frozenset[str]]()
        for index, names in self.of.items():
            shared[frozenset(names)] += self._layout.blocks[index].size_bytes
        for block in sorted(self._layout.blocks, key=lambda block: -block.size_bytes):
            names = self.of[block.index]
            while len(names) < 2:
                others = [name for name in self._staying if name not in names]
                least_bytes = min(self._loads[name] for name in others)
                near = [name for name in others if self._loads[name] - least_bytes <= self._largest_bytes]
                chosen = min(near, key=lambda name: (shared[frozenset((*names, name))], self._load(name)))
                names.append(chosen)
                self._loads[chosen] += block.size_bytes
            shared[frozenset(names)] += block.size_bytes

    def even_out(self) -> None:
        """Move copies from full PSs to empty ones until they differ by at most a largest block, or nothing helps.

        First those that travel anyway. Ends, as every move lowers the sum of squared loads.
        """
        pools: dict[tuple[str, str, bool], dict[int, list[int]]] = defaultdict(lambda: defaultdict(list))
        for block in self.of:
            self._pool(pools, block)
        while (found := self._movable(pools)) is not None:
            full, other, stays, size_bytes, empty = found
            block = pools[full, other, stays][size_bytes].pop()
            if set(self.of[block]) != {full, other}:
                continue  # its other copy has moved since; it stands elsewhere too
            self.of[block] = [other, empty]
            self._loads[full] -= size_bytes
            self._loads[empty] += size_bytes
            self._pool(pools, block)

    def _pool(self, pools: Mapping[tuple[str, str, bool], Mapping[int, list[int]]], block: int) -> None:
        """Note a block's two copies by who has them and who has the other one, and whether they are there already."""
        first, second = self.of[block]
        for name, other in ((first, second), (second, first)):
            pools[name, other, name in self._kept[block]][self._layout.blocks[block].size_bytes].append(block)

    def _movable(
        self, pools: Mapping[tuple[str, str, bool], Mapping[int, list[int]]]
    ) -> tuple[str, str, bool, int, str] | None:
        for full, empty in self._pairs():
            gap_bytes = self._loads[full] - self._loads[empty]
            for stays in (False, True):
                sizes = [
                    (abs(gap_bytes - 2 * size_bytes), other, size_bytes)
                    for other in self._staying
                    if other not in (full, empty)
                    for size_bytes, blocks in pools.get((full, other, stays), {}).items()
                    if blocks and 0 < size_bytes < gap_bytes
                ]
                if sizes:
                    _, other, size_bytes = min(sizes)
                    return full, other, stays, size_bytes, empty
        return None

    def _pairs(self) -> Iterator[tuple[str, str]]:
        """Pairs of PSs of which one has too much, those furthest apart first."""
        by_load = sorted(self._staying, key=self._load)
        return (
            (full, empty)
            for full in reversed(by_load)
            for empty in by_load
            if self._loads[full] - self._loads[empty] > self._largest_bytes
        )

    def _load(self, name: str) -> tuple[int, str]:
        return self._loads[name], name


def _owners(
    layout: Layout, staying: Sequence[str], copies: Mapping[int, Sequence[str]], kept: Mapping[int, Sequence[str]]
) -> dict[int, str]:
    """Owners among those who hold: who owned before, and then swapped as long as that makes loads more equal."""
    loads = Counter(dict.fromkeys(staying, 0))
    owners: dict[int, str] = {}
    for block in layout.blocks:
        names = copies[block.index]
        owners[block.index] = next((name for name in kept[block.index] if name in names), names[0])
        loads[owners[block.index]] += block.size_bytes
    largest_bytes = max((block.size_bytes for block in layout.blocks), default=0)
    swapped = max(loads.values()) - min(loads.values()) > largest_bytes
    while swapped:  # ends, as every swap lowers the sum of squared loads
        swapped = False
        for block in layout.blocks:
            owner, size_bytes = owners[block.index], block.size_bytes
            other = next(name for name in copies[block.index] if name != owner)
            if loads[owner] - loads[other] > size_bytes > 0:
                loads[owner] -= size_bytes
                loads[other] += size_bytes
                owners[block.index], swapped = other, True
    return owners


def _neighbours_together(
    layout: Layout,
    kept: Mapping[int, Sequence[str]],
    copies: Mapping[int, Sequence[str]],
    owners: Mapping[int, str],
) -> dict[int, tuple[str, ...]]:
    """Deal out anew blocks of one size that the same PSs held: first the staying ones, then in rows."""
    alike: dict[tuple[int, tuple[str, ...]], list[int]] = defaultdict(list)
    for block in layout.blocks:
        alike[block.size_bytes, tuple(kept[block.index])].append(block.index)
    result: dict[int, tuple[str, ...]] = {}
    for (_, before), blocks in alike.items():
        found = [(owners[block], *(name for name in copies[block] if name != owners[block])) for block in blocks]
        found.sort(key=lambda holders: (holders != before, holders))
        result.update(zip(blocks, found, strict=True))
    return dict(sorted(result.items()))
