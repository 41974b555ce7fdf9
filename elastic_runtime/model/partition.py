"""The assignment of blocks to parameter servers: equal load, least movement; and the order in which blocks move.

Loads are equal if the fullest PS has at most one largest block more than the emptiest. First *how many* blocks of each
size every PS gives and gets is decided, then *which*: most blocks of a model have one size, so that this loses nothing
and leaves the choice to keep neighbours together, which later travel in one message.

Source: DL2 §5 (best-fit: equal load, least movement). Deviation: blocks instead of whole parameters, several PSs added
and removed at once, and no more is moved than makes loads equal in the above sense: the least in nearly all cases (see
`movement_bound` of the resize benchmark), not provably.
"""

from __future__ import annotations

import heapq
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from elastic_runtime.model.layout import Layout

Assignment = Mapping[int, str]
"""The id of the PS that owns each block, by the block's index."""

_MOST_BLOCKS_REFINED = 2000
"""Beyond this a needless move is less than a thousandth of a PS's load, and looking for it costs more than it saves."""


@dataclass(frozen=True, slots=True)
class BlockMove:
    """One block that leaves a PS for another."""

    block: int
    source: str
    target: str


@dataclass(slots=True)
class _Server:
    """A PS while loads are being evened out; blocks are counted by size, as it does not matter yet which they are."""

    id: str
    keeps: Counter[int] = field(default_factory=Counter)
    gives: Counter[int] = field(default_factory=Counter)
    gets: Counter[int] = field(default_factory=Counter)
    load_bytes: int = 0


def assign(layout: Layout, ps_ids: Sequence[str], previous: Assignment | None = None) -> dict[int, str]:
    """Give every block an owner.

    Args:
        ps_ids: the PSs that may own blocks, new ones too; their order does not matter.
        previous: who owned which block until now; a block that it does not name is free to go anywhere.

    Returns:
        the owner of each block; `previous` if that is already even over exactly these PSs.

    Raises:
        ValueError: nobody is left to own blocks, or `previous` names a block that is not in the layout.
    """
    staying = sorted(set(ps_ids))
    previous = previous or {}
    if not staying:
        raise ValueError("no parameter server is left to own blocks")
    if previous and not 0 <= min(previous) <= max(previous) < len(layout.blocks):
        raise ValueError(f"blocks of another model: {max(previous)} of {len(layout.blocks)}")
    servers = {ps: _Server(ps) for ps in staying}
    orphans: Counter[int] = Counter()
    for block in layout.blocks:
        owner = servers.get(previous.get(block.index, ""))
        if owner is None:
            orphans[block.size_bytes] += 1
        else:
            owner.keeps[block.size_bytes] += 1
            owner.load_bytes += block.size_bytes
    largest_bytes = max((block.size_bytes for block in layout.blocks), default=0)
    for size_bytes in sorted(orphans.elements(), reverse=True):
        _give(size_bytes, None, min(servers.values(), key=_emptiest))
    _even_out(servers, largest_bytes)
    if len(layout.blocks) <= _MOST_BLOCKS_REFINED:
        _move_less(servers, largest_bytes)
    return _choose(layout, previous, servers)


def batches(moves: Iterable[BlockMove], layout: Layout, budget_bytes: int) -> list[list[BlockMove]]:
    """Cut moves into batches that follow each other, one for each step of a rolling migration.

    Every pair of source and target advances in proportion to what it has to send, so that in each batch as many PSs
    send, and receive, as can. What one pair sends is in the order of blocks: neighbours stay neighbours.

    Args:
        budget_bytes: most bytes of a batch; a block that is larger goes alone.
    """
    pairs: dict[tuple[str, str], list[BlockMove]] = {}
    for move in sorted(moves, key=lambda move: move.block):
        pairs.setdefault((move.source, move.target), []).append(move)
    progress: list[tuple[float, str, str, BlockMove]] = []
    for (source, target), queue in pairs.items():
        sizes = [layout.blocks[move.block].size_bytes for move in queue]
        total_bytes, sent_bytes = sum(sizes), 0
        for move, size_bytes in zip(queue, sizes, strict=True):
            progress.append(((sent_bytes + size_bytes / 2) / total_bytes, source, target, move))
            sent_bytes += size_bytes
    result: list[list[BlockMove]] = []
    free_bytes = 0
    for _, _, _, move in sorted(progress, key=lambda entry: (*entry[:3], entry[3].block)):
        size_bytes = layout.blocks[move.block].size_bytes
        if not result or size_bytes > free_bytes:
            result.append([])
            free_bytes = budget_bytes
        result[-1].append(move)
        free_bytes -= size_bytes
    return result


def _emptiest(server: _Server) -> tuple[int, str]:
    return (server.load_bytes, server.id)


def _give(size_bytes: int, source: _Server | None, target: _Server) -> None:
    """Hand over a block of this size; first of those that the source itself only gets, as they travel anyway."""
    if source is not None:
        source.load_bytes -= size_bytes
        if source.gets[size_bytes]:
            source.gets[size_bytes] -= 1
        else:
            source.keeps[size_bytes] -= 1
            source.gives[size_bytes] += 1
    target.load_bytes += size_bytes
    if target.gives[size_bytes]:
        target.gives[size_bytes] -= 1
        target.keeps[size_bytes] += 1
    else:
        target.gets[size_bytes] += 1


