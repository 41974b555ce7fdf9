"""What may make a headline worth less than it looks; stands right below it."""

from __future__ import annotations

from collections.abc import Iterator

from policy_net.report.comparison import Comparison
from policy_net.report.gpu_use import gpu_use
from policy_net.report.policies import label
from policy_net.report.words import counted

FEW_JOBS = 100
"""Which of two policies does better on fewer jobs is often chance."""
OVERFULL = 0.1
"""With more of all jobs waiting than this when the last one comes, the cluster does not keep up."""


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
    queue = gpu_use(comparison.workload, comparison.today).waiting_at(jobs[-1].submit_time_seconds)
    if comparison.compares and queue > OVERFULL * len(jobs):
        yield (
            f"Under {label(comparison.today.policy)} {queue:,} of the {len(jobs):,} jobs were waiting with nothing when"
            " the last one was submitted: on these machines its queue grows for as long as jobs come. What is saved"
            " then says as much about the length of the window as about the policy."
        )
