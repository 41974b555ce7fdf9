"""What may make a headline worth less than it looks; stands right below it."""

from __future__ import annotations

import math
from collections.abc import Iterator

from policy_net.laboratory.report.comparison import Comparison
from policy_net.laboratory.report.gpu_use import gpu_use
from policy_net.laboratory.report.policies import label
from policy_net.laboratory.report.words import counted
from policy_net.laboratory.simulation.replay import ReplayResult

FEW_JOBS = 100
"""Which of two policies does better on fewer jobs is often chance."""
OVERFULL = 0.1
"""With more of all jobs waiting than this when the last one comes, the cluster does not keep up."""


SHORT_QUEUE = 10
"""So many may wait at any moment."""
AS_REQUESTED = ("fifo", "fifo-backfill", "las")
"""Policies whose jobs take longer than alone only because they wait."""
WAITS_LITTLE = 0.05
"""With less of the jobs' time than this spent on waiting, a better order can save next to nothing."""


def cautions(comparison: Comparison) -> tuple[str, ...]:
    """A sentence or two each; none if there is nothing to caution against."""
    return tuple(_cautions(comparison))


def _cautions(comparison: Comparison) -> Iterator[str]:
    if not comparison.nodes_given:
        yield (
            "The number of machines was chosen to suit the jobs, because none was given. It decides how long jobs wait,"
            " and so what there is to save: repeat this with the machines that you have."
        )
    jobs = comparison.workload.jobs
    if len(jobs) < FEW_JOBS:
        yield f"With {counted(len(jobs), 'job')} much is chance: take {FEW_JOBS} or more, better a thousand."
    gpus = comparison.gpus
    larger = sum(job.requested.workers * job.worker_demand.gpu > gpus for job in jobs)
    if larger:
        yield (
            f"{counted(larger, 'job')} asked for more than the {counted(gpus, 'GPU')} that there are here, and"
            f" {'gets' if larger == 1 else 'get'} fewer under every policy: these are not the machines on which"
            f" {'it' if larger == 1 else 'they'} ran."
        )
    if comparison.compares and comparison.today.policy in AS_REQUESTED and _waits_little(comparison.today):
        yield (
            f"Under {label(comparison.today.policy)} jobs hardly wait. What is saved or lost then comes from running"
            " them at other sizes than they asked for, and hangs on how fast they are assumed to be there."
        )
    queue = gpu_use(comparison.workload, comparison.today).waiting_at(jobs[-1].submit_time_seconds)
    if comparison.compares and queue > max(OVERFULL * len(jobs), SHORT_QUEUE):
        yield (
            f"Under {label(comparison.today.policy)} {queue:,} of the {len(jobs):,} jobs were waiting with nothing when"
            " the last one was submitted: on these machines its queue grows for as long as jobs come. What is saved"
            " then says as much about the length of the window as about the policy."
        )


def _waits_little(result: ReplayResult) -> bool:
    """Whether the jobs are done in hardly more than the time that they take alone."""
    known = [
        (job.jct_seconds, job.alone_seconds)
        for job in result.job_results
        if job.jct_seconds is not None and job.alone_seconds is not None
    ]
    return math.fsum(jct - alone for jct, alone in known) < WAITS_LITTLE * math.fsum(jct for jct, _ in known)
