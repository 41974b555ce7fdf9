from dataclasses import replace

import numpy as np
import pytest
from numpy.typing import NDArray

from policy_net.dl2.policy import DecisionSamples
from policy_net.domain import RewardKind
from policy_net.exchange.spec import PolicySpec, split_weights
from policy_net.learning.actor_critic import GradientComputer, NotEnoughSamples
from policy_net.learning.replay import Experience, ExperienceReplay
from policy_net.learning.reward import SlotUtility
from policy_net.learning.settings import ActorCriticSettings

SPEC = PolicySpec(jobs_per_batch=2, type_columns=2, hidden=(8, 8))


def make_weights(seed: int = 0) -> NDArray[np.float32]:
    return np.random.default_rng(seed).normal(0, 0.5, SPEC.parameter_count).astype(np.float32)


def policy_at(
    weights: NDArray[np.float32], features: NDArray[np.float32], mask: NDArray[np.bool_]
) -> NDArray[np.float64]:
    views = split_weights(weights.astype(np.float64), SPEC)  # type: ignore[arg-type]
    hidden = features.astype(np.float64)
    for layer in range(3):
        hidden = hidden @ views[f"actor.{layer}.weight"].T + views[f"actor.{layer}.bias"]
        hidden = np.maximum(hidden, 0) if layer < 2 else hidden
    logits = np.where(mask, hidden.astype(np.float64), -np.inf)
    odds = np.exp(logits - logits.max(axis=1, keepdims=True))
    return odds / odds.sum(axis=1, keepdims=True)


def make_experience(
    seed: int, reward: float, weights: NDArray[np.float32], choices: int = 6, seconds: float = 100.0
) -> Experience:
    generator = np.random.default_rng(seed)
    features = generator.random((choices, SPEC.feature_count), dtype=np.float32)
    mask = generator.random((choices, SPEC.action_count)) < 0.7
    mask[:, -1] = True
    probabilities = policy_at(weights, features, mask)
    actions = np.array([generator.choice(SPEC.action_count, p=row) for row in probabilities])
    behaviour = probabilities[np.arange(choices), actions]
    # One job holds everything, so that its efficiency is the reward and every grant was its own.
    samples = DecisionSamples(features, mask, actions, behaviour, np.zeros(choices, dtype=np.int64))
    utility = SlotUtility(("job",), np.array([reward]), np.array([1.0]))
    return Experience(samples, reward, seconds, utility=utility)


def settings(**changes: object) -> ActorCriticSettings:
    values = {"entropy_weight": 0.0, "value_weight": 0.0, "minimum_effective_samples": 1.0}
    return ActorCriticSettings(**{**values, **changes})  # type: ignore[arg-type]


def log_probability(weights: NDArray[np.float32], entry: Experience) -> float:
    samples = entry.samples
    probabilities = policy_at(weights, samples.features_MF, samples.masks_MA)
    return float(np.log(probabilities[np.arange(len(samples)), samples.actions_M]).sum())


def test_descending_makes_the_better_decision_likelier_and_the_worse_one_less() -> None:
    weights = make_weights()
    good, bad = make_experience(1, 1.0, weights), make_experience(2, 0.0, weights)
    result = GradientComputer(SPEC, settings()).gradient(weights, [[good, bad]])
    stepped = weights - 1e-3 * result.gradient
    assert log_probability(stepped, good) > log_probability(weights, good)
    assert log_probability(stepped, bad) < log_probability(weights, bad)


