"""How many jobs arrive in each slot.

`google` imitates the arrival pattern that DL2's authors took from Google's cluster trace (75 slots, published with
their code), in which, leaving out one slot, the log of the rate has a standard deviation of 0.23 and a correlation of
0.51 between neighbouring slots, and one slot has 20 times the usual rate. Here the log of the rate is a first-order
autoregressive process with those two figures; one slot in 75 is a burst of 20 times; and the count is the rate rounded
up, at most `max_arrivals`, as in DL2's set-ups (≤ 3 and ≤ 10 a slot). The median rate (0.68 of the maximum) was chosen
to meet the spans of arrival of DL2-like reference traces: 23 slots for 60 jobs at ≤ 3 (ours: 24 on average) and 29–31
for 200 at ≤ 10 (ours: 27). The other two patterns have the same mean rate.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from types import MappingProxyType

import numpy as np

MEDIAN_LEVEL = 0.68
"""Median rate, as a part of the most arrivals in a slot."""
LEVEL_SIGMA = 0.23
LEVEL_CORRELATION = 0.51
BURST_PROBABILITY = 1 / 75
BURST_FACTOR = 20.0

Draw = Callable[[], int]


def _google(max_arrivals: int, random: np.random.Generator) -> Draw:
    deviation = LEVEL_SIGMA * random.standard_normal()

    def draw() -> int:
        nonlocal deviation
        burst = BURST_FACTOR if random.random() < BURST_PROBABILITY else 1.0
        count = math.ceil(max_arrivals * MEDIAN_LEVEL * math.exp(deviation) * burst)
        innovation = LEVEL_SIGMA * math.sqrt(1 - LEVEL_CORRELATION**2)
        deviation = LEVEL_CORRELATION * deviation + innovation * random.standard_normal()
        return min(count, max_arrivals)

    return draw


def _mean_rate(max_arrivals: int) -> float:
    """About the mean of `google`: the median rate, plus half a job for rounding up, at most the maximum."""
    return min(MEDIAN_LEVEL * max_arrivals + 0.5, float(max_arrivals))


def _uniform(max_arrivals: int, random: np.random.Generator) -> Draw:
    """Every count from some least one to the maximum alike; the least one makes the mean that of `google`."""
    least = max(0, round(2 * _mean_rate(max_arrivals)) - max_arrivals)
    return lambda: int(random.integers(least, max_arrivals, endpoint=True))


def _poisson(max_arrivals: int, random: np.random.Generator) -> Draw:
    rate = _mean_rate(max_arrivals)
    return lambda: int(random.poisson(rate))


ARRIVAL_PATTERNS: Mapping[str, Callable[[int, np.random.Generator], Draw]] = MappingProxyType(
    {"google": _google, "uniform": _uniform, "poisson": _poisson}
)
"""By name: given the most arrivals in a slot and a source of chance, what draws the count of the next slot."""


def arrivals_per_slot(pattern: str, jobs: int, max_arrivals: int, random: np.random.Generator) -> list[int]:
    """Counts for slots 0, 1, … until all `jobs` have arrived; the first job arrives in slot 0, the last in the last."""
    draw = ARRIVAL_PATTERNS[pattern](max_arrivals, random)
    counts: list[int] = []
    left = jobs
    while left:
        count = min(draw(), left)
        if count or counts:  # time starts with the first arrival
            counts.append(count)
            left -= count
    return counts
