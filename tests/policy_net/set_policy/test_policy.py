from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from states import make_job, make_state, states

from policy_net.dl2.network import initial_weights
from policy_net.domain import (
    Allocation,
    CapacityMode,
    ClusterState,
    Node,
    PolicyContext,
    Progress,
    Resources,
    Trigger,
)
from policy_net.errors import PolicyFileError, SpecMismatch
from policy_net.exchange.policy_file import PolicyFile, parse_policy_file, write_policy_file
from policy_net.exchange.spec import SET_INPUTS, PolicySpec, SetSpec
from policy_net.laboratory.simulation.environment import Environment
from policy_net.laboratory.simulation.replay import replay
from policy_net.laboratory.speeds.speed import default_speeds
from policy_net.laboratory.workloads.sources import load_workload
from policy_net.policy_kinds import load_policy
from policy_net.set_policy.policy import SetPolicy, build_set, default_set_file, set_policy_of
from policy_net.set_policy.residual import Residual, initial_residual, job_inputs
from policy_net.set_policy.steps import StepTables

SPEC = SetSpec(hidden=(8,))


def random_weights(seed: int) -> np.ndarray:
    return np.random.default_rng(seed).normal(0, 0.5, SPEC.parameter_count).astype(np.float32)


def test_new_weights_decide_as_the_planner_alone() -> None:
    state = make_state([make_job(number, "vgg-16") for number in range(12)])
    fresh = SetPolicy(SPEC, initial_residual(SPEC, 3))
    assert Residual(SPEC, initial_residual(SPEC, 3)).silent
    nothing = SetPolicy(SPEC, np.zeros(SPEC.parameter_count, dtype=np.float32))
    assert fresh.decide(state, Trigger.SLOT) == nothing.decide(state, Trigger.SLOT)


@settings(max_examples=40, deadline=None)
@given(states(most_jobs=12), st.integers(0, 1000))
def test_tilts_are_bounded_and_do_not_depend_on_the_order_of_the_jobs(state: ClusterState, seed: int) -> None:
    if not state.jobs:
        return
    tables = StepTables(SetPolicy(SPEC, random_weights(0)).beliefs)  # type: ignore[arg-type]
    listed = [tables.of(job) for job in state.jobs]
    inputs = job_inputs(state, listed, [0.1] * len(listed))
    assert inputs.shape == (len(state.jobs), SET_INPUTS + 1)
    assert np.isfinite(inputs).all()
    tilts = Residual(SPEC, random_weights(seed)).tilts(inputs)
    assert (np.abs(tilts) <= SPEC.bound + 1e-9).all()
    order = np.random.default_rng(seed).permutation(len(tilts))
    again = Residual(SPEC, random_weights(seed)).tilts(inputs[order])
    np.testing.assert_allclose(again, np.array(tilts)[order], atol=1e-9)


def test_on_one_machine_a_residual_says_a_fiftieth_of_what_it_says_in_a_cluster() -> None:
    """Of the same jobs: the nodes differ, their sum does not."""
    listed = [make_job(number, remaining_epochs=10.0 * (number + 1)) for number in range(5)]
    cluster = make_state(listed, nodes=4)
    machine = replace(cluster, nodes=(Node("n0", cluster.total),))
    residual = Residual(SPEC, random_weights(3))
    tables = StepTables(SetPolicy(SPEC, random_weights(3)).beliefs)  # type: ignore[arg-type]
    of_jobs = [tables.of(job) for job in listed]
    loud, quiet = (residual.outputs(job_inputs(state, of_jobs, [0.1] * 5)) for state in (cluster, machine))
    assert np.abs(loud).max() > 0.1
    np.testing.assert_allclose(quiet, loud / 50.0)


def test_on_one_machine_the_shipped_policy_lets_the_shorter_of_waiting_jobs_go_first() -> None:
    """As on a machine of two cores that the policy once shared among ten real jobs: the longest went first."""
    cpu = {"worker_demand": Resources(400, 0), "ps_demand": Resources(100, 0), "max_workers": 4, "max_ps": 2}
    work = {"samples_per_epoch": 3170.0, "min_ps": 1}
    jobs = [
        make_job(number, "small-gpt", total_epochs=epochs, remaining_epochs=epochs, **cpu, **work)
        for number, epochs in enumerate((4.0, 1.0, 3.0, 0.8, 3.5))
    ]
    state = ClusterState(0.0, (Node("here", Resources(1800, 0)),), tuple(jobs), 15.0, CapacityMode.POOLED)
    policy = build_set(PolicyContext())
    one = Allocation(workers=1, ps=1)
    policy.observe([Progress("earlier", "small-gpt", one, 20.0, 322.0 * 20.0, 20.0, 100.0, True, 1.5)])
    running = policy.decide(state, Trigger.SLOT).allocation
    assert {"job-1", "job-3"} <= set(running)


