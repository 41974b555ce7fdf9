"""Statistics of speeds, which clusters tell one another: per job type and split, the mean log speed and its count.

Nothing else about jobs ever travels: no names, users, times or sizes. Counts are capped where many reports are merged,
so that no cluster's history drowns another's.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from policy_net.domain import JobKind
from policy_net.errors import PolicyFileError

CLUSTER_COUNT = 16
"""One cluster counts as at most so many observations of a split: an error of 7%, which is about what clusters differ by
beside their scale."""
LONGEST_TYPE_NAME = 128
LARGEST_LOG_SPEED = 50.0
MOST_SHARED = 8192
MOST_SHARED_TYPES = 128
"""What an agent tells at most, what it saw most often first: 100 kB, and every split of 32 types."""
MOST_STATISTICS = 100_000
"""Rows of one file: 256 splits of hundreds of types."""


@dataclass(frozen=True, slots=True)
class SpeedStatistic:
    """What was seen of one job type with one split.

    Attributes:
        mean_log_speed: mean of the natural logarithm of the speed in samples/s.
        count: how many intervals it is the mean of.
    """

    job_type: str
    kind: JobKind
    ps: int
    workers: int
    mean_log_speed: float
    count: int

    def __post_init__(self) -> None:
        sound = (
            0 < len(self.job_type) <= LONGEST_TYPE_NAME
            and 1 <= self.workers <= self.kind.most_workers
            and (1 <= self.ps <= self.kind.most_ps if self.kind.uses_ps else self.ps == 0)
            and math.isfinite(self.mean_log_speed)
            and abs(self.mean_log_speed) <= LARGEST_LOG_SPEED
            and self.count >= 1
        )
        if not sound:
            raise ValueError(f"impossible speed statistic {self}")


def merged(statistics: Iterable[SpeedStatistic], *, most_count: int) -> tuple[SpeedStatistic, ...]:
    """One statistic per type and split, weighted by counts, each capped at `most_count`; sorted.

    A type that is reported with two kinds keeps that of its first report.
    """
    kinds: dict[str, JobKind] = {}
    sums: dict[tuple[str, int, int], tuple[float, int]] = {}
    for entry in statistics:
        if kinds.setdefault(entry.job_type, entry.kind) is not entry.kind:
            continue
        key = (entry.job_type, entry.ps, entry.workers)
        total, count = sums.get(key, (0.0, 0))
        sums[key] = (total + entry.mean_log_speed * entry.count, count + entry.count)
    return tuple(
        SpeedStatistic(job_type, kinds[job_type], ps, workers, total / count, min(count, most_count))
        for (job_type, ps, workers), (total, count) in sorted(sums.items())
    )


def statistics_digest(statistics: Sequence[SpeedStatistic]) -> str:
    """SHA-256 of the rows, hex: names what is believed."""
    return hashlib.sha256(json.dumps(statistics_to_rows(statistics), separators=(",", ":")).encode()).hexdigest()


def statistics_to_rows(statistics: Sequence[SpeedStatistic]) -> list[list[object]]:
    """As JSON-able rows."""
    return [[s.job_type, s.kind.value, s.ps, s.workers, round(s.mean_log_speed, 6), s.count] for s in statistics]


def _statistic_of(row: Any) -> SpeedStatistic:
    """Raises TypeError or ValueError for anything but a row of `statistics_to_rows`."""
    job_type, kind, ps, workers, mean, count = row
    whole = all(isinstance(value, int) and not isinstance(value, bool) for value in (ps, workers, count))
    if not (isinstance(job_type, str) and whole and isinstance(mean, int | float)):
        raise TypeError(f"{row} is not [job type, kind, PSs, workers, mean log speed, count]")
    return SpeedStatistic(job_type, JobKind(kind), ps, workers, float(mean), count)


def statistics_from_rows(rows: object) -> tuple[SpeedStatistic, ...]:
    """The inverse of `statistics_to_rows`.

    Raises:
        PolicyFileError: the rows are something else.
    """
    if not isinstance(rows, list) or len(rows) > MOST_STATISTICS:
        raise PolicyFileError(f"priors must be a list of at most {MOST_STATISTICS} rows")
    statistics = []
    kinds: dict[str, JobKind] = {}
    seen: set[tuple[str, int, int]] = set()
    for row in rows:
        try:
            entry = _statistic_of(row)
        except (TypeError, ValueError) as error:
            raise PolicyFileError(f"priors: {error}") from error
        split = (entry.job_type, entry.ps, entry.workers)
        if split in seen or kinds.setdefault(entry.job_type, entry.kind) is not entry.kind:
            raise PolicyFileError(f"priors: {row} repeats a split, or gives its type a second kind")
        seen.add(split)
        statistics.append(entry)
    return tuple(statistics)


def most_observed(statistics: Sequence[SpeedStatistic]) -> tuple[SpeedStatistic, ...]:
    """At most what one report holds: the types that were seen most, then the splits; in the order given."""
    if len(statistics) <= MOST_SHARED and len({entry.job_type for entry in statistics}) <= MOST_SHARED_TYPES:
        return tuple(statistics)
    of_type: Counter[str] = Counter()
    for entry in statistics:
        of_type[entry.job_type] += entry.count
    types = set(sorted(of_type, key=lambda job_type: (-of_type[job_type], job_type))[:MOST_SHARED_TYPES])
    positions = [position for position, entry in enumerate(statistics) if entry.job_type in types]
    positions.sort(key=lambda position: -statistics[position].count)
    return tuple(statistics[position] for position in sorted(positions[:MOST_SHARED]))
