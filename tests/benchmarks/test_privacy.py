"""The benchmark of privacy: a fleet that learns, noise that can be repeated, and budgets that end where they are to."""

from __future__ import annotations

import numpy as np
import pytest

from benchmarks.privacy import world
from benchmarks.privacy.fleet import Treatment, run_fleet
from benchmarks.privacy.world import Experience, beginning, teacher, watched
from global_learner.aggregation.settings import PrivacyMode
from policy_net.exchange.spec import Weights
from policy_net.laboratory.training.set_imitation import PickLikelihood

pytestmark = pytest.mark.heavy

CLUSTERS, UPDATES = 3, 60


@pytest.fixture(scope="module")
def fleet() -> list[Experience]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(world, "JOBS", 8)
        patch.setattr(world, "SHARES", CLUSTERS)
        return watched(0, 0)


def log_likelihood(fleet: list[Experience], weights: Weights) -> float:
    """Of what the teacher decided, in nats a pick."""
    _, spec = teacher()
    found = []
    for batch in (batch for experience in fleet for batch in experience.batches):
        likelihood = PickLikelihood(spec, batch, 0.0)
        likelihood.loss(np.append(weights.astype(np.float64), 0.0))
        found.append(likelihood.latest)
    return float(np.mean(found))


def test_without_privacy_the_fleet_learns_what_the_teacher_decides(fleet: list[Experience]) -> None:
    learned = run_fleet(fleet, Treatment(CLUSTERS, UPDATES, 0.03), seed=1)
    assert (learned.applied, learned.refused, learned.spent_epsilon) == (CLUSTERS * UPDATES, 0, 0.0)
    assert log_likelihood(fleet, learned.weights) > log_likelihood(fleet, beginning()) + 0.1


@pytest.mark.parametrize("mode", PrivacyMode)
def test_each_cluster_gives_just_the_updates_that_its_budget_allows(fleet: list[Experience], mode: PrivacyMode) -> None:
    treatment = Treatment(CLUSTERS, UPDATES, 0.03, 8.0, mode)
    learned = run_fleet(fleet, treatment, seed=1)
    assert (learned.applied, learned.refused) == (CLUSTERS * UPDATES, CLUSTERS)
    assert 7.9 < learned.spent_epsilon <= 8.0
    again = run_fleet(fleet, treatment, seed=1)
    assert again.weights.tobytes() == learned.weights.tobytes()
    assert run_fleet(fleet, treatment, seed=2).weights.tobytes() != learned.weights.tobytes()