def _even_out(servers: Mapping[str, _Server], largest_bytes: int) -> None:
    """Move blocks from the fullest PS to the emptiest until they differ by at most a largest block.

    Ends, as every move lowers the sum of squared loads: a block is smaller than the gap that it crosses.
    """
    while True:
        fullest = max(servers.values(), key=_emptiest)
        emptiest = min(servers.values(), key=_emptiest)
        gap_bytes = fullest.load_bytes - emptiest.load_bytes
        if gap_bytes <= largest_bytes:
            return
        # The smallest block that closes the gap, or else the largest: one that travels anyway if there is any.
        for sizes_there in (fullest.gets, fullest.keeps):
            sizes = sorted(size for size, count in sizes_there.items() if count)
            if sizes:
                closing = (size for size in sizes if 2 * size >= gap_bytes - largest_bytes)
                _give(next(closing, sizes[-1]), fullest, emptiest)
                break


def _move_less(servers: Mapping[str, _Server], largest_bytes: int) -> None:
    """Undo needless moves: a block stays where it was, perhaps for a smaller one, if loads can be even nevertheless.

    What travels anyway costs nothing to redirect, so each try deals all of it out anew.
    """
    while any(
        _kept_instead(server, size_bytes, servers, largest_bytes)
        for server in sorted(servers.values(), key=lambda server: server.id)
        for size_bytes in sorted(+server.gives, reverse=True)
    ):
        pass  # ends, as every time less moves than before


def _kept_instead(giver: _Server, size_bytes: int, servers: Mapping[str, _Server], largest_bytes: int) -> bool:
    """Let a giver keep a block if loads can still be even, alone or for a smaller one; whether it did."""
    travelling = sum((server.gets for server in servers.values()), Counter[int]())
    kept_bytes = {server.id: server.load_bytes - _bytes(server.gets) for server in servers.values()}
    smaller: list[int | None] = [None, *sorted(size for size in +giver.keeps if size < size_bytes)]
    for instead_bytes in smaller:
        instead = Counter() if instead_bytes is None else Counter([instead_bytes])
        kept_bytes[giver.id] = giver.load_bytes - _bytes(giver.gets) + size_bytes - _bytes(instead)
        dealt = _dealt(travelling - Counter([size_bytes]) + instead, kept_bytes)
        loads = [kept_bytes[ps] + _bytes(gets) for ps, gets in dealt.items()]
        if max(loads) - min(loads) <= largest_bytes:
            giver.keeps = giver.keeps + Counter([size_bytes]) - instead
            giver.gives = giver.gives - Counter([size_bytes]) + instead
            for ps, gets in dealt.items():
                _receive(servers[ps], gets, kept_bytes[ps] + _bytes(gets))
            return True
    return False


def _dealt(travelling: Counter[int], kept_bytes: Mapping[str, int]) -> dict[str, Counter[int]]:
    """Deal blocks out, the largest first, each to the server with the least load."""
    heap = [(load_bytes, ps) for ps, load_bytes in kept_bytes.items()]
    heapq.heapify(heap)
    dealt: dict[str, Counter[int]] = {ps: Counter() for ps in kept_bytes}
    for size_bytes in sorted((+travelling).elements(), reverse=True):
        load_bytes, ps = heap[0]
        dealt[ps][size_bytes] += 1
        heapq.heapreplace(heap, (load_bytes + size_bytes, ps))
    return dealt


def _receive(server: _Server, gets: Counter[int], load_bytes: int) -> None:
    """Note the blocks that a PS gets; of a size that it also gives, it keeps its own instead."""
    stays = gets & server.gives
    server.keeps += stays
    server.gives -= stays
    server.gets = gets - stays
    server.load_bytes = load_bytes


def _bytes(sizes: Counter[int]) -> int:
    return sum(size_bytes * count for size_bytes, count in sizes.items())


def _choose(layout: Layout, previous: Assignment, servers: Mapping[str, _Server]) -> dict[int, str]:
    """Which blocks go where, now that it is known how many: a giver's last ones, to each getter its share in a row."""
    assignment: dict[int, str] = {}
    free: dict[int, list[int]] = {}
    giving = {server.id: server.gives.copy() for server in servers.values()}
    for block in reversed(layout.blocks):
        owner, size_bytes = previous.get(block.index, ""), block.size_bytes
        if owner in servers and not giving[owner][size_bytes]:
            assignment[block.index] = owner
            continue
        if owner in servers:
            giving[owner][size_bytes] -= 1
        free.setdefault(size_bytes, []).append(block.index)
    middles = {server.id: _middle(assignment, server.id) for server in servers.values()}
    getters = sorted(servers.values(), key=lambda server: (middles[server.id], server.id))
    for size_bytes, indices in free.items():
        indices.reverse()
        start = 0
        for getter in getters:
            stop = start + getter.gets[size_bytes]
            assignment.update(dict.fromkeys(indices[start:stop], getter.id))
            start = stop
    return dict(sorted(assignment.items()))


def _middle(assignment: Assignment, ps: str) -> float:
    """Where in the model a PS's blocks lie; one that has none yet comes after all."""
    owned = [index for index, owner in assignment.items() if owner == ps]
    return sum(owned) / len(owned) if owned else float("inf")
