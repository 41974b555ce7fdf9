"""Which aggregator the settings ask for."""

from __future__ import annotations

from global_learner.aggregation.base import Aggregator
from global_learner.aggregation.buffered import BufferedAggregator
from global_learner.aggregation.immediate import ImmediateAggregator
from global_learner.aggregation.optimizer import AdamConstants
from global_learner.aggregation.rounds import RoundsAggregator
from global_learner.aggregation.settings import AggregationSettings, Mode, OptimizerSettings
from policy_net.exchange.spec import WeightSpec


def build_aggregator(settings: AggregationSettings, optimizer: OptimizerSettings, spec: WeightSpec) -> Aggregator:
    """A new aggregator of the mode.

    Raises:
        BadConfig: no such strategy or parameter.
    """
    if settings.mode is Mode.BUFFERED:
        return BufferedAggregator(settings, optimizer, spec)
    if settings.mode is Mode.ROUNDS:
        return RoundsAggregator(settings)
    return ImmediateAggregator(AdamConstants(optimizer.beta1, optimizer.beta2, optimizer.epsilon))
