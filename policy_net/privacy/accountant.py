"""Accountant of noised updates: how much a cluster's cost it together, as epsilon at a delta.

Every update of a cluster is one Gaussian mechanism whose sensitivity is the clip norm, and none is left to chance: a
cluster takes part in each of its own updates with certainty, so that no amplification by sampling may be claimed. Such
mechanisms, also if each was chosen after seeing the results of those before, are together exactly one Gaussian
mechanism with noise multiplier 1 / √(Σ 1/z²). So one figure a cluster is kept, the sum of 1/z², and Google's
dp-accounting turns it into epsilon, exactly rather than as a bound.
Source: Dong, Roth, Su 2022, "Gaussian Differential Privacy", Corollary 3.3 (composition); Balle & Wang 2018, "Improving
the Gaussian Mechanism" (epsilon of one).
"""

from __future__ import annotations

import functools
import importlib.util
import math

_FLOOR = 1.0 - 1e-9
"""The library finds multipliers to ten digits; a budget is rounded down by more than it may err."""


def check_available() -> None:
    """See that the library is there.

    Raises:
        ValueError: it is not installed.
    """
    if importlib.util.find_spec("dp_accounting") is None:
        raise ValueError("privacy needs the package dp-accounting: pip install 'fedl2[privacy]'")


def epsilon(spent: float, delta: float) -> float:
    """What was spent, as epsilon; 0 for nothing.

    Args:
        spent: the sum of 1/z² over a cluster's updates, 0 or more.
    """
    if spent <= 0.0:
        return 0.0
    from dp_accounting import get_epsilon_gaussian  # noqa: PLC0415  # a second, and only privacy pays for it

    return float(get_epsilon_gaussian(1.0 / math.sqrt(spent), delta))


@functools.cache
def budget(target_epsilon: float, delta: float) -> float:
    """The largest sum of 1/z² that costs no more than this epsilon."""
    from dp_accounting import get_sigma_gaussian  # noqa: PLC0415

    return _FLOOR / float(get_sigma_gaussian(target_epsilon, delta)) ** 2
