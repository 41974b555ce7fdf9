"""What aggregators have in common that keep nothing from one update to the next."""

from __future__ import annotations

from global_learner.aggregation.base import Kept
from global_learner.aggregation.optimizer import AdamState


class Memoryless:
    """The half of `Aggregator` that is about what waits and what is remembered: nothing."""

    @property
    def waiting(self) -> int:
        """None ever waits."""
        return 0

    def close_early(self, state: AdamState) -> bool:
        """Nothing waits."""
        del state
        return False

    def reset(self, kept: Kept) -> None:
        """Nothing waits, nothing is remembered."""
        del kept

    def kept(self) -> Kept:
        """Nothing."""
        return Kept()

    def restore(self, kept: Kept) -> None:
        """Nothing to do."""
        del kept
