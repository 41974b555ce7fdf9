"""The policy gradient of a `set` policy's residual, at the learner's head.

Legend: K decision times, M picks.
REINFORCE: every decision time has an advantage, what its interval brought over what the policy's own choice was
believed to bring, and the picks of a decision time share it. The off-policy correction is one ratio a decision time,
the geometric mean of its picks', clipped at 1: their product over some forty picks is noise.
Source: our own; the reward is `reward.slot_utility`, without discount across slots.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from policy_net.exchange.set_spec import SetSpec
from policy_net.exchange.spec import Weights
from policy_net.learning.credit import decision_advantages
from policy_net.learning.gradient import AdvantageScale, GradientResult, NotEnoughSamples, Segment
from policy_net.learning.replay import Experience
from policy_net.learning.settings import ResidualSettings
from policy_net.set_policy.likelihood import Likelihood
from policy_net.set_policy.residual import Residual
from policy_net.set_policy.samples import SetSamples


class ResidualGradient:
    """Computes one update at a time; owns the scale of this cluster's advantages. `Gradients` for `set`."""

    def __init__(self, spec: SetSpec, settings: ResidualSettings) -> None:
        self._spec = spec
        self._settings = settings
        self._scale = AdvantageScale()

    def gradient(self, head: Weights, segments: Sequence[Segment]) -> GradientResult:
        """The gradient of the policy's loss at `head`, the mean over all choices of the segments.

        Raises:
            NotEnoughSamples: no segment of two decision times, or too little that tells of this head.
        """
        segments = [segment for segment in segments if len(segment) > 1]
        if not segments:
            raise NotEnoughSamples("advantages compare decision times: a segment needs at least 2")
        residual = Residual(self._spec, head)
        entries = [entry for segment in segments for entry in segment]
        chances = [Likelihood(_picks(entry), residual, self._spec) for entry in entries]
        ratios_K = np.minimum(1.0, [chance.ratio for chance in chances])
        choices_K = np.array([len(entry.samples) for entry in entries], dtype=np.float64)
        effective = self._effective(ratios_K, choices_K)
        advantages_K = self._scale.scaled(np.concatenate([decision_advantages(segment) for segment in segments]))
        gradient = np.zeros(self._spec.parameter_count)
        for chance, weight in zip(chances, (ratios_K * advantages_K).tolist(), strict=True):
            gradient -= chance.gradient(weight)
        statistics = {
            "reward_mean": float(np.mean([entry.reward for entry in entries])),
            "entropy_mean": float(np.mean([chance.entropy for chance in chances])),
            "ratio_mean": float(ratios_K.mean()),
        }
        samples = int(choices_K.sum())
        return GradientResult((gradient / samples).astype(np.float32), samples, effective, statistics)

    def _effective(self, ratios_K: np.ndarray[tuple[int], np.dtype[np.float64]], choices_K: np.ndarray) -> float:
        """How many choices are left after importance weighting.

        Raises:
            NotEnoughSamples: too few, or the policy that acted was another one altogether.
        """
        squares = float((choices_K * ratios_K**2).sum())
        effective = float((choices_K * ratios_K).sum()) ** 2 / squares if squares > 0.0 else 0.0
        if effective < self._settings.minimum_effective_samples:
            raise NotEnoughSamples(f"{effective:.1f} effective samples of {choices_K.sum():.0f}")
        if ratios_K.mean() < self._settings.minimum_ratio:
            raise NotEnoughSamples(f"mean probability ratio {ratios_K.mean():.3f}; the head has moved too far")
        return effective


def _picks(entry: Experience) -> SetSamples:
    if not isinstance(entry.samples, SetSamples):
        raise TypeError(f"experience of a {type(entry.samples).__name__}, not of a set policy's picks")
    return entry.samples
