"""Bounds of what a version may say of speeds, against the version before and against the one that was shipped.

Merging takes out what contradicts the others (see `fleet_priors`); where a type has one reporter, there are no others.
So a prior moves further than a little only as far as a second cluster tells of as much: of the offsets that clusters
report against the version before, the second largest counts, upwards and downwards. And never further from the first
version's priors than generations of machines lie apart. A move back towards the first version is always free.

For a type that the first version does not know, what enough clusters last bore out takes its place (see
`BeliefStandard`). Of a type on which no two ever agreed nobody can say what is true in the long run: only the step from
one version to the next is bounded.

Deviation: this is no estimator but a guard; where at least two clusters agree it changes nothing.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from policy_net.domain import JobKind
from policy_net.exchange.statistics import CLUSTER_COUNT, SpeedStatistic
from policy_net.throughput.fleet_priors import FARTHEST_SCALE, MOST_REPORTERS, by_type, weighted_median
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

FARTHEST_AGREED = FARTHEST_SCALE / 2
"""How far reports may be from what they agree on where nothing is agreed on yet: as the middle of two whose GPUs lie
generations apart."""

Split = tuple[int, int]
Rows = Sequence[SpeedStatistic]
Types = Mapping[str, Rows]


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
        reports_of_kind = [entries for entries in reported.get(job_type, ()) if entries[0].kind is rows[0].kind]
        if not old:
            statistics += rows  # nobody said anything of it before
            continue
        if len(reports_of_kind) < large_move_clusters and old[0].kind is not rows[0].kind:
            kept: Rows = old
        else:
            kept = _limited(rows, reports_of_kind, old, of_first.get(job_type, []), anchor, large_move_clusters)
        if job_type not in of_before:
            # What was agreed on may have been taken back since: it bounds what is told now, and is not told itself.
            splits = {(entry.kind, entry.ps, entry.workers) for entry in rows}
            kept = [entry for entry in kept if (entry.kind, entry.ps, entry.workers) in splits]
        if kept != rows:
            held_back.append(job_type)
        statistics += kept
    statistics.sort(key=lambda entry: (entry.job_type, entry.ps, entry.workers))
    return Bounded(tuple(statistics), tuple(held_back))


def _limited(
    rows: Rows, reports: Sequence[Rows], old: Rows, first: Rows, agreed: Rows, enough: int
) -> list[SpeedStatistic]:
    if old[0].kind is not rows[0].kind:
        return list(rows)  # enough clusters say that it is another kind of job
    before = _SpeedsOfType(old)
    kind = rows[0].kind
    # What is agreed on follows those who agree, so it says nothing of how far they may go.
    anchor, farthest = (first, FARTHEST) if first and first[0].kind is kind else (agreed, math.inf)
    shipped = _SpeedsOfType(anchor) if anchor and anchor[0].kind is kind else None
    of_type = _supported([before.offset(entries) for entries in reports], enough)
    of_type_in_all = _supported([] if shipped is None else [shipped.offset(entries) for entries in reports], enough)
    of_cell: dict[Split, list[float]] = {}
    for entries in reports:
        for entry in entries:
            of_cell.setdefault((entry.ps, entry.workers), []).append(entry.mean_log_speed)
    limited = []
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
        limited.append(entry if speed == entry.mean_log_speed else replace(entry, mean_log_speed=speed))
    if len(reports) < enough:
        # One cluster's word does not take away what is known of splits that it has not seen.
        seen = {(entry.ps, entry.workers) for entry in rows}
        limited += [replace(e, count=min(e.count, CLUSTER_COUNT)) for e in old if (e.ps, e.workers) not in seen]
        limited.sort(key=lambda entry: (entry.ps, entry.workers))
    return limited


class _SpeedsOfType:
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


# References for new versions beside the newest and the first: the last word on types that the newest is silent on, and
# what several clusters agreed on. Both are of types that v1 does not know; of the others v1 speaks at all times.
# Nothing of it goes into a version.


@dataclass(frozen=True, slots=True)
class BeliefStandard:
    """By job type.

    Attributes:
        silenced: what the last version to speak of it said, where the newest is silent though a cluster tells of it.
        agreed: what the last version said that enough clusters bore out within a quarter, of the splits that they had
            seen; before there was any, the first that was within `FARTHEST_AGREED` of enough.
    """

    silenced: Types = field(default_factory=dict)
    agreed: Types = field(default_factory=dict)

    def after(
        self, newest: Types, reports: Sequence[Types], first: Collection[tuple[str, JobKind]], enough: int
    ) -> BeliefStandard:
        """What counts once `newest` is out; only published versions count, so it may be called at any time.

        Args:
            newest: what the newest version says, by type.
            reports: what the clusters tell now, one a cluster, by type.
            first: types with the kinds that v1 gives them.
            enough: so many clusters have to bear out what is agreed on.
        """
        reported: dict[str, list[Rows]] = {}
        for report in reports:
            for job_type, rows in report.items():
                reported.setdefault(job_type, []).append(rows)
        agreed = dict(self.agreed)
        for job_type, rows in newest.items():
            of_type = reported.get(job_type, [])
            if (job_type, rows[0].kind) in first or len(of_type) < enough:
                continue
            of_type = of_type[:: -(-len(of_type) // MOST_REPORTERS)]
            stands = job_type in agreed and agreed[job_type][0].kind is rows[0].kind
            for within in (ALONE,) if stands else (ALONE, FARTHEST_AGREED):
                agreeing = [entries for entries in of_type if bears_out(entries, rows, within)]
                seen = Counter((entry.ps, entry.workers) for entries in agreeing for entry in entries)
                if firm := [entry for entry in rows if seen[entry.ps, entry.workers] >= enough]:
                    agreed[job_type] = firm
                    break
        silenced = {job_type: rows for job_type, rows in {**self.silenced, **newest}.items() if job_type in reported}
        return BeliefStandard(silenced, agreed)

    def without(self, out: Sequence[Types], reports: Sequence[Types]) -> BeliefStandard:
        """Less what nobody bears out but clusters that were turned out, whose reports are `out`."""

        def stands(job_type: str, rows: Rows) -> bool:
            theirs = any(bears_out(report.get(job_type, ()), rows) for report in out)
            return not theirs or any(bears_out(report.get(job_type, ()), rows) for report in reports)

        return BeliefStandard(
            {job_type: rows for job_type, rows in self.silenced.items() if stands(job_type, rows)},
            {job_type: rows for job_type, rows in self.agreed.items() if stands(job_type, rows)},
        )

    def needed(self, newest: Collection[str], next_one: Collection[str]) -> BeliefStandard:
        """Less what the newest version says itself, as long as the next one speaks of these types too."""
        spoken = set(newest) & set(next_one)
        silenced = {job_type: rows for job_type, rows in self.silenced.items() if job_type not in spoken}
        return BeliefStandard(silenced, self.agreed)


def bears_out(reported: Rows, rows: Rows, within: float = ALONE) -> bool:
    """Whether a report on a type says what a version says, by the median of their common splits, in log speed."""
    if not reported or reported[0].kind is not rows[0].kind:
        return False
    speeds = {(entry.ps, entry.workers): entry.mean_log_speed for entry in rows}
    common = [entry for entry in reported if (entry.ps, entry.workers) in speeds]
    if not common:
        return False
    gaps = np.array([entry.mean_log_speed - speeds[entry.ps, entry.workers] for entry in common])
    counts = np.array([min(entry.count, CLUSTER_COUNT) for entry in common], dtype=np.float64)
    return abs(weighted_median(gaps, counts)) <= within
