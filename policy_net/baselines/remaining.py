"""How much work a job has left, as planners count it."""

from __future__ import annotations

from policy_net.domain import Job

LEAST_REMAINING_SHARE = 0.001
"""Remaining work counts as at least this share of the declared work: a job at, or beyond, its declared end is urgent,
not infinitely so, and is not taken for finished."""


def remaining_samples(job: Job) -> float:
    """Samples that are left to train, at least a thousandth of what was declared."""
    return max(job.remaining_epochs, LEAST_REMAINING_SHARE * job.total_epochs) * job.samples_per_epoch
