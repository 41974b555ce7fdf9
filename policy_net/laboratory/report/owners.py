"""Owners of jobs: waits and times of each user, account and partition, simulated before and after, and recorded."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from operator import attrgetter

from policy_net.laboratory.report.comparison import NOTICEABLE_SECONDS, Comparison, JobPair, PairedJobs

FIELDS = ("user", "account", "partition")
UNNAMED = "(none)"
MOST_OWNERS = 10
"""Owners with an own row, those with the most GPU-hours; the others share one."""


@dataclass(frozen=True, slots=True)
class Owner:
    """The jobs of one user, account or partition, under today's policy and under the proposed one.

    Attributes:
        gpu_seconds: GPUs asked for, times the time that the jobs take alone.
        waits_seconds: from submission to the first start, simulated: before and after, of every job.
        recorded_seconds: recorded wait, and that simulated under the proposed policy, of every job with a record.
    """

    name: str
    jobs: PairedJobs
    gpu_seconds: float
    waits_seconds: tuple[tuple[float, float], ...]
    recorded_seconds: tuple[tuple[float, float], ...]

    @property
    def wait_seconds_before(self) -> float:
        """Average wait under today's policy."""
        return math.fsum(before for before, _ in self.waits_seconds) / len(self.waits_seconds)

    @property
    def wait_seconds_after(self) -> float:
        """Average wait under the proposed policy."""
        return math.fsum(after for _, after in self.waits_seconds) / len(self.waits_seconds)

    @property
    def recorded_wait_seconds(self) -> float | None:
        """Average of the recorded waits; None where there are none."""
        recorded = self.recorded_seconds
        return math.fsum(wait for wait, _ in recorded) / len(recorded) if recorded else None

    @property
    def wait_seconds_like_recorded(self) -> float | None:
        """Average wait of the same jobs under the proposed policy."""
        recorded = self.recorded_seconds
        return math.fsum(simulated for _, simulated in recorded) / len(recorded) if recorded else None

    @property
    def waits_longer(self) -> bool:
        """Whether its jobs wait noticeably longer on average than under today's policy, simulated too."""
        return self.wait_seconds_after - self.wait_seconds_before > NOTICEABLE_SECONDS

    @property
    def waits_longer_than_recorded(self) -> bool:
        """Whether its jobs wait noticeably longer on average than was recorded."""
        really, simulated = self.recorded_wait_seconds, self.wait_seconds_like_recorded
        return really is not None and simulated is not None and simulated - really > NOTICEABLE_SECONDS

    @property
    def ends_later(self) -> bool:
        """Whether its jobs are done noticeably later on average than under today's policy."""
        return self.jobs.after_seconds - self.jobs.before_seconds > NOTICEABLE_SECONDS


def owners_by(comparison: Comparison, field: str) -> tuple[Owner, ...]:
    """All owners by a field, those with the most GPU-hours first; none where the record knows fewer than two."""
    named = attrgetter(field)
    records = comparison.workload.records
    by_name: dict[str, list[JobPair]] = {}
    for pair in comparison.all_jobs.pairs:
        record = records.get(pair.job.job_id)
        by_name.setdefault((named(record) if record else "") or UNNAMED, []).append(pair)
    if len(by_name) < 2 or not comparison.compares:
        return ()
    before, after = (
        {outcome.job_id: outcome.wait_seconds or 0.0 for outcome in result.outcomes}
        for result in (comparison.today, comparison.proposed)
    )
    owners = []
    for name, pairs in by_name.items():
        ids = [pair.job.job_id for pair in pairs]
        recorded = [(records[one].wait_seconds, after[one]) for one in ids if one in records]
        owners.append(
            Owner(
                name,
                PairedJobs(name, tuple(pairs)),
                math.fsum(pair.job.workers * (pair.job.alone_seconds or 0.0) for pair in pairs),
                tuple((before[one], after[one]) for one in ids),
                tuple((wait, simulated) for wait, simulated in recorded if wait is not None),
            )
        )
    return tuple(sorted(owners, key=lambda owner: (-owner.gpu_seconds, owner.name)))


def together(owners: Sequence[Owner]) -> Owner | None:
    """Several owners as one; None of none."""
    if not owners:
        return None
    name = f"{len(owners):,} others"
    return Owner(
        name,
        PairedJobs(name, tuple(pair for owner in owners for pair in owner.jobs.pairs)),
        math.fsum(owner.gpu_seconds for owner in owners),
        tuple(wait for owner in owners for wait in owner.waits_seconds),
        tuple(wait for owner in owners for wait in owner.recorded_seconds),
    )
