"""The policy gradient of some segments of experience, at the learner's head.

Legend: S segments, K decision times, B micro-actions, F features, A actions.
Source: DL2 §4.3 (REINFORCE with a baseline, entropy bonus, mini-batches from a replay; for the paper's reward a learned
value function is the baseline and the advantage of a slot goes to all of its samples) and §6.5.2 (what it is compared
with: a moving average of the rewards in place of the value function, and a reward of each job by itself).
Deviation: with the slot-utility reward, advantages come from `utility_advantages` and the critic rests. They are
scaled by their own running size, so that clusters of different size and load weigh alike. The off-policy correction is
one ratio a micro-action, clipped at 1: the product over the forty of a decision time is noise, and their geometric
mean, tried before, lets a replayed grant that the policy has long unlearned be unlearned without end.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence

import numpy as np
import torch
from numpy.typing import NDArray

from policy_net.dl2.network import actor_logits, critic_values, tensors_of
from policy_net.dl2.policy import DecisionSamples
from policy_net.domain import RewardKind
from policy_net.exchange.spec import PolicySpec, Weights
from policy_net.learning.gradient import (
    AdvantageScale,
    GradientResult,
    NotEnoughSamples,
    Segment,
    clipped_ratios,
    effective_samples,
    utility_advantages,
)
from policy_net.learning.replay import Experience
from policy_net.learning.settings import ActorCriticSettings, Baseline

_AVERAGE_MEMORY = 0.02
"""Weight of the newest update in the moving average of rewards: about the last fifty count."""


class GradientComputer:
    """Computes one update at a time; owns the random numbers that pick mini-batches, and the scale of advantages.

    Raises:
        BadInput: the policy has no critic.
    """

    def __init__(self, spec: PolicySpec, settings: ActorCriticSettings, seed: int = 0) -> None:
        spec.need_critic()
        self._spec = spec
        self._settings = settings
        self._generator = np.random.default_rng(seed)
        self._scale = AdvantageScale()
        self._usual_reward: float | None = None

    def gradient(self, head: Weights, segments: Sequence[Segment]) -> GradientResult:
        """The gradient of the actor-critic loss at `head`; each segment is a run of consecutive decision times.

        Raises:
            NotEnoughSamples: no segment of two decision times, or too few effective samples.
        """
        segments = [segment for segment in segments if len(segment) > 1]
        if not segments:
            raise NotEnoughSamples("advantages compare decision times: a segment needs at least 2")
        flat, tensors = tensors_of(head, self._spec, requires_grad=True)
        entries = [entry for segment in segments for entry in segment]
        samples = [_network_samples(entry) for entry in entries]
        advantages, value_error = self._advantages(segments, tensors)
        picked = self._pick(samples)
        masks_BA = torch.from_numpy(_stack(samples, picked, "masks_MA"))
        actions_B = torch.from_numpy(_stack(samples, picked, "actions_M"))
        behaviour_B = _stack(samples, picked, "behaviour_M").astype(np.float64)
        advantages_B = np.concatenate([values[rows] for values, rows in zip(advantages, picked, strict=True)])

        features_BF = torch.from_numpy(_stack(samples, picked, "features_MF"))
        logits_BA = actor_logits(features_BF, tensors, self._spec).masked_fill(~masks_BA, -torch.inf)
        log_policy_BA = torch.log_softmax(logits_BA, dim=1)
        taken_B = log_policy_BA.gather(1, actions_B[:, None]).squeeze(1)
        ratios_B = clipped_ratios(taken_B.detach().numpy().astype(np.float64), behaviour_B)
        effective = effective_samples(ratios_B)
        if not effective >= self._settings.minimum_effective_samples:  # also where all ratios underflow: 0/0
            raise NotEnoughSamples(f"{effective:.1f} effective samples of {len(ratios_B)}; the head has moved too far")

        weights_B = torch.from_numpy((ratios_B * self._scale.scaled(advantages_B)).astype(np.float32))
        entropy_B, relative_B = _entropy(log_policy_BA, masks_BA)
        loss = -(weights_B * taken_B).mean() - self._settings.entropy_weight * relative_B.mean()
        if value_error is not None:
            loss = loss + self._settings.value_weight * value_error
        loss.backward()  # type: ignore[no-untyped-call]  # torch's own annotation is incomplete
        assert flat.grad is not None  # noqa: S101  (the leaf of the graph that backward just walked)
        statistics = {
            "reward_mean": float(np.mean([entry.reward for entry in entries])),
            "entropy_mean": float(entropy_B.mean().item()),
            "ratio_mean": float(ratios_B.mean()),
        }
        if value_error is not None:
            statistics["value_error"] = float(value_error.item())
        surprises = tuple(float(np.abs(values).mean()) for values in advantages)
        return GradientResult(flat.grad.numpy(), len(ratios_B), effective, statistics, surprises)

    def _advantages(
        self, segments: Sequence[Segment], tensors: list[torch.Tensor]
    ) -> tuple[list[NDArray[np.float64]], torch.Tensor | None]:
        """Advantages per decision time, each of shape (M,); and the critic's squared error where there is a critic."""
        if self._settings.reward is RewardKind.SLOT_UTILITY:
            shared = self._settings.shared_credit
            return [values for segment in segments for values in utility_advantages(segment, shared)], None
        if self._settings.baseline is Baseline.MOVING_AVERAGE:
            return self._over_usual_reward([self._rewards(entry) for segment in segments for entry in segment]), None
        advantages: list[NDArray[np.float64]] = []
        errors = []
        for segment in segments:
            first_KF = torch.from_numpy(np.stack([_network_samples(entry).features_MF[0] for entry in segment]))
            values_K = critic_values(first_KF, tensors, self._spec)
            known_K = values_K.detach().numpy().astype(np.float64)
            # What follows the last decision time is not known here; it stands in for itself.
            following_K = np.append(known_K[1:], known_K[-1])
            rewards = [self._rewards(entry) for entry in segment]
            later_K = self._settings.discount * following_K
            targets_K = np.array([values.mean() for values in rewards]) + later_K
            errors.append((values_K - torch.from_numpy(targets_K.astype(np.float32))).square())
            advantages += [values + gain for values, gain in zip(rewards, later_K - known_K, strict=True)]
        return advantages, torch.cat(errors).mean()

    def _rewards(self, entry: Experience) -> NDArray[np.float64]:
        """What each micro-action of a decision time is rewarded with, shape (M,): all alike, or its own job's part."""
        if self._settings.reward is RewardKind.PAPER:
            return np.full(len(entry.samples), entry.reward)
        if entry.utility is None:
            raise ValueError("this experience does not say which job contributed what to the reward")
        jobs_M, shares = entry.samples.jobs_M, entry.utility.efficiency
        return np.where(jobs_M >= 0, shares[jobs_M], shares.mean())  # void is for all of them

    def _over_usual_reward(self, rewards: Sequence[NDArray[np.float64]]) -> list[NDArray[np.float64]]:
        """Rewards less their moving average, of which they become part."""
        mean = float(np.mean([values.mean() for values in rewards]))
        usual = mean if self._usual_reward is None else self._usual_reward
        self._usual_reward = usual + _AVERAGE_MEMORY * (mean - usual)
        return [values - usual for values in rewards]

    def _pick(self, samples: Sequence[DecisionSamples]) -> list[NDArray[np.int64]]:
        """Which micro-actions of each decision time make the mini-batch: all, or a uniform draw without repetition."""
        lengths = [len(entry) for entry in samples]
        total = sum(lengths)
        if total <= self._settings.batch_samples:
            return [np.arange(length) for length in lengths]
        chosen = np.sort(self._generator.choice(total, self._settings.batch_samples, replace=False))
        bounds = np.concatenate(([0], np.cumsum(lengths)))
        return [chosen[(chosen >= begin) & (chosen < end)] - begin for begin, end in itertools.pairwise(bounds)]


def _network_samples(entry: Experience) -> DecisionSamples:
    if not isinstance(entry.samples, DecisionSamples):
        raise TypeError(f"experience of a {type(entry.samples).__name__}, not of a network's choices")
    return entry.samples


def _stack(samples: Sequence[DecisionSamples], picked: Sequence[NDArray[np.int64]], field: str) -> NDArray[np.generic]:
    return np.concatenate([getattr(entry, field)[rows] for entry, rows in zip(samples, picked, strict=True)])


def _entropy(log_policy_BA: torch.Tensor, masks_BA: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Entropy over the admissible actions, in nats, and relative to its maximum; both shape (B,)."""
    finite_BA = log_policy_BA.masked_fill(~masks_BA, 0.0)
    entropy_B = -(finite_BA.exp() * finite_BA).masked_fill(~masks_BA, 0.0).sum(dim=1)
    most_B = masks_BA.sum(dim=1).clamp(min=2).log()
    return entropy_B, entropy_B / most_B
