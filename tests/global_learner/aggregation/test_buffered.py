"""What a cohort does: votes, weights, order, closing, and what the strategies make of bad clusters."""

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from learner_makers import SPEC, applied, vector

from global_learner.aggregation.base import apply_adam
from global_learner.aggregation.buffered import BufferedAggregator, Cohort, VoteMemory
from global_learner.aggregation.settings import AggregationSettings, OptimizerSettings
from global_learner.errors import BadLearnerConfig
from global_learner.storage.snapshot import AdamState
from global_learner.storage.update_records import AppliedUpdate, UpdateKind
from policy_net.learning.adam import AdamConstants

RATE = 1e-3
NAMES = ("a", "b", "c", "d", "e", "f", "g")


def make(strategy: str = "FedMedian", **changes) -> BufferedAggregator:
    chosen = AggregationSettings.model_validate({"mode": "buffered", "strategy": strategy, "buffer": 5, **changes})
    return BufferedAggregator(chosen, OptimizerSettings(learning_rate=RATE), SPEC)


def feed(aggregator: BufferedAggregator, parts, state: AdamState | None = None) -> AdamState:
    """Apply (cluster, gradient, samples) one after the other."""
    state = state or AdamState.start(vector(0))
    for cluster, gradient, samples in parts:
        step = state.step + 1
        kind = aggregator.kind_of_next(cluster)
        made = applied(step, cluster=cluster, gradient=gradient, samples=samples, learning_rate=RATE)
        aggregator.apply(state, AppliedUpdate(step, RATE, 5, 0.0, made.update, kind))
    return state


def stepped_down(gradient) -> bytes:
    state = AdamState.start(vector(0))
    apply_adam(state, gradient.astype(np.float32), RATE, AdamConstants())
    return state.weights.tobytes()


GRADIENTS = [vector(seed) for seed in range(1, 8)]
FIVE = list(zip(NAMES[:5], GRADIENTS[:5], [10] * 5, strict=True))


def test_the_median_of_a_cohort_is_one_adam_step_and_its_first() -> None:
    state = feed(make(), FIVE)
    assert state.weights.tobytes() == stepped_down(np.median(GRADIENTS[:5], axis=0))
    assert (state.step, state.idle_steps) == (5, 4)


def test_krum_takes_one_clusters_gradient_as_it_is() -> None:
    parts = [(name, GRADIENTS[0] + 0.01 * gradient, 10) for name, gradient, _ in FIVE[:4]] + [
        ("e", -9 * GRADIENTS[0], 10)
    ]
    state = feed(make("Krum", parameters={"num_malicious_nodes": 1}), parts)
    assert state.weights.tobytes() in {stepped_down(gradient) for _, gradient, _ in parts[:4]}


def test_a_trimmed_mean_leaves_out_the_ends() -> None:
    state = feed(make("FedTrimmedAvg", parameters={"beta": 0.2}), FIVE)
    middle = np.sort(np.stack(GRADIENTS[:5]), axis=0)[1:4].mean(axis=0)
    expected = AdamState.start(vector(0))
    apply_adam(expected, middle, RATE, AdamConstants())
    assert np.allclose(state.weights, expected.weights, atol=1e-7)


def test_fedadam_steps_from_the_head_towards_the_mean_of_the_models() -> None:
    """By hand: the first moment is 0.1·Δ, the second 0.01·Δ², with Δ = −client rate · mean gradient."""
    state = feed(make("FedAdam", parameters={"eta": 0.05, "tau": 1e-3}, client_learning_rate=0.01), FIVE)
    delta = -0.01 * np.mean(GRADIENTS[:5], axis=0)
    rate = 0.05 * np.sqrt(1 - 0.99**2) / (1 - 0.9**2)
    expected = vector(0) + rate * 0.1 * delta / (np.sqrt(0.01 * delta**2) + 1e-3)
    assert state.weights.dtype == np.float32
    assert np.allclose(state.weights, expected, atol=1e-5)


def test_means_weigh_by_samples_up_to_the_limit() -> None:
    parts = [("a", GRADIENTS[0], 30), ("b", GRADIENTS[1], 10), ("c", GRADIENTS[2], 2**53)]
    state = feed(make("FedAvg", buffer=3, samples_limit=60), parts)
    mean = (30 * GRADIENTS[0] + 10 * GRADIENTS[1] + 60 * GRADIENTS[2]) / 100
    expected = AdamState.start(vector(0))
    apply_adam(expected, mean, RATE, AdamConstants())
    assert np.allclose(state.weights, expected.weights, atol=1e-7)


