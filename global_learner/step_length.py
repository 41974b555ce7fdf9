"""How far one update may move the head: the learning rate at this step, for its staleness and its samples."""

from __future__ import annotations

from global_learner.aggregation.settings import AggregationSettings, OptimizerSettings
from global_learner.head import Head
from global_learner.ingest import Judgement
from global_learner.sample_weight import sample_weight
from global_learner.update_log import Kind
from policy_net.exchange.wire import GradientUpdate


def learning_rate(
    optimizer: OptimizerSettings,
    aggregation: AggregationSettings,
    head: Head,
    judgement: Judgement,
    update: GradientUpdate,
    kind: Kind,
) -> float:
    """Adam's rate for an update that is about to be applied; logged with it, so that a replay asks nobody.

    Samples count only where the update is a step of its own: a cohort weighs its updates itself.
    """
    rate = optimizer.rate_at(head.step) * judgement.scale
    if kind is not Kind.STEP:
        return rate
    return rate * sample_weight(update.samples, head.ledger.usual_samples(), aggregation.largest_sample_weight)
