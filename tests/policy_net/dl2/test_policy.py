import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from spread_places import place_spread
from states import make_job, make_state, states

from policy_net.dl2.action import GRANT_KINDS
from policy_net.dl2.batch import BatchEncoder, JobBatch
from policy_net.dl2.network import ActingNetwork, actor_logits, initial_weights, tensors_of
from policy_net.dl2.policy import ActingMode, JobAwareExploration, LearnedPolicy
from policy_net.domain import ClusterState, Resources, Trigger
from policy_net.errors import SpecMismatch, UnknownPolicy
from policy_net.exchange.policy_file import PolicyFile, write_policy_file
from policy_net.exchange.spec import PolicySpec, split_weights
from policy_net.placement.capacity import open_capacity
from policy_net.policy_kinds import load_policy

SPEC = PolicySpec(job_types=("other", "resnet-50", "vgg-16"), hidden=(16, 16))


def random_weights(seed: int) -> np.ndarray:
    return np.random.default_rng(seed).normal(0, 0.3, SPEC.parameter_count).astype(np.float32)


def sampling(seed: int, weights_seed: int = 0, epsilon: float = 0.2) -> LearnedPolicy:
    explorer = JobAwareExploration(epsilon)
    return LearnedPolicy(SPEC, random_weights(weights_seed), seed=seed, mode=ActingMode.SAMPLE, explorer=explorer)


@settings(max_examples=60, deadline=None)
@given(states(), st.integers(0, 1000))
def test_a_sampled_decision_stays_within_capacity_and_caps(state: ClusterState, seed: int) -> None:
    decision, samples = sampling(seed, seed).decide_recorded(state, Trigger.SLOT)
    for job in state.jobs:
        given_tasks = decision.of(job.job_id)
        assert given_tasks.workers <= job.max_workers
        assert given_tasks.ps <= job.max_ps
    used = sum(
        (
            job.worker_demand * decision.of(job.job_id).workers + job.ps_demand * decision.of(job.job_id).ps
            for job in state.jobs
        ),
        Resources(0, 0),
    )
    assert used.fits_in(state.total)
    if state.capacity_mode == "nodes":
        _, left_over = place_spread(state, decision.allocation)
        assert not any(allocation.tasks for allocation in left_over.values())
    assert samples.masks_MA[np.arange(len(samples)), samples.actions_M].all()
    assert ((samples.behaviour_M > 0) & (samples.behaviour_M <= 1 + 1e-12)).all()


@settings(max_examples=60, deadline=None)
@given(states(most_jobs=20), st.data())
def test_a_mask_admits_exactly_what_caps_and_capacity_allow(state: ClusterState, data: st.DataObject) -> None:
    capacity = open_capacity(state)
    batch = JobBatch(state.jobs, state, capacity, BatchEncoder(SPEC))
    while True:
        expected = np.zeros_like(batch.mask_A)
        expected[batch.void] = True
        for column, job in enumerate(state.jobs):
            demands = ((job.worker_demand,), (job.ps_demand,), (job.worker_demand, job.ps_demand))
            free_capacity = (batch.workers[column] < job.max_workers, batch.ps[column] < job.max_ps)
            caps = (free_capacity[0], free_capacity[1], free_capacity[0] and free_capacity[1])
            for kind in range(GRANT_KINDS):
                expected[GRANT_KINDS * column + kind] = caps[kind] and capacity.fits(*demands[kind])
        trains = any(workers and ps for workers, ps in zip(batch.workers, batch.ps, strict=True))
        bundles = expected[2 : batch.void : GRANT_KINDS]
        if not trains and not any(batch.workers) and not any(batch.ps) and bundles.any():
            only_bundles = np.zeros_like(expected)
            only_bundles[2 : batch.void : GRANT_KINDS] = bundles
            expected = only_bundles
        np.testing.assert_array_equal(batch.mask_A, expected)
        if batch.only_void:
            break
        batch.grant(data.draw(st.sampled_from(np.flatnonzero(batch.mask_A[: batch.void]).tolist())))


