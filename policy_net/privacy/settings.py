"""Settings of noise on updates, which the learner and agents share, and what a cluster's updates cost together.

Every update of a cluster is one Gaussian mechanism whose sensitivity is the clip norm, and none is left to chance: no
amplification by sampling may be claimed. Such mechanisms, also if each was chosen after seeing the results of those
before, are together exactly one Gaussian mechanism with noise multiplier 1 / √(Σ 1/z²). So one figure a cluster is
kept, the sum of 1/z², and Google's dp-accounting turns it into epsilon at a delta, exactly rather than as a bound.
What epsilon means here: docs/guide/aggregation.md.
Source: Dong, Roth, Su 2022, "Gaussian Differential Privacy", Corollary 3.3 (composition); Balle & Wang 2018, "Improving
the Gaussian Mechanism" (epsilon of one).
"""

from __future__ import annotations

import functools
import importlib.util
import math
from collections.abc import Mapping
from dataclasses import dataclass

from pydantic import Field, model_validator

from policy_net.settings import Section

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


class NoiseSettings(Section):
    """How much one update may say, how much noise hides it, and how many of them a cluster may give."""

    clip_norm: float = Field(gt=0.0, le=1e6)
    """Euclidean norm to which every gradient of a cluster is shortened before the noise is added. Near the usual norm
    of honest gradients (0.01 to 10): far above it is only noise that grows, far below it all point but do not weigh."""
    noise_multiplier: float = Field(gt=0.0, le=1e4)
    """Standard deviation of the Gaussian noise in each parameter, as a multiple of `clip_norm`. One update costs
    epsilon 4.4 at 1 and 0.7 at 5 (delta 1e-5); a hundred cost as much as one at a tenth of the multiplier."""
    target_epsilon: float | None = Field(None, gt=0.0, le=1e6)
    """What one cluster's updates may cost in all; an update that would cost more is not taken, and the cluster acts on.
    Unless set there is no limit, and what was spent is only counted."""
    delta: float = Field(1e-5, gt=0.0, lt=0.1)
    """The probability with which epsilon may not hold. Well below one in the number of clusters."""

    @model_validator(mode="after")
    def _pays_for_one_update(self) -> NoiseSettings:
        check_available()
        if self.target_epsilon is not None and self.cost > budget(self.target_epsilon, self.delta):
            raise ValueError(
                f"target_epsilon = {self.target_epsilon:g} allows no update at noise_multiplier = "
                f"{self.noise_multiplier:g}, of which one costs {epsilon(self.cost, self.delta):.3g} at delta = "
                f"{self.delta:g}: raise either"
            )
        return self

    @property
    def cost(self) -> float:
        """Of one update, as the accountant counts: 1 / noise_multiplier²."""
        return 1.0 / self.noise_multiplier**2

    def allows(self, spent: float) -> bool:
        """Whether a cluster that has spent so much (a sum of `cost`) may give one more update."""
        return self.target_epsilon is None or spent + self.cost <= budget(self.target_epsilon, self.delta)


# Declaration of the noise in an update: two of its statistics, so that a learner can insist on them.
#
# They are the agent's word; nobody can see from a gradient whether it is true. All other statistics of an update are
# left out where there is noise, as they would tell what it hides.

_CLIP_NORM, _MULTIPLIER = "privacy_clip_norm", "privacy_noise_multiplier"


@dataclass(frozen=True, slots=True)
class Declared:
    """The noise that an update is said to have.

    Attributes:
        clip_norm: the bound of the gradient, as in the settings.
        noise_multiplier: 0 where the update says nothing.
    """

    clip_norm: float
    noise_multiplier: float

    def covers(self, settings: NoiseSettings) -> bool:
        """Whether such an update costs no more than the settings count, and is bounded as they say."""
        return self.noise_multiplier >= settings.noise_multiplier and self.clip_norm <= settings.clip_norm


def declaration(settings: NoiseSettings) -> dict[str, float]:
    """The statistics of a noised update; all others would tell what the noise hides."""
    return {_CLIP_NORM: settings.clip_norm, _MULTIPLIER: settings.noise_multiplier}


def declared_noise(statistics: Mapping[str, float]) -> Declared:
    """What an update's statistics say."""
    return Declared(statistics.get(_CLIP_NORM, 0.0), statistics.get(_MULTIPLIER, 0.0))