def test_the_gradient_is_that_of_the_definition() -> None:
    weights = make_weights(1)
    segment = [make_experience(seed, reward, weights) for seed, reward in ((1, 0.2), (2, 0.8), (3, 0.5))]
    rewards = np.array([0.2, 0.8, 0.5])
    advantages = (rewards - rewards.mean()) / rewards.std()
    result = GradientComputer(SPEC, settings()).gradient(weights, [segment])

    def loss(at: NDArray[np.float32]) -> float:
        total = sum(a * log_probability(at, entry) for a, entry in zip(advantages, segment, strict=True))
        return -total / sum(len(entry.samples) for entry in segment)

    direction = np.random.default_rng(0).normal(size=SPEC.parameter_count)
    step = 1e-4
    numeric = (loss(weights + step * direction) - loss(weights - step * direction)) / (2 * step)
    assert float(result.gradient @ direction) == pytest.approx(numeric, rel=0.02, abs=1e-3)
    assert result.samples == 18
    assert result.effective_samples == pytest.approx(18)


def with_behaviour(entry: Experience, factor: float) -> Experience:
    samples = replace(entry.samples, behaviour_M=np.minimum(1.0, factor * entry.samples.behaviour_M))
    return replace(entry, samples=samples)


def test_a_grant_that_the_head_would_hardly_repeat_counts_less() -> None:
    weights = make_weights()
    near, far = make_experience(1, 1.0, weights), make_experience(2, 0.0, weights)
    on = GradientComputer(SPEC, settings()).gradient(weights, [[near, far]])
    off = GradientComputer(SPEC, settings()).gradient(weights, [[near, with_behaviour(far, 50.0)]])
    assert off.effective_samples < on.effective_samples
    assert off.statistics["ratio_mean"] < 1.0


def test_behaviour_less_likely_than_the_head_is_never_weighted_above_one() -> None:
    weights = make_weights()
    entries = [make_experience(seed, float(seed), weights) for seed in range(2)]
    rare = [with_behaviour(entry, 0.1) for entry in entries]
    computed = [GradientComputer(SPEC, settings()).gradient(weights, [segment]).gradient for segment in (entries, rare)]
    np.testing.assert_allclose(computed[0], computed[1], rtol=1e-4, atol=1e-6)


def test_learning_waits_when_too_little_is_left_after_weighting() -> None:
    weights = make_weights()
    segment = [make_experience(seed, float(seed), weights) for seed in range(2)]
    with pytest.raises(NotEnoughSamples, match="effective"):
        GradientComputer(SPEC, settings(minimum_effective_samples=13.0)).gradient(weights, [segment])
    with pytest.raises(NotEnoughSamples, match="at least 2"):
        GradientComputer(SPEC, settings()).gradient(weights, [segment[:1]])


def test_equal_rewards_teach_nothing() -> None:
    weights = make_weights()
    segment = [make_experience(seed, 0.5, weights) for seed in range(4)]
    assert not GradientComputer(SPEC, settings()).gradient(weights, [segment]).gradient.any()


def test_the_entropy_bonus_makes_the_policy_less_certain() -> None:
    weights = make_weights()
    segment = [make_experience(seed, 0.5, weights) for seed in range(4)]
    computer = GradientComputer(SPEC, settings(entropy_weight=1.0))
    before = computer.gradient(weights, [segment])
    after = computer.gradient(weights - 1e-2 * before.gradient, [segment])
    assert after.statistics["entropy_mean"] > before.statistics["entropy_mean"]


def test_with_the_slot_utility_the_critic_rests() -> None:
    weights = make_weights()
    segment = [make_experience(seed, 0.1 * seed, weights) for seed in range(6)]
    result = GradientComputer(SPEC, settings(value_weight=1.0)).gradient(weights, [segment])
    views = split_weights(result.gradient, SPEC)
    assert not any(view.any() for name, view in views.items() if name.startswith("critic"))
    assert any(view.any() for name, view in views.items() if name.startswith("actor"))


def test_with_the_papers_reward_the_critic_comes_nearer_to_its_target() -> None:
    weights = make_weights()
    segment = [make_experience(seed, 0.1 * seed, weights) for seed in range(6)]
    computer = GradientComputer(SPEC, settings(value_weight=1.0, reward=RewardKind.PAPER))
    first = computer.gradient(weights, [segment])
    second = computer.gradient(weights - 1e-3 * first.gradient, [segment])
    assert second.statistics["value_error"] < first.statistics["value_error"]


