"""Adam on the learner's state, which counts its updates: those that moved the moments and those that did not."""

from __future__ import annotations

from global_learner.storage.snapshot import AdamState
from policy_net.exchange.spec import Weights
from policy_net.learning.adam import AdamConstants, adam_step, follow


def apply_adam(
    state: AdamState,
    gradient: Weights,
    learning_rate: float,
    constants: AdamConstants,
    units: Weights | None = None,
) -> None:
    """One step down the gradient, in place; see `adam_step`."""
    state.step += 1
    count = state.step - state.idle_steps
    adam_step(state.weights, state.first_moment, state.second_moment, count, gradient, learning_rate, constants, units)


def move_average(state: AdamState, decay: float) -> None:
    """Let the average follow the weights, in place; see `follow`."""
    if state.average is None:
        state.average = state.weights.copy()
        return
    follow(state.average, state.weights, decay)
