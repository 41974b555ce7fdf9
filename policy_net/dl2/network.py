"""The two multilayer perceptrons on one flat weight vector: numpy to act, torch to learn.

Legend: B batch, F features, H hidden width, A actions.
Source: DL2 §4.1 (fully connected, ReLU, two hidden layers; softmax policy, linear value).
One forward pass of one state is memory-bound and takes numpy 10–20 µs and torch 35 µs, so acting never needs torch; a
grant changes three inputs of one job, so the first layer is updated instead of computed again.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from policy_net.exchange.spec import PolicySpec, Weights, split_weights

if TYPE_CHECKING:
    import torch

FloatArray = NDArray[np.float32]


class ActingNetwork:
    """The actor for one state after another; holds the first layer's pre-activation between grants."""

    def __init__(self, spec: PolicySpec, weights: Weights) -> None:
        views = split_weights(np.ascontiguousarray(weights, dtype=np.float32), spec)
        layers = len(spec.hidden) + 1
        # The first layer is kept transposed, so that one input's weights lie side by side in memory.
        self._first_FH = np.ascontiguousarray(views["actor.0.weight"].T)
        self._first_bias_H = views["actor.0.bias"].copy()
        self._deeper = [
            (views[f"actor.{layer}.weight"].copy(), views[f"actor.{layer}.bias"].copy()) for layer in range(1, layers)
        ]
        self._pre_H = self._first_bias_H.copy()

    @property
    def layers(self) -> list[tuple[FloatArray, FloatArray]]:
        """Weights, shape (inputs, outputs), and biases, layer by layer; float32, contiguous."""
        deeper = [(np.ascontiguousarray(weight.T), bias) for weight, bias in self._deeper]
        return [(self._first_FH, self._first_bias_H), *deeper]

    def start(self, features_F: FloatArray) -> None:
        """Take a new state; only inputs that are not zero cost anything."""
        active = np.flatnonzero(features_F)
        self._pre_H = features_F[active] @ self._first_FH[active] + self._first_bias_H

    def change(self, first: int, deltas: FloatArray) -> None:
        """Add `deltas` to the inputs from `first` on."""
        self._pre_H += deltas @ self._first_FH[first : first + len(deltas)]

    def logits(self) -> FloatArray:
        """Unmasked logits of the present state, shape (A,)."""
        hidden: FloatArray = self._pre_H
        for weight, bias in self._deeper:
            hidden = weight @ np.maximum(hidden, 0.0) + bias
        return hidden


def tensors_of(weights: Weights, spec: PolicySpec, *, requires_grad: bool) -> tuple[torch.Tensor, list[torch.Tensor]]:
    """The flat vector as one torch leaf, and the layout's tensors as views of it.

    With `requires_grad`, one backward pass leaves the whole flat gradient in the leaf's `.grad`.
    """
    import torch  # noqa: PLC0415  (acting must not pay for torch's start-up)

    flat = torch.from_numpy(np.array(weights, dtype=np.float32))
    if requires_grad:
        flat.requires_grad_(True)
    views = []
    start = 0
    for _, shape in spec.layout():
        size = int(np.prod(shape))
        views.append(flat[start : start + size].view(shape))
        start += size
    return flat, views


def actor_logits(features_BF: torch.Tensor, tensors: list[torch.Tensor], spec: PolicySpec) -> torch.Tensor:
    """Unmasked logits, shape (B, A)."""
    return _forward(features_BF, tensors[: 2 * (len(spec.hidden) + 1)])


def critic_values(features_BF: torch.Tensor, tensors: list[torch.Tensor], spec: PolicySpec) -> torch.Tensor:
    """State values, shape (B,)."""
    return _forward(features_BF, tensors[2 * (len(spec.hidden) + 1) :]).squeeze(-1)


def _forward(inputs: torch.Tensor, tensors: list[torch.Tensor]) -> torch.Tensor:
    import torch.nn.functional as F  # noqa: PLC0415  (as above)

    hidden = inputs
    last = len(tensors) // 2 - 1
    for layer in range(last + 1):
        hidden = F.linear(hidden, tensors[2 * layer], tensors[2 * layer + 1])
        if layer < last:
            hidden = F.relu(hidden)
    return hidden


def initial_weights(spec: PolicySpec, seed: int) -> Weights:
    """He-uniform weights, zero biases; output layers a hundred times smaller, so that a new policy is near uniform."""
    generator = np.random.default_rng(seed)
    pieces = []
    last = len(spec.hidden)
    for name, shape in spec.layout():
        if name.endswith("bias"):
            pieces.append(np.zeros(shape, dtype=np.float32))
            continue
        bound = np.sqrt(6.0 / shape[1]) * (0.01 if int(name.split(".")[1]) == last else 1.0)
        pieces.append(generator.uniform(-bound, bound, size=shape).astype(np.float32).ravel())
    return np.concatenate(pieces)
