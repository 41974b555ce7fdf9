"""Bounds of what a version may say of speeds, against the version before and against the one that was shipped.

Merging takes out what contradicts the others (see `fleet_priors`); where a type has one reporter, there are no others.
So a prior moves further than a little only as far as a second cluster tells of as much: of the offsets that clusters
report against the version before, the second largest counts, upwards and downwards. And never further from the first
version's priors than generations of machines lie apart. A move back towards the first version is always free.

For a type that the first version does not know, what enough clusters last bore out takes its place (see `held_to`). Of
a type on which no two ever agreed nobody can say what is true in the long run: only the step from one version to the
next is bounded.

Deviation: this is no estimator but a guard; where at least two clusters agree it changes nothing.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from policy_net.exchange.statistics import CLUSTER_COUNT, SpeedStatistic
from policy_net.throughput.fleet_priors import FARTHEST_SCALE, by_type, weighted_median
from policy_net.throughput.process_prior import predicted_by_type

ALONE = math.log(1.25)
"""How far a version may move a log speed from the version before without a second cluster that says so: as much as
clusters' own observations differ by anyway."""
ALONE_IN_ALL = math.log(2.0)
"""How far that may go against the first version, however many versions are made; of a type that it does not know,
against what enough clusters agreed on last."""
LARGEST_MOVE = FARTHEST_SCALE
"""From one version to the next, however many clusters agree."""
FARTHEST = math.log(64.0)
"""From the first version, however many agree: twenty years of GPUs."""
_UNSEEN_DEVIATIONS = 2.0
"""A cell that the version before does not have may lie so far from what its other cells let expect."""

Split = tuple[int, int]
Rows = Sequence[SpeedStatistic]


@dataclass(frozen=True, slots=True)
class Bounded:
    """Priors within the bounds; `held_back` are types of which the reports would have moved something further."""

    statistics: tuple[SpeedStatistic, ...]
    held_back: tuple[str, ...] = ()


def bounded(
    merged: Rows,
    reports: Mapping[str, Rows],
    before: Rows,
    first: Rows,
    large_move_clusters: int,
    agreed: Mapping[str, Rows] | None = None,
) -> Bounded:
    """What was merged, held to what the version before and the first one said.

    Args:
        merged: what the clusters' reports came to.
        reports: by cluster, those that had a part in it.
        before: the priors of the newest version, and of the last one to speak of a type on which it is silent.
        first: those of the first version.
        large_move_clusters: so many clusters have to report a large move.
        agreed: by type, what so many clusters agreed on last; stands for the first version where that says nothing.
    """
    agreed = agreed or {}
    of_before, of_first = by_type(before), by_type(first)
    reported: dict[str, list[Rows]] = {}
    for entries in reports.values():
        for job_type, rows in by_type(entries).items():
            reported.setdefault(job_type, []).append(rows)
    statistics: list[SpeedStatistic] = []
    held_back = []
    for job_type, rows in by_type(merged).items():
        anchor = agreed.get(job_type, ())
        old: Rows = of_before.get(job_type) or anchor
        told = [entries for entries in reported.get(job_type, ()) if entries[0].kind is rows[0].kind]
        if not old:
            statistics += rows  # nobody said anything of it before
            continue
        if len(told) < large_move_clusters and old[0].kind is not rows[0].kind:
            kept: Rows = old
        else:
            kept = _held(rows, told, old, of_first.get(job_type, []), anchor, large_move_clusters)
        if job_type not in of_before:
            # What was agreed on may have been taken back since: it bounds what is told now, and is not told itself.
            splits = {(entry.kind, entry.ps, entry.workers) for entry in rows}
            kept = [entry for entry in kept if (entry.kind, entry.ps, entry.workers) in splits]
        if kept != rows:
            held_back.append(job_type)
        statistics += kept
    statistics.sort(key=lambda entry: (entry.job_type, entry.ps, entry.workers))
    return Bounded(tuple(statistics), tuple(held_back))