def test_the_policy_learns_speeds_from_what_it_sees() -> None:
    speeds = default_speeds()
    policy = SetPolicy(SPEC, initial_residual(SPEC, 0))
    first, later = (
        replay(
            load_workload("dl2:jobs=30,arrivals=google,sizes=varied,seed=11"), Environment(nodes=16), policy, speeds
        ).to_json()["avg_jct_seconds"]
        for _ in range(2)
    )
    assert later < first


@pytest.mark.parametrize("hidden", [(), (5,), (16,), (7, 3)])
def test_jobs_of_which_all_is_the_same_tie_wherever_they_stand_among_others(hidden: tuple[int, ...]) -> None:
    spec, generator = SetSpec(hidden=hidden), np.random.default_rng(0)
    residual = Residual(spec, generator.normal(size=spec.parameter_count).astype(np.float32))
    for count in range(2, 200):
        inputs = generator.normal(size=(count, SET_INPUTS + 1))
        inputs[:, 3] = 0.0
        first, second = generator.choice(count, 2, replace=False)
        inputs[second] = inputs[first]
        inputs[second, 3] = -0.0
        tilts = residual.tilts(inputs)
        assert tilts[first] == tilts[second], "a matrix product may round them differently"
        assert np.allclose(tilts, residual.outputs(inputs), rtol=0.0, atol=1e-12)


@settings(max_examples=40, deadline=None)
@given(states(most_jobs=6), st.integers(0, 1000), st.integers(2, 4))
def test_of_jobs_that_are_alike_the_one_that_came_first_is_looked_at_first(
    state: ClusterState, seed: int, times: int
) -> None:
    jobs = tuple(replace(job, job_id=f"{job.job_id}-{number}") for job in state.jobs for number in range(times))
    policy = SetPolicy(SPEC, random_weights(seed))
    weighed, _ = policy.weighed(replace(state, jobs=jobs, placement=None))
    steps: dict[int, list[tuple[Allocation, float]]] = {}
    for at, step in enumerate(weighed):
        steps.setdefault(step.job, []).append((step.granted, step.score))
        if step.job % times:
            before = step.job - 1
            assert before in steps, f"step {at} is of a job before whom one like it was not looked at"
            assert steps[step.job][0] == steps[before][0]


def test_a_file_gives_back_weights_priors_and_card(tmp_path: Path) -> None:
    shipped = default_set_file()
    content = PolicyFile(SPEC, random_weights(5), {"why": "a test"}, shipped.priors[:3])
    file = tmp_path / "mine.safetensors"
    write_policy_file(file, content)
    read = parse_policy_file(file.read_bytes(), str(file))
    assert (read.spec, dict(read.card), read.priors) == (SPEC, {"why": "a test"}, shipped.priors[:3])
    np.testing.assert_array_equal(read.weights, content.weights)
    policy = load_policy(str(file), PolicyContext())
    assert isinstance(policy, SetPolicy)
    assert policy.name == "mine.safetensors"


def test_a_dl2_file_without_priors_keeps_its_bytes() -> None:
    spec = PolicySpec(hidden=(4,))
    assert b"priors" not in PolicyFile(spec, initial_weights(spec, 0), {}).to_bytes()


def test_what_takes_one_kind_refuses_the_other_in_one_line() -> None:
    content = PolicyFile(SPEC, random_weights(5))
    with pytest.raises(PolicyFileError, match="only a dl2 policy"):
        _ = content.network_spec
    dl2 = PolicySpec(hidden=(4,))
    with pytest.raises(PolicyFileError, match="not a set policy"):
        set_policy_of(PolicyFile(dl2, initial_weights(dl2, 0)), "first.safetensors")
    with pytest.raises(SpecMismatch):
        SetPolicy(SPEC, np.zeros(3, dtype=np.float32))


def test_a_spec_of_another_feature_version_is_refused() -> None:
    with pytest.raises(PolicyFileError, match="feature version"):
        SetSpec.from_json(SPEC.to_json().replace('"set_feature_version":1', '"set_feature_version":99'))
    with pytest.raises(PolicyFileError, match="hidden"):
        SetSpec.from_json(SPEC.to_json().replace("[8]", "[0]"))


def test_the_shipped_policy_says_where_it_comes_from() -> None:
    card = default_set_file().card
    assert card["made_by"] == "python -m benchmarks.set_default"
    assert max(card["evolution_seeds"]) < min(card["validation_seeds"]) < max(card["validation_seeds"]) < 9_500_000
    assert max(card["prior_seeds"]) < min(card["evolution_seeds"])
    if not card["residual_published"]:
        assert not default_set_file().weights.any()
    assert {entry.job_type for entry in default_set_file().priors} >= {"vgg-16", "resnet-50"}


def test_two_policies_shown_the_same_decide_the_same() -> None:
    speeds, environment = default_speeds(), Environment(nodes=16, speed_noise=0.27)
    workload = load_workload("dl2:jobs=20,arrivals=google,sizes=varied,seed=12")
    first, second = (
        replay(workload, environment, load_policy("set", PolicyContext()), speeds).outcomes for _ in range(2)
    )
    assert first == second