def test_a_longer_interval_weighs_more() -> None:
    weights = make_weights()
    rewards_seconds = ((1.0, 10.0), (0.0, 100.0), (0.5, 100.0))
    short = [make_experience(seed, r, weights, seconds=s) for seed, (r, s) in enumerate(rewards_seconds)]
    equal = [make_experience(seed, r, weights) for seed, (r, _) in enumerate(rewards_seconds)]
    first = short[0]
    moved = []
    for segment in (short, equal):
        gradient = GradientComputer(SPEC, settings()).gradient(weights, [segment]).gradient
        moved.append(log_probability(weights - 1e-3 * gradient, first) - log_probability(weights, first))
    assert moved[0] < moved[1]


def test_a_mini_batch_has_the_size_asked_for_and_the_seed_decides_it() -> None:
    weights = make_weights()
    segment = [make_experience(seed, float(seed), weights, choices=30) for seed in range(5)]
    results = [
        GradientComputer(SPEC, settings(batch_samples=64), seed).gradient(weights, [segment]) for seed in (1, 1, 2)
    ]
    assert [result.samples for result in results] == [64, 64, 64]
    np.testing.assert_array_equal(results[0].gradient, results[1].gradient)
    assert (results[0].gradient != results[2].gradient).any()


def test_gradients_are_finite_where_masks_leave_one_action() -> None:
    weights = make_weights()
    entry = make_experience(1, 1.0, weights)
    entry.samples.masks_MA[:] = False
    entry.samples.masks_MA[:, -1] = True
    entry.samples.actions_M[:] = SPEC.action_count - 1
    entry.samples.behaviour_M[:] = 1.0
    other = make_experience(2, 0.0, weights)
    result = GradientComputer(SPEC, settings(entropy_weight=0.1)).gradient(weights, [[entry, other]])
    assert np.isfinite(result.gradient).all()


def test_the_replay_forgets_the_oldest_and_never_keeps_what_was_not_the_policys() -> None:
    weights = make_weights()
    replay = ExperienceReplay(capacity_samples=20, seed=0)
    for seed in range(10):
        replay.add(make_experience(seed, float(seed), weights))
    assert replay.samples <= 20
    assert [entry.reward for entry in replay.segments(1, 99)[0]] == [7.0, 8.0, 9.0]
    replay.add(replace(make_experience(0, 5.0, weights), trainable=False))
    assert [entry.reward for entry in replay.segments(1, 99)[0]] == [7.0, 8.0, 9.0]


def test_segments_are_consecutive_and_come_from_the_whole_window() -> None:
    weights = make_weights()
    replay = ExperienceReplay(seed=3)
    for seed in range(30):
        replay.add(make_experience(seed, float(seed), weights, choices=1))
    starts = set()
    for _ in range(20):
        for segment in replay.segments(6, 5):
            rewards = [entry.reward for entry in segment]
            assert rewards == [rewards[0] + k for k in range(5)]
            starts.add(rewards[0])
    assert len(starts) > 20


def test_an_update_never_holds_a_segment_twice() -> None:
    weights = make_weights()
    replay = ExperienceReplay(seed=3)
    assert replay.segments(6, 5) == []
    for seed in range(4):
        replay.add(make_experience(seed, float(seed), weights, choices=1))
    assert [len(segment) for segment in replay.segments(6, 5)] == [4]


def test_a_segment_ends_where_a_decision_was_left_out_or_another_workload_began() -> None:
    weights = make_weights()
    replay = ExperienceReplay(seed=3)
    times = [0.0, 100.0, 200.0, 400.0, 500.0, 0.0, 100.0]
    for seed, began in enumerate(times):
        replay.add(replace(make_experience(seed, float(seed), weights, choices=1), began_seconds=began))
    runs = {tuple(entry.reward for entry in run) for _ in range(50) for run in replay.segments(6, 4)}
    assert runs <= {(0.0, 1.0, 2.0), (1.0, 2.0), (2.0,), (3.0, 4.0)}
    assert (0.0, 1.0, 2.0) in runs


