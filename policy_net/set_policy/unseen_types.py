"""Work of types whose speed nobody has seen, measured by that of the others.

A job's samples say nothing of how long it takes as long as nobody knows how many its type trains in a second, or even,
on a real machine, how many an epoch has. Taken as they stand, with a speed that is made up, they put all jobs of a new
type before all others, or behind: one that waits behind three known jobs is never seen. So the typical job of such a
type is taken to be as long as the typical job of the types that are known; among themselves its jobs keep their
proportions.
Source: our own; the principle of indifference.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from statistics import median

from policy_net.baselines.needs import remaining_samples
from policy_net.domain import Job


def measured_by_others(
    jobs: Sequence[Job], has_scale: Callable[[str], bool], reference_speed: Callable[[Job], float]
) -> tuple[Job, ...] | None:
    """The jobs, with as many samples per epoch as makes those of types without a scale as long as the others.

    Jobs of unknown work are not changed: what remains of them was a time, and not a number, before it was samples.

    Args:
        has_scale: whether anything is known of how many samples a type trains in a second.
        reference_speed: believed samples/s of a job, whether or not anything is known of it.

    Returns:
        None if nothing is to be changed, or there is nothing to measure by.
    """
    seconds_of_others: list[float] = []
    seconds_by_type: dict[str, list[float]] = {}
    for job in jobs:
        speed = reference_speed(job)
        if speed <= 0.0:
            continue
        seconds = remaining_samples(job) / speed
        if not job.work_known or has_scale(job.job_type):
            seconds_of_others.append(seconds)
        else:
            seconds_by_type.setdefault(job.job_type, []).append(seconds)
    if not seconds_of_others or not seconds_by_type:
        return None
    typical = median(seconds_of_others)
    factors = {job_type: typical / median(seconds) for job_type, seconds in seconds_by_type.items()}
    return tuple(
        replace(job, samples_per_epoch=job.samples_per_epoch * factors[job.job_type])
        if job.work_known and job.job_type in factors
        else job
        for job in jobs
    )
