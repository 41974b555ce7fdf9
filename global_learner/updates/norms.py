"""Usual norms of the fleet's gradients, and the limit that follows: whatever is longer is clipped before Adam sees it.

One gradient of norm 990 among honest ones of norm 1 makes everybody's steps a hundredth as long for a thousand updates,
since Adam divides by the root of what it remembers of their squares. So a gradient counts for at most a multiple of
what is usual. Usual is what nine of ten of a cluster's latest gradients do not exceed, and of those figures the median
over clusters, each of which weighs the same: neither the one that pushes fastest nor one that sends what it likes sets
it. Remembered are norms as they were applied, after clipping, so that a lie cannot prepare a larger one.

What is remembered follows from the log alone; the log holds gradients as they were applied, so that a replay clips
nothing and comes to the same bits under any settings.
Source: Seetharaman et al. 2020, "AutoClip" (clip to a quantile of past norms); Andrew et al. 2021, "Differentially
Private Learning with Adaptive Clipping". Deviation: a quantile a cluster, and the median of these.
"""

from __future__ import annotations

import math
import statistics
from collections import deque
from collections.abc import Iterable, Mapping
from itertools import islice

import numpy as np

from policy_net.exchange.spec import Weights

FIRST_LIMIT = 10.0
"""The limit while nothing is known, and at most with one or two clusters, of which none could be outvoted. Sound
gradients have norms of 0.01 to 10."""
REMEMBERED = 32
"""Norms a cluster."""
ENOUGH = 8
"""Norms from which on a cluster has a vote: of fewer, nine of ten say little."""
_SHARE = 0.9
_VOTERS = 64
"""Of more clusters, those that were heard last vote."""
_LEAST_TO_OUTVOTE = 3


def gradient_norm(gradient: Weights) -> float:
    """Euclidean norm; infinite or NaN where the gradient is not finite, or its squares are not."""
    with np.errstate(over="ignore", invalid="ignore"):
        return math.sqrt(float(np.dot(gradient, gradient)))


def clipped(gradient: Weights, norm: float, limit: float) -> Weights:
    """The gradient, shortened to the limit where its norm is above it; otherwise the very same array."""
    return gradient * np.float32(limit / norm) if norm > limit else gradient


class UsualNorms:
    """The latest norms of every cluster's applied gradients; part of the ledger."""

    def __init__(self, norms: Mapping[str, Iterable[float]] | None = None) -> None:
        """Go on from what `to_json` said; clusters stand in the order in which they were last heard."""
        self._norms = {name: deque(of_one, maxlen=REMEMBERED) for name, of_one in (norms or {}).items()}
        self._votes = {name: _nine_of_ten(of_one) for name, of_one in self._norms.items() if len(of_one) >= ENOUGH}

    def record(self, cluster: str, norm: float) -> None:
        """Remember the norm of an applied gradient."""
        of_one = self._norms.pop(cluster, None) or deque(maxlen=REMEMBERED)
        # Three digits: a snapshot of a thousand clusters stays small, and a sum in another order comes to the same.
        of_one.append(float(f"{norm:.3g}"))
        self._norms[cluster] = of_one
        self._votes.pop(cluster, None)  # the latest stand last
        if len(of_one) >= ENOUGH:
            self._votes[cluster] = _nine_of_ten(of_one)

    def limit(self, factor: float) -> float:
        """The norm beyond which a gradient is clipped now: `factor` times the usual one; infinite for factor 0."""
        if factor == 0.0:
            return math.inf
        votes = list(islice(reversed(self._votes.values()), _VOTERS))
        if len(votes) >= _LEAST_TO_OUTVOTE:
            # Where all have stood still for a while, the next gradient is no lie.
            return factor * statistics.median_low(votes) or FIRST_LIMIT
        return min(FIRST_LIMIT, factor * max(votes, default=math.inf)) or FIRST_LIMIT

    def to_json(self) -> dict[str, list[float]]:
        """Everything, for a snapshot."""
        return {name: list(of_one) for name, of_one in self._norms.items()}


def _nine_of_ten(norms: Iterable[float]) -> float:
    ordered = sorted(norms)
    return ordered[math.ceil(_SHARE * len(ordered)) - 1]
