"""How probable the picks of a decision are under a residual, and the gradient of that: what a policy gradient is of.

Legend: J jobs, M picks, O outputs of the residual.
π is the softmax over the jobs that have a step, of (log score + priority + steepness · log share of the best speed)
over the temperature. Picks that were no choice have probability 1 under every residual, or were not left to chance;
they say nothing, and are left out.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from policy_net.exchange.set_spec import SetSpec
from policy_net.set_policy.residual import Residual
from policy_net.set_policy.samples import SetSamples

Array = NDArray[np.float64]


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
        chosen_M = self._samples.chosen_M
        if not chosen_M.any():
            return 1.0
        return float(np.exp(np.mean((self.log_policy_M - np.log(self._samples.behaviour_M))[chosen_M])))

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
