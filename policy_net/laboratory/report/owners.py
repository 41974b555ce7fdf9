"""Owners of the jobs: what each user, account and partition has of the change, and who waits longer than before.

"Before" is simulated too; where the record says waits, those are compared with as well.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from operator import attrgetter

from policy_net.laboratory.report.comparison import NOTICEABLE_SECONDS, Comparison, JobPair, PairedJobs

FIELDS = ("user", "account", "partition")
UNNAMED = "(none)"
MOST_OWNERS = 10
"""Owners with a row of their own, those with the most GPU-hours; the others share one."""


@dataclass(frozen=True, slots=True)
class Owner:
    """The jobs of one user, account or partition, under the policy compared with and under the proposed one.

    Attributes:
        gpu_seconds: GPUs asked for, times the time that the jobs take alone.
        recorded_wait_seconds: the average of those recorded; None where none is.
        wait_seconds_before, wait_seconds_after: averages from submission to the first start, simulated.
        recorded_jobs: of how many the wait is recorded.
        wait_seconds_like_recorded: of just these, the average under the proposed policy; None where there are none.
    """

    name: str
    jobs: PairedJobs
    gpu_seconds: float
    recorded_wait_seconds: float | None
    wait_seconds_before: float
    wait_seconds_after: float
    recorded_jobs: int = 0
    wait_seconds_like_recorded: float | None = None

    @property
    def waits_longer(self) -> bool:
        """Whether its jobs wait noticeably longer on average than under the policy compared with, simulated too."""
        return self.wait_seconds_after - self.wait_seconds_before > NOTICEABLE_SECONDS

    @property
    def waits_longer_than_recorded(self) -> bool:
        """Whether its jobs wait noticeably longer on average than they really did; not where nobody knows."""
        really, simulated = self.recorded_wait_seconds, self.wait_seconds_like_recorded
        return really is not None and simulated is not None and simulated - really > NOTICEABLE_SECONDS

    @property
    def ends_later(self) -> bool:
        """Whether its jobs are done noticeably later on average than under the policy compared with."""
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
    waits = [
        {outcome.job_id: outcome.wait_seconds or 0.0 for outcome in result.outcomes}
        for result in (comparison.today, comparison.proposed)
    ]
    owners = []
    for name, pairs in by_name.items():
        ids = [pair.job.job_id for pair in pairs]
        recorded = [(records[one].wait_seconds, waits[1][one]) for one in ids if one in records]
        known = [(wait, simulated) for wait, simulated in recorded if wait is not None]
        before, after = (math.fsum(of_policy[one] for one in ids) / len(ids) for of_policy in waits)
        owners.append(
            Owner(
                name,
                PairedJobs(name, tuple(pairs)),
                math.fsum(pair.job.workers * (pair.job.alone_seconds or 0.0) for pair in pairs),
                math.fsum(wait for wait, _ in known) / len(known) if known else None,
                before,
                after,
                len(known),
                math.fsum(simulated for _, simulated in known) / len(known) if known else None,
            )
        )
    return tuple(sorted(owners, key=lambda owner: (-owner.gpu_seconds, owner.name)))


def together(owners: Sequence[Owner]) -> Owner | None:
    """Several owners as one; None of none."""
    if not owners:
        return None
    jobs = sum(len(owner.jobs.pairs) for owner in owners)
    known = sum(owner.recorded_jobs for owner in owners)
    name = f"{len(owners):,} others"
    return Owner(
        name,
        PairedJobs(name, tuple(pair for owner in owners for pair in owner.jobs.pairs)),
        math.fsum(owner.gpu_seconds for owner in owners),
        math.fsum((owner.recorded_wait_seconds or 0.0) * owner.recorded_jobs for owner in owners) / known
        if known
        else None,
        math.fsum(owner.wait_seconds_before * len(owner.jobs.pairs) for owner in owners) / jobs,
        math.fsum(owner.wait_seconds_after * len(owner.jobs.pairs) for owner in owners) / jobs,
        known,
        math.fsum((owner.wait_seconds_like_recorded or 0.0) * owner.recorded_jobs for owner in owners) / known
        if known
        else None,
    )