@pytest.mark.heavy
@settings(max_examples=40, deadline=None)
@given(states(), st.integers(0, 50))
def test_no_weights_can_idle_a_cluster_on_which_a_job_could_train(state: ClusterState, seed: int) -> None:
    weights = np.random.default_rng(seed).normal(0, 3.0, SPEC.parameter_count).astype(np.float32)
    decision = LearnedPolicy(SPEC, weights).decide(state, Trigger.SLOT)
    could = [
        job
        for job in state.jobs
        if job.max_workers and job.max_ps and open_capacity(state).fits(job.worker_demand, job.ps_demand)
    ]
    trains = [job for job in state.jobs if decision.of(job.job_id).workers and decision.of(job.job_id).ps]
    # Where no bundle fits the first batch, its single grants may take what a later batch would have needed.
    if set(could) & set(state.jobs[: SPEC.jobs_per_batch]):
        assert trains


def test_features_after_grants_are_those_of_the_definition() -> None:
    state = make_state([make_job(0, run_seconds=2400.0), make_job(1, "never-seen")])
    batch = JobBatch(state.jobs, state, open_capacity(state), BatchEncoder(SPEC))
    batch.grant(2)  # a bundle for the first job
    batch.grant(1)  # and another parameter server
    row = SPEC.type_columns + 5
    first, second = batch.features_F[:row], batch.features_F[row : 2 * row]
    assert first[:3].tolist() == [0.0, 1.0, 0.0]
    assert second[0] == 1.0
    # r: 3 tasks of 2 cores of the 4 nodes' 32 cores, against 1 GPU of 8
    np.testing.assert_allclose(first[SPEC.type_columns + 2 :], [6 / 32, 1 / 16, 2 / 16], rtol=1e-6)
    np.testing.assert_allclose(first[SPEC.type_columns], np.log1p(2.0) / np.log1p(100.0), rtol=1e-6)
    np.testing.assert_allclose(second[SPEC.type_columns + 1], np.log1p(400.0) / np.log1p(30_000.0), rtol=1e-6)
    assert not batch.features_F[2 * row :].any()


def test_updating_the_first_layer_gives_what_computing_it_again_gives() -> None:
    weights = random_weights(3)
    network = ActingNetwork(SPEC, weights)
    state = make_state([make_job(number) for number in range(5)])
    batch = JobBatch(state.jobs, state, open_capacity(state), BatchEncoder(SPEC))
    network.start(batch.features_F)
    for index in (2, 5, 4, 1, 9):
        network.change(*batch.grant(index))
    again = ActingNetwork(SPEC, weights)
    again.start(batch.features_F)
    np.testing.assert_allclose(network.logits(), again.logits(), rtol=1e-4, atol=1e-5)


def test_numpy_acts_as_torch_learns() -> None:
    import torch

    weights = random_weights(4)
    network = ActingNetwork(SPEC, weights)
    features = np.random.default_rng(0).random(SPEC.feature_count, dtype=np.float32)
    network.start(features)
    _, tensors = tensors_of(weights, SPEC, requires_grad=False)
    expected = actor_logits(torch.from_numpy(features)[None], tensors, SPEC)[0].numpy()
    np.testing.assert_allclose(network.logits(), expected, rtol=1e-4, atol=1e-5)


def test_the_same_seed_decides_the_same_and_another_does_not() -> None:
    state = make_state([make_job(number) for number in range(12)], nodes=8)
    first, second, other = (sampling(seed).decide(state, Trigger.SLOT).allocation for seed in (1, 1, 2))
    assert first == second
    assert first != other


