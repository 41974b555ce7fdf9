"""Beliefs of a fleet about speeds: the statistics of many clusters, merged so that none of them can spoil the outcome.

Per job type, every cell (PSs, workers) has a level, and every cluster a scale: the same model runs at another speed on
other GPUs, in the same proportions. Both are weighted medians of what is left of the reports without the other, over
and over (median polish, Tukey 1977). A cluster that contradicts most of the others, in its proportions or by an absurd
scale, is left out of that type; where that would be half of them, the type is withheld. What remains of noise is
averaged, every report held to three standard deviations of its cell's level; a cell on which the reports have no middle
is left out. A cluster counts as at most `CLUSTER_COUNT` observations of a cell, so that an agent can take its own share
out of a prior again (`GaussianProcessBeliefs.leave_out_own`).
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from policy_net.domain import JobKind
from policy_net.exchange.statistics import CLUSTER_COUNT, LARGEST_LOG_SPEED, SpeedStatistic
from policy_net.throughput.process_prior import predicted_by_type
from policy_net.throughput.type_belief import NOISE

Array = NDArray[np.float64]
Split = tuple[int, int]

MOST_COUNT = 64
"""A prior's cell counts as at most so many observations: 3% of error, which is what clusters differ by anyway."""
FARTHEST_SCALE = math.log(8.0)
"""A cluster is at most this much faster or slower than the fleet: generations of GPUs lie within it."""
ODD_DEVIATIONS = 3.0
"""Two clusters' proportions are not the same if their common cells differ by a median of so many standard deviations;
noise leaves 0.7."""
ODD_SHAPE = 0.4
"""Median deviation, in log speed, beyond which the first version's proportions are not the fleet's."""
MOST_REPORTERS = 128
"""Of a type; of more, one in so many counts, by name. Enough to fill any cell, and a merge takes a second or two."""
MOST_PEERS = 32
"""A cluster is compared with at most about twice so many others."""
CELL_DEVIATION = 0.1
"""Of the log of a cell's speed between clusters, beside the scale."""
ENOUGH_CLUSTERS = 3
"""From so many reporters of a type on, a cell that only one of them saw must agree with what the others' cells say."""
_ROUNDS = 20
_CONVERGED = 1e-3
"""Scales that move by less than 0.1% are as good as found."""
_DEVIATIONS = 3.0


@dataclass(frozen=True, slots=True)
class FleetPriors:
    """The outcome.

    Attributes:
        statistics: one a type and cell, sorted.
        observations: intervals behind those clusters' reports.
        withheld: types on which the clusters contradict one another.
        left_out: (cluster, type) of reports that contradict the others'.
    """

    statistics: tuple[SpeedStatistic, ...]
    clusters: int = 0
    observations: int = 0
    withheld: tuple[str, ...] = ()
    left_out: tuple[tuple[str, str], ...] = ()


