"""Choice among the modes of aggregation, and mode `rounds`.

An unmodified Flower strategy runs the round over `updates/grid.py`. At its end, every reply that took part is logged by
name, the last one with the round's weights, all in one go. A replay takes these weights and asks no strategy; a round
that a crash interrupts has left nothing, and is run anew.
"""

from __future__ import annotations

from collections.abc import Collection

from global_learner.aggregation.base import Aggregator, ImmediateAggregator, Memoryless, unexpected
from global_learner.aggregation.buffered import BufferedAggregator
from global_learner.aggregation.flower import build_strategy
from global_learner.aggregation.region import RegionAggregator
from global_learner.aggregation.settings import AggregationMode, AggregationSettings, OptimizerSettings
from global_learner.errors import BadLearnerConfig, Rejection, UpdateRejected
from global_learner.storage.snapshot import AdamState
from global_learner.storage.update_records import AppliedUpdate, UpdateKind
from policy_net.exchange.spec import WeightSpec
from policy_net.learning.adam import AdamConstants


class RoundsAggregator(Memoryless):
    """Mode `rounds`; see `Aggregator`.

    Rounds are taken whole; a strategy that has a memory begins it anew with the learner.
    """

    def __init__(self, settings: AggregationSettings) -> None:
        # Built and thrown away: a wrong name must stop the start, not the first round.
        build_strategy(settings.strategy, settings.parameters)

    def kind_of_next(self, cluster: str, present: Collection[str] | None = None) -> UpdateKind:
        """Pushed updates have no place in a round."""
        del present
        raise UpdateRejected(
            Rejection.ROUNDS_ONLY, f"this learner works in rounds and asks cluster {cluster} itself; poll it"
        )

    def apply(self, state: AdamState, applied: AppliedUpdate) -> bool:
        """Count a part; take the weights of an end."""
        if applied.kind not in (UpdateKind.ROUND_PART, UpdateKind.ROUND_END):
            raise unexpected(applied, "rounds")
        state.pass_by()
        if applied.kind is UpdateKind.ROUND_PART:
            return False
        state.weights[:] = applied.update.gradient
        return True


def build_aggregator(settings: AggregationSettings, optimizer: OptimizerSettings, spec: WeightSpec) -> Aggregator:
    """A new aggregator of the mode.

    Raises:
        BadConfig: no such strategy or parameter, no such units for it, or a policy that cannot learn so.
    """
    units = optimizer.units_for(spec)
    if settings.passes_up:
        return RegionAggregator(settings, optimizer, spec)
    if settings.mode in (AggregationMode.BUFFERED, AggregationMode.ROBUST):
        return BufferedAggregator(settings, optimizer, spec)
    if settings.mode is AggregationMode.ROUNDS:
        if units is not None:
            raise BadLearnerConfig("setting optimizer.units: in mode rounds the strategy takes the steps; leave it out")
        if not spec.learns_live:
            raise BadLearnerConfig(
                "setting aggregation.mode: rounds are answered by what decisions brought, and this dl2 policy has no "
                "critic to learn from that: take async, buffered or robust"
            )
        return RoundsAggregator(settings)
    return ImmediateAggregator(AdamConstants(optimizer.beta1, optimizer.beta2, optimizer.epsilon), units)