def test_a_decision_can_be_made_again_from_its_index() -> None:
    state = make_state([make_job(number) for number in range(12)], nodes=8)
    policy = sampling(5)
    decisions = [policy.decide(state, Trigger.SLOT).allocation for _ in range(3)]
    again = sampling(5)
    again.decision_index = 2
    assert again.decide(state, Trigger.SLOT).allocation == decisions[2]


def test_more_jobs_than_a_batch_are_served_in_arrival_order() -> None:
    # Nobody in the first batch may take anything, so everything is left to the second.
    jobs = [make_job(number, max_workers=0, max_ps=0) for number in range(SPEC.jobs_per_batch)]
    jobs += [make_job(100 + number) for number in range(5)]
    decision = LearnedPolicy(SPEC, initial_weights(SPEC, 0)).decide(make_state(jobs), Trigger.SLOT)
    assert sum(decision.of(f"job-{100 + number}").tasks for number in range(5)) > 0


def test_weights_that_are_not_finite_are_an_error_not_a_decision() -> None:
    weights = random_weights(0)
    weights[:] = np.nan
    with pytest.raises(FloatingPointError):
        LearnedPolicy(SPEC, weights).decide(make_state([make_job(0)]), Trigger.SLOT)


def test_weights_of_another_spec_are_refused() -> None:
    with pytest.raises(SpecMismatch, match="shape"):
        LearnedPolicy(SPEC, random_weights(0)).load_weights(np.zeros(3, dtype=np.float32))


@pytest.mark.parametrize(
    ("workers", "ps", "expected"), [(3, 0, 1), (0, 3, 0), (11, 1, 1), (1, 11, 0), (10, 1, None), (1, 0, None)]
)
def test_exploration_proposes_what_repairs_a_lopsided_job(workers: int, ps: int, expected: int | None) -> None:
    state = make_state([make_job(0)], nodes=40)
    batch = JobBatch(state.jobs, state, open_capacity(state), BatchEncoder(SPEC))
    for index, count in ((0, workers), (1, ps)):
        for _ in range(count):
            batch.grant(index)
    assert JobAwareExploration().propose(batch) == expected


def test_behaviour_probabilities_include_exploration() -> None:
    state = make_state([make_job(number) for number in range(3)], nodes=8)
    weights = random_weights(0)
    split_weights(weights, SPEC)["actor.2.bias"][:9:3] += 3.0  # fond of workers, so that jobs become lopsided
    policy = LearnedPolicy(SPEC, weights, mode=ActingMode.SAMPLE, explorer=JobAwareExploration(0.5))
    _, samples = policy.decide_recorded(state, Trigger.SLOT)
    network = ActingNetwork(SPEC, weights)
    mixed = 0
    for features, mask, action, behaviour in zip(
        samples.features_MF, samples.masks_MA, samples.actions_M, samples.behaviour_M, strict=True
    ):
        network.start(features)
        logits = np.where(mask, network.logits().astype(float), -np.inf)
        policy_probability = np.exp(logits - logits.max())[action] / np.exp(logits - logits.max()).sum()
        candidates = (policy_probability, 0.5 * policy_probability, 0.5 * policy_probability + 0.5)
        assert any(np.isclose(behaviour, candidate, rtol=1e-3) for candidate in candidates)
        mixed += not np.isclose(behaviour, policy_probability, rtol=1e-3)
    assert mixed > 0


def test_a_policy_loads_from_its_file_or_says_what_would(tmp_path) -> None:
    from policy_net.domain import PolicyContext

    path = tmp_path / "mine.policy"
    write_policy_file(path, PolicyFile(SPEC, random_weights(1)))
    state = make_state([make_job(number) for number in range(4)])
    expected = LearnedPolicy(SPEC, random_weights(1)).decide(state, Trigger.SLOT)
    assert load_policy(str(path), PolicyContext()).decide(state, Trigger.SLOT) == expected
    with pytest.raises(UnknownPolicy, match=r"nonesuch.*no such file"):
        load_policy("nonesuch", PolicyContext())