def test_learning_waits_when_the_head_would_repeat_nothing_at_all() -> None:
    weights = make_weights()
    split_weights(weights, SPEC)["actor.2.bias"][:-1] -= 1e4  # nothing but void any more
    segment = [make_experience(seed, float(seed), make_weights()) for seed in range(2)]
    for entry in segment:
        entry.samples.actions_M[:] = 0
        entry.samples.masks_MA[:, 0] = True
    with pytest.raises(NotEnoughSamples, match="effective"):
        GradientComputer(SPEC, settings()).gradient(weights, [segment])


def paper(**changes: object) -> ActorCriticSettings:
    return settings(**{"reward": RewardKind.PAPER, "batch_samples": 1000, **changes})


def test_with_a_moving_average_the_critic_rests_and_rewards_above_the_usual_are_reinforced() -> None:
    weights = make_weights()
    computer = GradientComputer(SPEC, paper(baseline="moving-average", value_weight=1.0))
    good, bad = make_experience(1, 1.0, weights), make_experience(2, 0.0, weights)
    result = computer.gradient(weights, [[good, bad]])
    views = split_weights(result.gradient, SPEC)
    assert not any(views[name].any() for name in views if name.startswith("critic"))
    assert "value_error" not in result.statistics
    stepped = weights - 1e-3 * result.gradient
    assert log_probability(stepped, good) > log_probability(weights, good)
    assert log_probability(stepped, bad) < log_probability(weights, bad)
    # The first average is that of the first rewards, 0.5; the next, slightly moved towards 0, are compared with it.
    assert result.surprises == pytest.approx((0.5, 0.5))
    assert computer.gradient(weights, [[bad, bad]]).surprises == pytest.approx((0.5, 0.5))
    assert computer.gradient(weights, [[bad, bad]]).surprises == pytest.approx((0.49, 0.49))


def test_a_grant_is_rewarded_with_its_own_job_s_progress_and_void_with_the_mean() -> None:
    weights = make_weights()
    shares = SlotUtility(("a", "b"), np.array([1.0, 0.0]), np.ones(2))
    first, second = (make_experience(seed, 1.0, weights, choices=3) for seed in (1, 2))
    jobs = np.array([0, 1, -1])
    segment = [replace(entry, utility=shares, samples=replace(entry.samples, jobs_M=jobs)) for entry in (first, second)]
    own = paper(reward=RewardKind.OWN_JOB, baseline="moving-average")
    stepped = weights - 1e-3 * GradientComputer(SPEC, own).gradient(weights, [segment]).gradient

    def likelihood(at: NDArray[np.float32], job: int) -> float:
        rows = [replace(e, samples=_only(e.samples, job)) for e in segment]
        return sum(log_probability(at, row) for row in rows)

    assert likelihood(stepped, 0) > likelihood(weights, 0)
    assert likelihood(stepped, 1) < likelihood(weights, 1)
    with pytest.raises(ValueError, match="which job"):
        GradientComputer(SPEC, own).gradient(weights, [[replace(first, utility=None)] * 2])


def _only(samples: DecisionSamples, job: int) -> DecisionSamples:
    rows = samples.jobs_M == job
    return DecisionSamples(
        samples.features_MF[rows],
        samples.masks_MA[rows],
        samples.actions_M[rows],
        samples.behaviour_M[rows],
        samples.jobs_M[rows],
    )


def test_surprises_are_how_far_each_decision_was_from_what_the_critic_expected() -> None:
    weights = make_weights()
    segment = [make_experience(1, 5.0, weights), make_experience(2, 0.0, weights)]
    surprises = GradientComputer(SPEC, paper(discount=0.0)).gradient(weights, [segment]).surprises
    assert len(surprises) == 2
    assert surprises[0] > surprises[1]