def test_a_cluster_that_pushes_more_often_has_one_vote_all_the_same() -> None:
    flood = [("e", -100 * GRADIENTS[0], 10)] * 50
    state = feed(make(), flood + FIVE[:4])
    assert (state.step, state.idle_steps) == (54, 53)
    votes = np.stack([*GRADIENTS[:4], -100 * GRADIENTS[0]])
    assert np.allclose(state.weights, np.frombuffer(stepped_down(np.median(votes, axis=0)), np.float32), atol=1e-6)


@pytest.mark.parametrize(
    ("strategy", "parameters"),
    [
        ("FedMedian", {}),
        ("FedTrimmedAvg", {"beta": 0.2}),
        ("Krum", {"num_malicious_nodes": 1}),
        ("Bulyan", {"num_malicious_nodes": 1}),
    ],
)
@pytest.mark.parametrize("factor", [-1.0, 100.0, -100.0])
def test_one_bad_cluster_does_not_turn_the_step_of_a_robust_strategy(strategy: str, parameters, factor: float) -> None:
    honest = [
        (name, GRADIENTS[0] + 0.1 * gradient, 10) for name, gradient in zip(NAMES[:6], GRADIENTS[:6], strict=True)
    ]
    state = feed(make(strategy, parameters=parameters, buffer=7), [*honest, ("g", factor * GRADIENTS[0], 10)])
    direction = vector(0) - state.weights
    clear = np.abs(GRADIENTS[0]) > 0.5
    assert (np.sign(direction[clear]) == np.sign(GRADIENTS[0][clear])).all()


@settings(max_examples=30, deadline=None)
@given(order=st.permutations(range(5)), strategy=st.sampled_from(["FedMedian", "FedTrimmedAvg"]))
def test_the_order_of_arrival_does_not_matter_to_order_statistics(order, strategy) -> None:
    straight = feed(make(strategy), FIVE)
    mixed = feed(make(strategy), [FIVE[index] for index in order])
    assert np.allclose(straight.weights, mixed.weights, atol=1e-7)


@settings(max_examples=50, deadline=None)
@given(
    parts=st.lists(
        st.tuples(st.sampled_from(NAMES[:4]), st.integers(1, 6), st.integers(1, 100)), min_size=1, max_size=30
    )
)
def test_a_slot_is_the_weighted_mean_of_its_clusters_updates(parts) -> None:
    cohort = Cohort(samples_limit=50)
    for step, (name, seed, samples) in enumerate(parts, start=1):
        cohort.add(applied(step, cluster=name, gradient=vector(seed), samples=samples, learning_rate=seed * 1e-3))
    assert cohort.updates == len(parts)
    for slot, name in zip(cohort.by_cluster.values(), dict.fromkeys(name for name, _, _ in parts), strict=True):
        own = [(vector(seed), min(samples, 50), seed * 1e-3) for other, seed, samples in parts if other == name]
        total = sum(samples for _, samples, _ in own)
        assert slot.samples == total
        assert np.allclose(slot.gradient, sum(gradient * samples for gradient, samples, _ in own) / total, atol=1e-5)
        assert slot.learning_rate == pytest.approx(sum(rate * samples for _, samples, rate in own) / total)


def test_a_cohort_closes_at_its_size_and_early_only_with_enough_clusters() -> None:
    aggregator = make(buffer=4, close_after_updates=6, min_clusters=3)
    kinds = []
    state = AdamState.start(vector(0))
    for step, name in enumerate(itertools.chain("aaaaaaab", "c", "abc", "d"), start=1):
        kinds.append(aggregator.kind_of_next(name))
        aggregator.apply(state, AppliedUpdate(step, RATE, 4, 0.0, applied(step, cluster=name).update, kinds[-1]))
    assert [index for index, kind in enumerate(kinds) if kind is UpdateKind.CLOSING] == [8, 12]


def test_a_strategy_that_makes_nothing_of_a_cohort_leaves_the_head_and_the_next_cohort_begins() -> None:
    aggregator = make("Bulyan", buffer=3, parameters={"num_malicious_nodes": 1})
    state = feed(aggregator, FIVE[:3])
    assert state.weights.tobytes() == vector(0).tobytes()
    assert aggregator.waiting == 0


