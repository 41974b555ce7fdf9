"""The policy gradient of a `set` policy's residual, at the learner's head.

Legend: K decision times, J jobs, M picks, O outputs of the residual.
REINFORCE: every decision time has an advantage, what its interval brought over what the policy's own choice was
believed to bring, and the picks of a decision time share it. π is the softmax over the jobs that have a step, of (log
score + priority + steepness · log share of the best speed) over the temperature. Picks that were no choice have
probability 1 under every residual, or were not left to chance; they say nothing, and are left out. The off-policy
correction is one ratio a decision time, the geometric mean of its picks', clipped at 1: their product over some forty
picks is noise.
Source: our own; the reward is `learning.reward.slot_utility`, without discount across slots.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from policy_net.exchange.spec import SetSpec, Weights
from policy_net.learning.gradient import (
    AdvantageScale,
    GradientResult,
    NotEnoughSamples,
    Segment,
    decision_advantages,
    effective_samples,
    mean_ratio,
)
from policy_net.learning.replay import Experience
from policy_net.learning.settings import ResidualSettings
from policy_net.set_policy.planner import SetSamples
from policy_net.set_policy.residual import Residual

Array = NDArray[np.float64]


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
        effective = effective_samples(ratios_K, choices_K)
        if effective < self._settings.minimum_effective_samples:
            raise NotEnoughSamples(f"{effective:.1f} effective samples of {choices_K.sum():.0f}")
        if ratios_K.mean() < self._settings.minimum_ratio:
            raise NotEnoughSamples(f"mean probability ratio {ratios_K.mean():.3f}; the head has moved too far")
        return effective


class Likelihood:
    """Of the choices of one decision, under one residual.

    Attributes:
        log_policy_M: log π of what was picked; 0 where it was no choice.
    """

    def __init__(self, samples: SetSamples, residual: Residual, spec: SetSpec) -> None:
        self._samples = samples
        self._residual = residual
        self._temperature = spec.temperature
        log_score_MJ, self._log_share_MJ = samples.log_gains()
        tilt_JO = residual.outputs(samples.inputs_JF)
        logit_MJ = (log_score_MJ + tilt_JO[:, 0] + self._log_share_MJ * tilt_JO[:, 1]) / spec.temperature
        if len(samples.jobs_M):
            logit_MJ -= logit_MJ.max(axis=1, keepdims=True)
        self._policy_MJ = np.exp(logit_MJ)
        total_M = self._policy_MJ.sum(axis=1)
        self._policy_MJ /= total_M[:, None]
        picks = np.arange(len(samples.jobs_M))
        self.log_policy_M = np.where(samples.chosen_M, logit_MJ[picks, samples.jobs_M] - np.log(total_M), 0.0)

    @property
    def ratio(self) -> float:
        """Geometric mean over the choices of π over the probability with which they were made; 1 without choices."""
        return mean_ratio(self.log_policy_M, self._samples.behaviour_M, self._samples.chosen_M)

    @property
    def entropy(self) -> float:
        """Mean entropy of π over the choices, in nats; 0 without choices."""
        policy_MJ = self._policy_MJ[self._samples.chosen_M]
        if not len(policy_MJ):
            return 0.0
        logs_MJ = np.log(policy_MJ, out=np.zeros_like(policy_MJ), where=policy_MJ > 0.0)
        return float(-(policy_MJ * logs_MJ).sum(axis=1).mean())

    def gradient(self, weight: float) -> Array:
        """The gradient of weight · Σ log π over the choices in the residual's parameters, shape (parameter_count,)."""
        weight_M = np.where(self._samples.chosen_M, weight, 0.0)
        slope_MJ = -weight_M[:, None] * self._policy_MJ
        slope_MJ[np.arange(len(weight_M)), self._samples.jobs_M] += weight_M
        slope_JO = np.stack((slope_MJ.sum(axis=0), (slope_MJ * self._log_share_MJ).sum(axis=0)), axis=1)
        return self._residual.gradient(self._samples.inputs_JF, slope_JO / self._temperature)


def _picks(entry: Experience) -> SetSamples:
    if not isinstance(entry.samples, SetSamples):
        raise TypeError(f"experience of a {type(entry.samples).__name__}, not of a set policy's picks")
    return entry.samples
