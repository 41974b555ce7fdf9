"""The contract, on every aggregator and every strategy."""

from collections.abc import Iterator

import pytest
from aggregator_suite import SPEC, AggregatorContract, arrival

from global_learner.aggregation.base import Aggregator
from global_learner.aggregation.flower import USABLE
from global_learner.aggregation.modes import build_aggregator
from global_learner.aggregation.settings import AggregationSettings, OptimizerSettings
from global_learner.errors import UpdateRejected
from global_learner.storage.update_records import AppliedUpdate, UpdateKind

OPTIMIZER = OptimizerSettings(learning_rate=1e-3)


def build(**settings: object) -> Aggregator:
    return build_aggregator(AggregationSettings.model_validate(settings), OPTIMIZER, SPEC)


class TestImmediate(AggregatorContract):
    def make(self) -> Aggregator:
        return build(mode="async")


@pytest.mark.parametrize("strategy", USABLE)
class TestBuffered(AggregatorContract):
    @pytest.fixture(autouse=True)
    def _choose(self, strategy: str) -> None:
        self.strategy = strategy

    def make(self) -> Aggregator:
        return build(mode="buffered", strategy=self.strategy, buffer=4)


class TestBufferedOtherSteps(AggregatorContract):
    """A median that steps by itself, with early closing."""

    def make(self) -> Aggregator:
        return build(mode="buffered", server_step="strategy", buffer=7, close_after_updates=5, min_clusters=3)


class TestRobust(AggregatorContract):
    def make(self) -> Aggregator:
        return build(mode="robust", buffer=4)


class TestRounds(AggregatorContract):
    def make(self) -> Aggregator:
        return build(mode="rounds")

    def stream(self, aggregator: Aggregator, count: int, seed: int) -> Iterator[AppliedUpdate]:
        with pytest.raises(UpdateRejected, match="rounds-only"):
            aggregator.kind_of_next("north")
        for step in range(1, count + 1):
            yield arrival(step, "north", UpdateKind.ROUND_PART if step % 3 else UpdateKind.ROUND_END)

    def test_at_rate_zero_the_weights_stay_bit_for_bit(self) -> None:
        """A round's weights are the strategy's, whatever the rate."""
