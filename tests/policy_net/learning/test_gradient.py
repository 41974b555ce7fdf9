from dataclasses import replace

import numpy as np
import pytest

from policy_net.dl2.policy import DecisionSamples
from policy_net.learning.gradient import permute_rewards, utility_advantages
from policy_net.learning.replay import Experience
from policy_net.learning.reward import SlotUtility


def entry(efficiency: dict[str, float], jobs: list[int], seconds: float = 100.0) -> Experience:
    count = len(jobs)
    samples = DecisionSamples(
        np.zeros((count, 1), np.float32),
        np.ones((count, 2), bool),
        np.zeros(count, int),
        np.ones(count),
        np.array(jobs),
    )
    values = np.array(list(efficiency.values()))
    utility = SlotUtility(tuple(efficiency), values, np.full(len(values), 1 / len(values)))
    return Experience(samples, utility.reward, seconds, utility=utility)


SEGMENT = [entry({"a": 0.8, "b": 0.2}, [0, 1, -1]), entry({"a": 0.4, "b": 0.4}, [0, 1, -1])]


def test_a_grant_is_credited_with_what_its_job_had_above_its_usual() -> None:
    first, second = utility_advantages(SEGMENT, 0.0)
    np.testing.assert_allclose(first, [0.1, -0.05, 0.05])
    np.testing.assert_allclose(second, [-0.1, 0.05, -0.05])


def test_void_always_has_the_whole_and_with_full_sharing_everybody_has() -> None:
    first, second = utility_advantages(SEGMENT, 1.0)
    np.testing.assert_allclose(first, [0.05] * 3)
    np.testing.assert_allclose(second, [-0.05] * 3)


def test_part_of_the_others_gain_is_shared() -> None:
    first, _ = utility_advantages(SEGMENT, 0.5)
    np.testing.assert_allclose(first, [0.1 - 0.025, -0.05 + 0.05, 0.05], atol=1e-12)


def test_a_job_that_was_there_only_once_teaches_nothing() -> None:
    segment = [entry({"a": 0.5, "new": 0.9}, [1]), entry({"a": 0.5}, [0])]
    for advantages in utility_advantages(segment, 0.0):
        np.testing.assert_allclose(advantages, 0.0, atol=1e-12)


def test_long_intervals_weigh_more_but_not_without_bound() -> None:
    segment = [SEGMENT[0], SEGMENT[1], replace(SEGMENT[0], seconds=1e6)]
    first, _, last = utility_advantages(segment, 0.0)
    assert 0 < first[0] < 1e-3 < last[0]
    plain = utility_advantages([replace(item, seconds=1.0) for item in segment], 0.0)[2]
    np.testing.assert_allclose(last, 3.0 * plain, rtol=1e-3)


def test_experience_of_the_papers_reward_is_refused() -> None:
    with pytest.raises(ValueError, match="no slot utility"):
        utility_advantages([replace(SEGMENT[0], utility=None)] * 2, 0.0)


def test_permuting_keeps_every_jobs_values_and_moves_them_together() -> None:
    segment = [entry({"a": 0.1 * k, "b": 1.0 - 0.1 * k}, [0]) for k in range(8)]
    dealt = permute_rewards(segment, np.random.default_rng(0))
    values = [tuple(item.utility.efficiency.round(6)) for item in segment]  # type: ignore[union-attr]
    after = [tuple(item.utility.efficiency.round(6)) for item in dealt]  # type: ignore[union-attr]
    assert sorted(after) == sorted(values)
    assert after != values


def test_what_permuting_teaches_is_nothing_on_average() -> None:
    generator = np.random.default_rng(1)
    sums = np.zeros((6, 2))
    segment = [entry({"a": 0.1 * k, "b": 0.5}, [0, -1]) for k in range(6)]
    for _ in range(4000):
        sums += np.array(utility_advantages(permute_rewards(segment, generator), 0.3))
    truth = np.abs(np.array(utility_advantages(segment, 0.3))).max()
    assert np.abs(sums / 4000).max() < 0.1 * truth


def test_a_job_missing_where_the_rewards_came_from_gets_its_usual() -> None:
    segment = [entry({"a": 0.2}, [0]), entry({"a": 0.4, "b": 0.9}, [0])]
    for seed in range(10):
        dealt = permute_rewards(segment, np.random.default_rng(seed))
        assert dealt[1].utility is not None
        assert dealt[1].utility.efficiency[1] == pytest.approx(0.9)