def test_gradients_that_overflow_when_aggregated_leave_the_head() -> None:
    huge = np.full_like(vector(0), 3e38)
    state = feed(make("FedAvg", buffer=2, parameters={}), [("a", huge, 1), ("b", -huge, 1)])
    assert np.isfinite(state.weights).all()


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"strategy": "Median"}, "strategy = Median: unknown; choose one of FedAvg, "),
        ({"parameters": {"beta": 0.2}}, "parameters.beta: FedMedian has no such parameter; it takes none"),
        ({"strategy": "FedTrimmedAvg", "parameters": {"beta": 0.7}}, "FedTrimmedAvg refuses them: `beta` must be"),
        ({"strategy": "Krum", "parameters": {"num_malicious_nodes": 1.5}}, "must be a whole number"),
        ({"strategy": "Krum", "parameters": {"min_train_nodes": 1}}, "no such parameter; it takes num_malicious"),
    ],
)
def test_a_wrong_strategy_or_parameter_is_refused_in_one_line(changes, message: str) -> None:
    with pytest.raises(BadLearnerConfig, match=message) as caught:
        make(**changes)
    assert "\n" not in str(caught.value)


NOISE = 3.0


def noisy_cohorts(momentum: float, factor: float, cohorts: int = 60, **changes) -> tuple[float, BufferedAggregator]:
    """How far along the common direction the head went: honest votes are that direction under three times the noise."""
    rng = np.random.default_rng(5)
    common = vector(1)
    aggregator = make(vote_momentum=momentum, **changes)
    state = AdamState.start(vector(0))
    for _ in range(cohorts):
        parts = [(name, (common + NOISE * rng.normal(size=common.size)).astype(np.float32), 10) for name in NAMES[:4]]
        liar = (factor * (common + NOISE * rng.normal(size=common.size))).astype(np.float32)
        feed(aggregator, [*parts, ("e", liar, 10)], state)
    moved = vector(0) - state.weights
    return float(moved @ np.sign(common)) / (RATE * cohorts * common.size), aggregator


@pytest.mark.parametrize("factor", [-1.0, -100.0])
def test_votes_with_a_memory_keep_the_direction_that_a_liar_hides_in_the_noise(factor: float) -> None:
    clean, _ = noisy_cohorts(0.9, 1.0)
    attacked, _ = noisy_cohorts(0.9, factor)
    without, _ = noisy_cohorts(0.0, factor)
    assert attacked > 1.5 * without
    assert attacked > 0.6 * clean


@pytest.mark.heavy
@pytest.mark.parametrize("factor", [-1.0, -100.0])
def test_the_mean_of_the_nearest_running_means_leaves_a_liar_out(factor: float) -> None:
    nearest = {"strategy": "MultiKrum", "parameters": {"num_malicious_nodes": 1, "num_nodes_to_select": 4}}
    clean, _ = noisy_cohorts(0.9, 1.0, **nearest)
    attacked, _ = noisy_cohorts(0.9, factor, **nearest)
    median, _ = noisy_cohorts(0.9, factor)
    assert attacked > 0.9 * clean
    assert attacked > median


def test_a_memory_of_votes_goes_on_from_a_snapshot_bit_for_bit() -> None:
    _, straight = noisy_cohorts(0.9, -1.0, cohorts=3)
    again = make(vote_momentum=0.9)
    again.restore(straight.kept())
    ends = [feed(aggregator, FIVE, AdamState.start(vector(0))).weights.tobytes() for aggregator in (straight, again)]
    assert ends[0] == ends[1]
    fresh = feed(make(vote_momentum=0.9), FIVE, AdamState.start(vector(0)))
    assert fresh.weights.tobytes() != ends[0]
    older = straight.kept()
    del older.facts["votes"]
    make(vote_momentum=0.9).restore(older)


def test_the_first_vote_is_the_gradient_and_a_silent_clusters_votes_fade() -> None:
    memory = VoteMemory(0.5)
    first = memory.votes({"a": GRADIENTS[0], "b": GRADIENTS[1]})
    assert np.array_equal(first["a"], GRADIENTS[0])
    second = memory.votes({"b": GRADIENTS[2]})
    assert np.allclose(second["b"], (GRADIENTS[1] / 4 + GRADIENTS[2] / 2) / 0.75, atol=1e-6)
    for _ in range(20):
        memory.votes({"b": GRADIENTS[2]})
    assert set(memory.kept().facts) == {"b"}
    back = memory.votes({"a": GRADIENTS[3]})
    assert np.allclose(back["a"], GRADIENTS[3], atol=1e-6)
    assert VoteMemory(0.0).votes({"a": GRADIENTS[0]}) == {"a": GRADIENTS[0]}
