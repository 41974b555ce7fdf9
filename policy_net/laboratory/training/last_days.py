"""Last days of a cluster, replayed in its twin: how far the twin is to be believed, and what another scheduler makes of
the same jobs.

Jobs of as many days before are replayed too, and those that go on: they held what the others waited for.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace

from policy_net.laboratory.simulation.replay import ReplayResult, replay
from policy_net.laboratory.training.twin_windows import (
    FEWEST_JOBS,
    TwinMachines,
    TwinWindow,
    environment_of,
    window_of,
)
from policy_net.laboratory.workloads.decided import RecordedJobs
from policy_net.policy import SchedulerPolicy

FAR = 0.5
"""A twin whose mean JCT is off by this share or more is not believed at all."""
DAYS = 7.0
_DAY_SECONDS = 86_400.0


@dataclass(frozen=True, slots=True)
class LastDays:
    """Jobs that ended in the last days of a log, among those that are replayed with them.

    Attributes:
        window: all that is replayed.
        zero_seconds: of the window's time, in the log's own.
        begin_seconds, end_seconds: of those days, in the window's time.
        compared: ids of those that ended in them.
        really_seconds: their mean JCT.
    """

    window: TwinWindow
    zero_seconds: float
    begin_seconds: float
    end_seconds: float
    compared: frozenset[str]
    really_seconds: float

    def replayed(
        self,
        policy: SchedulerPolicy,
        on_progress: Callable[[float], None] | None = None,
        *,
        record_timeline: bool = False,
    ) -> ReplayResult:
        """All of the window under a policy."""
        window = self.window
        return replay(
            *(window.workload, window.environment, policy, window.speeds, on_progress), record_timeline=record_timeline
        )

    def mean_jct_seconds(self, result: ReplayResult) -> float:
        """Of the compared jobs, in a replay of the window; every job of a replay ends."""
        times = {one.job_id: one.jct_seconds for one in result.outcomes if one.jct_seconds is not None}
        return math.fsum(times[job_id] for job_id in self.compared) / len(self.compared)


def last_days_of(
    recorded: RecordedJobs, machines: TwinMachines, days: float = DAYS, most_jobs: int | None = None
) -> LastDays | None:
    """The last days of a log; None where too few jobs have ended in them.

    Args:
        machines: what else than nodes there is to the cluster.
        most_jobs: that are replayed; of more, the newest. The days are fewer then: from the middle job's submission on.

    Raises:
        BadInput: too few of the jobs fit on the log's usual nodes.
    """
    end = recorded.end_seconds - recorded.start_seconds
    ends = {
        job.job_id: job.submit_time_seconds + recorded.jct_seconds[job.job_id]
        for job in recorded.workload.jobs
        if job.job_id in recorded.jct_seconds
    }
    since = end - 2.0 * days * _DAY_SECONDS
    jobs = [job for job in recorded.workload.jobs if ends.get(job.job_id, end) >= since]
    begin = end - days * _DAY_SECONDS
    if most_jobs is not None and len(jobs) > most_jobs:
        jobs = jobs[-most_jobs:]
        begin = max(begin, jobs[most_jobs // 2].submit_time_seconds)
    compared = {job.job_id for job in jobs if ends.get(job.job_id, -math.inf) >= begin}
    if len(compared) < FEWEST_JOBS:
        return None
    environment = environment_of(replace(machines, nodes=recorded.usual_nodes))
    window = window_of(recorded.workload.name, jobs, environment, recorded.speeds)
    able = {job.job_id for job in window.workload.jobs}
    compared &= able
    if len(compared) < FEWEST_JOBS:
        return None
    zero = next(job.submit_time_seconds for job in jobs if job.job_id in able)
    return LastDays(
        window=window,
        zero_seconds=recorded.start_seconds + zero,
        begin_seconds=max(begin - zero, 0.0),
        end_seconds=end - zero,
        compared=frozenset(compared),
        really_seconds=math.fsum(recorded.jct_seconds[job_id] for job_id in compared) / len(compared),
    )


def agreement_of(
    recorded: RecordedJobs,
    policy: SchedulerPolicy,
    machines: TwinMachines,
    days: float = DAYS,
    on_progress: Callable[[float], None] | None = None,
) -> float | None:
    """How far the twin is to be believed, from 0 to 1: 1 where it says of the last days what really happened, 0 where
    its mean JCT is off by half or more; None where too few jobs have ended.

    Args:
        policy: that acted in those days.
        machines: what else than nodes there is to the cluster.

    Raises:
        BadInput: too few of the jobs fit on the log's usual nodes.
    """
    past = last_days_of(recorded, machines, days)
    if past is None:
        return None
    if past.really_seconds <= 0.0:
        return 0.0
    said = past.mean_jct_seconds(past.replayed(policy, on_progress))
    return max(0.0, 1.0 - abs(math.log(said / past.really_seconds)) / math.log(1.0 + FAR))
