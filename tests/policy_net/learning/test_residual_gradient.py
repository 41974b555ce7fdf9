import sys
from dataclasses import replace

import numpy as np
import pytest

from policy_net.dl2.policy import DecisionSamples
from policy_net.errors import BadInput
from policy_net.exchange.spec import PRICE_COUNT, PolicySpec, SetSpec
from policy_net.laboratory.simulation.engine import Simulation
from policy_net.laboratory.simulation.environment import Environment
from policy_net.laboratory.speeds.speed import default_speeds
from policy_net.laboratory.workloads.sources import load_workload
from policy_net.learning.gradient import NotEnoughSamples, decision_advantages
from policy_net.learning.replay import Experience, ExperienceReplay
from policy_net.learning.residual_gradient import Likelihood, ResidualGradient
from policy_net.learning.reward import SlotUtility, utility_over
from policy_net.learning.settings import ActorCriticSettings, ResidualSettings
from policy_net.policy_kinds import gradients_for, update_schedule_for
from policy_net.set_policy.planner import SetSamples
from policy_net.set_policy.policy import SetPolicy
from policy_net.set_policy.residual import Residual, initial_residual

SPEC = SetSpec()
SETTINGS = ResidualSettings(minimum_effective_samples=8)


def weights_of(seed: int) -> np.ndarray:
    return np.random.default_rng(seed).normal(0, 0.2, SPEC.parameter_count).astype(np.float32)


def lived(decisions: int = 12, seed: int = 0, weights: np.ndarray | None = None, **options: object) -> list[Experience]:
    """What a cluster lives through that draws its picks."""
    speeds = default_speeds()
    chance: dict = {"greedy": False, "seed": seed} | options
    policy = SetPolicy(SPEC, initial_residual(SPEC, 0) if weights is None else weights, **chance)
    simulation = Simulation(load_workload("dl2:jobs=30,arrivals=google,sizes=varied,seed=3"), Environment(8), speeds)
    entries: list[Experience] = []
    while len(entries) < decisions and not simulation.finished:
        state, trigger = simulation.observe()
        decision, samples = policy.decide_recorded(state, trigger)
        progress = simulation.apply(decision)
        policy.observe(progress)
        seconds = simulation.time_seconds - state.time_seconds
        best, planned = samples.believed_J2.T
        utility = utility_over(state, progress, best, seconds, 0.25, planned)
        entry = Experience(samples, utility.reward, seconds, utility=utility, began_seconds=state.time_seconds)
        if state.jobs and len(samples):
            entries.append(entry)
    return entries


LIVED = lived()


def rewarded(entry: Experience, gain: float) -> Experience:
    assert entry.utility is not None
    assert entry.utility.planned is not None
    return replace(entry, utility=replace(entry.utility, efficiency=entry.utility.planned + gain))


def picks(entry: Experience) -> SetSamples:
    assert isinstance(entry.samples, SetSamples)
    return entry.samples


def log_probability(entry: Experience, weights: np.ndarray) -> float:
    return float(Likelihood(picks(entry), Residual(SPEC, weights), SPEC).log_policy_M.sum())


def test_a_step_makes_the_better_decision_more_probable_and_the_worse_one_less() -> None:
    good, bad = rewarded(LIVED[0], 0.1), rewarded(LIVED[1], -0.1)
    head = initial_residual(SPEC, 0)
    result = ResidualGradient(SPEC, SETTINGS).gradient(head, [[good, bad]])
    stepped = head - np.float32(1e-3) * result.gradient
    margin = [log_probability(good, weights) - log_probability(bad, weights) for weights in (head, stepped)]
    assert margin[1] > margin[0]
    assert result.gradient.dtype == np.float32
    assert result.samples == len(good.samples) + len(bad.samples)
    assert result.effective_samples == pytest.approx(result.samples)
    assert result.statistics["ratio_mean"] == pytest.approx(1.0)


def test_advantages_are_over_the_plan_and_centred() -> None:
    segment = [rewarded(entry, gain) for entry, gain in zip(LIVED[:3], (0.3, 0.1, -0.1), strict=True)]
    np.testing.assert_allclose(decision_advantages(segment), [0.2, 0.0, -0.2], atol=1e-12)
    # How busy the cluster was, or by how much the beliefs are wrong throughout, is no advantage.
    same = [rewarded(entry, 0.1) for entry in LIVED[:3]]
    np.testing.assert_allclose(decision_advantages(same), 0.0, atol=1e-12)
    with pytest.raises(ValueError, match="without chance"):
        decision_advantages([replace(e, utility=SlotUtility(("a",), np.ones(1), np.ones(1))) for e in LIVED[:2]])


def test_a_decision_without_chance_is_no_experience() -> None:
    assert lived(4, greedy=True) == []
    assert len(lived(4, greedy=True, exploration=0.2)) == 4


def test_the_plan_that_a_decision_is_compared_with_is_no_better_than_every_job_alone() -> None:
    best, planned = picks(LIVED[0]).believed_J2.T
    assert (planned <= best).all()
    assert planned.any()


