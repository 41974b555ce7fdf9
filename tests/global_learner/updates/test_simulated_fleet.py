import numpy as np
import pytest

from global_learner.aggregation.settings import AggregationSettings, OptimizerSettings
from global_learner.errors import UpdateRejected
from global_learner.updates import simulated_fleet
from global_learner.updates.simulated_fleet import SimulatedHead, train_fleet
from policy_net.exchange.policy_file import PolicyFile
from policy_net.exchange.spec import PolicySpec, Weights
from policy_net.learning.gradient import GradientResult, NotEnoughSamples

SPEC = PolicySpec(jobs_per_batch=1, type_columns=1, hidden=(2,))
START = PolicyFile(SPEC, np.zeros(SPEC.parameter_count, np.float32))
RATE = 0.01


class Cluster:
    """Pushes the way to where all weights are 1, and remembers which heads it was given."""

    def __init__(self, every: int = 1) -> None:
        self.heads: list[Weights] = []
        self._every = every

    def next_gradient(self, head: Weights) -> GradientResult | None:
        self.heads.append(head.copy())
        if len(self.heads) % self._every:
            return None
        return GradientResult((head - 1.0).astype(np.float32) * 0.1, 32, 32.0, {})


def test_clusters_compute_at_the_same_head_and_their_updates_are_applied_one_by_one() -> None:
    clusters, steps = [Cluster() for _ in range(3)], []
    weights = train_fleet(START, clusters, RATE, 6, lambda step, head: steps.append((step, float(head[0]))))
    assert [step for step, _ in steps] == [1, 2, 3, 4, 5, 6]
    assert all((one.heads[1] == clusters[0].heads[1]).all() for one in clusters)
    assert float(clusters[0].heads[1][0]) == pytest.approx(steps[2][1])  # after the first round's three updates
    assert steps == sorted(steps)  # Adam moves towards 1 at every step
    assert float(weights[0]) == pytest.approx(6 * RATE, rel=0.05)


def test_a_fleet_gives_the_same_weights_again() -> None:
    def run() -> Weights:
        return train_fleet(START, [Cluster(), Cluster(every=2)], RATE, 7, lambda _step, _head: None)

    assert (run() == run()).all()


def test_a_fleet_that_finds_nothing_to_learn_from_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(simulated_fleet, "_MOST_POLLS", 5)
    monkeypatch.setattr(simulated_fleet, "_POLLS_AN_UPDATE", 1)
    with pytest.raises(
        NotEnoughSamples, match="0 of 3 updates, and 0 refused: the clusters find nothing to learn from"
    ):
        train_fleet(START, [Cluster(every=1000)], RATE, 3, lambda _step, _head: None)


def test_an_update_that_the_learner_would_reject_changes_nothing() -> None:
    learner = SimulatedHead(START, OptimizerSettings(), AggregationSettings())
    with pytest.raises(UpdateRejected):
        learner.offer("north", 0, GradientResult(np.full(SPEC.parameter_count, np.nan, np.float32), 32, 32.0, {}))
    assert learner.head.step == 0
    assert not learner.head.weights.any()