def merge_fleet(
    reports: Mapping[str, Sequence[SpeedStatistic]],
    base: Sequence[SpeedStatistic] = (),
    least_clusters: int = 1,
    before: Sequence[SpeedStatistic] = (),
) -> FleetPriors:
    """Merge what clusters have seen.

    Args:
        reports: by cluster; no cell twice in one report.
        base: what stood in the first policy file: shifted to the fleet's scale it fills the cells that no cluster saw.
        least_clusters: types that fewer have reported stay as they are in `base`.
        before: what the newest version says: its kind of a type stands where as many clusters say one as another.
    """
    kinds = _kinds(reports, base, before)
    statistics: list[SpeedStatistic] = []
    withheld, left_out, clusters, observations = [], [], set(), 0
    base_of = by_type(base)
    for job_type, kind in sorted(kinds.items()):
        of_type = {
            cluster: rows
            for cluster, entries in sorted(reports.items())
            if (rows := [entry for entry in entries if entry.job_type == job_type and entry.kind is kind])
        }
        fallback = base_of.pop(job_type, [])
        if kind is None:
            withheld.append(job_type)
            statistics += fallback
            continue
        if len(of_type) < least_clusters:
            statistics += fallback
            continue
        step = -(-len(of_type) // MOST_REPORTERS)
        of_type = dict(list(of_type.items())[::step])
        table = _Table(of_type)
        odd = table.odd_ones()
        if odd and 2 * len(odd) >= len(of_type):
            withheld.append(job_type)
            statistics += fallback
            continue
        if odd:
            left_out += [(cluster, job_type) for cluster in odd]
            of_type = {cluster: rows for cluster, rows in of_type.items() if cluster not in odd}
            table = _Table(of_type)
        merged = table.merged(job_type, kind)
        clusters |= set(of_type)
        observations += sum(entry.count for rows in of_type.values() for entry in rows)
        statistics += _filled(merged, fallback)
    for rest in base_of.values():
        statistics += rest
    statistics.sort(key=lambda entry: (entry.job_type, entry.ps, entry.workers))
    return FleetPriors(tuple(statistics), len(clusters), observations, tuple(withheld), tuple(left_out))


class _Table:
    """One type's reports as arrays: C clusters by I cells, NaN where a cluster has not seen a cell."""

    def __init__(self, reports: Mapping[str, Sequence[SpeedStatistic]]) -> None:
        self._clusters = list(reports)
        self._cells: list[Split] = sorted({(entry.ps, entry.workers) for rows in reports.values() for entry in rows})
        column = {cell: index for index, cell in enumerate(self._cells)}
        shape = (len(self._clusters), len(self._cells))
        self._speeds_CI, self._counts_CI = np.full(shape, np.nan), np.zeros(shape)
        for row, entries in enumerate(reports.values()):
            for entry in entries:
                index = column[entry.ps, entry.workers]
                self._speeds_CI[row, index] = entry.mean_log_speed
                self._counts_CI[row, index] = min(entry.count, CLUSTER_COUNT)
        self._reporters_I = (self._counts_CI > 0).sum(axis=0)
        self._scales_C, self._levels_I = self._polished()

    def odd_ones(self) -> list[str]:
        """Clusters that contradict more than half of those that have seen some of the same cells."""
        variances = np.where(self._counts_CI > 0, NOISE**2 / np.maximum(self._counts_CI, 1) + CELL_DEVIATION**2, np.nan)
        return [cluster for row, cluster in enumerate(self._clusters) if self._contradicts_most(row, variances)]

    def _contradicts_most(self, row: int, variances_CI: Array) -> bool:
        others = np.delete(np.arange(len(self._clusters)), row)
        others = others[:: max(1, len(others) // MOST_PEERS)]
        common_PI = (self._counts_CI[others] > 0) & (self._counts_CI[row] > 0)
        comparable = others[common_PI.any(axis=1)]
        if not len(comparable):
            return False
        gaps_PI = self._speeds_CI[comparable] - self._speeds_CI[row]
        scales_P = row_medians(gaps_PI)
        expected_PI = np.sqrt(variances_CI[comparable] + variances_CI[row])
        shapes_P = row_medians(np.abs(gaps_PI - scales_P[:, None]) / expected_PI)
        contradicts_P = (np.abs(scales_P) > FARTHEST_SCALE) | (shapes_P > ODD_DEVIATIONS)
        return bool(2 * contradicts_P.sum() > len(comparable))

    def merged(self, job_type: str, kind: JobKind) -> list[SpeedStatistic]:
        """The averages, without cells that one cluster says against all the others."""
        aligned = self._speeds_CI - self._scales_C[:, None]
        with np.errstate(divide="ignore"):
            allowed = _DEVIATIONS * np.sqrt(NOISE**2 / self._counts_CI + CELL_DEVIATION**2)
        # Two against each other, or two halves: their middle is nobody's, and nothing is said of the cell.
        agree = np.where(np.abs(aligned - self._levels_I) <= allowed, self._counts_CI, 0.0).sum(axis=0)
        agreed = 2 * agree >= self._counts_CI.sum(axis=0)
        clipped = self._levels_I + np.clip(aligned - self._levels_I, -allowed, allowed)
        weights = self._counts_CI.sum(axis=0)
        means = np.where(self._counts_CI > 0, clipped * self._counts_CI, 0.0).sum(axis=0) / weights
        merged = [
            SpeedStatistic(job_type, kind, ps, workers, _sayable(float(mean)), int(min(weight, MOST_COUNT)))
            for (ps, workers), mean, weight in zip(self._cells, means, weights, strict=True)
        ]
        if len(self._clusters) < ENOUGH_CLUSTERS:
            return [entry for entry, sound in zip(merged, agreed.tolist(), strict=True) if sound]
        return _believable(merged, (self._reporters_I > 1).tolist(), agreed.tolist())

    def _polished(self) -> tuple[Array, Array]:
        """Scales of the clusters, median 0 over those that share a cell with another; levels of the cells."""
        scales = np.zeros(len(self._clusters))
        shared = self._reporters_I > 1
        comparable = (self._counts_CI[:, shared] > 0).any(axis=1)
        levels = self._levels(scales)
        for _ in range(_ROUNDS if comparable.any() else 0):
            before = scales
            off = (self._speeds_CI - levels)[:, shared]
            scales = np.nan_to_num(weighted_medians(off.T, self._counts_CI[:, shared].T))
            scales[comparable] -= np.median(scales[comparable])
            levels = self._levels(scales)
            if np.abs(scales - before).max() < _CONVERGED:
                break
        return scales, levels

    def _levels(self, scales: Array) -> Array:
        return weighted_medians(self._speeds_CI - scales[:, None], self._counts_CI)


def _believable(
    merged: list[SpeedStatistic], confirmed: Sequence[bool], agreed: Sequence[bool]
) -> list[SpeedStatistic]:
    """Cells on which several clusters agree, and those single reports that fit in with them."""
    rows = list(zip(merged, confirmed, agreed, strict=True))
    firm = tuple(entry for entry, several, sound in rows if several and sound)
    if not firm:
        return [entry for entry, _, sound in rows if sound]
    expected = predicted_by_type(firm)
    kept = []
    for entry, several, sound in rows:
        mean, deviation = expected[entry.ps, entry.workers]
        allowed = _DEVIATIONS * math.sqrt(deviation**2 + NOISE**2 / entry.count)
        if sound and (several or abs(entry.mean_log_speed - mean) <= allowed):
            kept.append(entry)
    return kept


def _filled(merged: list[SpeedStatistic], base: list[SpeedStatistic]) -> list[SpeedStatistic]:
    """The fleet's cells, and those of the base that it lacks, as if they were one more cluster's report."""
    if not base or not merged or base[0].kind is not merged[0].kind:
        return merged
    expected = predicted_by_type(tuple(base))
    gaps = np.array([entry.mean_log_speed - expected[entry.ps, entry.workers][0] for entry in merged])
    counts = np.array([entry.count for entry in merged], dtype=np.float64)
    shift = weighted_median(gaps, counts)
    if weighted_median(np.abs(gaps - shift), counts) > ODD_SHAPE:
        return merged  # the fleet's clusters are not what the first file was made on
    seen = {(entry.ps, entry.workers) for entry in merged}
    return merged + [
        replace(entry, mean_log_speed=_sayable(entry.mean_log_speed + shift), count=min(entry.count, CLUSTER_COUNT))
        for entry in base
        if (entry.ps, entry.workers) not in seen
    ]


def _sayable(log_speed: float) -> float:
    """Within what a statistic may say: a shift of what lies at its end would go beyond it."""
    return max(-LARGEST_LOG_SPEED, min(LARGEST_LOG_SPEED, log_speed))


def _kinds(
    reports: Mapping[str, Sequence[SpeedStatistic]], base: Sequence[SpeedStatistic], before: Sequence[SpeedStatistic]
) -> dict[str, JobKind | None]:
    """By type: the kind that most clusters report it with; of equals the one of the version before, else of the first.

    None where neither says one of them: it is one's word against another's.
    """
    votes: dict[str, Counter[JobKind]] = {}
    for _, entries in sorted(reports.items()):
        for job_type, kind in sorted({(entry.job_type, entry.kind) for entry in entries}):
            votes.setdefault(job_type, Counter())[kind] += 1
    stated = [{entry.job_type: entry.kind for entry in version} for version in (before, base)]
    kinds: dict[str, JobKind | None] = {}
    for job_type, of_type in votes.items():
        most = [kind for kind, clusters in of_type.items() if clusters == max(of_type.values())]
        known = [version[job_type] for version in stated if job_type in version and version[job_type] in most]
        kinds[job_type] = most[0] if len(most) == 1 else next(iter(known), None)
    return kinds


def by_type(statistics: Sequence[SpeedStatistic]) -> dict[str, list[SpeedStatistic]]:
    """The statistics of each job type."""
    found: dict[str, list[SpeedStatistic]] = {}
    for entry in statistics:
        found.setdefault(entry.job_type, []).append(entry)
    return found


def weighted_medians(values: Array, weights: Array) -> Array:
    """The medians of the columns of values, shape (n, m), that count as often as their weight.

    A median is where half of the weight lies on either side; half-way between two values where it is a tie.
    Those of weight 0 may be NaN; a column without any weight has the median NaN.
    """
    counted = np.where(weights > 0, values, np.inf)
    order = np.argsort(counted, axis=0, kind="stable")
    ordered = np.take_along_axis(counted, order, axis=0)
    reached = np.cumsum(np.take_along_axis(weights, order, axis=0), axis=0)
    half = reached[-1] / 2
    last = np.maximum((weights > 0).sum(axis=0) - 1, 0)
    lower = np.minimum((reached < half).sum(axis=0), last)
    upper = np.minimum((reached <= half).sum(axis=0), last)
    columns = np.arange(values.shape[1])
    middle = (ordered[lower, columns] + ordered[upper, columns]) / 2
    return np.asarray(np.where(half > 0, middle, np.nan), dtype=np.float64)


def weighted_median(values: Array, weights: Array) -> float:
    """The median of values, shape (n,), as of one column of `weighted_medians`.

    Raises:
        ValueError: nothing has any weight.
    """
    if not (weights > 0).any():
        raise ValueError("a weighted median needs a value with a weight")
    return float(weighted_medians(values[:, None], weights[:, None])[0])


def row_medians(values: Array) -> Array:
    """The medians of the rows of values, shape (n, m), without their NaNs; every row must have a number."""
    ordered = np.sort(values, axis=1)  # NaNs come last
    numbers = (~np.isnan(values)).sum(axis=1)
    rows = np.arange(len(values))
    return np.asarray((ordered[rows, (numbers - 1) // 2] + ordered[rows, numbers // 2]) / 2, dtype=np.float64)
