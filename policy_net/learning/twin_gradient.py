"""Gradients from a twin: what would have become of recorded jobs under slightly other weights.

Legend: P parameters, M pairs.
A policy's live reward hardly tells which weights are better: how long jobs take depends on what arrives a hundred times
more than on the weights. The same arrivals under two policies differ little but for the policies. So a cluster replays
jobs of its own under θ + Σε and θ − Σε, with the same chance in both, and the difference of the two says how good the
direction ε is. Σ is what one parameter has to move to be noticed (`set_policy.spreads`). Differences are bounded: one
window in which everything hangs on one job must not undo the others.
Source: Salimans et al. 2017, "Evolution strategies" (mirrored draws). Deviation: recorded arrivals and common chance in
the place of a population, and a bound on each difference.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np

from policy_net.exchange.spec import Weights
from policy_net.learning.gradient import GradientResult
from policy_net.learning.settings import TwinSettings

Cost = Callable[[Weights], float]
"""The mean time from submission to end, in seconds, of the jobs of a window under these weights; the same chance at
every call."""


def twin_gradient(
    head: Weights,
    spreads: Weights,
    cost: Cost,
    settings: TwinSettings,
    generator: np.random.Generator,
    *,
    permute: bool = False,
) -> GradientResult:
    """The gradient at `head` of the log of a window's mean JCT, smoothed by `settings.perturbation` times `spreads`.

    Args:
        spreads: Σ, positive, shape (P,).
        permute: give each pair's direction a random sign: a control that has nothing to learn from.

    Returns:
        The gradient in the head's own units; pairs are its samples.
    """
    sizes = settings.perturbation * spreads
    total = np.zeros(head.shape)
    differences = []
    clipped = 0
    for _ in range(settings.pairs):
        direction = generator.standard_normal(head.shape)
        sign = generator.choice((-1.0, 1.0)) if permute else 1.0
        step = sizes * direction
        costs = [cost((head + way * step).astype(np.float32)) for way in (1.0, -1.0)]
        difference = (math.log(costs[0]) - math.log(costs[1])) / 2.0
        differences.append(difference)
        bound = settings.largest_difference
        clipped += abs(difference) > bound
        total += sign * min(max(difference, -bound), bound) * direction
    gradient = total / settings.pairs / sizes
    statistics = {
        "difference_rms": float(np.sqrt(np.mean(np.square(differences)))),
        "clipped_share": clipped / settings.pairs,
    }
    return GradientResult(gradient.astype(np.float32), settings.pairs, float(settings.pairs), statistics)
