"""Gradients from groups of decisions: what an action did better than the other draws, and the slope that follows."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from policy_net.dl2.group import DecisionGroup
from policy_net.dl2.network import actor_logits, initial_weights, tensors_of
from policy_net.dl2.policy import DecisionSamples
from policy_net.exchange.spec import PolicySpec, split_weights
from policy_net.learning.group_gradient import CLIP, Advantages, GroupGradients, LocalSteps, advantages_of

SPEC = PolicySpec(jobs_per_batch=2, type_columns=1, hidden=(6, 5))
VOID = SPEC.action_count - 1


def group_of(rows: list[tuple[int, int]], utility_KN: list[list[float]], share_KN: list[list[float]]) -> DecisionGroup:
    """A group of these rows, each of a draw and a job (−1: void)."""
    count = len(rows)
    draws, jobs = (np.array(column, dtype=np.int64) for column in zip(*rows, strict=True))
    samples = DecisionSamples(
        np.zeros((count, SPEC.feature_count), np.float32),
        np.ones((count, SPEC.action_count), np.bool_),
        np.where(jobs < 0, VOID, 3 * jobs),
        np.full(count, 0.5),
        jobs,
    )
    return DecisionGroup(samples, draws, np.array(utility_KN), np.array(share_KN))


def test_an_action_of_a_decision_gets_what_that_is_better_than_the_others() -> None:
    # Utilities of the draws: 0.6, 0.2, 0.4; the mean is 0.4.
    group = group_of([(0, 0), (0, 1), (1, 0), (2, -1)], [[0.4, 0.2], [0.2, 0.0], [0.4, 0.0]], [[0.5, 0.5]] * 3)
    found = advantages_of([group], own_share=0.0).advantage_M
    raw = np.array([0.2, 0.2, -0.2, 0.0])
    assert found == pytest.approx(raw / raw.std(), rel=1e-6)


def test_credit_of_ones_own_is_the_jobs_utility_less_what_its_share_costs() -> None:
    utility, share = [[0.4, 0.2], [0.2, 0.2]], [[0.5, 0.25], [0.25, 0.25]]
    group = group_of([(0, 0), (0, 1), (1, 0), (1, -1)], utility, share)
    # λ = 0.25 · 1.0 / 1.25 = 0.2, so a draw is worth (0.3, 0.15) and (0.15, 0.15) to the two jobs.
    own = np.array([0.075, 0.0, -0.075])
    together = np.array([0.1, 0.1, -0.1, -0.1])
    found = advantages_of([group], own_share=1.0).advantage_M
    assert found[:3] == pytest.approx(own / own.std(), rel=1e-6)
    assert found[3] == pytest.approx((together / together.std())[3], rel=1e-6), "void has the whole decision's"
    mixed = advantages_of([group], own_share=0.7).advantage_M
    assert mixed[:3] == pytest.approx(0.7 * own / own.std() + 0.3 * (together / together.std())[:3], rel=1e-6)


def test_a_busy_hour_is_no_advantage() -> None:
    """Groups are compared within themselves: two that are alike but for a level are worth the same."""
    low = group_of([(0, 0), (1, 0)], [[0.1, 0.0], [0.2, 0.0]], [[0.5, 0.0]] * 2)
    high = group_of([(0, 0), (1, 0)], [[0.7, 0.0], [0.8, 0.0]], [[0.5, 0.0]] * 2)
    found = advantages_of([low, high], own_share=0.0).advantage_M
    assert found == pytest.approx([-1.0, 1.0, -1.0, 1.0], rel=1e-6)


def test_draws_that_are_all_alike_teach_nothing() -> None:
    group = group_of([(0, 0), (1, -1)], [[0.3, 0.3]] * 2, [[0.5, 0.5]] * 2)
    assert not advantages_of([group], own_share=0.7).advantage_M.any()


def drawn_batch(seed: int, rows: int = 40) -> Advantages:
    generator = np.random.default_rng(seed)
    masks = generator.random((rows, SPEC.action_count)) < 0.6
    actions = generator.integers(SPEC.action_count, size=rows)
    masks[np.arange(rows), actions] = True
    return Advantages(
        generator.normal(size=(rows, SPEC.feature_count)).astype(np.float32),
        masks,
        actions,
        np.log(generator.uniform(0.05, 0.9, rows)).astype(np.float32),
        generator.normal(size=rows).astype(np.float32),
    )


@pytest.mark.parametrize("seed", range(5))
def test_the_gradient_is_that_of_the_clipped_loss(seed: int) -> None:
    weights = (initial_weights(SPEC, seed) + np.random.default_rng(seed).normal(0, 0.2, SPEC.parameter_count)).astype(
        np.float32
    )
    batch = drawn_batch(seed)
    rows = np.arange(3, 37)
    found, entropy = GroupGradients(SPEC).gradient(weights, batch, rows)
    flat, tensors = tensors_of(weights, SPEC, requires_grad=True)
    logits = actor_logits(torch.from_numpy(batch.features_MF[rows]), tensors, SPEC)
    logits = logits.masked_fill(~torch.from_numpy(batch.masks_MA[rows]), -torch.inf)
    logs = torch.log_softmax(logits, dim=1)
    taken = logs.gather(1, torch.from_numpy(batch.actions_M[rows])[:, None])[:, 0]
    ratio = torch.exp(taken - torch.from_numpy(batch.log_behaviour_M[rows]))
    advantage = torch.from_numpy(batch.advantage_M[rows])
    loss = -torch.minimum(ratio * advantage, ratio.clamp(1 - CLIP, 1 + CLIP) * advantage).mean()
    loss.backward()
    assert flat.grad is not None
    assert found == pytest.approx(flat.grad.numpy(), abs=2e-6)
    finite = logs.masked_fill(logs == -torch.inf, 0.0)
    assert entropy == pytest.approx(
        float(-(finite.exp() * finite * (logits > -torch.inf)).sum(dim=1).mean().detach()), abs=1e-5
    )
    critic = [name for name in split_weights(found, SPEC) if name.startswith("critic")]
    assert critic
    assert not any(split_weights(found, SPEC)[name].any() for name in critic)


def test_steps_make_good_actions_likelier_and_are_repeated_bit_for_bit() -> None:
    batch = drawn_batch(7)
    start = initial_weights(SPEC, 1)
    first, again = (LocalSteps(SPEC, start, seed=3) for _ in range(2))
    for steps in (first, again):
        for _ in range(20):
            steps.take(batch, epochs=2, batch_samples=16, learning_rate=0.01)
    assert np.array_equal(first.weights, again.weights)
    assert np.array_equal(start, initial_weights(SPEC, 1)), "the start stays as it was"

    def gain(weights: np.ndarray) -> float:
        logits = actor_logits(
            torch.from_numpy(batch.features_MF), tensors_of(weights, SPEC, requires_grad=False)[1], SPEC
        )
        logs = torch.log_softmax(logits.masked_fill(~torch.from_numpy(batch.masks_MA), -torch.inf), dim=1)
        chance = logs.gather(1, torch.from_numpy(batch.actions_M)[:, None])[:, 0].exp().numpy()
        return float((chance * batch.advantage_M).sum())

    assert gain(first.weights) > gain(start) + 1.0
