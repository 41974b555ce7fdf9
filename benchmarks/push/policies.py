"""The policy that is pushed: a `dl2` network whose gradient has about 0.4 MB."""

from __future__ import annotations

import numpy as np

from policy_net.exchange.policy_file import PolicyFile
from policy_net.exchange.spec import PolicySpec, Weights

HIDDEN = (105, 105)
"""With J = 20 and 12 type columns: 100,232 parameters, 0.40 MB."""
GRADIENT_SCALE = 1e-3
"""A norm of 0.3, as sound gradients of this policy have."""


def policy(seed: int = 0) -> PolicyFile:
    """A policy to begin with."""
    spec = PolicySpec(hidden=HIDDEN)
    generator = np.random.default_rng(seed)
    return PolicyFile(spec, (0.05 * generator.standard_normal(spec.parameter_count)).astype(np.float32))


def gradient(spec: PolicySpec, seed: int) -> Weights:
    """Something of a gradient's size; values do not matter for the time."""
    generator = np.random.default_rng(seed)
    return (GRADIENT_SCALE * generator.standard_normal(spec.parameter_count)).astype(np.float32)
