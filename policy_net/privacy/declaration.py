"""Declaration of the noise in an update: two of its statistics, so that a learner can insist on them.

They are the agent's word; nobody can see from a gradient whether it is true. All other statistics of an update are left
out where there is noise, as they would tell what it hides.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from policy_net.privacy.settings import NoiseSettings

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

    def covers(self, wanted: NoiseSettings) -> bool:
        """Whether such an update costs no more than the settings count, and is bounded as they say."""
        return self.noise_multiplier >= wanted.noise_multiplier and self.clip_norm <= wanted.clip_norm


def declaration(settings: NoiseSettings) -> dict[str, float]:
    """The statistics of a noised update; all others would tell what the noise hides."""
    return {_CLIP_NORM: settings.clip_norm, _MULTIPLIER: settings.noise_multiplier}


def declared_noise(statistics: Mapping[str, float]) -> Declared:
    """What an update's statistics say."""
    return Declared(statistics.get(_CLIP_NORM, 0.0), statistics.get(_MULTIPLIER, 0.0))
