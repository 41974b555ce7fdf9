"""The robustness benchmark's parts: attacks, treatments, repeatability, and the record it makes."""

from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

from benchmarks.robustness import __main__ as command
from benchmarks.robustness import runs, teaching
from benchmarks.robustness.fleet import ATTACKS, run_fleet
from benchmarks.robustness.runs import NAMES, treatments
from benchmarks.robustness.worlds import SPEC, held_out
from global_learner.aggregation.modes import build_aggregator
from global_learner.aggregation.settings import AggregationSettings, OptimizerSettings
from policy_net.dl2.network import initial_weights
from policy_net.exchange.policy_file import PolicyFile
from policy_net.laboratory.speeds.speed import default_speeds
from policy_net.laboratory.workloads.sources import load_workload
from policy_net.laboratory.workloads.workload import WorkloadOptions

START = PolicyFile(SPEC, initial_weights(SPEC, seed=1))


@pytest.fixture(autouse=True)
def _little_to_watch(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(teaching, "WORKLOADS", 1)
    monkeypatch.setattr(teaching, "MICRO_STATES", 300)
    monkeypatch.setattr(teaching, "START_STEPS", 2)


def test_attacks_are_what_they_are_called() -> None:
    gradient = np.array([1.0, -2.0], np.float32)
    made = {name: attack(gradient).tolist() for name, attack in ATTACKS.items()}
    assert made == {
        "none": [1.0, -2.0],
        "flipped": [-1.0, 2.0],
        "hundredfold": [100.0, -200.0],
        "hundredfold-flipped": [-100.0, 200.0],
    }


@pytest.mark.parametrize("name", NAMES)
def test_every_treatment_can_be_built(name: str) -> None:
    treatment = treatments(10)[name]
    aggregation = AggregationSettings.model_validate(dict(treatment.aggregation))
    optimizer = OptimizerSettings.model_validate(dict(treatment.optimizer))
    assert build_aggregator(aggregation, optimizer, SPEC).waiting == 0


@pytest.mark.heavy
def test_a_run_is_repeatable_and_an_attack_changes_it() -> None:
    treatment = treatments(10)["median"]
    clean, again, attacked = (
        run_fleet(START, treatment, ATTACKS[attack], 0, 4) for attack in ("none", "none", "hundredfold")
    )
    assert clean.weights.tobytes() == again.weights.tobytes() != attacked.weights.tobytes()
    assert clean.updates == attacked.updates > 0


@pytest.mark.heavy
def test_a_norm_limit_keeps_hundredfold_gradients_out_and_no_other() -> None:
    treatment = treatments(10)["async-norm"]
    run = run_fleet(START, treatment, ATTACKS["hundredfold"], 0, 4)
    assert dict(run.rejected) == {"east": 4}
    assert run.updates == 16
    assert not run_fleet(START, treatment, ATTACKS["flipped"], 0, 2).rejected


@pytest.mark.heavy
def test_the_record_compares_every_attack_with_the_clean_run(monkeypatch: pytest.MonkeyPatch) -> None:
    small = load_workload("dl2:jobs=3,seed=1", WorkloadOptions(speeds=default_speeds()))
    for module in (command, runs):  # a policy that learned nothing takes long
        monkeypatch.setattr(module, "held_out", lambda each: [small] * each)
    with ThreadPoolExecutor(1) as pool:  # in this process, where little is to be watched
        record = command.measure(["median"], ["none", "flipped"], 2, 1, 1, pool)
    assert [run["attack"] for run in record["runs"]] == ["none", "flipped"]
    assert record["runs"][0]["over_clean"] == record["runs"][0]["greedy_over_clean"] == 1.0
    assert record["runs"][1]["over_teacher"] > 0.0
    assert (record["clusters"], record["held_out_workloads"]) == (5, 1)


def test_nobody_trains_on_what_is_judged() -> None:
    assert len({workload.name for workload in held_out(2)}) == 10


def test_runs_of_no_rounds_are_refused(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as stop:
        command.main(["--rounds", "0"])
    assert stop.value.code == 2