def test_one_ratio_a_decision_clipped_at_one_shortens_what_is_off_policy() -> None:
    head = initial_residual(SPEC, 0)
    good, bad = rewarded(LIVED[0], 0.1), rewarded(LIVED[1], -0.1)

    def with_behaviour(entry: Experience, factor: float) -> Experience:
        samples = picks(entry)
        changed = np.where(samples.chosen_M, samples.behaviour_M * factor, samples.behaviour_M)
        return replace(entry, samples=replace(samples, behaviour_M=changed))

    def gradient(factor: float) -> np.ndarray:
        segment = [with_behaviour(good, factor), with_behaviour(bad, factor)]
        return ResidualGradient(SPEC, SETTINGS).gradient(head, [segment]).gradient

    np.testing.assert_allclose(gradient(2.0), gradient(1.0) / 2, rtol=1e-5, atol=1e-8)
    np.testing.assert_allclose(gradient(0.5), gradient(1.0), rtol=1e-5, atol=1e-8)


def test_learning_pauses_where_too_little_is_left() -> None:
    head = initial_residual(SPEC, 0)
    with pytest.raises(NotEnoughSamples, match="at least 2"):
        ResidualGradient(SPEC, SETTINGS).gradient(head, [LIVED[:1]])
    with pytest.raises(NotEnoughSamples, match="effective"):
        ResidualGradient(SPEC, ResidualSettings(minimum_effective_samples=1e6)).gradient(head, [LIVED])
    with pytest.raises(NotEnoughSamples, match="too far"):
        ResidualGradient(SPEC, SETTINGS.model_copy(update={"minimum_ratio": 0.9})).gradient(5 * weights_of(1), [LIVED])


def test_experience_of_another_kind_of_policy_is_refused() -> None:
    ones = np.ones((2, 1))
    network = DecisionSamples(ones.astype(np.float32), ones > 0, np.zeros(2, int), np.ones(2), np.zeros(2, int))
    entry = replace(LIVED[0], samples=network)
    with pytest.raises(TypeError, match="set policy"):
        ResidualGradient(SPEC, SETTINGS).gradient(initial_residual(SPEC, 0), [[entry, entry]])


def test_gradients_are_the_same_for_the_same_experience() -> None:
    first, second = (ResidualGradient(SPEC, SETTINGS).gradient(weights_of(2), [lived(10, 5)]) for _ in range(2))
    assert first.gradient.tobytes() == second.gradient.tobytes()


def test_every_decision_is_learned_from_once() -> None:
    schedule = update_schedule_for(SPEC, ActorCriticSettings(), ResidualSettings(segment_decisions=4))
    replay = ExperienceReplay()
    used: list[int] = []
    for number, entry in enumerate(LIVED, start=1):
        replay.add(entry)
        if number % schedule.every == 0:
            used += [id(one) for run in schedule.draw(replay) for one in run]
    assert used == [id(entry) for entry in LIVED]


def test_the_newest_run_ends_at_a_gap() -> None:
    replay = ExperienceReplay()
    for number, began in enumerate((0.0, 100.0, 500.0, 600.0)):
        replay.add(replace(LIVED[number], began_seconds=began, seconds=100.0))
    assert [[entry.began_seconds for entry in run] for run in replay.newest_segments(1, 4)] == [
        [0.0, 100.0],
        [500.0, 600.0],
    ]
    assert [len(run) for run in replay.newest_segments(3, 1)] == [1, 1, 1]


def test_the_kind_of_the_spec_decides_on_the_gradient() -> None:
    made = gradients_for(SPEC, ActorCriticSettings(), ResidualSettings(), 0)
    assert isinstance(made, ResidualGradient)


def test_a_network_that_cannot_learn_here_is_a_line_that_says_what_to_do(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "torch", None)
    with pytest.raises(BadInput, match="'dl2' policy needs PyTorch, which is not installed here: install it"):
        gradients_for(PolicySpec(), ActorCriticSettings(), ResidualSettings(), 0)


def test_an_actor_alone_learns_from_replays_and_the_line_says_so_with_or_without_torch() -> None:
    with pytest.raises(BadInput, match=r"this dl2 policy has no critic.*teach it by replays"):
        gradients_for(PolicySpec(critic=False), ActorCriticSettings(), ResidualSettings(), 0)


def test_live_rewards_do_not_move_prices() -> None:
    """They are a choice of steps, not a tilt: the gradient is the residual's, and zeros behind it."""
    spec = SetSpec(prices=1)
    head = np.append(weights_of(4), np.linspace(-0.5, 0.5, PRICE_COUNT)).astype(np.float32)
    found = ResidualGradient(spec, SETTINGS).gradient(head, [LIVED])
    plain = ResidualGradient(SPEC, SETTINGS).gradient(weights_of(4), [LIVED])
    assert found.gradient.shape == (spec.parameter_count,)
    np.testing.assert_array_equal(found.gradient[:-PRICE_COUNT], plain.gradient)
    assert not found.gradient[-PRICE_COUNT:].any()