def _held(rows: Rows, told: Sequence[Rows], old: Rows, first: Rows, agreed: Rows, enough: int) -> list[SpeedStatistic]:
    """One type's rows within the bounds."""
    if old[0].kind is not rows[0].kind:
        return list(rows)  # enough clusters say that it is another kind of job
    before = _Said(old)
    kind = rows[0].kind
    # What is agreed on follows those who agree, so it says nothing of how far they may go.
    anchor, farthest = (first, FARTHEST) if first and first[0].kind is kind else (agreed, math.inf)
    shipped = _Said(anchor) if anchor and anchor[0].kind is kind else None
    of_type = _supported([before.offset(entries) for entries in told], enough)
    of_type_in_all = _supported([] if shipped is None else [shipped.offset(entries) for entries in told], enough)
    of_cell: dict[Split, list[float]] = {}
    for entries in told:
        for entry in entries:
            of_cell.setdefault((entry.ps, entry.workers), []).append(entry.mean_log_speed)
    held = []
    for entry in rows:
        cell = (entry.ps, entry.workers)
        speeds = of_cell.get(cell, [])
        moved = _supported([reported_it - before.mean(cell) for reported_it in speeds], enough)
        low, high = before.range(cell, of_type, moved, ALONE, LARGEST_MOVE)
        speed = entry.mean_log_speed
        if shipped is not None:
            moved = _supported([reported_it - shipped.mean(cell) for reported_it in speeds], enough)
            lowest, highest = shipped.range(cell, of_type_in_all, moved, ALONE_IN_ALL, farthest)
            speed = min(max(speed, lowest), highest)
            low, high = min(low, shipped.mean(cell)), max(high, shipped.mean(cell))
        speed = min(max(speed, low), high)
        held.append(entry if speed == entry.mean_log_speed else replace(entry, mean_log_speed=speed))
    if len(told) < enough:
        # One cluster's word does not take away what is known of splits that it has not seen.
        seen = {(entry.ps, entry.workers) for entry in rows}
        held += [replace(e, count=min(e.count, CLUSTER_COUNT)) for e in old if (e.ps, e.workers) not in seen]
        held.sort(key=lambda entry: (entry.ps, entry.workers))
    return held


class _Said:
    """What a version said of one type, and what it lets expect of the splits that it did not mention."""

    def __init__(self, rows: Rows) -> None:
        self._cells = {(entry.ps, entry.workers): entry.mean_log_speed for entry in rows}
        self._expected = predicted_by_type(tuple(rows))

    def mean(self, cell: Split) -> float:
        """The log speed of a split."""
        return self._cells[cell] if cell in self._cells else self._expected[cell][0]

    def range(
        self, cell: Split, of_type: tuple[float, float], of_cell: tuple[float, float], alone: float, most: float
    ) -> tuple[float, float]:
        """Where a split's log speed may be, with what enough clusters say of the type and of the split."""
        slack = alone if cell in self._cells else alone + _UNSEEN_DEVIATIONS * self._expected[cell][1]
        down, up = min(of_type[0], of_cell[0]) - slack, max(of_type[1], of_cell[1]) + slack
        mean = self.mean(cell)
        return mean + max(down, -most), mean + min(up, most)

    def offset(self, entries: Rows) -> float:
        """How much faster a cluster's report is than this, in log speed: the median over its splits."""
        gaps = np.array([entry.mean_log_speed - self.mean((entry.ps, entry.workers)) for entry in entries])
        counts = np.array([min(entry.count, CLUSTER_COUNT) for entry in entries], dtype=np.float64)
        return weighted_median(gaps, counts)


def _supported(offsets: Iterable[float], enough: int) -> tuple[float, float]:
    """How far down and up enough clusters say that it goes: (at most 0, at least 0)."""
    ordered = sorted(offsets)
    if len(ordered) < enough:
        return 0.0, 0.0
    return min(0.0, ordered[enough - 1]), max(0.0, ordered[-enough])
