"""Protocol of aggregators, which turn taken updates into a moved head; Adam, which most step by; and mode `async`.

An aggregator sees updates in the order of the log, live and in a replay, and must do the same both times, bit for bit:
no clock, no randomness, only the update, its own settings and its state. Every update that is taken is one step of the
head, whether it moves the weights or not, so that exactly-once, receipts and recovery are the same for all aggregators.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Protocol

from global_learner.errors import StateUnusable
from global_learner.storage.snapshot import AdamState, AggregatorState
from global_learner.storage.update_records import AppliedUpdate, UpdateKind
from policy_net.exchange.spec import Weights
from policy_net.learning.adam import AdamConstants, adam_step, follow


class Aggregator(Protocol):
    """Decides what an update does, and does it."""

    @property
    def waiting(self) -> int:
        """Updates that were taken and have not moved the head yet."""
        ...

    def kind_of_next(self, cluster: str, present: Collection[str] | None = None) -> UpdateKind:
        """Kind of the next update, if it is this cluster's; asked live only, and logged with the update.

        Args:
            present: the clusters that take part at present, where that is known.

        Raises:
            UpdateRejected: this aggregator takes no pushed updates.
        """
        ...

    def apply(self, state: AdamState, applied: AppliedUpdate) -> bool:
        """Take an update: `state.step` grows by one. Whether the weights moved.

        Raises:
            StateUnusable: the update's kind is none of this aggregator's.
        """
        ...

    def close_early(self, state: AdamState) -> bool:
        """Let what waits move the head now, without a step of its own; for a change of the settings."""
        ...

    def reset(self, kept: AggregatorState) -> None:
        """Drop what waits, as the head goes back to a version, and take up the strategy's memory of then.

        Args:
            kept: of the version's aggregator, perhaps of another mode.
        """
        ...

    def kept(self) -> AggregatorState:
        """State for `restore`; shares nothing with the aggregator."""
        ...

    def restore(self, kept: AggregatorState) -> None:
        """Go on from a snapshot's state."""
        ...


def unexpected(applied: AppliedUpdate, aggregator: str) -> StateUnusable:
    """The error for a record of another aggregator's."""
    return StateUnusable(
        f"update {applied.step} of the log is of kind {applied.kind.name.lower()}, which aggregation mode {aggregator} "
        "does not know; restore the state directory from a copy"
    )


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


class Memoryless:
    """The part of `Aggregator` about waiting updates and memory, where there are none."""

    waiting = 0

    def close_early(self, state: AdamState) -> bool:
        """Nothing waits."""
        del state
        return False

    def reset(self, kept: AggregatorState) -> None:
        """Nothing is remembered."""
        del kept

    restore = reset

    def kept(self) -> AggregatorState:
        """Nothing."""
        return AggregatorState()


class ImmediateAggregator(Memoryless):
    """Mode `async`: every update moves the head when it arrives, through our own fused Adam; see `Aggregator`.

    Source: A3C (Mnih et al. 2016), DL2 §4.3. Deviation: Adam on the learner's side, its step shortened by staleness.
    """

    def __init__(self, constants: AdamConstants, units: Weights | None = None) -> None:
        self._constants = constants
        self._units = units

    def kind_of_next(self, cluster: str, present: Collection[str] | None = None) -> UpdateKind:
        """Always a step of its own."""
        del cluster, present
        return UpdateKind.STEP

    def apply(self, state: AdamState, applied: AppliedUpdate) -> bool:
        """One Adam step down the update's gradient."""
        if applied.kind is not UpdateKind.STEP:
            raise unexpected(applied, "async")
        apply_adam(state, applied.update.gradient, applied.learning_rate, self._constants, self._units)
        # At rate 0 nothing moves, not even the sign of a zero.
        return applied.learning_rate != 0.0
