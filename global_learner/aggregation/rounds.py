"""Mode `rounds`: what a round leaves in the log, and how a replay applies it.

The round itself is run by an unmodified Flower strategy over `grid`. When it has ended, every reply that took part is
logged by name, the last one with the weights that the round ended with, all in one go. A replay takes the weights as
they stand there and asks no strategy; a round that a crash interrupts has left nothing, and is run anew.
"""

from __future__ import annotations

from global_learner.aggregation.base import unexpected
from global_learner.aggregation.flower import build_strategy
from global_learner.aggregation.memoryless import Memoryless
from global_learner.aggregation.optimizer import AdamState
from global_learner.aggregation.settings import AggregationSettings
from global_learner.errors import Rejection, UpdateRejected
from global_learner.storage.update_log import AppliedUpdate, Kind


class RoundsAggregator(Memoryless):
    """See `Aggregator`. Rounds are taken whole; a strategy that has a memory begins it anew with the learner."""

    def __init__(self, settings: AggregationSettings) -> None:
        # Built and thrown away: a wrong name must stop the start, not the first round.
        build_strategy(settings.strategy, settings.parameters)

    def kind_of_next(self, cluster: str) -> Kind:
        """Pushed updates have no place in a round."""
        raise UpdateRejected(
            Rejection.ROUNDS_ONLY, f"this learner works in rounds and asks cluster {cluster} itself; poll it"
        )

    def apply(self, state: AdamState, applied: AppliedUpdate) -> bool:
        """Count a part; take the weights of an end."""
        if applied.kind not in (Kind.ROUND_PART, Kind.ROUND_END):
            raise unexpected(applied, "rounds")
        state.pass_by()
        if applied.kind is Kind.ROUND_PART:
            return False
        state.weights[:] = applied.update.gradient
        return True
