"""Mode `async`: every update moves the head when it arrives, through our own fused Adam.

Source: A3C (Mnih et al. 2016), DL2 §4.3. Deviation: Adam on the learner's side, its step shortened by staleness.
"""

from __future__ import annotations

from global_learner.aggregation.base import unexpected
from global_learner.aggregation.memoryless import Memoryless
from global_learner.aggregation.optimizer import AdamConstants, AdamState, apply_adam
from global_learner.storage.update_log import AppliedUpdate, Kind


class ImmediateAggregator(Memoryless):
    """Keeps nothing; see `Aggregator`."""

    def __init__(self, constants: AdamConstants) -> None:
        self._constants = constants

    def kind_of_next(self, cluster: str) -> Kind:
        """Always a step of its own."""
        del cluster
        return Kind.STEP

    def apply(self, state: AdamState, applied: AppliedUpdate) -> bool:
        """One Adam step down the update's gradient."""
        if applied.kind is not Kind.STEP:
            raise unexpected(applied, "async")
        apply_adam(state, applied.update.gradient, applied.learning_rate, self._constants)
        # At rate 0 nothing moves, not even the sign of a zero.
        return applied.learning_rate != 0.0
