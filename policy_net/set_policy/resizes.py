"""Cost of a resize to a running job, and what a plan makes of it: sizes that jobs hold now are worth more than others.

A job that is given another size stands still for a while, with all its tasks. That is worth it where the other size
lasts long enough. So of a job that trains, every size but its own counts with its utility as if its speed were lower by
the share of that time which the stall takes. Then it keeps a size that others would gain little by, grows by several
tasks at once, and changes little shortly before its end. What a resize costs is measured (`restarts.py`). Source: our
own.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from policy_net.baselines.needs import remaining_samples
from policy_net.domain import Job
from policy_net.set_policy.steps import StepTable

STALL_WEIGHT = 4.0
"""What a second of standing still counts: for the job, for who could have had its tasks meanwhile, and for the changes
that one change brings to others. From 1 to 6, on windows of recorded clusters to choose on; flat from 3 on."""
LEAST_SECONDS = 5.0
"""Jobs that are resized while they train stand still for less: that is as good as nothing."""
_SHARE_STEPS = 1024.0
"""Shares are rounded to so many parts, so that steps are found once for many jobs and decisions."""


@dataclass(frozen=True, slots=True)
class ResizeCost:
    """What resizes cost, as it was measured.

    Attributes:
        seconds: for how long a job stands still, at the mean.
        interval_seconds: after how long a job is resized again, at the mean.
    """

    seconds: float = 0.0
    interval_seconds: float = 3600.0

    def share(self, remaining_seconds: float, speed_exponent: float) -> float:
        """Of its utility that another size keeps, for a job with so much left to train."""
        lasts = 1.0 / (1.0 / remaining_seconds + 1.0 / self.interval_seconds)
        share: float = (lasts / (lasts + STALL_WEIGHT * self.seconds)) ** speed_exponent
        return math.floor(share * _SHARE_STEPS + 0.5) / _SHARE_STEPS


NO_COST = ResizeCost()


def keeping(
    jobs: Sequence[Job],
    tables: Sequence[StepTable],
    cost: ResizeCost,
    speed_exponent: float,
    stays: Sequence[bool] | None = None,
    speeds: Sequence[float] | None = None,
) -> list[StepTable]:
    """The steps of all jobs, in which those that train keep their sizes unless another is worth a resize.

    Args:
        stays: of every job, whether these are its steps where it lies now; elsewhere its size is worth no more than
            another. None: they are.
        speeds: of every job, in samples/s at its size where it lies, which these tables need not have; None: they do.
    """
    if cost.seconds <= 0.0:
        return list(tables)
    found = []
    for index, (job, table) in enumerate(zip(jobs, tables, strict=True)):
        speed = table.speed(job.current) if speeds is None else speeds[index]
        if speed > 0.0:
            share = cost.share(remaining_samples(job) / speed, speed_exponent)
            table = table.keeping(job.current if stays is None or stays[index] else None, share)  # noqa: PLW2901
        found.append(table)
    return found
