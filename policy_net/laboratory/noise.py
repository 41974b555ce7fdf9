"""Speed noise without a generator's state: every factor is a hash of (seed, job, decision).

So a snapshot holds no random state, and a job's luck does not depend on what the other jobs do. Factors are lognormal
with mean 1. One factor is drawn for a job's whole life, one more after every decision; the second kind averages out
over a long job, the first does not.
"""

from __future__ import annotations

import hashlib
import math

JOB_PART = -1
"""In place of a decision's index: the factor that a job keeps for life."""

_MASK = (1 << 64) - 1
_STEP = 0x9E3779B97F4A7C15
_MIX_1 = 0xBF58476D1CE4E5B9
_MIX_2 = 0x94D049BB133111EB


def job_key(seed: int, job_id: str) -> int:
    """64 bits that stand for one job under one seed."""
    digest = hashlib.blake2b(f"{seed}/{job_id}".encode(), digest_size=8).digest()
    return int.from_bytes(digest, "little")


def noise_factor(key: int, decision_index: int, relative_sd: float) -> float:
    """The factor on the true speed of one job after one decision."""
    if relative_sd == 0.0:
        return 1.0
    variance = math.log1p(relative_sd * relative_sd)
    return math.exp(math.sqrt(variance) * normal(key, decision_index) - variance / 2.0)


def normal(key: int, index: int) -> float:
    """A standard normal number, the index-th of a key."""
    first = _mix((key + (2 * index + 1) * _STEP) & _MASK)
    second = _mix((key + (2 * index + 2) * _STEP) & _MASK)
    # Box-Muller on two uniform numbers in (0, 1]; the top 53 bits fill a float exactly.
    radius = math.sqrt(-2.0 * math.log(((first >> 11) + 1) * 2.0**-53))
    return radius * math.cos(2.0 * math.pi * (second >> 11) * 2.0**-53)


def uniform(key: int, index: int) -> float:
    """A uniform number in (0, 1], the index-th of a key."""
    return ((_mix((key + (index + 1) * _STEP) & _MASK) >> 11) + 1) * 2.0**-53


def _mix(value: int) -> int:
    """Finaliser of splitmix64."""
    value = ((value ^ (value >> 30)) * _MIX_1) & _MASK
    value = ((value ^ (value >> 27)) * _MIX_2) & _MASK
    return value ^ (value >> 31)
