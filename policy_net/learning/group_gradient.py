"""Gradient of a `dl2` network from groups of decisions: what each action did better than the other draws of its state.

Legend: M micro-actions, B of them, K draws of a state, N its jobs, F features, A actions.
An action of draw k gets U_k = Σ_i u_ik, less its mean over the draws. At first a grant to job i mostly gets that job's
part, u_ik − λ·c_ik less its mean: c is the job's dominant share, λ = e·U/C the utility that the group's mean has
for a share, and e the utility's exponent. Each part is divided by its standard deviation.
Source: Kool et al. 2019 (draws against each other), PPO (Schulman et al. 2017: several steps on the same draws, each
clipped where the policy has moved far). Deviation: no critic, no discount, no entropy bonus.
In numpy, as an agent has no torch.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from policy_net.baselines.hull import FAIRNESS_EXPONENT
from policy_net.dl2.group import DecisionGroup
from policy_net.exchange.spec import PolicySpec, Weights, split_weights
from policy_net.learning.adam import AdamConstants, adam_step

FloatArray = NDArray[np.float32]
CLIP = 0.2
"""Source: PPO."""
LEAST_DEVIATION = 1e-9


@dataclass(frozen=True, slots=True)
class Advantages:
    """Micro-actions of many groups, and by how much each did better than the other draws.

    Attributes:
        features_MF, masks_MA, actions_M: what the network saw, what was admissible, and what was drawn.
        log_behaviour_M: float32, the log probability with which it was drawn.
        advantage_M: float32.
    """

    features_MF: FloatArray
    masks_MA: NDArray[np.bool_]
    actions_M: NDArray[np.int64]
    log_behaviour_M: FloatArray
    advantage_M: FloatArray

    def __len__(self) -> int:
        return len(self.actions_M)


def advantages_of(groups: Sequence[DecisionGroup], own_share: float) -> Advantages:
    """What the actions of groups did.

    Args:
        own_share: how much of a grant's advantage is the own job's; 0: all is the whole decision's.
    """
    together_M = np.concatenate([_together(group)[group.draws_M] for group in groups])
    own_M = np.concatenate([_own(group) for group in groups])
    grants_M = np.concatenate([group.samples.jobs_M >= 0 for group in groups])
    weight_M = np.where(grants_M, own_share, 0.0)
    together_M /= together_M.std() + LEAST_DEVIATION
    own_M /= (own_M[grants_M].std() if grants_M.any() else 0.0) + LEAST_DEVIATION
    return Advantages(
        np.concatenate([group.samples.features_MF for group in groups]),
        np.concatenate([group.samples.masks_MA for group in groups]),
        np.concatenate([group.samples.actions_M for group in groups]),
        np.log(np.concatenate([group.samples.behaviour_M for group in groups])).astype(np.float32),
        ((1.0 - weight_M) * together_M + weight_M * own_M).astype(np.float32),
    )


def _together(group: DecisionGroup) -> NDArray[np.float64]:
    total_K = group.utility_KN.sum(axis=1)
    advantage_K: NDArray[np.float64] = total_K - total_K.mean()
    return advantage_K


def _own(group: DecisionGroup) -> NDArray[np.float64]:
    utility_KN, share_KN = group.utility_KN, group.share_KN
    price = FAIRNESS_EXPONENT * utility_KN.sum() / max(share_KN.sum(), LEAST_DEVIATION)
    worth_KN = utility_KN - price * share_KN
    advantage_KN: NDArray[np.float64] = worth_KN - worth_KN.mean(axis=0)
    return advantage_KN[group.draws_M, np.maximum(group.samples.jobs_M, 0)]  # void has none of its own


class GroupGradients:
    """The actor in numpy, forwards and backwards, on one flat vector of weights."""

    def __init__(self, spec: PolicySpec) -> None:
        self._layers = len(spec.hidden) + 1
        self._spec = spec

    def gradient(self, weights: Weights, batch: Advantages, rows: NDArray[np.int64]) -> tuple[Weights, float]:
        """Gradient of the clipped loss over some rows in all weights, shape (parameter_count,), and the entropy."""
        views = split_weights(weights, self._spec)
        gradient = np.zeros_like(weights)
        slopes = split_weights(gradient, self._spec)
        inputs = [batch.features_MF[rows]]
        for layer in range(self._layers):
            out = inputs[-1] @ views[f"actor.{layer}.weight"].T
            out += views[f"actor.{layer}.bias"]
            if layer + 1 < self._layers:
                np.maximum(out, 0.0, out=out)
            inputs.append(out)
        slope, entropy = self._slope(inputs.pop(), batch, rows)
        for layer in reversed(range(self._layers)):
            np.matmul(slope.T, inputs[layer], out=slopes[f"actor.{layer}.weight"])
            slopes[f"actor.{layer}.bias"][:] = slope.sum(axis=0)
            if layer:
                slope = slope @ views[f"actor.{layer}.weight"]
                slope *= inputs[layer] > 0.0
        return gradient, entropy

    def _slope(self, logits_BA: NDArray[Any], batch: Advantages, rows: NDArray[np.int64]) -> tuple[NDArray[Any], float]:
        """Slope of the loss in the logits, and the mean entropy of the policy in nats."""
        mask_BA = batch.masks_MA[rows]
        logits_BA = np.where(mask_BA, logits_BA, np.float32(-np.inf))
        logits_BA -= logits_BA.max(axis=1, keepdims=True)
        policy_BA = np.exp(logits_BA)
        sums_B1 = policy_BA.sum(axis=1, keepdims=True)
        policy_BA /= sums_B1
        logs_B1 = np.log(sums_B1)
        at = np.arange(len(rows)), batch.actions_M[rows]
        ratio_B = np.exp(logits_BA[at] - logs_B1[:, 0] - batch.log_behaviour_M[rows])
        advantage_B = batch.advantage_M[rows]
        clipped_B = np.where(advantage_B > 0.0, ratio_B > 1.0 + CLIP, ratio_B < 1.0 - CLIP)
        pull_B = np.where(clipped_B, np.float32(0.0), ratio_B * advantage_B) / np.float32(len(rows))
        slope_BA = policy_BA * pull_B[:, None]
        slope_BA[at] -= pull_B
        finite_BA = np.where(mask_BA, logits_BA, np.float32(0.0))
        entropy = float((logs_B1[:, 0] - (policy_BA * finite_BA).sum(axis=1)).mean())
        return slope_BA, entropy


class LocalSteps:
    """Steps of Adam on groups of decisions, several over the same draws.

    Attributes:
        weights: as they have become, shape (parameter_count,).
    """

    def __init__(self, spec: PolicySpec, weights: Weights, seed: int) -> None:
        self.weights = np.array(weights, dtype=np.float32)
        self._gradients = GroupGradients(spec)
        self._first, self._second = np.zeros_like(self.weights), np.zeros_like(self.weights)
        self._count = 0
        self._generator = np.random.default_rng(seed)

    def take(self, batch: Advantages, *, epochs: int, batch_samples: int, learning_rate: float) -> float:
        """Go over a batch of groups so many times; returns the policy's entropy in nats before the first step."""
        first_entropy = None
        for _ in range(epochs):
            order = self._generator.permutation(len(batch))
            parts = max(1, len(order) // batch_samples)
            for rows in np.array_split(order, parts):
                gradient, entropy = self._gradients.gradient(self.weights, batch, rows)
                first_entropy = entropy if first_entropy is None else first_entropy
                self._count += 1
                adam_step(
                    self.weights,
                    self._first,
                    self._second,
                    self._count,
                    gradient,
                    learning_rate,
                    AdamConstants(),
                )
        return first_entropy or 0.0
