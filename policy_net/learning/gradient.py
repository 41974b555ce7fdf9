"""What a gradient computer gives, whatever kind of policy it is for; and how advantages are brought to one scale."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from policy_net.errors import PolicyNetError
from policy_net.exchange.spec import Weights
from policy_net.learning.replay import Experience

Segment = Sequence[Experience]

_SMALLEST_SCALE = 1e-9
_SCALE_MEMORY = 0.02
"""Weight of the newest update in the running size of advantages: about the last fifty count."""
_LARGEST_ADVANTAGE = 4.0
"""In units of their usual size; one freak interval must not undo an hour of learning."""


class NotEnoughSamples(PolicyNetError):
    """The segments are too short, or too far off-policy, to learn from; wait for more experience."""


@dataclass(frozen=True, slots=True)
class GradientResult:
    """A gradient of the loss (descend along its negative) and what it was made of."""

    gradient: Weights
    samples: int
    effective_samples: float
    statistics: dict[str, float]


class Gradients(Protocol):
    """Computes one update at a time, and may remember from one to the next."""

    def gradient(self, head: Weights, segments: Sequence[Segment]) -> GradientResult:
        """The gradient of the loss at `head`; each segment is a run of consecutive decision times.

        Raises:
            NotEnoughSamples: there is nothing to learn from yet, or not at this head.
        """
        ...


class AdvantageScale:
    """The running size of one cluster's advantages: what makes clusters of different size and load speak alike."""

    def __init__(self) -> None:
        self._mean_square = 0.0

    def scaled(self, advantages: NDArray[np.float64]) -> NDArray[np.float64]:
        """Advantages in units of their usual size, clipped; they become part of it."""
        square = float(np.square(advantages).mean())
        if not self._mean_square:  # the first that says anything sets the scale
            self._mean_square = square
        self._mean_square += _SCALE_MEMORY * (square - self._mean_square)
        scale = max(float(np.sqrt(self._mean_square)), _SMALLEST_SCALE)
        return np.clip(advantages / scale, -_LARGEST_ADVANTAGE, _LARGEST_ADVANTAGE)
