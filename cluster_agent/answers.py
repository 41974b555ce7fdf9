"""What a learner's answers must be to be used; an agent goes on with what it has rather than with anything else.

A learner is trusted with the policy, but it may be another one than yesterday, restored from a copy, or broken: weights
that are no numbers, a head that goes back, another version than was asked for.
"""

from __future__ import annotations

import threading

import numpy as np

from cluster_agent.errors import LearnerRefused
from cluster_agent.fleet.learner import Head
from policy_net.errors import SpecMismatch
from policy_net.exchange.spec import WeightSpec, weights_from_bytes


class HeadCheck:
    """Looks at every head that comes; safe to use from several threads."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._incarnation = 0
        self._step = 0

    def newest(self, incarnation: int) -> int:
        """The newest step of an incarnation that was seen; ask before a call what its answer must not fall behind."""
        with self._lock:
            return self._step if incarnation == self._incarnation else 0

    def checked(self, incarnation: int, seen: int, step: int, data: bytes, spec: WeightSpec) -> Head:
        """A head that can be learned from.

        Args:
            seen: `newest` of before the call.

        Raises:
            LearnerRefused: its weights are of another length or not finite, or it lies before one that was sent.
        """
        try:
            weights = weights_from_bytes(data, spec)
        except SpecMismatch as error:
            raise LearnerRefused(f"the learner's head cannot be used: {error}") from error
        if not np.isfinite(weights).all():
            raise LearnerRefused(f"the learner's head of step {step} holds NaN or infinity; it is not used")
        if step < seen:
            raise LearnerRefused(f"the learner's head went back from step {seen} to {step}; register again")
        with self._lock:
            newest = self._step if incarnation == self._incarnation else 0
            self._incarnation, self._step = incarnation, max(newest, step)
        return Head(step, weights)
