"""How late updates were: a histogram over their staleness, by cluster."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Any

MOST_BINS = 33
"""Bars that find room beside each other, also on a telephone."""


def staleness_histogram(counts: Mapping[str, Mapping[int, int]], of: str) -> dict[str, Any] | None:
    """Bars of equal width in head steps, from 0 to the oldest; None without updates.

    Args:
        counts: cluster to staleness to updates.
        of: which updates these are, for the caption.
    """
    every: Counter[int] = Counter()
    for by_staleness in counts.values():
        every.update(dict(by_staleness))
    total = every.total()
    if not total:
        return None
    oldest = max(steps for steps, count in every.items() if count)
    width = oldest // MOST_BINS + 1
    bins = [
        {
            "from": first,
            "to": first + width - 1,
            "by": {
                cluster: count
                for cluster, by_staleness in sorted(counts.items())
                if (count := sum(n for steps, n in by_staleness.items() if first <= steps < first + width))
            },
        }
        for first in range(0, oldest + 1, width)
    ]
    return {
        "of": of,
        "total": total,
        "oldest": oldest,
        "median": _median(every, total),
        "clusters": sorted(cluster for cluster, by_staleness in counts.items() if any(by_staleness.values())),
        "bins": bins,
    }


def _median(every: Counter[int], total: int) -> int:
    passed = 0
    for steps in sorted(every):
        passed += every[steps]
        if 2 * passed >= total:
            return steps
    raise AssertionError("there are updates, so one of them is in the middle")
