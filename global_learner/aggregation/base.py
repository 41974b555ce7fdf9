"""Protocol of everything that turns taken updates into a moved head.

An aggregator sees updates in the order of the log, live and in a replay, and must do the same both times, bit for bit:
no clock, no randomness, nothing that is not in the update, in its own settings or in what it kept. Every update that is
taken is one step of the head, so that exactly-once, receipts and recovery are the same for all of them; whether a step
moves the weights is the aggregator's affair.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Protocol

from global_learner.errors import StateUnusable
from global_learner.storage.snapshot import AdamState, AggregatorState
from global_learner.storage.update_records import AppliedUpdate, UpdateKind


class Aggregator(Protocol):
    """Decides what an update does, and does it."""

    @property
    def waiting(self) -> int:
        """Updates that were taken and have not moved the head yet."""
        ...

    def kind_of_next(self, cluster: str, present: Collection[str] | None = None) -> UpdateKind:
        """What the next update will do, if it is this cluster's; asked live only, and logged with the update.

        Args:
            cluster: whose update it would be.
            present: the clusters that take part at present, where somebody knows.

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
        """Drop what waits, and remember what a strategy remembered then: the head goes back to a version.

        Args:
            kept: of whatever aggregator the version was made under; nothing in it may be of use.
        """
        ...

    def kept(self) -> AggregatorState:
        """What `restore` needs; shares nothing with the aggregator."""
        ...

    def restore(self, kept: AggregatorState) -> None:
        """Go on from what a snapshot kept."""
        ...


def unexpected(applied: AppliedUpdate, aggregator: str) -> StateUnusable:
    """The error for a record of another aggregator's."""
    return StateUnusable(
        f"update {applied.step} of the log is of kind {applied.kind.name.lower()}, which aggregation mode {aggregator} "
        "does not know; restore the state directory from a copy"
    )
