"""Groups of decisions in one state: what each draw brings, and that drawing them changes nothing."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from states import make_job, make_state, states

from policy_net.baselines.hull import FAIRNESS_EXPONENT
from policy_net.dl2.group import DrawingPolicy
from policy_net.dl2.policy import ActingMode, GroupChoice, LearnedPolicy
from policy_net.domain import Allocation, ClusterState, Progress, Trigger
from policy_net.exchange.spec import PolicySpec

SPEC = PolicySpec(job_types=("other", "resnet-50", "vgg-16"), hidden=(16, 16))


def drawing(seed: int, choice: GroupChoice) -> DrawingPolicy:
    weights = np.random.default_rng(seed).normal(0, 0.3, SPEC.parameter_count).astype(np.float32)
    return DrawingPolicy(SPEC, weights, choice, seed=seed)


@settings(max_examples=40, deadline=None)
@given(states(), st.integers(0, 1000))
def test_drawing_groups_changes_no_decision(state: ClusterState, seed: int) -> None:
    policy = drawing(seed, GroupChoice(draws=3, every=2, phase=1))
    weights = np.random.default_rng(seed).normal(0, 0.3, SPEC.parameter_count).astype(np.float32)
    alone = LearnedPolicy(SPEC, weights, seed=seed, mode=ActingMode.SAMPLE)
    for _ in range(4):
        assert policy.decide(state, Trigger.SLOT) == alone.decide(state, Trigger.SLOT)
    assert len(policy.groups) == (2 if state.jobs else 0)


@settings(max_examples=40, deadline=None)
@given(states(), st.integers(0, 1000))
def test_utilities_and_shares_are_those_of_what_was_granted(state: ClusterState, seed: int) -> None:
    if not state.jobs:
        return
    policy = drawing(seed, GroupChoice(draws=5, every=1))
    policy.decide(state, Trigger.SLOT)
    (group,) = policy.groups
    assert group.utility_KN.shape == group.share_KN.shape == (5, len(state.jobs))
    assert (group.utility_KN >= 0.0).all()
    assert group.utility_KN.sum(axis=1).max() <= 1.0 + 1e-9, "no job has more than alone"
    for draw in range(5):
        rows = group.draws_M == draw
        given_to = {int(job) for job in group.samples.jobs_M[rows] if job >= 0}
        assert {int(job) for job in np.flatnonzero(group.share_KN[draw])} == given_to
        assert set(np.flatnonzero(group.utility_KN[draw]).tolist()) <= given_to


def test_of_one_job_the_best_split_has_the_utility_one() -> None:
    job = make_job(0, job_type="vgg-16", remaining_epochs=10.0)
    state = make_state([job])
    policy = drawing(1, GroupChoice(draws=40, every=1))
    policy.beliefs.observe([Progress("job-0", "vgg-16", Allocation(2, 1), 1.0, 500.0, 5.0, 10.0)])
    policy.decide(state, Trigger.SLOT)
    (group,) = policy.groups
    grid = policy.beliefs.grid("vgg-16")
    best = grid[: job.max_ps + 1, : job.max_workers + 1].max()
    for draw in range(40):
        rows = group.draws_M == draw
        kinds = group.samples.actions_M[rows & (group.samples.jobs_M == 0)] % 3
        workers, ps = int((kinds != 1).sum()), int((kinds != 0).sum())
        assert group.utility_KN[draw, 0] == pytest.approx((grid[ps, workers] / best) ** FAIRNESS_EXPONENT)


def test_groups_begin_where_they_are_told_to() -> None:
    state = make_state([make_job(0, job_type="vgg-16")])
    policy = drawing(2, GroupChoice(draws=2, every=4))
    counts = []
    for phase in (2, 0):
        policy.begin(4, phase)
        for _ in range(6):
            policy.decide(state, Trigger.SLOT)
            counts.append(len(policy.groups))
    # Of numbers 0 to 5 the third; of 6 to 11 the first, and the fifth.
    assert counts == [0, 0, 1, 1, 1, 1, 2, 2, 2, 2, 3, 3]
