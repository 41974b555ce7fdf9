"""The robustness benchmark's parts: attacks, repeatability, and the record it makes."""

import numpy as np
import pytest

from benchmarks.robustness.__main__ import AGGREGATIONS, measure
from benchmarks.robustness.attacks import ATTACKS
from benchmarks.robustness.fleet import run_fleet
from global_learner.aggregation.choice import build_aggregator
from global_learner.aggregation.settings import AggregationSettings, OptimizerSettings
from policy_net.exchange.policy_file import PolicyFile
from policy_net.exchange.spec import PolicySpec
from policy_net.network import initial_weights

SPEC = PolicySpec(jobs_per_batch=24, type_columns=1, hidden=(8,))
START = PolicyFile(SPEC, initial_weights(SPEC, seed=1))


def test_attacks_are_what_they_are_called() -> None:
    gradient = np.array([1.0, -2.0], np.float32)
    made = {name: attack(gradient).tolist() for name, attack in ATTACKS.items()}
    assert made == {
        "none": [1.0, -2.0],
        "flipped": [-1.0, 2.0],
        "hundredfold": [100.0, -200.0],
        "hundredfold-flipped": [-100.0, 200.0],
    }


@pytest.mark.parametrize("name", AGGREGATIONS)
def test_every_aggregation_can_be_built(name: str) -> None:
    settings = AggregationSettings.model_validate(AGGREGATIONS[name])
    assert build_aggregator(settings, OptimizerSettings(), SPEC).waiting == 0


def test_a_run_is_repeatable_and_an_attack_changes_it() -> None:
    settings = AggregationSettings.model_validate(AGGREGATIONS["median"])
    clean, again, attacked = (
        run_fleet(START, settings, ATTACKS[attack], 0, 4) for attack in ("none", "none", "hundredfold")
    )
    assert clean.weights.tobytes() == again.weights.tobytes() != attacked.weights.tobytes()
    assert clean.updates == attacked.updates > 0


@pytest.mark.heavy
def test_the_record_compares_every_attack_with_the_clean_run(tmp_path) -> None:
    record = measure(tmp_path, START, ["median"], ["none", "flipped"], 2, 1, 1)
    assert [(run["aggregation"], run["attack"]) for run in record["runs"]] == [
        ("median", "none"),
        ("median", "flipped"),
    ]
    assert record["runs"][0]["over_clean"] == 1.0
    assert record["clusters"] == 5
