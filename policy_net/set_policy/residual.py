"""The residual: one small network over all jobs at once, whose output tilts the planner's scores.

Legend: J jobs, F inputs, O outputs (priority, steepness).
The output is bounded by a tanh; new weights have a last layer of zeros, so that the policy starts as the planner alone.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from policy_net.exchange.set_spec import SetSpec
from policy_net.exchange.spec import Weights, split_weights
from policy_net.set_policy.planner import Tilt

Array = NDArray[np.float64]


class Residual:
    """The network of one policy."""

    def __init__(self, spec: SetSpec, weights: Weights) -> None:
        """Raises SpecMismatch if the weights are of another length than the spec's."""
        views = split_weights(weights, spec)
        self._layers = [
            (views[f"residual.{layer}.weight"].astype(np.float64), views[f"residual.{layer}.bias"].astype(np.float64))
            for layer in range(len(spec.hidden) + 1)
        ]
        self._bound = spec.bound
        last_weight, last_bias = self._layers[-1]
        self.silent = not (last_weight.any() or last_bias.any())

    def tilts(self, inputs_JF: Array) -> list[Tilt]:
        """Priority and steepness of every job."""
        hidden = inputs_JF
        for weight, bias in self._layers[:-1]:
            hidden = np.maximum(hidden @ weight.T + bias, 0.0)
        weight, bias = self._layers[-1]
        outputs_JO = self._bound * np.tanh((hidden @ weight.T + bias) / self._bound)
        return [(priority, steepness) for priority, steepness in outputs_JO.tolist()]


def initial_residual(spec: SetSpec, seed: int) -> Weights:
    """He-uniform hidden layers, a last layer of zeros."""
    generator = np.random.default_rng(seed)
    pieces = []
    for name, shape in spec.layout():
        layer = int(name.split(".")[1])
        if name.endswith("bias") or layer == len(spec.hidden):
            pieces.append(np.zeros(int(np.prod(shape)), dtype=np.float32))
        else:
            bound = np.sqrt(6.0 / shape[1])
            pieces.append(generator.uniform(-bound, bound, size=shape).astype(np.float32).ravel())
    return np.concatenate(pieces)
