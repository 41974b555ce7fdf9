"""The residual: one small network over all jobs at once, whose output tilts the planner's scores.

Legend: J jobs, F inputs, H a hidden width, O outputs (priority, steepness).
The output is bounded by a tanh; new weights have a last layer of zeros, so that the policy starts as the planner alone.
Its gradient is written out: at a few dozen parameters numpy has it before torch has begun.
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
        return [(priority, steepness) for priority, steepness in self.outputs(inputs_JF).tolist()]

    def outputs(self, inputs_JF: Array) -> Array:
        """The tilts of all jobs, shape (J, O)."""
        return self._bound * np.tanh(self._forward(inputs_JF)[1] / self._bound)

    def gradient(self, inputs_JF: Array, slope_JO: Array) -> Array:
        """The gradient of a figure in all parameters, from its gradient in the tilts; shape (parameter_count,)."""
        entering, linear_JO = self._forward(inputs_JF)
        back = slope_JO * (1.0 - np.tanh(linear_JO / self._bound) ** 2)
        pieces: list[Array] = []
        for layer in reversed(range(len(self._layers))):
            pieces = [(back.T @ entering[layer]).ravel(), back.sum(axis=0), *pieces]
            if layer:
                back = (back @ self._layers[layer][0]) * (entering[layer] > 0.0)
        return np.concatenate(pieces)

    def _forward(self, inputs_JF: Array) -> tuple[list[Array], Array]:
        """What enters every layer, and what leaves the last one before it is bounded."""
        entering = [inputs_JF]
        for weight, bias in self._layers[:-1]:
            entering.append(np.maximum(entering[-1] @ weight.T + bias, 0.0))
        weight, bias = self._layers[-1]
        return entering, entering[-1] @ weight.T + bias


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
