"""Estimates that users declare of their jobs' work, rarely the truth: with errors of epochs or durations, or none.

When jobs really end does not change. Every error is a hash of (seed, job), so it does not depend on the other jobs.

Source: DL2 §6.6 (estimated epochs off by up to 20%). Deviation: lognormal errors and unknown durations are ours.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

from policy_net.errors import BadInput
from policy_net.laboratory.noise import job_key, normal, uniform
from policy_net.laboratory.workloads.workload import Workload, WorkloadJob

LARGEST_SIGMA = 5.0
"""Beyond it one declaration in twenty is off by more than 10,000 times: a slip of the pen."""


@dataclass(frozen=True, slots=True)
class Estimates:
    """How far declarations lie from the truth; the default is that users know it.

    Attributes:
        epoch_error: declared epochs are the true ones times a uniform number from 1 − this to 1 + this.
        duration_sigma: standard deviation of the logarithm of a lognormal factor with median 1.
        known: whether anything is declared at all.

    Raises:
        BadInput: a value is out of its range, or two errors are asked for.
    """

    epoch_error: float = 0.0
    duration_sigma: float = 0.0
    known: bool = True

    def __post_init__(self) -> None:
        if not 0.0 <= self.epoch_error < 1.0:  # false for NaN too
            raise BadInput(f"epoch-error is {self.epoch_error}: use a number from 0 to below 1")
        if not 0.0 <= self.duration_sigma <= LARGEST_SIGMA:
            raise BadInput(f"durations: sigma is {self.duration_sigma}: use a number from 0 to {LARGEST_SIGMA:g}")
        if self.epoch_error and (self.duration_sigma or not self.known):
            raise BadInput("epoch-error is given beside durations that are not known: use one of them")


def parse_durations(text: str, epoch_error: float = 0.0) -> Estimates:
    """The estimates that `known`, `lognormal:SIGMA` or `unknown` stands for.

    Raises:
        BadInput: it is none of them, or its number is out of range.
    """
    kind, colon, number = text.partition(":")
    if not colon and kind in ("known", "unknown"):
        return Estimates(epoch_error, known=kind == "known")
    try:
        sigma = float(number) if kind == "lognormal" else math.nan
    except ValueError:
        sigma = math.nan
    if math.isnan(sigma):
        raise BadInput(f"durations is {text!r}: use known, lognormal:SIGMA (such as lognormal:1) or unknown")
    return Estimates(epoch_error, duration_sigma=sigma)


def with_estimates(workload: Workload, estimates: Estimates, seed: int) -> Workload:
    """The workload as users who err like this declare it; with a note that says so."""
    if estimates == Estimates():
        return workload
    if not estimates.known:
        jobs = tuple(replace(job, declared_epochs=None, work_known=False) for job in workload.jobs)
        note = "the jobs' work is unknown: schedulers are shown as much again as a job has trained"
    else:
        jobs = tuple(
            replace(job, declared_epochs=job.total_epochs * _error(job, estimates, seed)) for job in workload.jobs
        )
        error = (
            f"± {estimates.epoch_error:.0%}, uniform"
            if estimates.epoch_error
            else f"× a lognormal error with σ = {estimates.duration_sigma:g}"
        )
        note = f"declared work is the true one {error}"
    return replace(workload, jobs=jobs, notes=(*workload.notes, note))


def _error(job: WorkloadJob, estimates: Estimates, seed: int) -> float:
    key = job_key(seed, f"estimate {job.job_id}")
    if estimates.epoch_error:
        return 1.0 + estimates.epoch_error * (2.0 * uniform(key, 0) - 1.0)
    return math.exp(estimates.duration_sigma * normal(key, 0))
