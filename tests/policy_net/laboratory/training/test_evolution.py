import math
from collections.abc import Sequence

import numpy as np

from policy_net.exchange.spec import SetSpec
from policy_net.laboratory.simulation.environment import Environment
from policy_net.laboratory.speeds.speed import default_speeds
from policy_net.laboratory.training.evolution import Trial, evolve
from policy_net.laboratory.training.set_training import (
    NumberedWorlds,
    ResidualVerdict,
    changes_against,
    learn_priors,
)
from policy_net.laboratory.training.settings import SetSettings
from policy_net.laboratory.workloads.sources import load_workload
from policy_net.laboratory.workloads.workload import Workload
from policy_net.set_policy.residual import initial_residual

GOAL = np.array([0.5, -1.0, 2.0])


def bowl(trials: Sequence[Trial]) -> list[float]:
    """A bowl on a slope of each world's own, which only common random numbers cancel."""
    return [float(((weights - GOAL) ** 2).sum()) + 100.0 * math.sin(world) for weights, world in trials]


def test_evolution_finds_the_bottom_though_worlds_differ_by_far_more() -> None:
    start = np.zeros(3, dtype=np.float32)
    found = evolve(start, bowl, SetSettings(pairs=8, learning_rate=0.1), 0, generations=150)
    np.testing.assert_allclose(found, GOAL, atol=0.15)


def test_both_sides_of_a_pair_meet_one_world_and_every_pair_another() -> None:
    worlds: list[int] = []

    def losses(trials: Sequence[Trial]) -> list[float]:
        worlds.extend(world for _, world in trials)
        return [0.0] * len(trials)

    evolve(np.zeros(2, dtype=np.float32), losses, SetSettings(pairs=3), 0, generations=2)
    assert worlds == [0, 0, 1, 1, 2, 2, 3, 3, 4, 4, 5, 5]


def test_evolution_ends_when_it_is_told_to() -> None:
    start = np.ones(2, dtype=np.float32)
    assert evolve(start, bowl, SetSettings(), 0, generations=5, stop=lambda: True) is start


def small_worlds() -> NumberedWorlds:
    def episode(number: int) -> tuple[Workload, Environment]:
        workload = load_workload(f"dl2:jobs=8,arrivals=google,sizes=varied,seed={number}")
        return workload, Environment(nodes=6, speed_noise=0.2, seed=number)

    return NumberedWorlds(episode, default_speeds())


def test_priors_are_what_was_observed_and_make_new_clusters_faster() -> None:
    spec, worlds = SetSpec(), small_worlds()
    priors = learn_priors(worlds, spec)
    assert priors == learn_priors(worlds, spec)
    assert {entry.job_type for entry in priors} >= {"vgg-16", "resnet-50"}


def test_the_planner_does_not_differ_from_itself_and_is_not_published() -> None:
    spec = SetSpec()
    planner = initial_residual(spec, 0)
    changes = changes_against(small_worlds(), spec, (), planner, planner, range(3))
    assert changes == [0.0, 0.0, 0.0]
    assert not ResidualVerdict.over(changes).publish


def test_only_a_clear_win_is_published() -> None:
    assert ResidualVerdict.over([-0.02, -0.03, -0.025]).publish
    assert not ResidualVerdict.over([-0.2, 0.15, 0.0]).publish
    assert not ResidualVerdict.over([-0.5]).publish
