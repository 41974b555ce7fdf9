"""Memory of each cluster's votes of past cohorts: a running mean, which has a fraction of a single vote's noise.

A robust strategy finds a bad cluster where honest votes agree. Single policy gradients agree little, and a cluster that
flips the sign of its gradient hides in their noise, cohort after cohort.
Source: Karimireddy, He & Jaggi 2021, "Learning from History for Byzantine Robust Optimization" (momentum at the
workers). Deviation: kept by the learner, where no cluster can lie about it; it fades while a cluster is silent.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from global_learner.storage.snapshot import AggregatorState
from policy_net.exchange.spec import Weights

_FADED = 1e-3
"""What is left of a silent cluster's votes is forgotten below this."""


class VoteMemory:
    """Running sums of votes and of their weights, by cluster.

    Args:
        momentum: the share of the past in a vote, 0 to below 1; at 0 nothing is kept.
    """

    def __init__(self, momentum: float) -> None:
        self._momentum = momentum
        self._sums: dict[str, Weights] = {}
        self._weights: dict[str, float] = {}

    def votes(self, gradients: dict[str, Weights]) -> dict[str, Weights]:
        """Votes of a cohort's clusters, in the order of their gradients (float32), which it adds to its memory."""
        if self._momentum == 0.0:
            return gradients
        keep, share = np.float32(self._momentum), np.float32(1.0 - self._momentum)
        for cluster in list(self._sums):
            self._weights[cluster] *= self._momentum
            if cluster not in gradients and self._weights[cluster] < _FADED:
                del self._sums[cluster], self._weights[cluster]
            else:
                self._sums[cluster] *= keep
        found: dict[str, Weights] = {}
        for cluster, gradient in gradients.items():
            before = self._sums.get(cluster)
            self._sums[cluster] = gradient * share if before is None else before + gradient * share
            self._weights[cluster] = self._weights.get(cluster, 0.0) + 1.0 - self._momentum
            found[cluster] = self._sums[cluster] / np.float32(self._weights[cluster])
        return found

    def kept(self) -> AggregatorState:
        """State for a snapshot."""
        facts: dict[str, Any] = dict(self._weights)
        return AggregatorState(facts, {name: total.copy() for name, total in self._sums.items()})

    def restore(self, kept: AggregatorState) -> None:
        """Go on from it."""
        if self._momentum == 0.0:
            return
        self._weights = dict(kept.facts)
        self._sums = {name: np.array(kept.arrays[name], dtype=np.float32) for name in kept.facts}
