"""A cluster that learns from what its present scheduler decides: gradients with little noise, from its own workloads.

How an operator moves over from an existing scheduler, done by a fleet: every cluster watches its own, keeps what it
saw, and pushes gradients of the cross-entropy to it.
"""

from __future__ import annotations

import numpy as np
import torch

import policy_net.baselines  # noqa: F401  (registers drf)
from benchmarks.robustness.worlds import MIXES, SPEC, environment, workload
from policy_net.dl2.network import actor_logits, initial_weights, tensors_of
from policy_net.domain import PolicyContext
from policy_net.exchange.policy_file import PolicyFile
from policy_net.exchange.spec import PolicySpec, Weights
from policy_net.laboratory.speeds.speed import default_speeds
from policy_net.laboratory.training.imitation import Demonstrations, demonstrate, imitate, watch
from policy_net.learning.gradient import GradientResult
from policy_net.learning.settings import ImitationSettings
from policy_net.policy import build_policy

TEACHER = "drf"
WORKLOADS = 3
"""Watched by every cluster."""
MICRO_STATES = 12_000
"""Kept by every cluster."""
START_SEED = 1
START_STEPS = 300
"""A fifth of what it takes to decide like the teacher."""


def demonstrations(mix: str, spec: PolicySpec, seed: int, workloads: int) -> Demonstrations:
    """What the teacher decides on so many workloads of a mix."""
    seen = []
    for number in range(workloads):
        teacher = build_policy(TEACHER, PolicyContext())
        seen += watch(teacher, workload(mix, seed + number), environment(), default_speeds())
    return demonstrate(seen, spec, ImitationSettings(micro_states=MICRO_STATES), seed)


def beginning() -> PolicyFile:
    """The policy that every run starts from, always the same: it has only begun to decide like the teacher."""
    parts = [demonstrations(mix, SPEC, START_SEED, workloads=1) for mix in MIXES.values()]
    together = Demonstrations(
        np.concatenate([part.features_MF for part in parts]),
        np.concatenate([part.masks_MA for part in parts]),
        np.concatenate([part.targets_MA for part in parts]),
    )
    weights = imitate(initial_weights(SPEC, 0), SPEC, together, ImitationSettings(), steps=START_STEPS, seed=0)
    return PolicyFile(SPEC, weights)


class ImitatingCluster:
    """Pushes the gradient of one mini-batch after the other."""

    def __init__(self, name: str, start: PolicyFile, seed: int) -> None:
        self._spec = start.network_spec
        self._seen = demonstrations(MIXES[name], self._spec, seed, WORKLOADS)
        self._batch_samples = ImitationSettings().batch_samples
        self._generator = np.random.default_rng(seed)

    def next_gradient(self, head: Weights) -> GradientResult:
        """The gradient of the cross-entropy at the head."""
        rows = self._generator.integers(len(self._seen), size=self._batch_samples)
        flat, tensors = tensors_of(head, self._spec, requires_grad=True)
        masks_BA = torch.from_numpy(self._seen.masks_MA[rows])
        targets_BA = torch.from_numpy(self._seen.targets_MA[rows])
        logits_BA = actor_logits(torch.from_numpy(self._seen.features_MF[rows]), tensors, self._spec)
        log_policy_BA = torch.log_softmax(logits_BA.masked_fill(~masks_BA, -torch.inf), dim=1)
        loss = -(targets_BA * log_policy_BA.masked_fill(~masks_BA, 0.0)).sum(dim=1).mean()
        (slope,) = torch.autograd.grad(loss, flat)
        return GradientResult(slope.numpy().copy(), self._batch_samples, float(self._batch_samples), {})
