from dataclasses import replace

import numpy as np
import pytest
from verdict_makers import blocks_of

from global_learner.rollout.verdicts.evidence import SwitchbackBlock, TwinSays, pairs_of, scores_of


def _block(number: int, candidate: bool, jobs: float, twin: TwinSays | None = None) -> SwitchbackBlock:
    return SwitchbackBlock(number, candidate, jobs, 10.0, jobs_at_start=10.0, twin=twin)


def test_half_pairs_say_nothing() -> None:
    blocks = [_block(0, True, 1.0), _block(3, False, 1.0), _block(4, True, 1.0), _block(5, True, 1.0)]
    assert pairs_of(blocks) == []
    whole = pairs_of([*blocks, _block(1, False, 2.0)])
    assert [(pair.candidate.jobs, pair.incumbent.jobs) for pair in whole] == [(1.0, 2.0)]


def test_without_a_twin_a_score_is_the_difference_over_what_is_usual() -> None:
    (score,) = scores_of(pairs_of([_block(0, False, 10.0), _block(1, True, 12.0)]))
    assert score.loss == pytest.approx(0.2)
    assert score.foreseen is None


def test_a_perfect_twin_leaves_the_effect_alone() -> None:
    # The load doubles between the blocks; the candidate adds 5%.
    first = _block(0, True, 10.5, TwinSays(10.5, 10.0, 10.5))
    second = _block(1, False, 20.0, TwinSays(20.0, 20.0, 21.0))
    (score,) = scores_of(pairs_of([first, second]))
    assert score.loss == pytest.approx((0.5 + 1.0) / 2 / 10.0)
    assert score.foreseen == pytest.approx(0.075)


@pytest.mark.parametrize("believed", [-0.3, 0.0, 0.3])
def test_whatever_the_twin_believes_the_mean_is_the_true_loss(believed: float) -> None:
    means = []
    for seed in range(60):
        pairs = pairs_of(blocks_of(seed, 40, loss=0.05, twin_error=0.05, believed_loss=lambda _: believed))
        means.append(np.mean([score.loss for score in scores_of(pairs)]))
    error = np.std(means, ddof=1) / np.sqrt(len(means))
    # The loss is 5% of a load whose mean is e^(0.25 / 2) of the usual one.
    assert abs(np.mean(means) - 0.05 * np.exp(0.125)) < 4 * error
    assert error < 0.05


def test_a_good_twin_takes_most_of_the_noise_away_and_a_useless_one_adds_little() -> None:
    def spread(**quality: float) -> float:
        scores = [score.loss for seed in range(20) for score in scores_of(pairs_of(blocks_of(seed, 30, **quality)))]
        return float(np.std(scores))

    without = np.std(
        [
            score.loss
            for seed in range(20)
            for score in scores_of(pairs_of([replace(block, twin=None) for block in blocks_of(seed, 30)]))
        ]
    )
    assert spread(twin_error=0.05) < without / 4
    assert spread(twin_error=0.05, twin_bias=0.3) < without / 2
    assert spread(twin_error=1.0) < 2 * without
