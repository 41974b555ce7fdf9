import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from spread_places import place_spread
from states import make_job, make_state, states

from policy_net.dl2.action import GRANT_KINDS
from policy_net.domain import Allocation, CapacityMode, ClusterState, Progress, Resources, Trigger
from policy_net.exchange.spec import SET_INPUTS, SetSpec
from policy_net.learning.residual_gradient import Likelihood
from policy_net.set_policy.planner import SetSamples
from policy_net.set_policy.policy import SetPolicy
from policy_net.set_policy.residual import Residual

SPEC = SetSpec(hidden=(5,), temperature=0.3)


def weights_of(seed: int, spec: SetSpec = SPEC) -> np.ndarray:
    return np.random.default_rng(seed).normal(0, 0.5, spec.parameter_count).astype(np.float32)


def crowd(jobs: int = 10, nodes: int = 8) -> ClusterState:
    kinds = ("vgg-16", "resnet-50", "seq2seq")
    return make_state(
        [make_job(n, kinds[n % 3], remaining_epochs=10.0 * (n + 1), total_epochs=1000.0) for n in range(jobs)], nodes
    )


def drawn(seed: int = 0, state: ClusterState | None = None, **options: object) -> SetSamples:
    policy = SetPolicy(SPEC, weights_of(1), seed=seed, **{"greedy": False} | options)  # type: ignore[arg-type]
    return policy.decide_recorded(state or crowd(), Trigger.SLOT)[1]


