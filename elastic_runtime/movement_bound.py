"""How little can be moved: a bound from below on the bytes of any even assignment, to judge the one that was chosen.

Computed from loads alone and without a line of the assignment's own code. Suppose that afterwards the emptiest PS has m
bytes; then no PS has more than m and a largest block. Whoever has more now must give the excess, rounded up to what his
blocks add up to; whoever leaves gives all; whoever has less than m must get the rest, rounded up likewise. The larger
of the two sums is moved at least. As m grows, the first falls and the second rises: where they meet is the bound.

Source: DL2 §5 asks for least movement and states no bound; this one is ours.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping

from elastic_runtime.layout import Layout


def minimum_bytes(layout: Layout, old: Mapping[int, str], ps_ids_after: Iterable[str]) -> int:
    """Bytes that any change moves at least, from `old` to an assignment that is even over `ps_ids_after`.

    Even: the fullest PS has at most one largest block more than the emptiest. Blocks without an old owner are free.
    """
    owned: dict[str, Counter[int]] = {ps: Counter() for ps in ps_ids_after}
    leaving_bytes = free_bytes = 0
    for block in layout.blocks:
        owner = old.get(block.index)
        if owner is None:
            free_bytes += block.size_bytes
        elif owner in owned:
            owned[owner][block.size_bytes] += 1
        else:
            leaving_bytes += block.size_bytes
    largest_bytes = max((block.size_bytes for block in layout.blocks), default=0)
    sums = {ps: _Sums(sizes, layout.block_bytes) for ps, sizes in owned.items()}
    loads = {ps: sums[ps].total_bytes for ps in owned}
    all_sums = _Sums(Counter(block.size_bytes for block in layout.blocks), layout.block_bytes)

    def given(emptiest_bytes: int) -> int:
        most_bytes = emptiest_bytes + largest_bytes
        return leaving_bytes + sum(sums[ps].at_least(load - most_bytes) for ps, load in loads.items())

    def got(emptiest_bytes: int) -> int:
        return sum(all_sums.at_least(emptiest_bytes - load) for load in loads.values()) - free_bytes

    mean_bytes = layout.total_bytes // len(loads)
    low, high = max(0, mean_bytes - largest_bytes), mean_bytes
    first = low
    while low < high:
        middle = (low + high) // 2
        if got(middle) >= given(middle):
            high = middle
        else:
            low = middle + 1
    candidates = [max(given(at), got(at)) for at in (low - 1, low) if at >= first]
    return min(candidates)


class _Sums:
    """What some of these blocks can add up to; all but the last ones of segments have the same size."""

    def __init__(self, sizes: Counter[int], full_bytes: int) -> None:
        self.total_bytes = sizes.total() and sum(size * count for size, count in sizes.items())
        self._full_bytes = full_bytes
        self._full_most = sizes[full_bytes] * full_bytes
        rest = {0}
        for size, count in sizes.items():
            for _ in range(count if size != full_bytes else 0):
                rest |= {some + size for some in rest}
        self._rest = sorted(rest)

    def at_least(self, wanted_bytes: int) -> int:
        """The smallest sum that is not below this; all of them if none is."""
        best = self.total_bytes
        for rest in self._rest:
            full = -(-max(0, wanted_bytes - rest) // self._full_bytes) * self._full_bytes
            if full <= self._full_most:
                best = min(best, rest + full)
        return best if wanted_bytes > 0 else 0
