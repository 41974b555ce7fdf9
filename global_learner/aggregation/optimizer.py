"""Adam on the learner's state, for live updates and for those that recovery reads from the log."""

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
    """One step down the gradient, in place; a rate of 0 moves the moments and the step, and no bit of the weights.

    Args:
        gradient: finite, float32, the state's shape; not changed.
        learning_rate: of this step, after staleness.
        units: of the rate, by parameter; 1 unless given.
    """
    state.step += 1
    count = state.moves
    adam_step(state.weights, state.first_moment, state.second_moment, count, gradient, learning_rate, constants, units)


def move_average(state: AdamState, decay: float) -> None:
    """Let the average follow the weights: decay · average + (1 − decay) · weights, in place; it begins with them."""
    if state.average is None:
        state.average = state.weights.copy()
        return
    follow(state.average, state.weights, decay)