@pytest.mark.heavy
@settings(max_examples=60, deadline=None)
@given(states(), st.integers(0, 1000), st.sampled_from([(True, 0.0), (True, 0.3), (False, 0.0), (False, 0.2)]))
def test_every_draw_can_be_carried_out_and_is_recorded_with_its_probability(
    state: ClusterState, seed: int, chance: tuple[bool, float]
) -> None:
    policy = SetPolicy(SPEC, weights_of(seed), seed=seed, greedy=chance[0], exploration=chance[1])
    decision, samples = policy.decide_recorded(state, Trigger.SLOT)
    used = Resources(0, 0)
    for job in state.jobs:
        grant = decision.of(job.job_id)
        assert grant.workers <= job.max_workers
        assert grant.ps <= job.max_ps
        used = used + job.worker_demand * grant.workers + job.ps_demand * grant.ps
    assert used.fits_in(state.total)
    if state.capacity_mode is CapacityMode.NODES:
        _, left_over = place_spread(state, decision.allocation)
        assert not any(allocation.tasks for allocation in left_over.values())
    assert ((samples.behaviour_M > 0.0) & (samples.behaviour_M <= 1.0)).all()
    assert (samples.behaviour_M[~samples.chosen_M] == 1.0).all()
    assert len(samples) == samples.chosen_M.sum()
    assert samples.finite
    columns = [int(action) // GRANT_KINDS for action in samples.actions_M]
    assert columns == samples.jobs_M.tolist()
    assert {state.jobs[column].job_id for column in columns} >= set(decision.allocation)


@settings(max_examples=40, deadline=None)
@given(states(), st.integers(0, 1000))
def test_without_chance_the_record_is_of_what_the_planner_decides(state: ClusterState, seed: int) -> None:
    policy = SetPolicy(SPEC, weights_of(seed))
    decision, samples = policy.decide_recorded(state, Trigger.SLOT)
    assert decision == SetPolicy(SPEC, weights_of(seed)).decide(state, Trigger.SLOT)
    assert len(samples) == 0


def test_a_decision_follows_from_its_seed_and_number_alone() -> None:
    def decide(number: int, seed: int = 4) -> list[int]:
        policy = SetPolicy(SPEC, weights_of(1), seed=seed, greedy=False, exploration=0.1)
        policy.decision_index = number
        return policy.decide_recorded(crowd(), Trigger.SLOT)[1].actions_M.tolist()

    assert decide(7) == decide(7)
    assert decide(7) != decide(8)
    assert decide(7) != decide(7, seed=5)


def test_a_high_temperature_draws_evenly_and_a_low_one_takes_the_best() -> None:
    cold = SPEC.model_copy(update={"temperature": 1e-4})
    hot = SPEC.model_copy(update={"temperature": 100.0})
    best = SetPolicy(SPEC, weights_of(1)).decide(crowd(), Trigger.SLOT)
    assert SetPolicy(cold, weights_of(1), greedy=False).decide(crowd(), Trigger.SLOT) == best
    samples = SetPolicy(hot, weights_of(1), greedy=False).decide_recorded(crowd(), Trigger.SLOT)[1]
    assert samples.behaviour_M[0] == pytest.approx(0.1, rel=0.2)


def test_in_production_the_runner_up_is_taken_with_the_given_probability_and_nothing_else_is() -> None:
    firsts: list[int] = []
    for seed in range(400):
        samples = drawn(seed, greedy=True, exploration=0.25)
        firsts.append(int(samples.jobs_M[0]))
        assert set(samples.behaviour_M[samples.chosen_M].tolist()) <= {0.25, 0.75}
    best, runner_up = sorted(set(firsts), key=firsts.count, reverse=True)
    assert firsts.count(runner_up) / 400 == pytest.approx(0.25, abs=0.06)
    assert best == drawn(0, greedy=True).jobs_M[0]


def test_what_was_drawn_is_as_probable_under_the_same_residual_as_the_record_says() -> None:
    samples = drawn(3)
    likelihood = Likelihood(samples, Residual(SPEC, weights_of(1)), SPEC)
    np.testing.assert_allclose(
        np.exp(likelihood.log_policy_M[samples.chosen_M]), samples.behaviour_M[samples.chosen_M], rtol=1e-9
    )
    assert likelihood.ratio == pytest.approx(1.0)
    assert 0.0 < likelihood.entropy < np.log(10)


def torch_log_probability(samples: SetSamples, flat: torch.Tensor) -> torch.Tensor:
    """Σ log π over the choices, written anew and for torch: the network by hand, the steps pick by pick."""
    inputs, loudness = torch.from_numpy(samples.inputs_JF).split([SET_INPUTS, 1], dim=1)
    width, features = SPEC.hidden[0], inputs.shape[1]
    first, rest = flat[: width * features].view(width, features), flat[width * features :]
    bias, rest = rest[:width], rest[width:]
    last, last_bias = rest[: 2 * width].view(2, width), rest[2 * width :]
    linear = torch.relu(inputs @ first.T + bias) @ last.T + last_bias
    tilts = loudness * SPEC.bound * torch.tanh(linear / SPEC.bound)
    steps = samples.first_J2.copy()
    total = torch.zeros((), dtype=torch.float64)
    for pick, job in enumerate(samples.jobs_M.tolist()):
        there = np.flatnonzero(np.isfinite(steps[:, 0]))
        score, share = torch.from_numpy(steps[there, 0]), torch.from_numpy(steps[there, 1])
        logits = (score + tilts[there, 0] + share * tilts[there, 1]) / SPEC.temperature
        if samples.chosen_M[pick]:
            total = total + torch.log_softmax(logits, 0)[there.tolist().index(job)]
        steps[job] = samples.next_M2[pick]
    return total


@pytest.mark.parametrize("nodes", [4, 1])
@pytest.mark.parametrize("seed", [0, 1, 2])
def test_the_gradient_is_that_of_torch(seed: int, nodes: int) -> None:
    samples, weights = drawn(seed, crowd(nodes=nodes), exploration=0.1), weights_of(seed + 10)
    flat = torch.from_numpy(weights.astype(np.float64)).requires_grad_(True)
    total = torch_log_probability(samples, flat)
    total.backward()
    likelihood = Likelihood(samples, Residual(SPEC, weights), SPEC)
    assert likelihood.log_policy_M.sum() == pytest.approx(float(total.item()), rel=1e-9)
    assert flat.grad is not None
    ours = likelihood.gradient(1.0)
    np.testing.assert_allclose(ours, flat.grad.numpy(), rtol=1e-7, atol=1e-9)


def test_an_empty_cluster_is_no_choice() -> None:
    samples = SetPolicy(SPEC, weights_of(1), greedy=False).decide_recorded(make_state([]), Trigger.SLOT)[1]
    assert len(samples) == 0
    assert Likelihood(samples, Residual(SPEC, weights_of(1)), SPEC).ratio == 1.0


def test_a_successor_goes_on_with_what_was_seen() -> None:
    first, second = SetPolicy(SPEC, weights_of(1)), SetPolicy(SPEC, weights_of(2))
    first.observe([Progress("job", "vgg-16", Allocation(2, 3), 600.0, 6000.0, 60.0, 100.0)])
    second.inherit(first)
    assert second.beliefs is not None
    assert second.beliefs.allocations_seen("vgg-16") == {Allocation(2, 3)}
