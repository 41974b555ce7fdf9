"""The policy gradient of one segment of experience, at the learner's head.

Legend: K decision times, B micro-actions, F features, A actions.
Source: DL2 §4.3 (REINFORCE with a learned baseline, entropy bonus; every sample of a slot gets the slot's reward).
Deviation: with the slot-utility reward, advantages are per decision time, centred and scaled over the segment, which is
how clusters of different size and load come to speak with one voice. The off-policy correction is one ratio a decision
time, the geometric mean of its micro-actions' ratios clipped at 1: the product over some sixty of them is noise.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray

from policy_net.errors import PolicyNetError
from policy_net.exchange.spec import PolicySpec, Weights
from policy_net.learning.replay import Experience
from policy_net.learning.settings import ActorCriticSettings, RewardKind
from policy_net.network import actor_logits, critic_values, tensors_of

_SMALLEST_SPREAD = 1e-6
_LONGEST_INTERVAL_WEIGHT = 3.0
"""A very long interval counts at most three times as much as an average one, so that one quiet night is no lesson."""


class NotEnoughSamples(PolicyNetError):
    """The segment is too short, or too far off-policy, to learn from; wait for more experience."""


@dataclass(frozen=True, slots=True)
class GradientResult:
    """A gradient of the loss (descend along its negative) and what it was made of."""

    gradient: Weights
    samples: int
    effective_samples: float
    statistics: dict[str, float]


class GradientComputer:
    """Computes one update at a time; owns the random numbers that pick its mini-batches."""

    def __init__(self, spec: PolicySpec, settings: ActorCriticSettings, seed: int = 0) -> None:
        self._spec = spec
        self._settings = settings
        self._generator = np.random.default_rng(seed)

    def gradient(self, head: Weights, segment: Sequence[Experience]) -> GradientResult:
        """The gradient of the actor-critic loss at `head`.

        Raises:
            NotEnoughSamples: fewer than two decision times, or too few effective samples.
        """
        if len(segment) < 2:
            raise NotEnoughSamples(f"{len(segment)} decision times; advantages need at least 2")
        flat, tensors = tensors_of(head, self._spec, requires_grad=True)
        targets_K, advantages_K, values_K = self._advantages(segment, tensors)
        picked = self._pick(segment)
        features_BF = torch.from_numpy(_stack(segment, picked, "features_MF"))
        masks_BA = torch.from_numpy(_stack(segment, picked, "masks_MA"))
        actions_B = torch.from_numpy(_stack(segment, picked, "actions_M"))
        behaviour_B = _stack(segment, picked, "behaviour_M").astype(np.float64)
        decision_B = np.concatenate([np.full(len(rows), k) for k, rows in enumerate(picked)])

        logits_BA = actor_logits(features_BF, tensors, self._spec).masked_fill(~masks_BA, -torch.inf)
        log_policy_BA = torch.log_softmax(logits_BA, dim=1)
        taken_B = log_policy_BA.gather(1, actions_B[:, None]).squeeze(1)
        ratios_K = _decision_ratios(taken_B.detach().numpy().astype(np.float64), behaviour_B, decision_B, len(segment))
        effective = float(ratios_K[decision_B].sum() ** 2 / np.square(ratios_K[decision_B]).sum())
        if effective < self._settings.minimum_effective_samples:
            raise NotEnoughSamples(
                f"{effective:.1f} effective samples of {len(decision_B)}; the head has moved too far"
            )

        weights_B = torch.from_numpy((ratios_K * advantages_K)[decision_B].astype(np.float32))
        actor_loss = -(weights_B * taken_B).mean()
        entropy_B, relative_B = _entropy(log_policy_BA, masks_BA)
        loss = actor_loss - self._settings.entropy_weight * relative_B.mean()
        value_error = (values_K - torch.from_numpy(targets_K.astype(np.float32))).square().mean()
        loss = loss + self._settings.value_weight * value_error
        loss.backward()  # type: ignore[no-untyped-call]  # torch's own annotation is incomplete
        assert flat.grad is not None  # noqa: S101  (the leaf of the graph that backward just walked)
        statistics = {
            "reward_mean": float(np.mean([entry.reward for entry in segment])),
            "entropy_mean": float(entropy_B.mean().item()),
            "ratio_mean": float(ratios_K.mean()),
            "value_error": float(value_error.item()),
        }
        return GradientResult(flat.grad.numpy(), len(decision_B), effective, statistics)

    def _advantages(
        self, segment: Sequence[Experience], tensors: list[torch.Tensor]
    ) -> tuple[NDArray[np.float64], NDArray[np.float64], torch.Tensor]:
        """Critic targets, advantages (both shape (K,)) and the critic's values at each decision's first state."""
        first_KF = torch.from_numpy(np.stack([entry.samples.features_MF[0] for entry in segment]))
        values_K = critic_values(first_KF, tensors, self._spec)
        rewards_K = np.array([entry.reward for entry in segment], dtype=np.float64)
        known_K = values_K.detach().numpy().astype(np.float64)
        if self._settings.reward is RewardKind.PAPER:
            following_K = np.append(known_K[1:], known_K[-1])
            targets_K = rewards_K + self._settings.discount * following_K
            return targets_K, targets_K - known_K, values_K
        raw_K = rewards_K - rewards_K.mean()
        raw_K /= max(float(raw_K.std()), _SMALLEST_SPREAD)
        seconds_K = np.array([entry.seconds for entry in segment], dtype=np.float64)
        shares_K = np.minimum(seconds_K / max(float(seconds_K.mean()), _SMALLEST_SPREAD), _LONGEST_INTERVAL_WEIGHT)
        return rewards_K, raw_K * shares_K, values_K

    def _pick(self, segment: Sequence[Experience]) -> list[NDArray[np.int64]]:
        """Which micro-actions of each decision time make the mini-batch: all, or a uniform draw without repetition."""
        lengths = [len(entry.samples) for entry in segment]
        total = sum(lengths)
        if total <= self._settings.batch_samples:
            return [np.arange(length) for length in lengths]
        chosen = np.sort(self._generator.choice(total, self._settings.batch_samples, replace=False))
        starts = np.concatenate(([0], np.cumsum(lengths)))
        return [chosen[(chosen >= begin) & (chosen < end)] - begin for begin, end in itertools.pairwise(starts)]


def _stack(segment: Sequence[Experience], picked: Sequence[NDArray[np.int64]], field: str) -> NDArray[np.generic]:
    return np.concatenate([getattr(entry.samples, field)[rows] for entry, rows in zip(segment, picked, strict=True)])


def _decision_ratios(
    log_policy_B: NDArray[np.float64], behaviour_B: NDArray[np.float64], decision_B: NDArray[np.int64], decisions: int
) -> NDArray[np.float64]:
    """One importance ratio a decision time: the geometric mean over its micro-actions, at most 1."""
    differences_B = log_policy_B - np.log(behaviour_B)
    counts_K = np.bincount(decision_B, minlength=decisions)
    sums_K = np.bincount(decision_B, weights=differences_B, minlength=decisions)
    return np.minimum(1.0, np.exp(sums_K / np.maximum(counts_K, 1)))


def _entropy(log_policy_BA: torch.Tensor, masks_BA: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Entropy over the admissible actions, in nats, and relative to its maximum; both shape (B,)."""
    finite_BA = log_policy_BA.masked_fill(~masks_BA, 0.0)
    entropy_B = -(finite_BA.exp() * finite_BA).masked_fill(~masks_BA, 0.0).sum(dim=1)
    most_B = masks_BA.sum(dim=1).clamp(min=2).log()
    return entropy_B, entropy_B / most_B
